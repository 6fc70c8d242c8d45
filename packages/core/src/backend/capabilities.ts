/**
 * Operations that a backend may have, each by itself. Where one is missing, `Tensor` composes it of required operations
 * (`core/src/composed`), so they are a matter of speed. Conventions are those of operations.ts.
 */
import type { DType } from '../dtype';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/**
 * `interleaved` pairs neighbours (candle `rope_i`), `half` pairs element i with i + d/2 (candle `rope`); `thd` pairs as
 * `half` in a tensor [b, t, h, d] (candle `rope_thd`), where the others are [b, h, t, d].
 */
export type RopeKind = 'interleaved' | 'half' | 'thd';

/** Rows of the last dim in one kernel. Operands are contiguous and of one float dtype; f16 and bf16 are summed in f32. */
export interface FusedOps {
  /** Source: candle-nn SoftmaxLastDim. */
  softmaxLastDim(x: Operand): BackendStorage;
  /** x / sqrt(mean(x²) + eps) * alpha; alpha [d]. Source: candle-nn RmsNorm. */
  rmsNorm(x: Operand, alpha: Operand, eps: number): BackendStorage;
  /** (x - mean) / sqrt(variance + eps) * alpha + beta; alpha and beta [d]. Source: candle-nn LayerNorm. */
  layerNorm(x: Operand, alpha: Operand, beta: Operand, eps: number): BackendStorage;
  /**
   * The gradient of {@link rmsNorm}, or of {@link layerNorm} where it is `centred`, at x: that of x, and `scaled`, the gradient times
   * what was normed, whose sums over rows are that of alpha. f32, all contiguous.
   */
  normBackward(
    x: Operand,
    alpha: Operand,
    grad: Operand,
    options: { eps: number; centred: boolean },
  ): { dx: BackendStorage; scaled: BackendStorage };
  /** x [b, h, t, d] or, for `thd`, [b, t, h, d]; cos and sin [t, d/2] or [b, t, d/2]. Source: candle-nn RotaryEmb. */
  rope(kind: RopeKind, x: Operand, cos: Operand, sin: Operand): BackendStorage;
}

/** Sums of what lies before. */
export interface ScanOps {
  /**
   * Running sums along `dim`: the shape and dtype of `x`, any strides. Floats are summed in f64 and rounded once an element,
   * integers wrap. Undefined for sizes at which several operations are faster.
   */
  cumsum(x: Operand, dim: number): BackendStorage | undefined;
}

/**
 * Sizes of a 1-D convolution (candle `ParamsConv1D`): input [b, cIn, lIn], kernel [cOut, cIn / groups, k], result
 * [b, cOut, lOut] with lOut = floor((lIn + 2 padding - dilation (k - 1) - 1) / stride) + 1.
 */
export interface Conv1dParams {
  b: number;
  /** Channels of all groups. */
  cIn: number;
  cOut: number;
  /** Parts of the channels, in order; outputs of one read inputs of the same. Divides cIn and cOut. */
  groups: number;
  lIn: number;
  lOut: number;
  k: number;
  /** Zeros on either side of the input. */
  padding: number;
  stride: number;
  dilation: number;
}

/**
 * Sizes of a transposed 1-D convolution (candle `ParamsConvTranspose1D`): kernel [cIn, cOut / groups, k], and
 * lOut = (lIn - 1) stride - 2 padding + dilation (k - 1) + outputPadding + 1.
 */
export interface ConvTranspose1dParams extends Conv1dParams {
  outputPadding: number;
}

/** Sizes of a 2-D convolution (candle `ParamsConv2D`): input [b, cIn, hIn, wIn], kernel [cOut, cIn / groups, kH, kW]. */
export interface Conv2dParams {
  b: number;
  /** Channels of all groups, as in {@link Conv1dParams}. */
  cIn: number;
  cOut: number;
  groups: number;
  hIn: number;
  wIn: number;
  hOut: number;
  wOut: number;
  kH: number;
  kW: number;
  padding: number;
  stride: number;
  dilation: number;
}

/** Sizes of a transposed 2-D convolution (candle `ParamsConvTranspose2D`): kernel [cIn, cOut / groups, kH, kW]. */
export interface ConvTranspose2dParams extends Conv2dParams {
  outputPadding: number;
}

/** Correlation with a kernel, as candle and PyTorch define convolution. Any strides; integers wrap. */
export interface ConvOps {
  /** Sizes as in {@link Conv1dParams}. */
  conv1d(x: Operand, kernel: Operand, params: Conv1dParams): BackendStorage;
  /** Sizes as in {@link ConvTranspose1dParams}. */
  convTranspose1d(x: Operand, kernel: Operand, params: ConvTranspose1dParams): BackendStorage;
  /** Sizes as in {@link Conv2dParams}. */
  conv2d(x: Operand, kernel: Operand, params: Conv2dParams): BackendStorage;
  /** Sizes as in {@link ConvTranspose2dParams}. */
  convTranspose2d(x: Operand, kernel: Operand, params: ConvTranspose2dParams): BackendStorage;
}

/** Windows of a 2-D pooling over [b, c, h, w], without padding; result [b, c, hOut, wOut]. */
export interface Pool2dParams {
  kH: number;
  kW: number;
  strideH: number;
  strideW: number;
  hOut: number;
  wOut: number;
}

/** Target of a bilinear resize. A scale, where given, replaces the ratio of sizes as PyTorch's `scale_factor` does. */
export interface BilinearParams {
  hOut: number;
  wOut: number;
  /** The corner elements of input and output coincide; scales have no effect then. */
  alignCorners: boolean;
  scaleH?: number;
  scaleW?: number;
}

/** Windows and sizes of images. */
export interface ResamplingOps {
  /** Mean of each window; an integer mean is truncated. */
  avgPool2d(x: Operand, params: Pool2dParams): BackendStorage;
  /** Largest element of each window, NaN if it has one. */
  maxPool2d(x: Operand, params: Pool2dParams): BackendStorage;
  /**
   * The gradient of `x`, contiguous, from its windows' maxima and their gradients, both contiguous; equal maxima of a window share.
   * f32, f16 and bf16.
   */
  maxPool2dBackward(x: Operand, maxima: Operand, grad: Operand, params: Pool2dParams): BackendStorage;
  /** [b, c, l] to [b, c, lOut]: element min(l - 1, floor(i * l / lOut)). */
  upsampleNearest1d(x: Operand, lOut: number): BackendStorage;
  /** [b, c, h, w] to [b, c, hOut, wOut], each axis as in `upsampleNearest1d`. */
  upsampleNearest2d(x: Operand, hOut: number, wOut: number): BackendStorage;
  /** [b, c, h, w] to [b, c, hOut, wOut]; weights in f64, the result cast to the dtype as `toDtype` does. */
  upsampleBilinear2d(x: Operand, params: BilinearParams): BackendStorage;
}

/** Rows of the last dim in order. Stable in both directions; NaN is greater than every number. Any strides. */
export interface SortOps {
  /** u32 positions that sort each row. */
  argSortLastDim(x: Operand, descending: boolean): BackendStorage;
  /** What `argSortLastDim` gives, and the values in that order: both contiguous. */
  sortLastDim(x: Operand, descending: boolean): { values: BackendStorage; positions: BackendStorage };
  /** The first `k` columns of what `argSortLastDim` gives: [..., k]. 0 < k <= the size of the last dim. */
  topkLastDim(x: Operand, k: number, descending: boolean): BackendStorage;
}

/**
 * The random stream of a device (core's philox.ts): the numbers of a call follow from the seed and the number of calls
 * before it, and are the same on every device.
 */
export interface RandomOps {
  /** The seed set last, or the default one. */
  readonly seed: number;
  readonly calls: number;
  /** Starts the stream anew. */
  setSeed(seed: number): void;
  /** Goes to a place where a stream was, so that the same numbers come again. */
  restore(seed: number, calls: number): void;
  /** `count` numbers in [lo, up) of a float dtype. */
  uniform(count: number, dtype: DType, lo: number, up: number): BackendStorage;
  /** `count` normally distributed numbers of a float dtype. */
  normal(count: number, dtype: DType, mean: number, std: number): BackendStorage;
}
