/**
 * Reductions over one, several or all dimensions. A `...Keepdim` form leaves the reduced dimensions with size 1.
 *
 * Differs from candle: sums of u8 are u32, so that they count what comparisons found; narrow floats are averaged through
 * f32, so a mean of large f16 values does not overflow on the way; `mean` and `var` of integers are refused instead of
 * giving 0; `cumsum` sums floats in f64 and makes no n² matrix.
 */
import * as rules from '../autograd/rules/reducing';
import { identity } from '../autograd/rules/shared';
import type { BackendDevice, BackendStorage, ReduceOp } from '../backend';
import { compose } from '../composed/compose';
import * as composed from '../composed/scan';
import { isFloat } from '../dtype';
import { DTypeError, ShapeError } from '../errors';
import { isNarrowFloat } from '../host-array';
import { elemCount, formatShape, resolveDim, resolveDims, type Shape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, operandOf, viewOf, withTemporaries } from './base';
import { TensorComparing } from './comparing';

type Dims = number | readonly number[];

export abstract class TensorReducing extends TensorComparing {
  /**
   * Sums; `dims` is one dimension or several, which are dropped. Any dtype. Sums of u8 are u32, so that those of
   * comparisons count; other dtypes are kept: integers wrap, narrow floats are summed in f32. An empty sum is 0.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * const t = Tensor.from([[1, 2], [3, 4]]);
   * t.sum(0).toVecSync(); // => [4, 6]
   * t.sum([0, 1]).toVecSync(); // => 10
   * ```
   */
  sum(this: Tensor, dims: Dims): Tensor {
    return sum(this, dims, false);
  }

  /**
   * {@link sum} that leaves the dimensions with size 1.
   * @example
   * ```ts
   * Tensor.ones([2, 3]).sumKeepdim(1).shape; // => [2, 1]
   * ```
   */
  sumKeepdim(this: Tensor, dims: Dims): Tensor {
    return sum(this, dims, true);
  }

  /**
   * Largest elements, NaN where there is one; `dims` is one dimension or several, which are dropped. Any dtype.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, `INVALID_SHAPE` for an empty dimension
   * @example
   * ```ts
   * Tensor.from([[1, 5], [7, 3]]).max(1).toVecSync(); // => [5, 7]
   * ```
   */
  max(this: Tensor, dims: Dims): Tensor {
    return reduce('max', this, dims, false);
  }

  /** {@link max} that leaves the dimensions with size 1. */
  maxKeepdim(this: Tensor, dims: Dims): Tensor {
    return reduce('max', this, dims, true);
  }

  /** Smallest elements, NaN where there is one; dimensions, dtypes and errors as {@link max}. */
  min(this: Tensor, dims: Dims): Tensor {
    return reduce('min', this, dims, false);
  }

  /** {@link min} that leaves the dimensions with size 1. */
  minKeepdim(this: Tensor, dims: Dims): Tensor {
    return reduce('min', this, dims, true);
  }

  /**
   * u32 positions of the first largest elements along a dimension, which is dropped; of the first NaN if there is one.
   * Any dtype.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, `INVALID_SHAPE` for an empty dimension
   * @example
   * ```ts
   * Tensor.from([[1, 5], [7, 3]]).argmax(-1).toVecSync(); // => [1, 0]
   * ```
   */
  argmax(this: Tensor, dim: number): Tensor {
    return reduce('argmax', this, dim, false);
  }

  /** {@link argmax} that leaves the dimension with size 1. */
  argmaxKeepdim(this: Tensor, dim: number): Tensor {
    return reduce('argmax', this, dim, true);
  }

  /** u32 positions of the first smallest elements; otherwise as {@link argmax}. */
  argmin(this: Tensor, dim: number): Tensor {
    return reduce('argmin', this, dim, false);
  }

  /** {@link argmin} that leaves the dimension with size 1. */
  argminKeepdim(this: Tensor, dim: number): Tensor {
    return reduce('argmin', this, dim, true);
  }

  /**
   * Means; `dims` is one dimension or several, which are dropped. Float dtypes; an empty mean is NaN.
   * @throws DTypeError for integers, ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.from([[1, 2], [3, 6]]).mean(1).toVecSync(); // => [1.5, 4.5]
   * ```
   */
  mean(this: Tensor, dims: Dims): Tensor {
    return mean(this, dims, false);
  }

  /** {@link mean} that leaves the dimensions with size 1. */
  meanKeepdim(this: Tensor, dims: Dims): Tensor {
    return mean(this, dims, true);
  }

  /**
   * Unbiased variance along a dimension, which is dropped: the squared distances from the mean over n - 1; NaN for fewer
   * than two elements. Float dtypes.
   * @throws DTypeError for integers, ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.from([1, 2, 3]).var(0).toVecSync(); // => 1
   * ```
   */
  var(this: Tensor, dim: number): Tensor {
    return variance(this, dim, false);
  }

  /** {@link var} that leaves the dimension with size 1. */
  varKeepdim(this: Tensor, dim: number): Tensor {
    return variance(this, dim, true);
  }

  /**
   * The sum of all elements, of rank 0; see {@link sum}.
   * @example
   * ```ts
   * Tensor.from([[1, 2], [3, 4]]).sumAll().toScalarSync(); // => 10
   * ```
   */
  sumAll(this: Tensor): Tensor {
    return this.sum(allDims(this));
  }

  /** The mean of all elements, of rank 0; see {@link mean}. */
  meanAll(this: Tensor): Tensor {
    return this.mean(allDims(this));
  }

  /** The largest of all elements, of rank 0; see {@link max}. */
  maxAll(this: Tensor): Tensor {
    return withTemporaries((temporary) => temporary(this.flattenAll()).max(0));
  }

  /** The smallest of all elements, of rank 0; see {@link min}. */
  minAll(this: Tensor): Tensor {
    return withTemporaries((temporary) => temporary(this.flattenAll()).min(0));
  }

  /**
   * The square root of the sum of squares of all elements, of rank 0. Float dtypes; narrow ones are squared in f32. Its
   * gradient at zeros is 0.
   * @throws UnsupportedError for integers
   * @example
   * ```ts
   * Tensor.from([3, 4]).norm().toScalarSync(); // => 5
   * ```
   */
  norm(this: Tensor): Tensor {
    return withTemporaries((temporary) => {
      const wide = isNarrowFloat(this.dtype) ? temporary(this.toDtype('f32')) : this;
      const squares = temporary(temporary(wide.sqr()).sumAll());
      const run = ({ ops }: BackendDevice) => ops.unary('sqrt', operandOf('norm', squares));
      const root = compute('norm', [squares], [], squares.dtype, run, rules.rootOfSquares);
      return wide === this ? root : temporary(root).toDtype(this.dtype);
    });
  }

  /**
   * log(sum(exp(x))) without overflow, also right for rows of only -Infinity; -Infinity for an empty row. `dims` is one
   * dimension or several, which are dropped. Float dtypes; narrow ones go through f32.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, DTypeError for integers
   */
  logSumExp(this: Tensor, dims: Dims): Tensor {
    return withTemporaries((temporary) => {
      requireFloat('logSumExp', this);
      if (this.elemCount === 0) return temporary(this.sum(dims)).log();
      if (isNarrowFloat(this.dtype)) {
        return temporary(temporary(this.toDtype('f32')).logSumExp(dims)).toDtype(this.dtype);
      }
      // Whatever is subtracted and added again has no part in the gradient.
      const top = temporary(temporary(this.detach()).maxKeepdim(dims));
      const infinite = temporary(temporary(top.abs()).eq(Number.POSITIVE_INFINITY));
      const shift = temporary(infinite.whereCond(temporary(top.zerosLike()), top));
      const sum = temporary(temporary(temporary(this.broadcastSub(shift)).exp()).sumKeepdim(dims));
      const kept = temporary(temporary(sum.log()).add(shift));
      return kept.reshape(withoutDims(kept, dims));
    });
  }

  /**
   * Sums of all elements up to and including each one along a dimension. This shape; any dtype, as for {@link sum}: u8
   * becomes u32, floats are summed in f64 and rounded once, other integers wrap.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.from([1, 2, 3]).cumsum(0).toVecSync(); // => [1, 3, 6]
   * ```
   */
  cumsum(this: Tensor, dim: number): Tensor {
    const d = resolveDim('cumsum', dim, this.shape);
    if (this.dtype === 'u8') return withTemporaries((temporary) => temporary(this.toDtype('u32')).cumsum(d));
    const run = ({ scan }: BackendDevice) => scan?.cumsum?.(operandOf('cumsum', this), d) ?? composed.cumsum(this, d);
    return compute('cumsum', [this], this.shape, this.dtype, run, rules.cumsum, d);
  }
}

function allDims(tensor: Tensor): number[] {
  return tensor.shape.map((_, i) => i);
}

function withoutDims(tensor: Tensor, dims: Dims): number[] {
  const reduced = resolveDims('reduce', dims, tensor.shape);
  return tensor.shape.filter((_, i) => !reduced.includes(i));
}

function reduce(op: ReduceOp, tensor: Tensor, dims: Dims, keep: boolean): Tensor {
  const reduced = resolveDims(op, dims, tensor.shape);
  if (op !== 'sum') {
    if (reduced.length === 0) return viewOf(op, tensor, tensor.layout, identity);
    const empty = reduced.find((dim) => tensor.shape[dim] === 0);
    if (empty !== undefined) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `${op}: dimension ${empty} of ${formatShape(tensor.shape)} is empty and has no ${op}; check for that before.`,
      );
    }
  }
  const { shape, kept } = reducedShapes(tensor.shape, reduced);
  const dtype = op === 'argmax' || op === 'argmin' ? 'u32' : tensor.dtype;
  const run = (backend: BackendDevice) => {
    if (tensor.elemCount === 0) return backend.zeros(elemCount(shape), dtype);
    if (op !== 'sum' && reduced.length > 1) return reduceEach(op, tensor, reduced);
    return backend.ops.reduce(op, operandOf(op, tensor), reduced);
  };
  return compute(op, [tensor], keep ? kept : shape, dtype, run, op === 'sum' ? rules.sum : rules.extreme, kept);
}

/** Sums of u8, which is what comparisons give, are made in u32. */
function sum(tensor: Tensor, dims: Dims, keep: boolean): Tensor {
  if (tensor.dtype !== 'u8') return reduce('sum', tensor, dims, keep);
  return withTemporaries((temporary) => reduce('sum', temporary(tensor.toDtype('u32')), dims, keep));
}

/** The shape without the reduced dimensions, and with them as 1. `reduced` is sorted. */
function reducedShapes(from: Shape, reduced: readonly number[]): { shape: number[]; kept: number[] } {
  const shape: number[] = [];
  const kept = from.slice();
  for (let i = 0, next = 0; i < from.length; i++) {
    if (i === reduced[next]) {
      kept[i] = 1;
      next++;
    } else shape.push(from[i]);
  }
  return { shape, kept };
}

/** max and min over several dimensions, one after the other; the backend takes one at a time. */
function reduceEach(op: ReduceOp, tensor: Tensor, reduced: readonly number[]): BackendStorage {
  return compose(() => reduced.reduce((current, dim) => reduce(op, current, dim, true), tensor));
}

function requireFloat(op: string, tensor: Tensor): void {
  if (isFloat(tensor.dtype)) return;
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: needs a float dtype, the tensor is ${tensor.dtype}; convert it with toDtype('f32').`,
  );
}

function mean(tensor: Tensor, dims: Dims, keep: boolean): Tensor {
  requireFloat('mean', tensor);
  const count = resolveDims('mean', dims, tensor.shape).reduce((product, d) => product * tensor.shape[d], 1);
  return withTemporaries((temporary) => {
    const wide = isNarrowFloat(tensor.dtype) ? temporary(tensor.toDtype('f32')) : tensor;
    const sum = temporary(reduce('sum', wide, dims, keep));
    const scaled = sum.div(count);
    return wide === tensor ? scaled : temporary(scaled).toDtype(tensor.dtype);
  });
}

function variance(tensor: Tensor, dim: number, keep: boolean): Tensor {
  requireFloat('var', tensor);
  const d = resolveDim('var', dim, tensor.shape);
  return withTemporaries((temporary) => {
    const wide = isNarrowFloat(tensor.dtype) ? temporary(tensor.toDtype('f32')) : tensor;
    const centred = temporary(wide.broadcastSub(temporary(wide.meanKeepdim(d))));
    const sum = temporary(reduce('sum', temporary(centred.sqr()), d, keep));
    const scaled = sum.div(Math.max(0, tensor.shape[d] - 1));
    return wide === tensor ? scaled : temporary(scaled).toDtype(tensor.dtype);
  });
}
