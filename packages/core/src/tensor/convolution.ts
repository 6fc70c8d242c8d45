/**
 * Convolutions, after candle-core/src/conv.rs: correlation with a kernel over [b, c, l] or [b, c, h, w]. Padding, stride
 * and dilation are one number for both axes. Groups are one operation (candle convolves each by itself and joins the
 * results); `convTranspose2d` has them too, which candle's does not. Input and kernel may have any strides.
 */
import * as rules from '../autograd/rules/convolution';
import type { BackendStorage, Conv1dParams, Conv2dParams } from '../backend';
import { COUNT, check, OBJECT, POSITIVE } from '../check';
import * as composed from '../composed/conv';
import { CandleError, ShapeError } from '../errors';
import { elemCount, formatShape, type Shape } from '../shape';
import { show } from '../show';
import type { Tensor } from '../tensor';
import { compute, operandOf, sameDType, shapesDiffer } from './base';
import { TensorFused } from './fused';

export interface ConvOptions {
  /** Zeros added on either side of each axis. Default 0. */
  padding?: number;
  /** Distance between neighbouring windows. Default 1. */
  stride?: number;
  /** Distance between neighbouring taps of the kernel. Default 1. */
  dilation?: number;
  /** Parts that the channels are split into; each output channel sees one part. Default 1. */
  groups?: number;
}

export interface ConvTransposeOptions extends ConvOptions {
  /** Zeros taken off either side of each axis of the result. Default 0. */
  padding?: number;
  /** Elements added at the end of each axis of the result. Default 0. */
  outputPadding?: number;
}

/**
 * candle's `CudnnFwdAlgo`: a wish for a library that can compute a convolution in several ways. Devices here have one way
 * each, so it changes nothing but is checked.
 */
export const CONV_ALGORITHMS = [
  'implicitGemm',
  'implicitPrecompGemm',
  'gemm',
  'direct',
  'fft',
  'fftTiling',
  'winograd',
  'winogradNonFused',
] as const;

export type ConvAlgorithm = (typeof CONV_ALGORITHMS)[number];

/** Options with their defaults filled in. */
type Settings = Required<ConvTransposeOptions>;

/** What the backend does, given the output's size of one axis after the other. */
type Run = (input: Tensor, kernel: Tensor, out: readonly number[]) => BackendStorage;

export abstract class TensorConvolution extends TensorFused {
  /**
   * Correlation of this [b, cIn, l] with a kernel [cOut, cIn / groups, k]: [b, cOut, (l + 2 padding - dilation (k - 1)
   * - 1) / stride + 1]. One dtype, any strides.
   * @throws ShapeError `SHAPE_MISMATCH` with both shapes, DTypeError, CandleError `INVALID_ARGUMENT` for bad options
   * @example
   * ```ts
   * const x = Tensor.from([[[1, 2, 3, 4]]]);
   * x.conv1d(Tensor.from([[[1, 1]]]), { stride: 2 }).toVecSync(); // => [[[3, 7]]]
   * ```
   */
  conv1d(this: Tensor, kernel: Tensor, options: ConvOptions = {}): Tensor {
    const settings = checkOptions('conv1d', options);
    return convolve('conv1d', this, kernel, settings, false, (input, weights, out) => {
      const sizes = sizes1d(input, weights, settings, weights.shape[0], out);
      const { conv } = input.device.backend;
      const operands = [operandOf('conv1d', input), operandOf('conv1d', weights)] as const;
      return conv?.conv1d?.(...operands, sizes) ?? composed.conv1d(input, weights, sizes);
    });
  }

  /**
   * Correlation of this [b, cIn, h, w] with a kernel [cOut, cIn / groups, kH, kW]: [b, cOut, hOut, wOut], each axis as
   * in {@link conv1d}, and the same errors.
   * @example
   * ```ts
   * Tensor.ones([1, 1, 4, 4]).conv2d(Tensor.ones([2, 1, 3, 3]), { padding: 1 }).shape; // => [1, 2, 4, 4]
   * ```
   */
  conv2d(this: Tensor, kernel: Tensor, options: ConvOptions = {}): Tensor {
    const settings = checkOptions('conv2d', options);
    return convolve('conv2d', this, kernel, settings, false, (input, weights, out) => {
      const sizes = sizes2d(input, weights, settings, weights.shape[0], out);
      const { conv } = input.device.backend;
      const operands = [operandOf('conv2d', input), operandOf('conv2d', weights)] as const;
      return conv?.conv2d?.(...operands, sizes) ?? composed.conv2d(input, weights, sizes);
    });
  }

  /** {@link conv1d} with candle's wish for an algorithm, see {@link CONV_ALGORITHMS}; the result is the same. */
  conv1dWithAlgo(this: Tensor, kernel: Tensor, options: ConvOptions = {}, algorithm?: ConvAlgorithm): Tensor {
    checkAlgorithm('conv1dWithAlgo', algorithm);
    return this.conv1d(kernel, options);
  }

  /** {@link conv2d} with candle's wish for an algorithm, see {@link CONV_ALGORITHMS}; the result is the same. */
  conv2dWithAlgo(this: Tensor, kernel: Tensor, options: ConvOptions = {}, algorithm?: ConvAlgorithm): Tensor {
    checkAlgorithm('conv2dWithAlgo', algorithm);
    return this.conv2d(kernel, options);
  }

  /**
   * The gradient of {@link conv1d} as an operation: this [b, cIn, l] with a kernel [cIn, cOut / groups, k] gives
   * [b, cOut, (l - 1) stride - 2 padding + dilation (k - 1) + outputPadding + 1].
   */
  convTranspose1d(this: Tensor, kernel: Tensor, options: ConvTransposeOptions = {}): Tensor {
    const op = 'convTranspose1d';
    const settings = checkOptions(op, options);
    return convolve(op, this, kernel, settings, true, (input, weights, out) => {
      const { outputPadding } = settings;
      const cOut = weights.shape[1] * settings.groups;
      const sizes = { ...sizes1d(input, weights, settings, cOut, out), outputPadding };
      const { conv } = input.device.backend;
      const operands = [operandOf(op, input), operandOf(op, weights)] as const;
      return conv?.convTranspose1d?.(...operands, sizes) ?? composed.convTranspose1d(input, weights, sizes);
    });
  }

  /** This [b, cIn, h, w] with a kernel [cIn, cOut / groups, kH, kW], each axis and errors as in {@link convTranspose1d}. */
  convTranspose2d(this: Tensor, kernel: Tensor, options: ConvTransposeOptions = {}): Tensor {
    const op = 'convTranspose2d';
    const settings = checkOptions(op, options);
    return convolve(op, this, kernel, settings, true, (input, weights, out) => {
      const { outputPadding } = settings;
      const cOut = weights.shape[1] * settings.groups;
      const sizes = { ...sizes2d(input, weights, settings, cOut, out), outputPadding };
      const { conv } = input.device.backend;
      const operands = [operandOf(op, input), operandOf(op, weights)] as const;
      return conv?.convTranspose2d?.(...operands, sizes) ?? composed.convTranspose2d(input, weights, sizes);
    });
  }
}

function checkAlgorithm(op: string, algorithm: ConvAlgorithm | undefined): void {
  if (algorithm === undefined || CONV_ALGORITHMS.includes(algorithm)) return;
  throw new CandleError(
    'INVALID_ARGUMENT',
    `${op}: ${show(algorithm)} is no algorithm; use one of ${CONV_ALGORITHMS.join(', ')}, or none.`,
  );
}

function checkOptions(op: string, options: ConvTransposeOptions): Settings {
  check(op, 'options', options, OBJECT);
  const { padding = 0, stride = 1, dilation = 1, groups = 1, outputPadding = 0 } = options;
  check(op, 'padding', padding, COUNT);
  check(op, 'stride', stride, POSITIVE);
  check(op, 'dilation', dilation, POSITIVE);
  check(op, 'groups', groups, POSITIVE);
  check(op, 'outputPadding', outputPadding, COUNT);
  return { padding, stride, dilation, groups, outputPadding };
}

// Objects made whole: adding to a spread one takes longer than a launch.
function sizes1d(
  input: Tensor,
  kernel: Tensor,
  settings: Settings,
  cOut: number,
  out: readonly number[],
): Conv1dParams {
  const [b, cIn, lIn] = input.shape;
  const { padding, stride, dilation, groups } = settings;
  return { b, cIn, cOut, groups, lIn, lOut: out[0], k: kernel.shape[2], padding, stride, dilation };
}

function sizes2d(
  input: Tensor,
  kernel: Tensor,
  settings: Settings,
  cOut: number,
  out: readonly number[],
): Conv2dParams {
  const [b, cIn, hIn, wIn] = input.shape;
  const [kH, kW] = [kernel.shape[2], kernel.shape[3]];
  const { padding, stride, dilation, groups } = settings;
  return { b, cIn, cOut, groups, hIn, wIn, hOut: out[0], wOut: out[1], kH, kW, padding, stride, dilation };
}

/** Checks the shapes, and answers operands without elements. */
function convolve(
  op: string,
  input: Tensor,
  kernel: Tensor,
  settings: Settings,
  transposed: boolean,
  run: Run,
): Tensor {
  const { groups } = settings;
  sameDType(op, input, kernel);
  checkShapes(op, input.shape, kernel.shape, groups, transposed);
  const out = input.shape.slice(2).map((size, i) => outputSize(size, kernel.shape[i + 2], settings, transposed));
  if (out.some((size) => size < 1)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: input ${formatShape(input.shape)} and kernel ${formatShape(kernel.shape)} with padding ${settings.padding}, stride ${settings.stride} ` +
        `and dilation ${settings.dilation} leave an output of size ${formatShape(out)}; use a smaller kernel or other padding.`,
    );
  }
  const shape = [input.shape[0], transposed ? kernel.shape[1] * groups : kernel.shape[0], ...out];
  const guarded = () => {
    const empty = input.elemCount === 0 || kernel.elemCount === 0;
    return empty ? input.device.backend.zeros(elemCount(shape), input.dtype) : run(input, kernel, out);
  };
  const rule = transposed ? rules.transposed : rules.convolution;
  return compute(op, [input, kernel], shape, input.dtype, guarded, rule, settings);
}

function outputSize(size: number, k: number, settings: Settings, transposed: boolean): number {
  const { padding, stride, dilation, outputPadding } = settings;
  const reach = dilation * (k - 1) + 1;
  if (transposed) return size === 0 ? 0 : (size - 1) * stride - 2 * padding + reach + outputPadding;
  return Math.floor((size + 2 * padding - reach) / stride) + 1;
}

function checkShapes(op: string, input: Shape, kernel: Shape, groups: number, transposed: boolean): void {
  const rank = op.endsWith('1d') ? 3 : 4;
  if (input.length !== rank || kernel.length !== rank || kernel[2] === 0 || kernel[rank - 1] === 0) {
    const image = rank === 3 ? '[b, cIn, l]' : '[b, cIn, h, w]';
    throw shapesDiffer(op, input, kernel, `they must be ${image} and ${kernelShape(rank, transposed)} with taps`);
  }
  const cIn = input[1];
  const fits = transposed ? kernel[0] === cIn : kernel[1] * groups === cIn;
  if (!fits || cIn % groups !== 0 || kernel[0] % groups !== 0) {
    const parts = `${groups} group${groups === 1 ? '' : 's'} of equal size`;
    const must = `the kernel must be ${kernelShape(rank, transposed)} with ${cIn} input channels in ${parts}`;
    throw shapesDiffer(op, input, kernel, must);
  }
}

function kernelShape(rank: number, transposed: boolean): string {
  const taps = rank === 3 ? 'k' : 'kH, kW';
  return transposed ? `[cIn, cOut / groups, ${taps}]` : `[cOut, cIn / groups, ${taps}]`;
}
