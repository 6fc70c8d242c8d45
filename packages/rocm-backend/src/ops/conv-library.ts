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
  type Operand,
} from '@x/core';
import {
  CONVOLUTION_ALIGNMENT,
  type ConvolutionHandle,
  type ConvolutionPlan,
  type ConvolutionShape,
  HipError,
} from '@x/hip';
import { debug } from '../debug';
import type { KernelDevice } from '../device';
import type { KernelStorage } from '../storage';
import { denseCopy } from './copy';
import { filled } from './result';

const DTYPES: readonly DType[] = ['bf16', 'f16', 'f32'];

type Geometry = Omit<ConvolutionShape, 'type' | 'reduced' | 'channelsLast'>;
type Arithmetic = Required<Pick<ConvolutionShape, 'type' | 'reduced' | 'channelsLast'>>;

/** The convolution's result, or undefined when our kernels should do it. */
export function convThroughLibrary(
  device: KernelDevice,
  src: Operand,
  kernel: Operand,
  geometry: Geometry | undefined,
): KernelStorage | undefined {
  if (!geometry) return undefined;
  const { dtype } = src.storage;
  const { x, filter, y, padding, stride, dilation } = geometry;
  if (!DTYPES.includes(dtype) || ![x, filter, y, stride, dilation].every(areSizes) || !padding.every(fits))
    return undefined;
  const handle = device.libraries.convolution.handle();
  if (!handle) return undefined;
  const type = dtype as ConvolutionShape['type'];
  const reduced = dtype === 'f32' && device.gemmReducedPrecisionF32;
  const { isForced } = device.libraries.convolution;
  const lastPlan =
    wantsChannelsLast(handle, type, geometry, src.layout) &&
    planFor(device, handle, geometry, { type, reduced, channelsLast: true }, false);
  const plan = lastPlan || planFor(device, handle, geometry, { type, reduced, channelsLast: false }, isForced);
  if (!plan) return undefined;
  const input = contiguous(device, lastPlan ? channelsLast(src) : src);
  const weights = contiguous(device, lastPlan ? channelsLast(kernel) : kernel);
  let result: KernelStorage;
  try {
    result = filled(
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
    const layout = Layout.contiguous([y[0], y[2], y[3], y[1]]).permute([0, 3, 1, 2]);
    return denseCopy(device, { storage: result, layout });
  } finally {
    result.dispose();
  }
}

/** Whether libraries, which take numbers of 32 bits, can be told it. */
function fits(size: number): boolean {
  return size <= 0x7fffffff;
}

function areSizes(sizes: readonly number[]): boolean {
  for (let i = 0; i < sizes.length; i++) if (sizes[i] < 1 || !fits(sizes[i])) return false;
  return true;
}

/** Whether an image goes to cuDNN with its channels innermost: where that is 16 bytes of two-byte elements at a time. */
function wantsChannelsLast(
  handle: ConvolutionHandle,
  type: ConvolutionShape['type'],
  { transposed, filter }: Geometry,
  layout: Layout,
): boolean {
  const fits = type !== 'f32' && filter[0] % 8 === 0 && filter[1] % 8 === 0;
  return handle.library === 'cudnn' && !transposed && layout.rank === 4 && fits;
}

/** The plan of a shape, made once; undefined when the library has none and none is required. */
function planFor(
  device: KernelDevice,
  handle: ConvolutionHandle,
  geometry: Geometry,
  { type, reduced, channelsLast }: Arithmetic,
  required: boolean,
): ConvolutionPlan | undefined {
  const { plans } = device.libraries;
  const { transposed, x, filter, y, padding, stride, dilation } = geometry;
  const kind = [DTYPES.indexOf(type), Number(transposed), Number(reduced), Number(channelsLast)];
  const sizes = [x, filter, y, padding, stride, dilation];
  const known = plans.find(kind, sizes);
  if (known?.handle === handle) return known.plan ?? undefined;
  // Planning loads code, which a capture does not allow: without a plan, our kernels are captured.
  if (!required && device.hip.currentStream.isCapturing) return undefined;
  let plan: ConvolutionPlan | null = null;
  try {
    plan = handle.plan({ ...geometry, type, reduced, channelsLast });
    const { algorithm, workspaceBytes } = plan;
    const what = () => `${handle.library} ${type}${channelsLast ? ' channels last' : ''} [${x}] * [${filter}] = [${y}]`;
    debug(2, () => `${what()}: ${algorithm}, ${workspaceBytes} bytes of workspace`);
  } catch (error) {
    if (required || !(error instanceof HipError) || error.code !== 'LIBRARY_ERROR') throw error;
    debug(2, () => error.message);
  }
  plans.add(kind, sizes, { handle, plan });
  return plan ?? undefined;
}

function channelsLast({ storage, layout }: Operand): Operand {
  return { storage, layout: layout.permute([0, 2, 3, 1]) };
}

function contiguous(device: KernelDevice, x: Operand): { ptr: number; copy?: KernelStorage } {
  const { ptr } = device.view(x);
  if (x.layout.isContiguous() && ptr % CONVOLUTION_ALIGNMENT === 0) return { ptr };
  const copy = denseCopy(device, x);
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
