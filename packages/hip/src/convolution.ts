/**
 * Convolutions through a vendor's library on one device. Mirrors candle's cudnn.rs, with the choice of algorithm split
 * off: a shape is planned once and run as often as wanted.
 */
import type { DeviceContext } from './context';
import { type ConvolutionLibrary, type LibraryType, libraryNumber, typeNumber } from './libraries';
import type { HipStream } from './stream';

/** [batch, channels, height, width] and [height, width]; a 1-D convolution has height 1. */
type Four = readonly [number, number, number, number];
type Two = readonly [number, number];

/** Bytes that the addresses of a run are multiples of: cuDNN's engines load as many at once. */
export const CONVOLUTION_ALIGNMENT = 16;

/** A cross-correlation, as convolutions are in candle and torch; all tensors contiguous, or all with channels innermost. */
export interface ConvolutionShape {
  /** f16 and bf16 accumulate in f32. */
  readonly type: Exclude<LibraryType, 'f64'>;
  /** True: the transposed convolution, computed as the gradient of the forward one with respect to its input. */
  readonly transposed: boolean;
  readonly x: Four;
  /** [cOut, cIn, kH, kW]; transposed [cIn, cOut, kH, kW]. */
  readonly filter: Four;
  readonly y: Four;
  readonly padding: Two;
  readonly stride: Two;
  readonly dilation: Two;
  /** Default false: f32 multiplies in f32. True lets cuDNN use TF32. */
  readonly reduced?: boolean;
  /**
   * Default false. True: x, filter and y lie in memory with their second dim innermost ([n, h, w, c]), sizes being given
   * as above. cuDNN's graphs only; other libraries refuse with LIBRARY_ERROR.
   */
  readonly channelsLast?: boolean;
}

/** A shape with the algorithm that the library chose for it. */
export interface ConvolutionPlan {
  /** Bytes of device memory that each run needs. */
  readonly workspaceBytes: number;
  /** What the library chose, by its own numbers: "engine 62 (2=0, 13=1)", "algorithm 1, math 1", "solution 42". */
  readonly algorithm: string;
  /** @internal */
  readonly id: number;
}

/** A convolution library on one device: what `device.openConvolution()` gives. The library is given back with the device. */
export class ConvolutionHandle {
  readonly library: ConvolutionLibrary;
  readonly #context: DeviceContext;
  readonly #number: number;

  /** @internal Use `device.openConvolution()`. */
  constructor(context: DeviceContext, library: ConvolutionLibrary) {
    this.library = library;
    this.#context = context;
    this.#number = libraryNumber(library);
    context.native.libraryOpen(context.id, this.#number);
  }

  /**
   * Chooses an algorithm: deterministic ones only on cuDNN, at most 1 GiB of workspace. Nothing is run or timed. Throws
   * LIBRARY_ERROR when the library has none for the shape, INVALID_ARGUMENT while a stream is captured.
   */
  plan(shape: ConvolutionShape): ConvolutionPlan {
    const context = this.#context;
    context.check();
    const { x, filter, y, padding, stride, dilation } = shape;
    const flags = [typeNumber(shape.type), shape.transposed ? 1 : 0, shape.reduced ? 1 : 0, shape.channelsLast ? 1 : 0];
    const words = Float64Array.from([...flags, ...x, ...filter, ...y, ...padding, ...stride, ...dilation]);
    const [id, workspaceBytes, algorithm] = context.native.convolutionPlan(context.id, this.#number, 0, words);
    return { id, workspaceBytes, algorithm };
  }

  /**
   * Enqueues y = x * filter, all device addresses, multiples of {@link CONVOLUTION_ALIGNMENT}. The workspace is the run's
   * own until the stream has passed it.
   */
  run(plan: ConvolutionPlan, x: number, filter: number, y: number, workspace: number, stream?: HipStream): void {
    const context = this.#context;
    context.check();
    const on = stream ? stream.handleOn(context) : context.stream;
    context.native.convolutionRun(context.id, this.#number, on, plan.id, x, filter, y, workspace);
  }

  /** Forgets a plan. */
  drop(plan: ConvolutionPlan): void {
    this.#context.check();
    this.#context.native.convolutionDrop(this.#context.id, this.#number, plan.id);
  }
}
