/**
 * Picking and placing elements by index tensors (u8, u32, i64, i16 or i32 ids), and writing in place.
 *
 * As in candle, the largest value of u8, u32 and i64 is a blank: picking by it gives 0, placing by it does nothing. Other
 * ids outside the dimension raise an error on the plain backend; a GPU cannot raise one and picks 0 or skips.
 */
import { isInt } from '../dtype';
import { DTypeError, ShapeError } from '../errors';
import { encodeInput } from '../host-array';
import { formatShape, resolveDim } from '../shape';
import type { Tensor } from '../tensor';
import { checkOperands, compute, sameDType, shapesDiffer, storageOf, withTemporaries } from './base';
import { requireContiguous, requireSeparate } from './joining';
import { TensorReducing } from './reducing';

export abstract class TensorIndexing extends TensorReducing {
  /** out[.., i, ..] = this[.., ids[i], ..] along `dim`; ids rank 1. */
  indexSelect(this: Tensor, ids: Tensor, dim: number): Tensor {
    const d = resolveDim('indexSelect', dim, this.shape);
    requireIds('indexSelect', ids, 1);
    const shape = this.shape.map((size, i) => (i === d ? ids.elemCount : size));
    if (this.shape[d] === 0 && ids.elemCount > 0) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `indexSelect: dimension ${d} of ${formatShape(this.shape)} is empty and ${ids.elemCount} ids are given; give none.`,
      );
    }
    return compute('indexSelect', [this, ids], shape, this.dtype, () =>
      storageOf('indexSelect', this).indexSelect(this.layout, storageOf('indexSelect', ids), ids.layout, d),
    );
  }

  /** Rows of this [n, d] table: ids of any shape give [...ids, d]. */
  embedding(this: Tensor, ids: Tensor): Tensor {
    if (this.rank !== 2) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `embedding: the table has shape ${formatShape(this.shape)}; it must be [rows, width].`,
      );
    }
    return withTemporaries((temporary) => {
      const rows = temporary(this.indexSelect(temporary(ids.flattenAll()), 0));
      return rows.reshape([...ids.shape, this.shape[1]]);
    });
  }

  /** out[.., j, ..] = this[.., ids[.., j, ..], ..]: ids has this rank and, but for `dim`, sizes no larger. */
  gather(this: Tensor, ids: Tensor, dim: number): Tensor {
    const d = resolveDim('gather', dim, this.shape);
    requireIds('gather', ids, this.rank);
    const fits = ids.shape.every((size, i) => i === d || size <= this.shape[i]);
    if (!fits) throw shapesDiffer('gather', this.shape, ids.shape, `outside dimension ${d} the ids may not be larger`);
    return compute('gather', [this, ids], ids.shape, this.dtype, () =>
      storageOf('gather', this).gather(this.layout, storageOf('gather', ids), ids.layout, d),
    );
  }

  /** A copy of this with `src` added at ids (of src's shape) along `dim`; repeated ids add up. */
  scatterAdd(this: Tensor, ids: Tensor, src: Tensor, dim: number): Tensor {
    return afterCopy(this, (out) => out.scatterAddSet(ids, src, dim));
  }

  /** A copy of this with `src` written at ids along `dim`. */
  scatter(this: Tensor, ids: Tensor, src: Tensor, dim: number): Tensor {
    return afterCopy(this, (out) => out.scatterSet(ids, src, dim));
  }

  /** In place: this[.., ids[.., j, ..], ..] = src[.., j, ..]. This tensor must be contiguous. */
  scatterSet(this: Tensor, ids: Tensor, src: Tensor, dim: number): void {
    const d = scatterDim('scatterSet', this, ids, src, dim);
    if (src.elemCount === 0) return;
    const storage = storageOf('scatterSet', this);
    storage.scatterSet(
      this.layout,
      storageOf('scatterSet', ids),
      ids.layout,
      storageOf('scatterSet', src),
      src.layout,
      d,
    );
  }

  /** In place, adding. This tensor must be contiguous. */
  scatterAddSet(this: Tensor, ids: Tensor, src: Tensor, dim: number): void {
    const op = 'scatterAddSet';
    const d = scatterDim(op, this, ids, src, dim);
    if (src.elemCount === 0) return;
    storageOf(op, this).scatterAddSet(this.layout, storageOf(op, ids), ids.layout, storageOf(op, src), src.layout, d);
  }

  /** A copy of this with slice i of `src` added to slice ids[i] along `dim`; ids rank 1. */
  indexAdd(this: Tensor, ids: Tensor, src: Tensor, dim: number): Tensor {
    const d = resolveDim('indexAdd', dim, this.shape);
    requireIds('indexAdd', ids, 1);
    sameDType('indexAdd', this, src);
    const fits =
      src.rank === this.rank && src.shape.every((size, i) => size === (i === d ? ids.elemCount : this.shape[i]));
    if (!fits) {
      const remedy = `dimension ${d} of the source must be ${ids.elemCount}, the number of ids, and the other sizes equal`;
      throw shapesDiffer('indexAdd', this.shape, src.shape, remedy);
    }
    if (src.elemCount === 0) return this.copy();
    return compute('indexAdd', [this, ids, src], this.shape, this.dtype, () =>
      storageOf('indexAdd', this).indexAdd(
        this.layout,
        storageOf('indexAdd', ids),
        ids.layout,
        storageOf('indexAdd', src),
        src.layout,
        d,
      ),
    );
  }

  /** In place: every element becomes `value`. Views that share the memory see it. */
  constSet(this: Tensor, value: number | bigint): void {
    const storage = storageOf('constSet', this);
    if (isInt(this.dtype)) encodeInput('constSet', this.dtype, [value]);
    if (this.elemCount > 0) storage.constSet(value, this.layout);
  }

  zeroSet(this: Tensor): void {
    this.constSet(0);
  }

  oneSet(this: Tensor): void {
    this.constSet(1);
  }
}

function afterCopy(tensor: Tensor, change: (copy: Tensor) => void): Tensor {
  const out = tensor.copy();
  try {
    change(out);
  } catch (error) {
    out.dispose();
    throw error;
  }
  return out;
}

function requireIds(op: string, ids: Tensor, rank: number): void {
  if (!isInt(ids.dtype)) {
    throw new DTypeError('DTYPE_MISMATCH', `${op}: ids are ${ids.dtype}; convert them with toDtype('u32').`);
  }
  if (ids.rank !== rank) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `${op}: ids have shape ${formatShape(ids.shape)} and must have ${rank} dimensions; reshape them.`,
    );
  }
}

function scatterDim(op: string, self: Tensor, ids: Tensor, src: Tensor, dim: number): number {
  const d = resolveDim(op, dim, self.shape);
  requireIds(op, ids, self.rank);
  sameDType(op, self, src);
  requireContiguous(op, self);
  if (src.rank !== ids.rank || src.shape.some((size, i) => size !== ids.shape[i])) {
    throw shapesDiffer(op, src.shape, ids.shape, 'source and ids must have one shape');
  }
  if (src.shape.some((size, i) => i !== d && size !== self.shape[i])) {
    throw shapesDiffer(op, self.shape, src.shape, `all sizes but that of dimension ${d} must be equal`);
  }
  checkOperands(op, [self, ids, src]);
  requireSeparate(op, self, src);
  return d;
}
