/**
 * Operations that only change how a storage is looked at: reshape, transpose, narrow, broadcast and indexing with numbers
 * and ranges. The result shares memory with its input, except where `reshape` and `contiguous` must copy.
 */
import { identity, reshaped } from '../autograd/rules/shared';
import * as rules from '../autograd/rules/views';
import type { BackendDevice } from '../backend';
import { ShapeError } from '../errors';
import { Layout } from '../layout';
import {
  broadcastShapes,
  elemCount,
  formatShape,
  resolveDim,
  resolveReshape,
  type Shape,
  validateShape,
} from '../shape';
import { show } from '../show';
import type { Tensor } from '../tensor';
import { compute, isTensor, operandOf, viewOf, withTemporaries } from './base';
import { TensorHost } from './host';
import { type Index, sliceBounds } from './index-op';

export abstract class TensorViews extends TensorHost {
  /**
   * The same elements in another shape; one size may be -1. Copies only where strides forbid a view. Any dtype.
   * @throws ShapeError `SHAPE_MISMATCH` for another number of elements, `INVALID_SHAPE`
   * @example
   * ```ts
   * Tensor.arange(0, 6).reshape([2, -1]).toVecSync(); // => [[0, 1, 2], [3, 4, 5]]
   * ```
   */
  reshape(this: Tensor, shape: readonly number[]): Tensor {
    const resolved = resolveReshape('reshape', this.shape, shape);
    const layout = this.layout.reshape(resolved);
    return layout ? viewOf('reshape', this, layout, reshaped) : denseCopy('reshape', this, resolved);
  }

  /**
   * Two dimensions swapped, a view.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.zeros([2, 3, 4]).transpose(0, 2).shape; // => [4, 3, 2]
   * ```
   */
  transpose(this: Tensor, dim1: number, dim2: number): Tensor {
    return viewOf('transpose', this, this.layout.transpose(dim1, dim2), rules.transpose, [dim1, dim2]);
  }

  /**
   * The last two dimensions swapped, a view.
   * @throws ShapeError `INVALID_SHAPE` for fewer than two
   * @example
   * ```ts
   * Tensor.from([[1, 2], [3, 4]]).t().toVecSync(); // => [[1, 3], [2, 4]]
   * ```
   */
  t(this: Tensor): Tensor {
    if (this.rank < 2) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `t: shape ${formatShape(this.shape)} has fewer than two dimensions; unsqueeze it first.`,
      );
    }
    return viewOf('t', this, this.layout.transpose(-2, -1), rules.transpose, [-2, -1]);
  }

  /**
   * Dimension `i` of the result is dimension `dims[i]` of this; a view.
   * @throws ShapeError unless `dims` names each once
   * @example
   * ```ts
   * Tensor.zeros([2, 3, 4]).permute([1, 2, 0]).shape; // => [3, 4, 2]
   * ```
   */
  permute(this: Tensor, dims: readonly number[]): Tensor {
    return viewOf('permute', this, this.layout.permute(dims), rules.permute, dims);
  }

  /** Takes a dimension of size 1 out; any other size is left as it is. A view. @throws ShapeError `DIM_OUT_OF_RANGE` */
  squeeze(this: Tensor, dim: number): Tensor {
    return viewOf('squeeze', this, this.layout.squeeze(dim), reshaped);
  }

  /**
   * Puts a dimension of size 1 at `dim`; -1 appends. A view.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.zeros([2, 3]).unsqueeze(-1).shape; // => [2, 3, 1]
   * ```
   */
  unsqueeze(this: Tensor, dim: number): Tensor {
    return viewOf('unsqueeze', this, this.layout.unsqueeze(dim), reshaped);
  }

  /**
   * The part [start, start + len) of a dimension; `start` may count from the end. A view.
   * @throws ShapeError `INDEX_OUT_OF_RANGE`, `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.arange(0, 5).narrow(0, 1, 3).toVecSync(); // => [1, 2, 3]
   * ```
   */
  narrow(this: Tensor, dim: number, start: number, len: number): Tensor {
    const d = resolveDim('narrow', dim, this.shape);
    const first = start < 0 ? start + this.shape[d] : start;
    return viewOf('narrow', this, this.layout.narrow(d, first, len), rules.narrow, [d, first, len]);
  }

  /**
   * At most `chunks` parts along a dimension, the first ones longer by one where it does not divide; views.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, `INVALID_SHAPE` for a number below 1
   * @example
   * ```ts
   * const parts = Tensor.arange(0, 5).chunk(2, 0);
   * parts.map((part) => part.toVecSync()); // => [[0, 1, 2], [3, 4]]
   * ```
   */
  chunk(this: Tensor, chunks: number, dim: number): Tensor[] {
    const d = resolveDim('chunk', dim, this.shape);
    const size = this.shape[d];
    const count = Math.max(1, Math.min(chunks, size));
    const parts: Tensor[] = [];
    for (let part = 0, start = 0; part < count; part++) {
      const len = Math.floor(size / count) + (part < size % count ? 1 : 0);
      parts.push(this.narrow(d, start, len));
      start += len;
    }
    return parts;
  }

  /**
   * Dimensions `start` to `end` (inclusive, negative from the end) merged into one.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.zeros([2, 3, 4]).flatten(1, 2).shape; // => [2, 12]
   * ```
   */
  flatten(this: Tensor, start: number, end: number): Tensor {
    if (this.rank === 0) return this.reshape([1]);
    const from = resolveDim('flatten', start, this.shape);
    const to = resolveDim('flatten', end, this.shape);
    if (from >= to) return viewOf('flatten', this, this.layout, identity);
    const merged = elemCount(this.shape.slice(from, to + 1));
    return this.reshape([...this.shape.slice(0, from), merged, ...this.shape.slice(to + 1)]);
  }

  /** The dimensions up to and including `end` merged into one; see {@link flatten}. */
  flattenTo(this: Tensor, end: number): Tensor {
    return this.flatten(0, end);
  }

  /** The dimensions from `start` on merged into one; see {@link flatten}. */
  flattenFrom(this: Tensor, start: number): Tensor {
    return this.flatten(start, -1);
  }

  /** All elements in row-major order, of rank 1. */
  flattenAll(this: Tensor): Tensor {
    return this.reshape([this.elemCount]);
  }

  /**
   * Stretched to `shape`: new leading dimensions, and sizes of 1, repeat without copying. A view.
   * @throws ShapeError `SHAPE_MISMATCH` for shapes that do not stretch
   * @example
   * ```ts
   * Tensor.from([1, 2]).broadcastAs([2, 2]).toVecSync(); // => [[1, 2], [1, 2]]
   * ```
   */
  broadcastAs(this: Tensor, shape: Shape): Tensor {
    const layout = this.layout.broadcastAs(validateShape('broadcastAs', shape));
    return viewOf('broadcastAs', this, layout, rules.broadcast);
  }

  /** Another name of {@link broadcastAs}. */
  expand(this: Tensor, shape: Shape): Tensor {
    return this.broadcastAs(shape);
  }

  /**
   * `shape` put in front of this tensor's own dimensions; a view.
   * @example
   * ```ts
   * Tensor.zeros([3]).broadcastLeft([2]).shape; // => [2, 3]
   * ```
   */
  broadcastLeft(this: Tensor, shape: Shape): Tensor {
    return this.broadcastAs([...validateShape('broadcastLeft', shape), ...this.shape]);
  }

  /**
   * Slice `index` of the first dimension, which is dropped; negative from the end. A view.
   * @throws ShapeError `INDEX_OUT_OF_RANGE`
   */
  get(this: Tensor, index: number): Tensor {
    return this.getOnDim(0, index);
  }

  /**
   * Slice `index` of a dimension, which is dropped; negative from the end. A view.
   * @throws ShapeError `INDEX_OUT_OF_RANGE`, `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.from([[1, 2], [3, 4]]).getOnDim(1, 0).toVecSync(); // => [1, 3]
   * ```
   */
  getOnDim(this: Tensor, dim: number, index: number): Tensor {
    const d = resolveDim('get', dim, this.shape);
    const first = position(this.layout, d, index);
    return viewOf('get', this, select(this.layout, d, first), rules.narrow, [d, first, 1]);
  }

  /**
   * Indexing by position: `t.i(0, range(1, 3), newAxis)` is candle's `t.i((0, 1..3, NewAxis))`. A number takes one
   * slice and drops the dimension, a range keeps part of it, `all` (`':'`) the whole, `newAxis` (null) inserts one of
   * size 1, a tensor of ids selects. Negative numbers count from the end, missing positions take everything. A view,
   * unless a tensor is among the positions.
   * @throws ShapeError `INDEX_OUT_OF_RANGE`, `DIM_OUT_OF_RANGE` for more positions than dimensions
   * @example
   * ```ts
   * const t = Tensor.arange(0, 6).reshape([2, 3]);
   * t.i(1).toVecSync(); // => [3, 4, 5]
   * t.i(all, -1).toVecSync(); // => [2, 5]
   * t.i(0, range(1)).toVecSync(); // => [1, 2]
   * t.i(0, newAxis, range(null, 2)).shape; // => [1, 2]
   * ```
   */
  i(this: Tensor, ...index: Index[]): Tensor {
    const taken = index.filter((position) => position !== null).length;
    if (taken > this.rank) {
      throw new ShapeError(
        'DIM_OUT_OF_RANGE',
        `i: ${taken} positions are given for shape ${formatShape(this.shape)}; give at most ${this.rank}.`,
      );
    }
    return withTemporaries((temporary) => {
      let layout = this.layout;
      const selections: [number, Tensor][] = [];
      const part = { starts: new Array<number>(this.rank).fill(0), sizes: [...this.shape] };
      // Where the position is in the result, and in this tensor.
      let d = 0;
      let own = 0;
      for (const item of index) {
        if (item === null) layout = layout.unsqueeze(d++);
        else if (typeof item === 'number') {
          part.starts[own] = position(layout, d, item);
          part.sizes[own] = 1;
          layout = select(layout, d, part.starts[own++]);
        } else if (item !== ':' && isTensor(item)) {
          selections.push([d++, item]);
          own++;
        } else {
          const [start, len] = sliceBounds(item, layout.shape[d]);
          layout = layout.narrow(d++, start, len);
          part.starts[own] = start;
          part.sizes[own++] = len;
        }
      }
      let current = viewOf('i', this, layout, rules.slice, part);
      for (const [dim, ids] of selections) current = temporary(current).indexSelect(ids, dim);
      return current;
    });
  }

  /**
   * Windows of `size` elements along a dimension, `step` apart, as a new last dimension: a view, in which windows may
   * share elements. The dimension becomes floor((n - size) / step) + 1.
   */
  unfold(this: Tensor, dim: number, size: number, step: number): Tensor {
    const d = resolveDim('unfold', dim, this.shape);
    const { shape, strides, startOffset } = this.layout;
    const whole = Number.isInteger(size) && Number.isInteger(step);
    if (!whole || size < 1 || step < 1 || size > shape[d]) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `unfold: windows of ${size} elements ${step} apart do not fit dimension ${d} of ${formatShape(shape)}; use a size in 1..${shape[d]} and a step from 1.`,
      );
    }
    const count = Math.floor((shape[d] - size) / step) + 1;
    const sizes = [...shape.slice(0, d), count, ...shape.slice(d + 1), size];
    const steps = [...strides.slice(0, d), strides[d] * step, ...strides.slice(d + 1), strides[d]];
    return viewOf('unfold', this, new Layout(sizes, steps, startOffset), rules.unfold, { dim: d, size, step });
  }

  /**
   * Row-major without gaps: this one's memory if it is so already, else a copy. Either way a new tensor. Any dtype.
   * @example
   * ```ts
   * Tensor.zeros([2, 3]).t().contiguous().stride; // => [2, 1]
   * ```
   */
  contiguous(this: Tensor): Tensor {
    return this.layout.isContiguous()
      ? viewOf('contiguous', this, this.layout, identity)
      : denseCopy('contiguous', this, this.shape);
  }

  /** A contiguous copy in memory of its own. Any dtype. */
  copy(this: Tensor): Tensor {
    return denseCopy('copy', this, this.shape);
  }

  /** A copy like {@link copy}; candle's name for one that is made even when contiguous. */
  forceContiguous(this: Tensor): Tensor {
    return denseCopy('forceContiguous', this, this.shape);
  }

  /** The same values without any record for differentiation; shares memory. */
  detach(this: Tensor): Tensor {
    return viewOf('detach', this, this.layout, null);
  }

  /** Both tensors stretched to their common shape; views. @throws ShapeError `SHAPE_MISMATCH` */
  broadcastWith(this: Tensor, other: Tensor): [Tensor, Tensor] {
    const shape = broadcastShapes('broadcastWith', this.shape, other.shape);
    return [this.broadcastAs(shape), other.broadcastAs(shape)];
  }
}

/** A copy in row-major order, under a shape of the same element count. */
function denseCopy(op: string, tensor: Tensor, shape: Shape): Tensor {
  const run = ({ ops }: BackendDevice) => ops.copy(operandOf(op, tensor));
  return compute(op, [tensor], shape, tensor.dtype, run, reshaped);
}

/** `index` counted from the start of the dimension. */
function position(layout: Layout, dim: number, index: number): number {
  const size = layout.shape[dim];
  const resolved = Number.isInteger(index) ? (index < 0 ? index + size : index) : -1;
  if (resolved < 0 || resolved >= size) {
    const shape = formatShape(layout.shape);
    const allowed = size === 0 ? 'the dimension is empty' : `use ${-size}..${size - 1}`;
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `index ${show(index)} is outside dimension ${dim} of shape ${shape}; ${allowed}.`,
    );
  }
  return resolved;
}

function select(layout: Layout, dim: number, index: number): Layout {
  const one = layout.narrow(dim, index, 1);
  const without = <T>(list: readonly T[]) => list.filter((_, i) => i !== dim);
  return new Layout(without(one.shape), without(one.strides), one.startOffset);
}
