/** Elementwise ops of the plain backend: unary, affine, binary, compare, choose. */
import { type DType, isFloat } from '../dtype';
import { type BinaryOp, binaryRow, CMP_OPS, type CmpOp } from '../elementwise/binary';
import { pow } from '../elementwise/numbers';
import { type UnaryOp, unaryRow } from '../elementwise/unary';
import { UnsupportedError } from '../errors';
import { allocRaw, allocValues, encodeRaw, type NumberArray, roundScalar, type TensorArray } from '../host-array';
import type { Layout } from '../layout';
import { denseRaw, denseValues } from './copy';
import type { JsStorage } from './storage';

export function unsupported(op: string, storage: JsStorage): UnsupportedError {
  return new UnsupportedError(
    'UNSUPPORTED',
    `${op} has no meaning for ${storage.dtype} on ${storage.device.location.kind}; convert the tensor with toDtype('f32').`,
  );
}

export function fromValues(like: JsStorage, dtype: DType, values: TensorArray): JsStorage {
  return like.make(dtype, encodeRaw(dtype, values));
}

function mapNumbers(storage: JsStorage, layout: Layout, f: (x: number) => number): JsStorage {
  const x = denseValues(storage, layout) as NumberArray;
  const out = allocValues(storage.dtype, x.length) as NumberArray;
  for (let i = 0; i < x.length; i++) out[i] = f(x[i]);
  return fromValues(storage, storage.dtype, out);
}

function mapBigints(storage: JsStorage, layout: Layout, f: (x: bigint) => bigint): JsStorage {
  const x = denseValues(storage, layout) as BigInt64Array;
  const out = new BigInt64Array(x.length);
  for (let i = 0; i < x.length; i++) out[i] = BigInt.asIntN(64, f(x[i]));
  return fromValues(storage, storage.dtype, out);
}

/** A function of floats applied to every element. */
function floatMap(op: string, storage: JsStorage, layout: Layout, f: (x: number) => number): JsStorage {
  if (!isFloat(storage.dtype)) throw unsupported(op, storage);
  return mapNumbers(storage, layout, f);
}

export function powf(storage: JsStorage, layout: Layout, exponent: number): JsStorage {
  const y = Number(roundScalar(storage.dtype, exponent));
  return floatMap('powf', storage, layout, (x) => pow(x, y));
}

export function elu(storage: JsStorage, layout: Layout, alpha: number): JsStorage {
  const a = Number(roundScalar(storage.dtype, alpha));
  return floatMap('elu', storage, layout, (x) => (x > 0 ? x : a * Math.expm1(x)));
}

export function unary(op: UnaryOp, storage: JsStorage, layout: Layout): JsStorage {
  const { reference, integers } = unaryRow(op);
  if (isFloat(storage.dtype)) return mapNumbers(storage, layout, reference);
  if (integers === undefined) throw unsupported(op, storage);
  if (integers === 'same') return storage.make(storage.dtype, denseRaw(storage, layout).slice());
  return storage.dtype === 'i64'
    ? mapBigints(storage, layout, integers.bigint)
    : mapNumbers(storage, layout, integers.number);
}

export function affine(storage: JsStorage, layout: Layout, mul: number, add: number): JsStorage {
  const m = roundScalar(storage.dtype, mul);
  const a = roundScalar(storage.dtype, add);
  if (typeof m === 'bigint' || typeof a === 'bigint') {
    return mapBigints(storage, layout, (x) => x * BigInt(m) + BigInt(a));
  }
  if (isFloat(storage.dtype)) return mapNumbers(storage, layout, (x) => x * m + a);
  return mapNumbers(storage, layout, (x) => Math.imul(x, m) + a);
}

export function binary(op: BinaryOp, lhs: JsStorage, rhs: JsStorage, lhsLayout: Layout, rhsLayout: Layout): JsStorage {
  const { reference, integers } = binaryRow(op);
  const a = denseValues(lhs, lhsLayout);
  const b = denseValues(rhs, rhsLayout);
  const out = allocValues(lhs.dtype, a.length);
  if (isFloat(lhs.dtype)) {
    combine(a as NumberArray, b as NumberArray, out as NumberArray, reference);
  } else if (integers === undefined) {
    throw unsupported(op, lhs);
  } else if (a instanceof BigInt64Array && b instanceof BigInt64Array && out instanceof BigInt64Array) {
    for (let i = 0; i < a.length; i++) out[i] = BigInt.asIntN(64, integers.bigint(a[i], b[i]));
  } else {
    combine(a as NumberArray, b as NumberArray, out as NumberArray, integers.number);
  }
  return fromValues(lhs, lhs.dtype, out);
}

function combine(a: NumberArray, b: NumberArray, out: NumberArray, f: (x: number, y: number) => number): void {
  for (let i = 0; i < a.length; i++) out[i] = f(a[i], b[i]);
}

export function compare(op: CmpOp, lhs: JsStorage, rhs: JsStorage, lhsLayout: Layout, rhsLayout: Layout): JsStorage {
  const a = denseValues(lhs, lhsLayout);
  const b = denseValues(rhs, rhsLayout);
  const f: (a: number | bigint, b: number | bigint) => boolean = CMP_OPS[op];
  const out = new Uint8Array(a.length);
  for (let i = 0; i < a.length; i++) out[i] = f(a[i], b[i]) ? 1 : 0;
  return lhs.make('u8', out);
}

export function whereCond(
  cond: JsStorage,
  layout: Layout,
  onTrue: JsStorage,
  trueLayout: Layout,
  onFalse: JsStorage,
  falseLayout: Layout,
): JsStorage {
  if (isFloat(cond.dtype)) throw unsupported('whereCond with a condition', cond);
  const chosen = denseRaw(cond, layout);
  const a = denseRaw(onTrue, trueLayout);
  const b = denseRaw(onFalse, falseLayout);
  const out = allocRaw(onTrue.dtype, chosen.length);
  // `Number` of a bigint is 0 only for 0n.
  for (let i = 0; i < chosen.length; i++) out[i] = Number(chosen[i]) !== 0 ? a[i] : b[i];
  return onTrue.make(onTrue.dtype, out);
}
