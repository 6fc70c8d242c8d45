/**
 * Picking and placing elements by index tensors (u8, u32, i64, i16 or i32 ids), and writing in place.
 *
 * An id is a position in the dimension: from 0 to its size - 1, whatever the dtype of the ids. Another one is an
 * `INDEX_OUT_OF_RANGE` error. `js` raises it at once. `cpu` works asynchronously and raises it when the device is next waited
 * for: when a tensor of the device is read, or at `synchronize`, once, with the first such id since the last time. GPUs do
 * so where `X_DEBUG` is 1 or more when the device is opened, and do not look otherwise. The operation itself picks 0 for
 * such an id, or skips it.
 *
 * Differs from candle, where the largest value of u8, u32 and i64 picks 0 or is skipped without an error.
 */

import { checkWrite, recordWrite } from '../autograd/in-place';
import * as rules from '../autograd/rules/indexing';
import type { BackendDevice } from '../backend';
import { isInt } from '../dtype';
import { DTypeError, ShapeError } from '../errors';
import { heldScalar } from '../host-array';
import { Layout } from '../layout';
import { formatShape, resolveDim } from '../shape';
import type { Tensor } from '../tensor';
import {
  checkOperands,
  compute,
  filledBy,
  markWritten,
  operandOf,
  sameDType,
  shapesDiffer,
  withTemporaries,
} from './base';
import { requireContiguous, requireSeparate } from './joining';
import { TensorReducing } from './reducing';

export abstract class TensorIndexing extends TensorReducing {
  /**
   * out[.., i, ..] = this[.., ids[i], ..] along `dim`: the dimension gets the size of ids, which are integers of rank
   * 1. Any dtype.
   * @throws DTypeError for float ids; ShapeError `INVALID_SHAPE` for ids of another rank, `INDEX_OUT_OF_RANGE` for an id that
   * is not in the dimension: here on `js`, when the device is next waited for on `cpu`
   * @example
   * ```ts
   * const ids = Tensor.from([2, 0], { dtype: 'u32' });
   * Tensor.from([[1, 2, 3], [4, 5, 6]]).indexSelect(ids, 1).toVecSync(); // => [[3, 1], [6, 4]]
   * ```
   */
  indexSelect(this: Tensor, ids: Tensor, dim: number): Tensor {
    return selected('indexSelect', this, ids, resolveDim('indexSelect', dim, this.shape));
  }

  /**
   * Rows of this [n, d] table: ids of any shape give [...ids, d]. Any dtype; integer ids.
   * @throws ShapeError `INVALID_SHAPE` for a table of another rank; others as {@link indexSelect}
   * @example
   * ```ts
   * const table = Tensor.from([[1, 1], [2, 2]]);
   * table.embedding(Tensor.from([[1], [0]], { dtype: 'u32' })).shape; // => [2, 1, 2]
   * ```
   */
  embedding(this: Tensor, ids: Tensor): Tensor {
    if (this.rank !== 2) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `embedding: the table has shape ${formatShape(this.shape)}; it must be [rows, width].`,
      );
    }
    return withTemporaries((temporary) => {
      const rows = temporary(selected('embedding', this, temporary(ids.flattenAll()), 0));
      return rows.reshape([...ids.shape, this.shape[1]]);
    });
  }

  /**
   * out[.., j, ..] = this[.., ids[.., j, ..], ..] along `dim`: ids are integers of this rank and, but for `dim`, of
   * sizes no larger; the result has their shape. Any dtype.
   * @throws ShapeError `SHAPE_MISMATCH` for larger ids; others as {@link indexSelect}
   * @example
   * ```ts
   * const ids = Tensor.from([[1], [0]], { dtype: 'u32' });
   * Tensor.from([[1, 2], [3, 4]]).gather(ids, 1).toVecSync(); // => [[2], [3]]
   * ```
   */
  gather(this: Tensor, ids: Tensor, dim: number): Tensor {
    const d = resolveDim('gather', dim, this.shape);
    requireIds('gather', ids, this.rank);
    const fits = ids.shape.every((size, i) => i === d || size <= this.shape[i]);
    if (!fits) throw shapesDiffer('gather', this.shape, ids.shape, `outside dimension ${d} the ids may not be larger`);
    checkIds('gather', [this, ids], ids, d);
    const run = ({ ops }: BackendDevice) => ops.gather(operandOf('gather', this), operandOf('gather', ids), d);
    return compute('gather', [this, ids], ids.shape, this.dtype, run, rules.gather, d);
  }

  /**
   * A copy of this with `src` added at ids along `dim`; repeated ids add up. Shapes as {@link scatterSet}; any dtype.
   * @throws ShapeError, DTypeError as {@link scatterSet}
   * @example
   * ```ts
   * const ids = Tensor.from([0, 2, 2], { dtype: 'u32' });
   * Tensor.zeros([3]).scatterAdd(ids, Tensor.from([1, 2, 3]), 0).toVecSync(); // => [1, 0, 5]
   * ```
   */
  scatterAdd(this: Tensor, ids: Tensor, src: Tensor, dim: number): Tensor {
    return placed('scatterAdd', this, ids, src, dim);
  }

  /**
   * A copy of this with `src` written at ids along `dim`; of repeated ids any one may win. Shapes and errors as {@link
   * scatterSet}.
   */
  scatter(this: Tensor, ids: Tensor, src: Tensor, dim: number): Tensor {
    return placed('scatter', this, ids, src, dim);
  }

  /**
   * In place: this[.., ids[.., j, ..], ..] = src[.., j, ..] for every element of ids. This tensor is contiguous; ids are
   * integers of its rank, of sizes no larger than src's and, but for `dim`, no larger than this one's; what src has beyond
   * them is left out. Source and target are of one dtype; the target shares no memory with the others. Gradients flow as
   * with {@link sliceSet}.
   * @throws ShapeError `SHAPE_MISMATCH` for larger ids; CandleError `GRADIENT_IN_PLACE` as {@link sliceSet}; others as
   *   {@link indexSelect}
   */
  scatterSet(this: Tensor, ids: Tensor, src: Tensor, dim: number): void {
    placeInto('scatterSet', this, ids, src, dim);
  }

  /** In place, adding: {@link scatterAdd} for a contiguous tensor; errors as {@link scatterSet}. */
  scatterAddSet(this: Tensor, ids: Tensor, src: Tensor, dim: number): void {
    placeInto('scatterAddSet', this, ids, src, dim);
  }

  /**
   * A copy of this with slice i of `src` added to slice ids[i] along `dim`; ids are integers of rank 1, as many as the
   * source has slices. Any dtype.
   * @throws ShapeError `SHAPE_MISMATCH` for another source; others as {@link indexSelect}
   * @example
   * ```ts
   * const ids = Tensor.from([1, 1], { dtype: 'u32' });
   * Tensor.zeros([3]).indexAdd(ids, Tensor.from([5, 6]), 0).toVecSync(); // => [0, 11, 0]
   * ```
   */
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
    checkIds('indexAdd', [this, ids, src], ids, d);
    const run = ({ ops }: BackendDevice) =>
      ops.indexAdd(operandOf('indexAdd', this), operandOf('indexAdd', ids), operandOf('indexAdd', src), d);
    return compute('indexAdd', [this, ids, src], this.shape, this.dtype, run, rules.indexAdd, d);
  }

  /**
   * In place: every element becomes `value`. Views that share the memory see it. Any shape, strides and dtype.
   * @throws DTypeError for a value that the dtype cannot hold; CandleError `GRADIENT_IN_PLACE` as {@link sliceSet}
   * @example
   * ```ts
   * const t = Tensor.zeros([2, 2]);
   * t.i(0).constSet(7);
   * t.toVecSync(); // => [[7, 7], [0, 0]]
   * ```
   */
  constSet(this: Tensor, value: number | bigint): void {
    const operand = operandOf('constSet', this);
    const held = heldScalar('constSet', this.dtype, value);
    const tracked = checkWrite('constSet', this);
    if (this.elemCount > 0) this.device.backend.ops.fill(operand, held);
    markWritten(this);
    // Nothing of what it was computed from is left.
    if (tracked) this.handle.forget();
  }

  /** In place: every element becomes 0; see {@link constSet}. */
  zeroSet(this: Tensor): void {
    this.constSet(0);
  }

  /** In place: every element becomes 1; see {@link constSet}. */
  oneSet(this: Tensor): void {
    this.constSet(1);
  }
}

/** Slices of `tensor` along `d` at ids of rank 1. */
function selected(op: string, tensor: Tensor, ids: Tensor, d: number): Tensor {
  requireIds(op, ids, 1);
  checkIds(op, [tensor, ids], ids, d);
  const shape = tensor.shape.map((size, i) => (i === d ? ids.elemCount : size));
  const run = ({ ops }: BackendDevice) => ops.indexSelect(operandOf(op, tensor), operandOf(op, ids), d);
  return compute(op, [tensor, ids], shape, tensor.dtype, run, rules.indexSelect, d);
}

/** A copy of `tensor` with `src` written or added at the ids. */
function placed(op: 'scatter' | 'scatterAdd', tensor: Tensor, ids: Tensor, src: Tensor, dim: number): Tensor {
  const d = scatterDim(op, tensor, ids, src, dim);
  checkIds(op, [tensor, ids, src], ids, d);
  const run = ({ ops }: BackendDevice) => {
    return filledBy(ops.copy(operandOf(op, tensor)), (storage) => {
      if (ids.elemCount === 0) return;
      const method = op === 'scatter' ? 'scatterSet' : 'scatterAddSet';
      const target = { storage, layout: Layout.contiguous(tensor.shape) };
      ops[method](target, operandOf(op, ids), operandOf(op, src, src.layout.narrowTo(ids.shape)), d);
    });
  };
  return compute(
    op,
    [tensor, ids, src],
    tensor.shape,
    tensor.dtype,
    run,
    op === 'scatter' ? rules.scatter : rules.scatterAdd,
    d,
  );
}

/** Writes or adds `src` into `tensor` itself. */
function placeInto(op: 'scatterSet' | 'scatterAddSet', tensor: Tensor, ids: Tensor, src: Tensor, dim: number): void {
  const d = scatterDim(op, tensor, ids, src, dim);
  requireContiguous(op, tensor);
  checkOperands(op, [tensor, ids, src]);
  requireSeparate(op, tensor, src);
  requireSeparate(op, tensor, ids, 'ids');
  if (ids.elemCount === 0) return;
  const recorded = checkWrite(op, tensor, [src]);
  checkIds(op, [tensor, ids, src], ids, d);
  const from = operandOf(op, src, src.layout.narrowTo(ids.shape));
  tensor.device.backend.ops[op](operandOf(op, tensor), operandOf(op, ids), from, d);
  markWritten(tensor);
  if (recorded) recordWrite(op, [tensor, ids, src], op === 'scatterSet' ? rules.scatter : rules.scatterAdd, d);
}

/** Checks the operands, of which `ids` choose from dimension `d` of the first. */
function checkIds(op: string, operands: readonly Tensor[], ids: Tensor, d: number): void {
  checkOperands(op, operands);
  if (ids.elemCount === 0) return;
  const { shape } = operands[0];
  if (shape[d] === 0) {
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `${op}: dimension ${d} of ${formatShape(shape)} is empty and ${ids.elemCount} ids are given; give none.`,
    );
  }
  ids.device.backend.ops.checkIds(op, operandOf(op, ids), { size: shape[d], dim: d });
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
  if (src.rank !== ids.rank || ids.shape.some((size, i) => size > src.shape[i])) {
    throw shapesDiffer(op, src.shape, ids.shape, 'the ids may not be larger than the source, whose rank is theirs');
  }
  if (ids.shape.some((size, i) => i !== d && size > self.shape[i])) {
    throw shapesDiffer(op, self.shape, ids.shape, `outside dimension ${d} the ids may not be larger`);
  }
  return d;
}
