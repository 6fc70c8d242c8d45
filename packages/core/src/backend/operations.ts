/**
 * The operations that every backend has; `Tensor` needs no others. A backend sees {@link Operand}s, never tensors:
 * reference counting, shape checks and broadcasting happen above it, so it may assume that shapes agree, that operands are
 * its own, and that none is empty.
 *
 * Conventions:
 * - a result is a new, contiguous storage from element 0 on, and operands are left alone; with `out` it is written there
 *   instead, and `out`'s storage is returned. `out` is contiguous, of the result's dtype and number of elements; for
 *   elementwise operations it may be one of the operands, of the same layout, and it overlaps none otherwise;
 * - methods that write in place return nothing;
 * - a dtype without a kernel is an `UnsupportedError` that names operation, dtype and device;
 * - work is enqueued, not awaited: only `toHost`, `toHostSync` and `synchronize` wait.
 */
import type { DType } from '../dtype';
import type { BinaryOp, CmpOp } from '../elementwise/binary';
import type { UnaryOp } from '../elementwise/unary';
import type { IdRange } from '../id-range';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/** Of equal elements `argmin` and `argmax` give the first; NaN wins over every number. */
export type ReduceOp = 'sum' | 'min' | 'max' | 'argmin' | 'argmax';

/** Sizes of a batched product: out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]. */
export interface MatmulSize {
  b: number;
  m: number;
  n: number;
  k: number;
}

/** Element strides and offsets of a 2-D copy (candle `copy2d`): `d1` rows of `d2` elements. */
export interface Copy2d {
  d1: number;
  d2: number;
  srcStride: number;
  dstStride: number;
  srcOffset: number;
  dstOffset: number;
}

/** Elementwise. */
export interface ElementwiseOps {
  /** The function of each element, in x's dtype. */
  unary(op: UnaryOp, x: Operand, out?: Operand): BackendStorage;
  /** x * mul + add, the scalars rounded to the dtype. All ten dtypes. */
  affine(x: Operand, mul: number, add: number, out?: Operand): BackendStorage;
  /** Each element raised to a power; float dtypes. */
  powf(x: Operand, exponent: number): BackendStorage;
  /** x where positive, else alpha * (exp(x) - 1); float dtypes. */
  elu(x: Operand, alpha: number): BackendStorage;
  /** The function of each pair of elements. Operands and result are of one shape and dtype. */
  binary(op: BinaryOp, lhs: Operand, rhs: Operand, out?: Operand): BackendStorage;
  /** The result is u8, 0 or 1. */
  cmp(op: CmpOp, lhs: Operand, rhs: Operand): BackendStorage;
  /** cond (an integer dtype) != 0 ? onTrue : onFalse. All of one shape. */
  whereCond(cond: Operand, onTrue: Operand, onFalse: Operand): BackendStorage;
  /** Cast as Rust's `as`: floats to integers truncate and saturate (NaN: 0), integers wrap. */
  toDtype(x: Operand, dtype: DType): BackendStorage;
}

export interface ReduceOps {
  /** Reduces `dims` (sum: any; others: exactly one). The result has them removed; argmin/argmax give u32. */
  reduce(op: ReduceOp, x: Operand, dims: readonly number[]): BackendStorage;
}

export interface MatmulOps {
  /** Matrices [.., m, k] and [.., k, n] of one dtype and any strides: [.., m, n]. */
  matmul(lhs: Operand, rhs: Operand, size: MatmulSize, out?: Operand): BackendStorage;
}

/** Ids are integers. */
export interface IndexingOps {
  /**
   * An id of `op` outside `range` is an `INDEX_OUT_OF_RANGE` error. It is raised here, or by a device that cannot know yet
   * when it is next waited for (`toHost`, `toHostSync`, `synchronize`). Called before each operation by ids, which may take
   * them to be inside but reaches no other memory where they are not.
   */
  checkIds(op: string, ids: Operand, range: IdRange): void;
  /** out[..., i, ...] = x[..., ids[i], ...] along `dim`; ids rank 1. */
  indexSelect(x: Operand, ids: Operand, dim: number): BackendStorage;
  /** out[.., j, ..] = x[.., ids[.., j, ..], ..] in the shape of the ids, which is no larger than x's but for `dim`. */
  gather(x: Operand, ids: Operand, dim: number): BackendStorage;
  /** A copy of x with src's slices added at ids along `dim`. */
  indexAdd(x: Operand, ids: Operand, src: Operand, dim: number): BackendStorage;
  /**
   * In place, dst contiguous: dst[.., ids[.., i, ..], ..] = src[.., i, ..]. Source and ids have one shape, which is no larger
   * than dst's but for `dim`.
   */
  scatterSet(dst: Operand, ids: Operand, src: Operand, dim: number): void;
  /** As {@link scatterSet}, adding src to what is there. */
  scatterAddSet(dst: Operand, ids: Operand, src: Operand, dim: number): void;
}

export interface CopyOps {
  /** The elements of x in row-major order. Its strides may be below 0, as a flipped dim has them; others take none such. */
  copy(x: Operand, out?: Operand): BackendStorage;
  /** In place, between storages of one dtype. */
  copy2d(src: BackendStorage, dst: BackendStorage, copy: Copy2d): void;
  /** In place: every element that the layout addresses becomes `value`. */
  fill(dst: Operand, value: number | bigint): void;
}

export interface BackendOperations extends ElementwiseOps, ReduceOps, MatmulOps, IndexingOps, CopyOps {}
