/**
 * Pooling and resizing of images [b, c, h, w] (and of [b, c, l]): candle's `avg_pool2d`, `max_pool2d`, `interpolate*` and
 * `upsample_*`. candle's `_with_stride` forms are an optional argument here.
 */
import * as rules from '../autograd/rules/resampling';
import { identity } from '../autograd/rules/shared';
import type { BackendDevice, Pool2dParams } from '../backend';
import * as composed from '../composed/resampling';
import { CandleError, ShapeError } from '../errors';
import { formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, operandOf, viewOf } from './base';
import { TensorConvolution } from './convolution';

/** One size for both axes, or [height, width]. */
export type Size2d = number | readonly [height: number, width: number];

export abstract class TensorResampling extends TensorConvolution {
  /**
   * Mean over windows of [b, c, h, w] that lie wholly inside; `stride` defaults to the window. Any dtype; integer means
   * are truncated.
   * @throws ShapeError for another rank or a window that does not fit, CandleError `INVALID_ARGUMENT`
   * @example
   * ```ts
   * Tensor.arange(0, 4).reshape([1, 1, 2, 2]).avgPool2d(2).toVecSync(); // => [[[[1.5]]]]
   * ```
   */
  avgPool2d(this: Tensor, kernel: Size2d, stride: Size2d = kernel): Tensor {
    return pool('avgPool2d', this, kernel, stride);
  }

  /**
   * Largest element of windows of [b, c, h, w] that lie wholly inside, NaN where one has a NaN; `stride` defaults to
   * the window. Any dtype; errors as {@link avgPool2d}.
   * @example
   * ```ts
   * Tensor.arange(0, 4).reshape([1, 1, 2, 2]).maxPool2d([1, 2]).toVecSync(); // => [[[[1], [3]]]]
   * ```
   */
  maxPool2d(this: Tensor, kernel: Size2d, stride: Size2d = kernel): Tensor {
    return pool('maxPool2d', this, kernel, stride);
  }

  /** {@link avgPool2d} under candle's name for the form with a stride. */
  avgPool2dWithStride(this: Tensor, kernel: Size2d, stride: Size2d): Tensor {
    return this.avgPool2d(kernel, stride);
  }

  /** {@link maxPool2d} under candle's name for the form with a stride. */
  maxPool2dWithStride(this: Tensor, kernel: Size2d, stride: Size2d): Tensor {
    return this.maxPool2d(kernel, stride);
  }

  /**
   * This [b, c, l] to [b, c, size], element i being the one at floor(i * l / size). Any dtype.
   * @throws ShapeError for another rank, an empty image or a size below 1
   * @example
   * ```ts
   * Tensor.from([[[1, 2]]]).interpolate1d(4).toVecSync(); // => [[[1, 1, 2, 2]]]
   * ```
   */
  interpolate1d(this: Tensor, size: number): Tensor {
    const op = 'interpolate1d';
    const [b, c] = requireImage(op, this, 3);
    requireTarget(op, this, [size]);
    const run = ({ resampling }: BackendDevice) =>
      resampling?.upsampleNearest1d?.(operandOf(op, this), size) ?? composed.upsampleNearest1d(this, size);
    return compute(op, [this], [b, c, size], this.dtype, run, rules.nearest);
  }

  /** Another name of {@link interpolate1d}. */
  upsampleNearest1d(this: Tensor, size: number): Tensor {
    return this.interpolate1d(size);
  }

  /** This [b, c, h, w] to [b, c, height, width], each axis and errors as in {@link interpolate1d}. */
  interpolate2d(this: Tensor, height: number, width: number): Tensor {
    const op = 'interpolate2d';
    const [b, c] = requireImage(op, this, 4);
    requireTarget(op, this, [height, width]);
    const run = ({ resampling }: BackendDevice) =>
      resampling?.upsampleNearest2d?.(operandOf(op, this), height, width) ??
      composed.upsampleNearest2d(this, height, width);
    return compute(op, [this], [b, c, height, width], this.dtype, run, rules.nearest);
  }

  /** Another name of {@link interpolate2d}. */
  upsampleNearest2d(this: Tensor, height: number, width: number): Tensor {
    return this.interpolate2d(height, width);
  }

  /**
   * This [b, c, h, w] to [b, c, height, width] between the four nearest elements, as PyTorch's `interpolate`.
   * @param alignCorners corner elements keep their place; otherwise centres of elements are matched
   */
  upsampleBilinear2d(this: Tensor, height: number, width: number, alignCorners: boolean): Tensor {
    return bilinear('upsampleBilinear2d', this, height, width, alignCorners);
  }

  /**
   * {@link upsampleBilinear2d} by factors: sizes become floor(size * scale), and positions are divided by the scale
   * itself.
   * @throws CandleError `INVALID_ARGUMENT` for scales that are not finite and above 0, ShapeError
   */
  upsampleBilinear2dWithScale(this: Tensor, scaleH: number, scaleW: number, alignCorners: boolean): Tensor {
    const op = 'upsampleBilinear2dWithScale';
    const [, , h, w] = requireImage(op, this, 4);
    if (!(scaleH > 0 && scaleW > 0 && Number.isFinite(scaleH) && Number.isFinite(scaleW))) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `${op}: the scales are ${scaleH} and ${scaleW}; use finite numbers above 0.`,
      );
    }
    const [height, width] = [Math.floor(h * scaleH), Math.floor(w * scaleW)];
    return bilinear(op, this, height, width, alignCorners, scaleH, scaleW);
  }
}

function bilinear(
  op: string,
  tensor: Tensor,
  hOut: number,
  wOut: number,
  alignCorners: boolean,
  scaleH?: number,
  scaleW?: number,
): Tensor {
  const [b, c, h, w] = requireImage(op, tensor, 4);
  requireTarget(op, tensor, [hOut, wOut]);
  // As in candle, equal sizes give the image itself, whatever the scales.
  if (h === hOut && w === wOut) return viewOf(op, tensor, tensor.layout, identity);
  const params = { hOut, wOut, alignCorners, scaleH, scaleW };
  const run = ({ resampling }: BackendDevice) =>
    resampling?.upsampleBilinear2d?.(operandOf(op, tensor), params) ?? composed.upsampleBilinear2d(tensor, params);
  return compute(op, [tensor], [b, c, hOut, wOut], tensor.dtype, run, rules.bilinear, params);
}

function pool(op: 'avgPool2d' | 'maxPool2d', tensor: Tensor, kernel: Size2d, stride: Size2d): Tensor {
  const [b, c, h, w] = requireImage(op, tensor, 4);
  const [kH, kW] = pair(kernel);
  const [strideH, strideW] = pair(stride);
  if (kH > h || kW > w) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: a window of ${formatShape([kH, kW])} does not fit into ${formatShape(tensor.shape)}; use a window of at most ${formatShape([h, w])}.`,
    );
  }
  const hOut = Math.floor((h - kH) / strideH) + 1;
  const wOut = Math.floor((w - kW) / strideW) + 1;
  const params: Pool2dParams = { kH, kW, strideH, strideW, hOut, wOut };
  const run = ({ resampling }: BackendDevice) =>
    resampling?.[op]?.(operandOf(op, tensor), params) ??
    (op === 'avgPool2d' ? composed.avgPool2d : composed.maxPool2d)(tensor, params);
  return compute(
    op,
    [tensor],
    [b, c, hOut, wOut],
    tensor.dtype,
    run,
    op === 'avgPool2d' ? rules.avgPool2d : rules.maxPool2d,
    params,
  );
}

function pair(size: Size2d): readonly [number, number] {
  return typeof size === 'number' ? [size, size] : size;
}

function requireImage(op: string, tensor: Tensor, rank: 3 | 4): readonly number[] {
  if (tensor.rank === rank) return tensor.shape;
  const wanted = rank === 3 ? '[b, c, l]' : '[b, c, h, w]';
  throw new ShapeError(
    'INVALID_SHAPE',
    `${op}: shape ${formatShape(tensor.shape)} is not ${wanted}; reshape or unsqueeze it.`,
  );
}

function requireTarget(op: string, tensor: Tensor, target: readonly number[]): void {
  if (target.some((size) => size < 1)) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `${op}: ${formatShape(tensor.shape)} cannot become ${formatShape(target)}; target sizes are whole numbers from 1.`,
    );
  }
  if (tensor.shape.slice(2).includes(0)) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `${op}: ${formatShape(tensor.shape)} has no elements to resize; give an image that has some.`,
    );
  }
}
