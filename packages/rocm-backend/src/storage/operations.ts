/** Elementwise ops. */
import type { BinaryOp, CmpOp, Layout, Operand, UnaryOp } from '@x/core';
import { Affine, Binary, Cmp, Elu, Powf, Unary, WhereCond } from '../ops';
import type { RocmStorage } from './index';

export function affine(storage: RocmStorage, layout: Layout, mul: number, add: number, into?: Operand): RocmStorage {
  return new Affine(mul, add).map(storage, layout, into);
}

export function powf(storage: RocmStorage, layout: Layout, exponent: number): RocmStorage {
  return new Powf(exponent).map(storage, layout);
}

export function elu(storage: RocmStorage, layout: Layout, alpha: number): RocmStorage {
  return new Elu(alpha).map(storage, layout);
}

export function unary(storage: RocmStorage, op: UnaryOp, layout: Layout, into?: Operand): RocmStorage {
  return new Unary(op).map(storage, layout, into);
}

export function binary(
  lhs: RocmStorage,
  op: BinaryOp,
  rhs: RocmStorage,
  lhsLayout: Layout,
  rhsLayout: Layout,
  into?: Operand,
): RocmStorage {
  return new Binary(op).map(lhs, lhsLayout, rhs, rhsLayout, into);
}

export function cmp(lhs: RocmStorage, op: CmpOp, rhs: RocmStorage, lhsLayout: Layout, rhsLayout: Layout): RocmStorage {
  return new Cmp(op).map(lhs, lhsLayout, rhs, rhsLayout);
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
