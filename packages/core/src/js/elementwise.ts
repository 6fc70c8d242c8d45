/** Elementwise ops of the plain backend: unary, affine, binary, compare, choose. */
import type { ElementwiseOps } from '../backend';
import { type DType, isFloat } from '../dtype';
import { type BinaryOp, binaryRow, CMP_OPS, type CmpOp } from '../elementwise/binary';
import { pow } from '../elementwise/numbers';
import { type UnaryOp, unaryRow } from '../elementwise/unary';
import { UnsupportedError } from '../errors';
import {
  allocRaw,
  allocValues,
  castValues,
  encodeRaw,
  type NumberArray,
  roundScalar,
  type TensorArray,
} from '../host-array';
import { denseRaw, denseValues, place } from './copy';
import type { JsOperand, JsStorage } from './storage';

export function unsupported(op: string, storage: JsStorage): UnsupportedError {
  return new UnsupportedError(
    'UNSUPPORTED',
    `${op} has no meaning for ${storage.dtype} on ${storage.device.location.kind}; convert the tensor with toDtype('f32').`,
  );
}

export function fromValues(like: JsStorage, dtype: DType, values: TensorArray): JsStorage {
  return like.make(dtype, encodeRaw(dtype, values));
}

function mapNumbers(x: JsOperand, f: (x: number) => number): JsStorage {
  const values = denseValues(x) as NumberArray;
  const out = allocValues(x.storage.dtype, values.length) as NumberArray;
  for (let i = 0; i < values.length; i++) out[i] = f(values[i]);
  return fromValues(x.storage, x.storage.dtype, out);
}

function mapBigints(x: JsOperand, f: (x: bigint) => bigint): JsStorage {
  const values = denseValues(x) as BigInt64Array;
  const out = new BigInt64Array(values.length);
  for (let i = 0; i < values.length; i++) out[i] = BigInt.asIntN(64, f(values[i]));
  return fromValues(x.storage, x.storage.dtype, out);
}

/** A function of floats applied to every element. */
function floatMap(op: string, x: JsOperand, f: (x: number) => number): JsStorage {
  if (!isFloat(x.storage.dtype)) throw unsupported(op, x.storage);
  return mapNumbers(x, f);
}

export const elementwise: ElementwiseOps = {
  unary(op: UnaryOp, x: JsOperand, out?: JsOperand): JsStorage {
    return place(unary(op, x), out);
  },

  affine(x: JsOperand, mul: number, add: number, out?: JsOperand): JsStorage {
    return place(affine(x, mul, add), out);
  },

  powf(x: JsOperand, exponent: number): JsStorage {
    const y = Number(roundScalar(x.storage.dtype, exponent));
    return floatMap('powf', x, (value) => pow(value, y));
  },

  elu(x: JsOperand, alpha: number): JsStorage {
    const a = Number(roundScalar(x.storage.dtype, alpha));
    return floatMap('elu', x, (value) => (value > 0 ? value : a * Math.expm1(value)));
  },

  binary(op: BinaryOp, lhs: JsOperand, rhs: JsOperand, out?: JsOperand): JsStorage {
    return place(binary(op, lhs, rhs), out);
  },

  cmp(op: CmpOp, lhs: JsOperand, rhs: JsOperand): JsStorage {
    const a = denseValues(lhs);
    const b = denseValues(rhs);
    const f: (a: number | bigint, b: number | bigint) => boolean = CMP_OPS[op];
    const out = new Uint8Array(a.length);
    for (let i = 0; i < a.length; i++) out[i] = f(a[i], b[i]) ? 1 : 0;
    return lhs.storage.make('u8', out);
  },

  whereCond(cond: JsOperand, onTrue: JsOperand, onFalse: JsOperand): JsStorage {
    if (isFloat(cond.storage.dtype)) throw unsupported('whereCond with a condition', cond.storage);
    const chosen = denseRaw(cond);
    const a = denseRaw(onTrue);
    const b = denseRaw(onFalse);
    const { dtype } = onTrue.storage;
    const out = allocRaw(dtype, chosen.length);
    // `Number` of a bigint is 0 only for 0n.
    for (let i = 0; i < chosen.length; i++) out[i] = Number(chosen[i]) !== 0 ? a[i] : b[i];
    return onTrue.storage.make(dtype, out);
  },

  toDtype(x: JsOperand, dtype: DType): JsStorage {
    return x.storage.make(dtype, castValues(x.storage.dtype, denseValues(x), dtype));
  },
};

function unary(op: UnaryOp, x: JsOperand): JsStorage {
  const { reference, integers } = unaryRow(op);
  const { dtype } = x.storage;
  if (isFloat(dtype)) return mapNumbers(x, reference);
  if (integers === undefined) throw unsupported(op, x.storage);
  if (integers === 'same') return x.storage.make(dtype, denseRaw(x).slice());
  return dtype === 'i64' ? mapBigints(x, integers.bigint) : mapNumbers(x, integers.number);
}

function affine(x: JsOperand, mul: number, add: number): JsStorage {
  const { dtype } = x.storage;
  const m = roundScalar(dtype, mul);
  const a = roundScalar(dtype, add);
  if (typeof m === 'bigint' || typeof a === 'bigint') return mapBigints(x, (value) => value * BigInt(m) + BigInt(a));
  if (isFloat(dtype)) return mapNumbers(x, (value) => value * m + a);
  return mapNumbers(x, (value) => Math.imul(value, m) + a);
}

function binary(op: BinaryOp, lhs: JsOperand, rhs: JsOperand): JsStorage {
  const { reference, integers } = binaryRow(op);
  const a = denseValues(lhs);
  const b = denseValues(rhs);
  const { dtype } = lhs.storage;
  const out = allocValues(dtype, a.length);
  if (isFloat(dtype)) {
    combine(a as NumberArray, b as NumberArray, out as NumberArray, reference);
  } else if (integers === undefined) {
    throw unsupported(op, lhs.storage);
  } else if (a instanceof BigInt64Array && b instanceof BigInt64Array && out instanceof BigInt64Array) {
    for (let i = 0; i < a.length; i++) out[i] = BigInt.asIntN(64, integers.bigint(a[i], b[i]));
  } else {
    combine(a as NumberArray, b as NumberArray, out as NumberArray, integers.number);
  }
  return fromValues(lhs.storage, dtype, out);
}

function combine(a: NumberArray, b: NumberArray, out: NumberArray, f: (x: number, y: number) => number): void {
  for (let i = 0; i < a.length; i++) out[i] = f(a[i], b[i]);
}
