/** Putting tensors together, and taking them apart again: cat, stack, repeat, padding, flip, roll. */
import { checkWrite, recordWrite } from '../autograd/in-place';
import * as rules from '../autograd/rules/joining';
import { identity } from '../autograd/rules/shared';
import type { BackendDevice, BackendStorage } from '../backend';
import { BOOLEAN, check } from '../check';
import { DTypeError, ShapeError } from '../errors';
import { Layout } from '../layout';
import { elemCount, formatShape, resolveDim, resolveDims, type Shape, sameShape, validateShape } from '../shape';
import type { Tensor } from '../tensor';
import {
  checkOperands,
  compute,
  filledBy,
  markWritten,
  operandOf,
  sameDType,
  shapesDiffer,
  storageOf,
  viewOf,
  withTemporaries,
} from './base';
import { type IndexSlice, resolveSlices } from './index-op';
import { TENSORS } from './signatures';
import { TensorViews } from './views';

export abstract class TensorJoining extends TensorViews {
  /**
   * This tensor repeated `counts[i]` times along dimension i; extra leading counts add dimensions. Any dtype.
   * @example
   * ```ts
   * Tensor.from([1, 2]).repeat([2, 2]).toVecSync(); // => [[1, 2, 1, 2], [1, 2, 1, 2]]
   * ```
   */
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

  /**
   * `left` and `right` zeros added around a dimension; none of them is negative (`narrow` takes elements off). Any dtype.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, CandleError `INVALID_ARGUMENT` for what is no whole number from 0
   * @example
   * ```ts
   * Tensor.from([1, 2]).padWithZeros(0, 1, 2).toVecSync(); // => [0, 1, 2, 0, 0]
   * ```
   */
  padWithZeros(this: Tensor, dim: number, left: number, right: number): Tensor {
    const d = resolveDim('padWithZeros', dim, this.shape);
    const sizes = this.shape.map((size, i) => (i === d ? size + left + right : size));
    const padded = validateShape('padWithZeros', sizes);
    return compute(
      'padWithZeros',
      [this],
      padded,
      this.dtype,
      () => {
        const { backend } = this.device;
        return filledBy(backend.zeros(elemCount(padded), this.dtype), (out) => {
          if (this.elemCount > 0) copyInto(this, d, padded[d], left, out);
        });
      },
      rules.padWithZeros,
      [d, left],
    );
  }

  /**
   * The first and last slices of a dimension repeated outwards, `left` and `right` times. Any dtype.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, `INVALID_SHAPE` for an empty dimension; CandleError as {@link padWithZeros}
   * @example
   * ```ts
   * Tensor.from([1, 2]).padWithSame(0, 1, 2).toVecSync(); // => [1, 1, 2, 2, 2]
   * ```
   */
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

  /**
   * The order of the elements reversed along dimensions, each named once. Any dtype.
   * @throws ShapeError `DIM_OUT_OF_RANGE`, `INVALID_SHAPE` for a dimension named twice
   * @example
   * ```ts
   * Tensor.from([[1, 2], [3, 4]]).flip([0]).toVecSync(); // => [[3, 4], [1, 2]]
   * ```
   */
  flip(this: Tensor, dims: readonly number[]): Tensor {
    if (dims.length === 0) return viewOf('flip', this, this.layout, identity);
    const strides = this.layout.strides.slice();
    let { startOffset } = this.layout;
    for (const d of resolveDims('flip', dims, this.shape)) {
      startOffset += Math.max(0, this.shape[d] - 1) * strides[d];
      strides[d] = -strides[d];
    }
    const run = ({ ops }: BackendDevice) =>
      ops.copy(operandOf('flip', this, new Layout(this.shape, strides, startOffset)));
    return compute('flip', [this], this.shape, this.dtype, run, rules.flip, dims);
  }

  /**
   * Elements moved `shift` places along a dimension, what falls off comes back at the other end. Any dtype.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.from([1, 2, 3]).roll(1, 0).toVecSync(); // => [3, 1, 2]
   * ```
   */
  roll(this: Tensor, shift: number, dim: number): Tensor {
    const d = resolveDim('roll', dim, this.shape);
    const size = this.shape[d];
    const moved = size === 0 ? 0 : ((shift % size) + size) % size;
    if (moved === 0) return viewOf('roll', this, this.layout, identity);
    return withTemporaries((temporary) => {
      const head = temporary(this.narrow(d, size - moved, moved));
      return cat([head, temporary(this.narrow(d, 0, size - moved))], d);
    });
  }

  /**
   * Writes `src` into this tensor in place, from `offset` along `dim`: how KV caches grow. This one must be contiguous and
   * alike in dtype and other sizes. Views that share the memory see the change. Gradients flow to what was written, and to
   * what this was computed from where it was not written over.
   * @throws ShapeError, DTypeError; CandleError `GRADIENT_IN_PLACE` where gradients are recorded and this is a variable or
   *   has live views (see `noGrad` and {@link sliceScatter})
   */
  sliceSet(this: Tensor, src: Tensor, dim: number, offset: number): void {
    const d = checkSlice('sliceSet', this, src, dim, offset);
    requireContiguous('sliceSet', this);
    checkOperands('sliceSet', [this, src]);
    requireSeparate('sliceSet', this, src);
    if (src.elemCount === 0) return;
    const recorded = checkWrite('sliceSet', this, [src]);
    copyInto(src, d, this.shape[d], offset, storageOf('sliceSet', this), this.layout.startOffset);
    markWritten(this);
    if (recorded) recordWrite('sliceSet', [this, src], rules.sliceScatter, [d, offset]);
  }

  /** {@link sliceScatter} along the first dimension. */
  sliceScatter0(this: Tensor, src: Tensor, start: number): Tensor {
    return this.sliceScatter(src, 0, start);
  }

  /**
   * A copy of this with `src` in the place of a part: one range a dimension, as in `i`, whose sizes are those of `src`.
   * Missing ranges take everything.
   * @throws ShapeError `SHAPE_MISMATCH`, `INDEX_OUT_OF_RANGE`, `DIM_OUT_OF_RANGE`; DTypeError for another dtype
   * @example
   * ```ts
   * Tensor.zeros([2, 3]).sliceAssign([range(1, 2), range(0, 2)], Tensor.ones([1, 2])).toVecSync();
   * // => [[0, 0, 0], [1, 1, 0]]
   * ```
   */
  sliceAssign(this: Tensor, ranges: readonly IndexSlice[], src: Tensor): Tensor {
    const places = resolveSlices('sliceAssign', this.shape, ranges);
    if (src.rank !== this.rank || src.shape.some((size, d) => size !== places[d].len)) {
      const target = formatShape(places.map(({ len }) => len));
      throw shapesDiffer(
        'sliceAssign',
        this.shape,
        src.shape,
        `the source must have the shape of the ranges, ${target}`,
      );
    }
    sameDType('sliceAssign', this, src);
    return withTemporaries((temporary) => {
      // Slabs from outside in, then the source put into the innermost, that into the next and so on.
      const slabs: Tensor[] = [this];
      for (let d = 0; d + 1 < this.rank; d++) slabs.push(temporary(slabs[d].narrow(d, places[d].start, places[d].len)));
      let filled = src;
      for (let d = this.rank - 1; d > 0; d--) filled = temporary(slabs[d].sliceScatter(filled, d, places[d].start));
      return this.rank === 0 ? src.copy() : this.sliceScatter(filled, 0, places[0].start);
    });
  }

  /**
   * A copy of this with `src` written from `start` along `dim`: {@link sliceSet} that leaves this tensor alone; errors
   * as there.
   * @example
   * ```ts
   * Tensor.zeros([4]).sliceScatter(Tensor.from([1, 2]), 0, 1).toVecSync(); // => [0, 1, 2, 0]
   * ```
   */
  sliceScatter(this: Tensor, src: Tensor, dim: number, start: number): Tensor {
    const op = 'sliceScatter';
    const d = checkSlice(op, this, src, dim, start);
    const written = ({ ops }: BackendDevice) => {
      const out = ops.copy(operandOf(op, this));
      if (src.elemCount > 0) copyInto(src, d, this.shape[d], start, out);
      return out;
    };
    return compute(op, [this, src], this.shape, this.dtype, written, rules.sliceScatter, [d, start]);
  }
}

/** The dimension, when `src` may be written into `target` from `offset` along it. */
function checkSlice(op: string, target: Tensor, src: Tensor, dim: number, offset: number): number {
  const d = resolveDim(op, dim, target.shape);
  sameDType(op, target, src);
  const fits = src.rank === target.rank && src.shape.every((size, i) => i === d || size === target.shape[i]);
  if (!fits) throw shapesDiffer(op, target.shape, src.shape, `all sizes but that of dimension ${d} must be equal`);
  if (!Number.isInteger(offset) || offset < 0 || offset + src.shape[d] > target.shape[d]) {
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `${op}: [${offset}, ${offset + src.shape[d]}) is outside dimension ${d} of ${formatShape(target.shape)}; stay within 0..${target.shape[d]}.`,
    );
  }
  return d;
}

export function requireContiguous(op: string, tensor: Tensor): void {
  if (tensor.isContiguous()) return;
  throw new ShapeError(
    'INVALID_SHAPE',
    `${op}: writes in place and needs a contiguous tensor, this one is ${tensor.layout}; write to the tensor it is a view of.`,
  );
}

/** Parallel copies within one buffer have no order, so target and operands of a write must not share memory. */
export function requireSeparate(op: string, target: Tensor, operand: Tensor, what = 'source'): void {
  if (target.handle.ref !== operand.handle.ref) return;
  throw new ShapeError('INVALID_SHAPE', `${op}: ${what} and target share their memory; copy() the ${what} first.`);
}

/** Copies `src` into a row-major buffer whose dimension `d` has size `outSize`, from position `start` of that dimension. */
function copyInto(src: Tensor, d: number, outSize: number, start: number, out: BackendStorage, outOffset = 0): void {
  const inner = elemCount(src.shape.slice(d + 1));
  const outer = elemCount(src.shape.slice(0, d));
  const row = src.shape[d] * inner;
  const dstOffset = outOffset + start * inner;
  if (outer === 1 || row === outSize * inner) {
    const layout = Layout.contiguous([src.elemCount], dstOffset);
    src.device.backend.ops.copy(operandOf('copy', src), { storage: out, layout });
    return;
  }
  const dense = src.contiguous();
  try {
    const { storage, layout } = dense.storageAndLayout();
    const srcOffset = layout.startOffset;
    src.device.backend.ops.copy2d(storage, out, {
      d1: outer,
      d2: row,
      srcStride: row,
      dstStride: outSize * inner,
      srcOffset,
      dstOffset,
    });
  } finally {
    dense.dispose();
  }
}

/** Tensors one after the other along a dimension; all other sizes, dtype and device must agree. */
export function cat(tensors: readonly Tensor[], dim: number): Tensor {
  check('cat', 'tensors', tensors, TENSORS);
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
  const joined = () => {
    return filledBy(first.device.backend.allocUninit(elemCount(shape), first.dtype), (out) => {
      let start = 0;
      for (const tensor of tensors) {
        if (tensor.elemCount > 0) copyInto(tensor, d, total, start, out);
        start += tensor.shape[d];
      }
    });
  };
  return compute('cat', tensors, shape, first.dtype, joined, rules.cat, d);
}

/** Tensors of one shape along a new dimension. */
export function stack(tensors: readonly Tensor[], dim: number): Tensor {
  check('stack', 'tensors', tensors, TENSORS);
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
  check('meshgrid', 'tensors', tensors, TENSORS);
  check('meshgrid', 'xyIndexing', xyIndexing, BOOLEAN);
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
