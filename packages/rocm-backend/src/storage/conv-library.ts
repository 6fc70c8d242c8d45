/**
 * Convolutions through MIOpen or cuDNN, after candle's cudnn.rs: f16, bf16 and f32, contiguous and aligned operands
 * (copied where a view is not), one dimension as two with height 1. The transposed forms run as the gradient of the
 * forward one with respect to its input. cuDNN's tensor-core engines want channels innermost and would turn tensors
 * themselves, slower than our transposition does; an image that is a view of such memory is then not even copied. The
 * library's choice for a shape is kept, and its refusal too; a run's workspace comes from the device's allocator and
 * goes back at once, since later work of the stream may use it.
 */
import {
  type Conv1dParams,
  type Conv2dParams,
  type ConvTranspose1dParams,
  type ConvTranspose2dParams,
  type DType,
  Layout,
} from '@x/core';
import {
  CONVOLUTION_ALIGNMENT,
  type ConvolutionHandle,
  type ConvolutionPlan,
  type ConvolutionShape,
  HipError,
} from '@x/hip';
import { debug } from '../debug';
import type { RocmDevice } from '../device';
import { Copy, run } from '../ops';
import type { RocmStorage } from './index';

const DTYPES: readonly DType[] = ['bf16', 'f16', 'f32'];
/** Plans kept a device; the least recently used goes first. */
const MAX_PLANS = 256;

type Geometry = Omit<ConvolutionShape, 'type' | 'reduced'>;

/** The convolution's result, or undefined when our kernels should do it. */
export function convThroughLibrary(
  src: RocmStorage,
  layout: Layout,
  kernel: RocmStorage,
  kernelLayout: Layout,
  geometry: Geometry | undefined,
): RocmStorage | undefined {
  if (!geometry) return undefined;
  const { device, dtype } = src;
  const { x, filter, y } = geometry;
  if (!DTYPES.includes(dtype) || [...x, ...filter, ...y].some((size) => size < 1)) return undefined;
  const handle = device.libraries.convolution.handle();
  if (!handle) return undefined;
  const reduced = dtype === 'f32' && device.gemmReducedPrecisionF32;
  const shape: ConvolutionShape = { ...geometry, type: dtype as ConvolutionShape['type'], reduced };
  const { isForced } = device.libraries.convolution;
  const lastPlan =
    wantsChannelsLast(handle, shape, layout) && planFor(device, handle, { ...shape, channelsLast: true }, false);
  const plan = lastPlan || planFor(device, handle, shape, isForced);
  if (!plan) return undefined;
  const input = contiguous(src, lastPlan ? layout.permute([0, 2, 3, 1]) : layout);
  const weights = contiguous(kernel, lastPlan ? kernelLayout.permute([0, 2, 3, 1]) : kernelLayout);
  let result: RocmStorage;
  try {
    result = run(
      device,
      dtype,
      y.reduce((a, b) => a * b),
      (out) => {
        const workspace = device.malloc(plan.workspaceBytes);
        try {
          device.callLibrary(
            () => `${handle.library} ${dtype} [${x}] * [${filter}]`,
            () => handle.run(plan, input.ptr, weights.ptr, out, workspace),
          );
        } finally {
          device.free(workspace);
        }
      },
    );
  } catch (error) {
    if (!device.libraries.convolution.worksAround(error)) throw error;
    return undefined;
  } finally {
    input.copy?.dispose();
    weights.copy?.dispose();
  }
  if (!lastPlan) return result;
  try {
    return new Copy().map(result, Layout.contiguous([y[0], y[2], y[3], y[1]]).permute([0, 3, 1, 2]));
  } finally {
    result.dispose();
  }
}

/** Whether an image goes to cuDNN with its channels innermost: where that is 16 bytes of two-byte elements at a time. */
function wantsChannelsLast(
  handle: ConvolutionHandle,
  { type, transposed, filter }: ConvolutionShape,
  layout: Layout,
): boolean {
  const fits = type !== 'f32' && filter[0] % 8 === 0 && filter[1] % 8 === 0;
  return handle.library === 'cudnn' && !transposed && layout.rank === 4 && fits;
}

/** What tells plans apart, in a form that is quick to make. */
function keyOf({ library }: ConvolutionHandle, s: ConvolutionShape): string {
  const flags = `${s.transposed ? 'transposed ' : ''}${s.reduced ? 'reduced ' : ''}${s.channelsLast ? 'channels last ' : ''}`;
  return `${library} ${s.type} ${flags}[${s.x}] * [${s.filter}] = [${s.y}] ${s.padding} ${s.stride} ${s.dilation}`;
}

/** The plan of a shape, made once; undefined when the library has none and none is required. */
function planFor(
  device: RocmDevice,
  handle: ConvolutionHandle,
  shape: ConvolutionShape,
  required: boolean,
): ConvolutionPlan | undefined {
  const { plans } = device.libraries;
  const key = keyOf(handle, shape);
  const known = plans.get(key);
  if (known !== undefined) {
    plans.delete(key);
    plans.set(key, known);
    return known ?? undefined;
  }
  // Planning loads code, which a capture does not allow: without a plan, our kernels are captured.
  if (!required && device.hip.defaultStream.isCapturing) return undefined;
  let plan: ConvolutionPlan | null = null;
  try {
    plan = handle.plan(shape);
    const { algorithm, workspaceBytes } = plan;
    debug(2, () => `${key}: ${algorithm}, ${workspaceBytes} bytes of workspace`);
  } catch (error) {
    if (required || !(error instanceof HipError) || error.code !== 'LIBRARY_ERROR') throw error;
    debug(2, () => error.message);
  }
  if (plans.size >= MAX_PLANS) {
    const [oldest, dropped] = plans.entries().next().value!;
    plans.delete(oldest);
    if (dropped) handle.drop(dropped);
  }
  plans.set(key, plan);
  return plan ?? undefined;
}

function contiguous(storage: RocmStorage, layout: Layout): { ptr: number; copy?: RocmStorage } {
  const { ptr } = storage.operand(layout);
  if (layout.isContiguous() && ptr % CONVOLUTION_ALIGNMENT === 0) return { ptr };
  const copy = new Copy().map(storage, layout);
  return { ptr: copy.ptr, copy };
}

export function geometry1d(p: Conv1dParams): Geometry {
  return {
    transposed: false,
    x: [p.b, p.cIn, 1, p.lIn],
    filter: [p.cOut, p.cIn, 1, p.k],
    y: [p.b, p.cOut, 1, p.lOut],
    padding: [0, p.padding],
    stride: [1, p.stride],
    dilation: [1, p.dilation],
  };
}

export function geometry2d(p: Conv2dParams): Geometry {
  return {
    transposed: false,
    x: [p.b, p.cIn, p.hIn, p.wIn],
    filter: [p.cOut, p.cIn, p.kH, p.kW],
    y: [p.b, p.cOut, p.hOut, p.wOut],
    padding: [p.padding, p.padding],
    stride: [p.stride, p.stride],
    dilation: [p.dilation, p.dilation],
  };
}

/** Undefined where the forward convolution of the result's shape would not give the input's: too much output padding. */
export function geometryTranspose1d(p: ConvTranspose1dParams): Geometry | undefined {
  return p.outputPadding < p.stride
    ? { ...geometry1d(p), transposed: true, filter: [p.cIn, p.cOut, 1, p.k] }
    : undefined;
}

export function geometryTranspose2d(p: ConvTranspose2dParams): Geometry | undefined {
  if (p.outputPadding >= p.stride) return undefined;
  return { ...geometry2d(p), transposed: true, filter: [p.cIn, p.cOut, p.kH, p.kW] };
}
