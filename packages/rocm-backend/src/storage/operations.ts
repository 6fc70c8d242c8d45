/** Elementwise ops and reductions. */
import type { BinaryOp, CmpOp, Layout, ReduceOp, UnaryOp } from '@x/core';
import { Affine, Binary, Cmp, Elu, Powf, Reduce, Unary, WhereCond } from '../ops';
import type { RocmStorage } from './index';

export function affine(storage: RocmStorage, layout: Layout, mul: number, add: number): RocmStorage {
  return new Affine(mul, add).map(storage, layout);
}

export function powf(storage: RocmStorage, layout: Layout, exponent: number): RocmStorage {
  return new Powf(exponent).map(storage, layout);
}

export function elu(storage: RocmStorage, layout: Layout, alpha: number): RocmStorage {
  return new Elu(alpha).map(storage, layout);
}

export function unary(storage: RocmStorage, op: UnaryOp, layout: Layout): RocmStorage {
  return new Unary(op).map(storage, layout);
}

export function binary(lhs: RocmStorage, op: BinaryOp, rhs: RocmStorage, lhsLayout: Layout, rhsLayout: Layout): RocmStorage {
  return new Binary(op).map(lhs, lhsLayout, rhs, rhsLayout);
}

export function cmp(lhs: RocmStorage, op: CmpOp, rhs: RocmStorage, lhsLayout: Layout, rhsLayout: Layout): RocmStorage {
  return new Cmp(op).map(lhs, lhsLayout, rhs, rhsLayout);
}

/** A sum over nothing is zero; core refuses the other reductions of an empty dim. */
export function reduce(storage: RocmStorage, op: ReduceOp, layout: Layout, dims: readonly number[]): RocmStorage {
  const reduction = new Reduce(op, dims);
  if (layout.elemCount === 0) return storage.device.zeros(reduction.outputCount(layout), reduction.outputDtype(storage.dtype));
  return reduction.map(storage, layout);
}

export function whereCond(
  cond: RocmStorage,
  layout: Layout,
  onTrue: RocmStorage,
  trueLayout: Layout,
  onFalse: RocmStorage,
  falseLayout: Layout,
): RocmStorage {
  return new WhereCond().map(cond, layout, onTrue, trueLayout, onFalse, falseLayout);
}
