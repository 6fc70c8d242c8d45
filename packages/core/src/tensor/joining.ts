/** Putting tensors together, and taking them apart again: cat, stack, repeat, padding, flip, roll. */
import { DTypeError, ShapeError } from '../errors';
import { elemCount, formatShape, resolveDim, type Shape, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { checkOperands, compute, sameDType, shapesDiffer, storageOf, viewOf, withTemporaries } from './base';
import { TensorViews } from './views';

export abstract class TensorJoining extends TensorViews {
  /** This tensor repeated `counts[i]` times along dimension i; extra leading counts add dimensions. */
  repeat(this: Tensor, counts: Shape): Tensor {
    const extra = counts.length - this.rank;
    const repeats = extra >= 0 ? counts : [...new Array<number>(-extra).fill(1), ...counts];
    const sizes = extra > 0 ? [...new Array<number>(extra).fill(1), ...this.shape] : this.shape;
    return withTemporaries((temporary) => {
      const split = temporary(this.reshape(sizes.flatMap((size) => [1, size])));
      const spread = temporary(split.broadcastAs(sizes.flatMap((size, i) => [repeats[i], size])));
      return spread.reshape(sizes.map((size, i) => size * repeats[i]));
    });
  }

  /** `left` and `right` zeros added around a dimension. */
  padWithZeros(this: Tensor, dim: number, left: number, right: number): Tensor {
    const d = resolveDim('padWithZeros', dim, this.shape);
    const padded = this.shape.map((size, i) => (i === d ? size + left + right : size));
    return compute('padWithZeros', [this], padded, this.dtype, () => {
      const { backend } = this.device;
      const out = backend.zeros(elemCount(padded), this.dtype);
      if (this.elemCount > 0) copyInto(this, d, padded[d], left, out);
      return out;
    });
  }

  /** The first and last slices of a dimension repeated outwards. */
  padWithSame(this: Tensor, dim: number, left: number, right: number): Tensor {
    const d = resolveDim('padWithSame', dim, this.shape);
    if (this.shape[d] === 0 && left + right > 0) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `padWithSame: dimension ${d} of ${formatShape(this.shape)} is empty; pad with zeros instead.`,
      );
    }
    return withTemporaries((temporary) => {
      const edge = (start: number, count: number) => {
        const stretched = this.shape.map((size, i) => (i === d ? count : size));
        return temporary(temporary(this.narrow(d, start, 1)).broadcastAs(stretched));
      };
      const parts: Tensor[] = [this];
      if (left > 0) parts.unshift(edge(0, left));
      if (right > 0) parts.push(edge(this.shape[d] - 1, right));
      return cat(parts, d);
    });
  }

  /** The order of the elements reversed along dimensions. */
  flip(this: Tensor, dims: readonly number[]): Tensor {
    return withTemporaries((temporary) => {
      let current = viewOf('flip', this, this.layout);
      for (const dim of dims) {
        const d = resolveDim('flip', dim, this.shape);
        const order = Uint32Array.from({ length: this.shape[d] }, (_, i) => this.shape[d] - 1 - i);
        current = temporary(current).indexSelect(temporary(idsOn(this, order)), d);
      }
      return current;
    });
  }

  /** Elements moved `shift` places along a dimension, what falls off comes back at the other end. */
  roll(this: Tensor, shift: number, dim: number): Tensor {
    const d = resolveDim('roll', dim, this.shape);
    const size = this.shape[d];
    const moved = size === 0 ? 0 : ((shift % size) + size) % size;
    if (moved === 0) return viewOf('roll', this, this.layout);
    return withTemporaries((temporary) => {
      const head = temporary(this.narrow(d, size - moved, moved));
      return cat([head, temporary(this.narrow(d, 0, size - moved))], d);
    });
  }

  /**
   * Writes `src` into this tensor in place, from `offset` along `dim`: how KV caches grow. This one must be contiguous and
   * alike in dtype and other sizes. Views that share the memory see the change.
   */
  sliceSet(this: Tensor, src: Tensor, dim: number, offset: number): void {
    const d = resolveDim('sliceSet', dim, this.shape);
    sameDType('sliceSet', this, src);
    const fits = src.rank === this.rank && src.shape.every((size, i) => i === d || size === this.shape[i]);
    if (!fits)
      throw shapesDiffer('sliceSet', this.shape, src.shape, `all sizes but that of dimension ${d} must be equal`);
    if (!Number.isInteger(offset) || offset < 0 || offset + src.shape[d] > this.shape[d]) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `sliceSet: [${offset}, ${offset + src.shape[d]}) is outside dimension ${d} of ${formatShape(this.shape)}; stay within 0..${this.shape[d]}.`,
      );
    }
    requireContiguous('sliceSet', this);
    checkOperands('sliceSet', [this, src]);
    requireSeparate('sliceSet', this, src);
    if (src.elemCount > 0)
      copyInto(src, d, this.shape[d], offset, storageOf('sliceSet', this), this.layout.startOffset);
  }

  /** A copy of this with `src` written from `start` along `dim`: {@link sliceSet} that leaves this tensor alone. */
  sliceScatter(this: Tensor, src: Tensor, dim: number, start: number): Tensor {
    const out = this.copy();
    try {
      out.sliceSet(src, dim, start);
    } catch (error) {
      out.dispose();
      throw error;
    }
    return out;
  }
}

/** Rank-1 u32 ids on the device of `like`. */
export function idsOn(like: Tensor, ids: Uint32Array): Tensor {
  const make = like.constructor as typeof import('../tensor').Tensor;
  return make.from(ids, { device: like.device });
}

export function requireContiguous(op: string, tensor: Tensor): void {
  if (tensor.isContiguous()) return;
  throw new ShapeError(
    'INVALID_SHAPE',
    `${op}: writes in place and needs a contiguous tensor, this one is ${tensor.layout}; write to the tensor it is a view of.`,
  );
}

/** Parallel copies within one buffer have no order, so source and target of a write must not share memory. */
export function requireSeparate(op: string, target: Tensor, src: Tensor): void {
  if (target.handle.ref !== src.handle.ref) return;
  throw new ShapeError('INVALID_SHAPE', `${op}: source and target share their memory; copy() the source first.`);
}

type Storage = ReturnType<typeof storageOf>;

/** Copies `src` into a row-major buffer whose dimension `d` has size `outSize`, from position `start` of that dimension. */
function copyInto(src: Tensor, d: number, outSize: number, start: number, out: Storage, outOffset = 0): void {
  const inner = elemCount(src.shape.slice(d + 1));
  const outer = elemCount(src.shape.slice(0, d));
  const row = src.shape[d] * inner;
  const dstOffset = outOffset + start * inner;
  if (outer === 1 || row === outSize * inner) {
    storageOf('copy', src).copyStridedInto(out, dstOffset, src.layout);
    return;
  }
  const dense = src.contiguous();
  try {
    const { storage, layout } = dense.storageAndLayout();
    const srcOffset = layout.startOffset;
    storage.copy2d(out, { d1: outer, d2: row, srcStride: row, dstStride: outSize * inner, srcOffset, dstOffset });
  } finally {
    dense.dispose();
  }
}

/** Tensors one after the other along a dimension; all other sizes, dtype and device must agree. */
export function cat(tensors: readonly Tensor[], dim: number): Tensor {
  if (tensors.length === 0) {
    throw new ShapeError('INVALID_SHAPE', 'cat: there are no tensors; give at least one.');
  }
  const first = tensors[0];
  const d = resolveDim('cat', dim, first.shape);
  for (const tensor of tensors) {
    if (tensor.dtype !== first.dtype) {
      throw new DTypeError(
        'DTYPE_MISMATCH',
        `cat: tensors are ${first.dtype} and ${tensor.dtype}; convert them to one dtype with toDtype.`,
      );
    }
    if (tensor.rank !== first.rank || tensor.shape.some((size, i) => i !== d && size !== first.shape[i])) {
      throw shapesDiffer('cat', first.shape, tensor.shape, `all sizes but that of dimension ${d} must be equal`);
    }
  }
  const total = tensors.reduce((sum, tensor) => sum + tensor.shape[d], 0);
  const shape = first.shape.map((size, i) => (i === d ? total : size));
  return compute('cat', tensors, shape, first.dtype, () => {
    const out = first.device.backend.allocUninit(elemCount(shape), first.dtype);
    let start = 0;
    for (const tensor of tensors) {
      if (tensor.elemCount > 0) copyInto(tensor, d, total, start, out);
      start += tensor.shape[d];
    }
    return out;
  });
}

/** Tensors of one shape along a new dimension. */
export function stack(tensors: readonly Tensor[], dim: number): Tensor {
  for (const tensor of tensors) {
    if (!sameShape(tensor.shape, tensors[0].shape)) {
      throw shapesDiffer('stack', tensors[0].shape, tensor.shape, 'all shapes must be equal');
    }
  }
  return withTemporaries((temporary) => {
    const rows = tensors.map((tensor) => temporary(tensor.unsqueeze(dim)));
    return cat(rows, rows.length > 0 && dim < 0 ? dim + rows[0].rank : dim);
  });
}

/** Rank-1 tensors spread over a common grid; `xyIndexing` reverses the order of its dimensions. */
export function meshgrid(tensors: readonly Tensor[], xyIndexing: boolean): Tensor[] {
  const axes = xyIndexing ? tensors.slice().reverse() : tensors;
  const ranks = axes.map((axis) => axis.rank);
  if (axes.length < 2 || ranks.some((rank) => rank !== 1)) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `meshgrid: got ${axes.length} tensors of ranks [${ranks.join(', ')}]; give two or more of rank 1.`,
    );
  }
  checkOperands('meshgrid', axes);
  const shape = axes.map((axis) => axis.shape[0]);
  const grids = axes.map((axis, d) =>
    withTemporaries((temporary) => {
      const placed = temporary(axis.reshape(shape.map((size, i) => (i === d ? size : 1))));
      return temporary(placed.broadcastAs(shape)).contiguous();
    }),
  );
  return xyIndexing ? grids.reverse() : grids;
}
