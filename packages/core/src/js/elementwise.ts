/** Elementwise ops of the plain backend: unary, affine, binary, compare, choose. */
import type { BinaryOp, CmpOp, UnaryOp } from '../backend';
import { type DType, isFloat } from '../dtype';
import { UnsupportedError } from '../errors';
import { allocRaw, allocValues, encodeRaw, type NumberArray, roundScalar, type TensorArray } from '../host-array';
import type { Layout } from '../layout';
import { denseRaw, denseValues } from './copy';
import { JsStorage } from './storage';

const SQRT_2 = Math.SQRT2;
const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);

/** The error function to about 1e-15: a series of positive terms up to 3, a continued fraction of erfc beyond. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (Number.isNaN(a)) return a;
  if (a > 6) return Math.sign(x);
  if (a < 3) {
    let term = a;
    let sum = a;
    for (let n = 1; term > sum * 1e-17; n++) {
      term *= (2 * a * a) / (2 * n + 1);
      sum += term;
    }
    return Math.sign(x) * TWO_OVER_SQRT_PI * Math.exp(-a * a) * sum;
  }
  let fraction = a;
  for (let n = 60; n > 0; n--) fraction = a + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * fraction));
}

/** Halves away from zero, exact for every double. */
function round(x: number): number {
  const whole = Math.trunc(x);
  return Math.abs(x - whole) >= 0.5 ? whole + Math.sign(x) : whole;
}

/** C's pow: 1 to every power is 1, and so is -1 to an infinite one; JavaScript has NaN for some of these. */
function pow(x: number, y: number): number {
  return x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y;
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

const FLOAT_UNARY: Record<UnaryOp, (x: number) => number> = {
  exp: Math.exp,
  log: Math.log,
  sin: Math.sin,
  cos: Math.cos,
  tanh: Math.tanh,
  abs: Math.abs,
  neg: (x) => -x,
  recip: (x) => 1 / x,
  sqr: (x) => x * x,
  sqrt: Math.sqrt,
  gelu: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * x * (1 + 0.044715 * x * x))),
  geluErf: (x) => 0.5 * x * (1 + erf(x / SQRT_2)),
  erf,
  // biome-ignore lint/complexity/useMathMinMax: -0 stays, as in the kernels
  relu: (x) => (x < 0 ? 0 : x),
  silu: (x) => x * sigmoid(x),
  sigmoid,
  floor: Math.floor,
  ceil: Math.ceil,
  round,
  sign: (x) => (x > 0 ? 1 : x < 0 ? -1 : 0),
};

const same = <T>(x: T) => x;
const INT_UNARY: Partial<Record<UnaryOp, (x: number) => number>> = {
  abs: Math.abs,
  neg: (x) => -x,
  sqr: (x) => Math.imul(x, x),
  relu: (x) => Math.max(x, 0),
  floor: same,
  ceil: same,
  round: same,
  sign: Math.sign,
};
const BIG_UNARY: Partial<Record<UnaryOp, (x: bigint) => bigint>> = {
  abs: (x) => (x < 0n ? -x : x),
  neg: (x) => -x,
  sqr: (x) => x * x,
  relu: (x) => (x < 0n ? 0n : x),
  floor: same,
  ceil: same,
  round: same,
  sign: (x) => (x > 0n ? 1n : x < 0n ? -1n : 0n),
};

const FLOAT_BINARY: Record<BinaryOp, (a: number, b: number) => number> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  maximum: Math.max,
  minimum: Math.min,
  pow,
};
type IntBinaryOp = Exclude<BinaryOp, 'pow'>;
/** Results wrap when they are stored; a product needs `imul` because its exact value may not fit a double. */
const INT_BINARY: Record<IntBinaryOp, (a: number, b: number) => number> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: Math.imul,
  div: (a, b) => (b === 0 ? 0 : Math.trunc(a / b)),
  maximum: Math.max,
  minimum: Math.min,
};
const BIG_BINARY: Record<IntBinaryOp, (a: bigint, b: bigint) => bigint> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => (b === 0n ? 0n : a / b),
  // biome-ignore lint/complexity/useMathMinMax: Math.max takes no bigints
  maximum: (a, b) => (a > b ? a : b),
  // biome-ignore lint/complexity/useMathMinMax: Math.min takes no bigints
  minimum: (a, b) => (a < b ? a : b),
};

type Comparable = number | bigint;
const COMPARE: Record<CmpOp, (a: Comparable, b: Comparable) => boolean> = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
};

export function unsupported(op: string, storage: JsStorage): UnsupportedError {
  return new UnsupportedError(
    'UNSUPPORTED',
    `${op} has no meaning for ${storage.dtype} on ${storage.device.location.kind}; convert the tensor with toDtype('f32').`,
  );
}

export function fromValues(like: JsStorage, dtype: DType, values: TensorArray): JsStorage {
  return new JsStorage(like.device, dtype, encodeRaw(dtype, values));
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
  if (isFloat(storage.dtype)) return mapNumbers(storage, layout, FLOAT_UNARY[op]);
  const [small, big] = [INT_UNARY[op], BIG_UNARY[op]];
  if (!small || !big) throw unsupported(op, storage);
  return storage.dtype === 'i64' ? mapBigints(storage, layout, big) : mapNumbers(storage, layout, small);
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
  const a = denseValues(lhs, lhsLayout);
  const b = denseValues(rhs, rhsLayout);
  const out = allocValues(lhs.dtype, a.length);
  if (isFloat(lhs.dtype)) {
    combine(a as NumberArray, b as NumberArray, out as NumberArray, FLOAT_BINARY[op]);
  } else if (op === 'pow') {
    throw unsupported(op, lhs);
  } else if (a instanceof BigInt64Array && b instanceof BigInt64Array && out instanceof BigInt64Array) {
    const f = BIG_BINARY[op];
    for (let i = 0; i < a.length; i++) out[i] = BigInt.asIntN(64, f(a[i], b[i]));
  } else {
    combine(a as NumberArray, b as NumberArray, out as NumberArray, INT_BINARY[op]);
  }
  return fromValues(lhs, lhs.dtype, out);
}

function combine(a: NumberArray, b: NumberArray, out: NumberArray, f: (x: number, y: number) => number): void {
  for (let i = 0; i < a.length; i++) out[i] = f(a[i], b[i]);
}

export function compare(op: CmpOp, lhs: JsStorage, rhs: JsStorage, lhsLayout: Layout, rhsLayout: Layout): JsStorage {
  const a = denseValues(lhs, lhsLayout);
  const b = denseValues(rhs, rhsLayout);
  const f = COMPARE[op];
  const out = new Uint8Array(a.length);
  for (let i = 0; i < a.length; i++) out[i] = f(a[i], b[i]) ? 1 : 0;
  return new JsStorage(lhs.device, 'u8', out);
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
  return new JsStorage(onTrue.device, onTrue.dtype, out);
}
