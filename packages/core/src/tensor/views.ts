/**
 * Operations that only change how a storage is looked at: reshape, transpose, narrow, broadcast and indexing with numbers
 * and ranges. The result shares memory with its input, except where `reshape` and `contiguous` must copy.
 */
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
import type { Tensor } from '../tensor';
import { compute, storageOf, viewOf, withTemporaries } from './base';
import { TensorHost } from './host';

/** A half-open range; negative bounds count from the end, a missing or null one is the edge. */
export interface IndexRange {
  start?: number | null;
  end?: number | null;
}

/**
 * One position of {@link TensorViews.i}: a number takes one slice and drops the dimension, a range (also as
 * `[start, end]`) keeps part of it, `':'` all of it, null inserts a dimension of size 1, a rank-1 integer tensor selects.
 */
export type Index = number | null | ':' | IndexRange | readonly [number | null, (number | null)?] | Tensor;

export abstract class TensorViews extends TensorHost {
  /** The same elements in another shape; one size may be -1. Copies only where strides forbid a view. */
  reshape(this: Tensor, shape: readonly number[]): Tensor {
    const resolved = resolveReshape('reshape', this.shape, shape);
    const layout = this.layout.reshape(resolved);
    return layout ? viewOf('reshape', this, layout) : denseCopy('reshape', this, resolved);
  }

  transpose(this: Tensor, dim1: number, dim2: number): Tensor {
    return viewOf('transpose', this, this.layout.transpose(dim1, dim2));
  }

  /** The last two dimensions swapped. */
  t(this: Tensor): Tensor {
    if (this.rank < 2) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `t: shape ${formatShape(this.shape)} has fewer than two dimensions; unsqueeze it first.`,
      );
    }
    return viewOf('t', this, this.layout.transpose(-2, -1));
  }

  /** Dimension `i` of the result is dimension `dims[i]` of this. */
  permute(this: Tensor, dims: readonly number[]): Tensor {
    return viewOf('permute', this, this.layout.permute(dims));
  }

  /** Takes a dimension of size 1 out; any other size is left as it is. */
  squeeze(this: Tensor, dim: number): Tensor {
    return viewOf('squeeze', this, this.layout.squeeze(dim));
  }

  /** Puts a dimension of size 1 at `dim`; -1 appends. */
  unsqueeze(this: Tensor, dim: number): Tensor {
    return viewOf('unsqueeze', this, this.layout.unsqueeze(dim));
  }

  /** The part [start, start + len) of a dimension; `start` may count from the end. */
  narrow(this: Tensor, dim: number, start: number, len: number): Tensor {
    const d = resolveDim('narrow', dim, this.shape);
    return viewOf('narrow', this, this.layout.narrow(d, start < 0 ? start + this.shape[d] : start, len));
  }

  /** At most `chunks` parts along a dimension, the first ones longer by one where it does not divide. */
  chunk(this: Tensor, chunks: number, dim: number): Tensor[] {
    const d = resolveDim('chunk', dim, this.shape);
    if (!Number.isInteger(chunks) || chunks < 1) {
      throw new ShapeError('INVALID_SHAPE', `chunk: ${chunks} is no number of parts; use a whole number from 1.`);
    }
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

  /** Dimensions `start` to `end` (inclusive) merged into one. */
  flatten(this: Tensor, start: number, end: number): Tensor {
    if (this.rank === 0) return this.reshape([1]);
    const from = resolveDim('flatten', start, this.shape);
    const to = resolveDim('flatten', end, this.shape);
    if (from >= to) return viewOf('flatten', this, this.layout);
    const merged = elemCount(this.shape.slice(from, to + 1));
    return this.reshape([...this.shape.slice(0, from), merged, ...this.shape.slice(to + 1)]);
  }

  flattenTo(this: Tensor, end: number): Tensor {
    return this.flatten(0, end);
  }

  flattenFrom(this: Tensor, start: number): Tensor {
    return this.flatten(start, -1);
  }

  /** Rank 1. */
  flattenAll(this: Tensor): Tensor {
    return this.reshape([this.elemCount]);
  }

  /** Stretched to `shape`: new leading dimensions, and sizes of 1, repeat without copying. */
  broadcastAs(this: Tensor, shape: Shape): Tensor {
    return viewOf('broadcastAs', this, this.layout.broadcastAs(validateShape('broadcastAs', shape)));
  }

  /** Another name of {@link broadcastAs}. */
  expand(this: Tensor, shape: Shape): Tensor {
    return this.broadcastAs(shape);
  }

  /** `shape` put in front of this tensor's own dimensions. */
  broadcastLeft(this: Tensor, shape: Shape): Tensor {
    return this.broadcastAs([...shape, ...this.shape]);
  }

  /** Slice `index` of the first dimension. */
  get(this: Tensor, index: number): Tensor {
    return this.getOnDim(0, index);
  }

  /** Slice `index` of a dimension, which is dropped. */
  getOnDim(this: Tensor, dim: number, index: number): Tensor {
    const d = resolveDim('get', dim, this.shape);
    return viewOf('get', this, select(this.layout, d, index));
  }

  /**
   * Indexing by position: `t.i(0, [1, 3], null)` is candle's `t.i((0, 1..3, NewAxis))`. Missing positions take everything.
   * A view, unless a tensor is among the positions.
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
      let d = 0;
      for (const position of index) {
        if (position === null) layout = layout.unsqueeze(d++);
        else if (typeof position === 'number') layout = select(layout, d, position);
        else if (position !== ':' && isTensor(position)) selections.push([d++, position]);
        else layout = sliced(layout, d++, position);
      }
      let current = viewOf('i', this, layout);
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
    return viewOf('unfold', this, new Layout(sizes, steps, startOffset));
  }

  /** Row-major without gaps: this one's memory if it is so already, else a copy. Either way a new tensor. */
  contiguous(this: Tensor): Tensor {
    return this.layout.isContiguous()
      ? viewOf('contiguous', this, this.layout)
      : denseCopy('contiguous', this, this.shape);
  }

  /** A contiguous copy in memory of its own. */
  copy(this: Tensor): Tensor {
    return denseCopy('copy', this, this.shape);
  }

  /** A copy like {@link copy}; candle's name for one that is made even when contiguous. */
  forceContiguous(this: Tensor): Tensor {
    return denseCopy('forceContiguous', this, this.shape);
  }

  /** The same values without any record for differentiation; shares memory. */
  detach(this: Tensor): Tensor {
    return viewOf('detach', this, this.layout);
  }

  /** Both tensors stretched to their common shape. */
  broadcastWith(this: Tensor, other: Tensor): [Tensor, Tensor] {
    const shape = broadcastShapes('broadcastWith', this.shape, other.shape);
    return [this.broadcastAs(shape), other.broadcastAs(shape)];
  }
}

/** A copy in row-major order, under a shape of the same element count. */
export function denseCopy(op: string, tensor: Tensor, shape: Shape): Tensor {
  return compute(op, [tensor], shape, tensor.dtype, () => {
    const out = tensor.device.backend.allocUninit(tensor.elemCount, tensor.dtype);
    storageOf(op, tensor).copyStridedInto(out, 0, tensor.layout);
    return out;
  });
}

function isTensor(position: Index): position is Tensor {
  return position instanceof TensorViews;
}

function select(layout: Layout, dim: number, index: number): Layout {
  const size = layout.shape[dim];
  const resolved = index < 0 ? index + size : index;
  if (!Number.isInteger(index) || resolved < 0 || resolved >= size) {
    const shape = formatShape(layout.shape);
    const allowed = size === 0 ? 'the dimension is empty' : `use ${-size}..${size - 1}`;
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `index ${index} is outside dimension ${dim} of shape ${shape}; ${allowed}.`,
    );
  }
  const one = layout.narrow(dim, resolved, 1);
  const without = <T>(list: readonly T[]) => list.filter((_, i) => i !== dim);
  return new Layout(without(one.shape), without(one.strides), one.startOffset);
}

function sliced(
  layout: Layout,
  dim: number,
  position: ':' | IndexRange | readonly [number | null, (number | null)?],
): Layout {
  if (position === ':') return layout;
  const size = layout.shape[dim];
  const [first, last] = Array.isArray(position)
    ? position
    : [(position as IndexRange).start, (position as IndexRange).end];
  const bound = (value: number | null | undefined, edge: number) => {
    if (value === null || value === undefined) return edge;
    return value < 0 ? value + size : value;
  };
  const start = bound(first, 0);
  return layout.narrow(dim, start, Math.max(0, bound(last, size) - start));
}
