/**
 * Typed arrays of each dtype, and numbers turned into them: the host side of creating and reading tensors, shared by the
 * tensor API, the file formats and the plain TypeScript backend. Casts follow Rust's `as`, which is what candle does.
 */
import type { DType } from './dtype';
import { isInt, sizeInBytes } from './dtype';
import { DTypeError, OutOfMemoryError } from './errors';
import { decodeBf16, decodeF8e4m3, decodeF16, encodeBf16, encodeF8e4m3, encodeF16, f64ToF32Sticky } from './half';
import { show } from './show';

/** What a storage holds: raw bits for bf16, f16 (`Uint16Array`) and f8e4m3 (`Uint8Array`). */
export type RawArray =
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

/** What a tensor is read out as: values, so bf16, f16 and f8e4m3 come as `Float32Array`. */
export type TensorArray =
  | Uint8Array
  | Uint32Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

/** The array that a tensor of each dtype is read out as. */
export interface ValuesOf {
  u8: Uint8Array;
  u32: Uint32Array;
  i16: Int16Array;
  i32: Int32Array;
  i64: BigInt64Array;
  bf16: Float32Array;
  f16: Float32Array;
  f32: Float32Array;
  f64: Float64Array;
  f8e4m3: Float32Array;
}

/** Arrays that computations on plain numbers work on. */
export type NumberArray = Exclude<TensorArray, BigInt64Array>;

interface ArrayConstructor<T> {
  new (length: number): T;
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): T;
}

const RAW: Record<DType, ArrayConstructor<RawArray>> = {
  u8: Uint8Array,
  u32: Uint32Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  bf16: Uint16Array,
  f16: Uint16Array,
  f32: Float32Array,
  f64: Float64Array,
  f8e4m3: Uint8Array,
};

/**
 * Zeros in a dtype's storage form.
 * @throws OutOfMemoryError
 */
export function allocRaw(dtype: DType, length: number): RawArray {
  try {
    return new RAW[dtype](length);
  } catch (cause) {
    const requestedBytes = length * sizeInBytes(dtype);
    const message = `${length} elements of ${dtype} (${requestedBytes} bytes) do not fit in host memory; dispose tensors or use smaller ones.`;
    throw new OutOfMemoryError('OUT_OF_MEMORY', message, { cause, requestedBytes });
  }
}

/** Raw little-endian bytes as elements; copies only when the bytes are not aligned. */
export function rawFromBytes(dtype: DType, bytes: ArrayBufferView): RawArray {
  const size = sizeInBytes(dtype);
  if (bytes.byteLength % size !== 0) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `${bytes.byteLength} bytes are no whole number of ${dtype} elements of ${size} bytes; check the dtype.`,
    );
  }
  const count = bytes.byteLength / size;
  if (bytes.byteOffset % size === 0) return new RAW[dtype](bytes.buffer, bytes.byteOffset, count);
  const copy = new Uint8Array(bytes.byteLength);
  copy.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  return new RAW[dtype](copy.buffer, 0, count);
}

/** The bytes of any view, without copying. */
export function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** Storage form to values; the same array unless the dtype is bf16, f16 or f8e4m3. */
export function decodeRaw(dtype: DType, raw: RawArray): TensorArray {
  if (dtype === 'f16') return decodeF16(raw as Uint16Array);
  if (dtype === 'bf16') return decodeBf16(raw as Uint16Array);
  if (dtype === 'f8e4m3') return decodeF8e4m3(raw as Uint8Array);
  return raw as TensorArray;
}

/** Values already in a dtype's compute form (see {@link decodeRaw}) to storage form. */
export function encodeRaw(dtype: DType, values: TensorArray): RawArray {
  if (dtype === 'f16') return encodeF16(values as Float32Array);
  if (dtype === 'bf16') return encodeBf16(values as Float32Array);
  if (dtype === 'f8e4m3') return encodeF8e4m3(values as Float32Array);
  return values;
}

/** Zeros in a dtype's compute form: f32 for the narrow floats. */
export function allocValues(dtype: DType, length: number): TensorArray {
  return allocRaw(isNarrowFloat(dtype) ? 'f32' : dtype, length) as TensorArray;
}

export function isNarrowFloat(dtype: DType): boolean {
  return dtype === 'f16' || dtype === 'bf16' || dtype === 'f8e4m3';
}

const INT_RANGE: Record<string, readonly [number, number]> = {
  u8: [0, 255],
  u32: [0, 4294967295],
  i16: [-32768, 32767],
  i32: [-2147483648, 2147483647],
};
const I64_MAX = 2n ** 63n - 1n;
const I64_MIN = -(2n ** 63n);

/** Truncates towards zero and saturates; NaN gives 0. */
export function toInt64(value: number): bigint {
  if (Number.isNaN(value)) return 0n;
  if (value >= 2 ** 63) return I64_MAX;
  if (value <= -(2 ** 63)) return I64_MIN;
  return BigInt(Math.trunc(value));
}

/** An i64 as a double that rounds on to f32 (and narrower) as the integer itself would. */
function int64ToNumber(value: bigint, exact: boolean): number {
  if (exact || (value <= 9007199254740992n && value >= -9007199254740992n)) return Number(value);
  return Number((value >> 11n) | (value & 2047n ? 1n : 0n)) * 2048;
}

/**
 * Casts values between dtypes as Rust's `as`: floats to integers truncate and saturate with NaN to 0, integers to
 * integers wrap, anything to a float rounds to nearest even, integers to f16, bf16 and f8e4m3 by way of f32.
 * @param values in the compute form of `from`
 * @returns the storage form of `to`, always a new array
 */
export function castValues(from: DType, values: TensorArray, to: DType): RawArray {
  const count = values.length;
  if (to === 'i64') {
    const out = new BigInt64Array(count);
    if (values instanceof BigInt64Array) out.set(values);
    else for (let i = 0; i < count; i++) out[i] = toInt64(values[i]);
    return out;
  }
  const range = INT_RANGE[to];
  if (range) {
    const out = allocRaw(to, count) as NumberArray;
    if (values instanceof BigInt64Array) {
      for (let i = 0; i < count; i++) out[i] = Number(BigInt.asIntN(32, values[i]));
    } else if (from in INT_RANGE) {
      out.set(values);
    } else {
      const [low, high] = range;
      for (let i = 0; i < count; i++) {
        // NaN passes both and is stored as 0.
        out[i] = Math.min(high, Math.max(low, values[i]));
      }
    }
    return out;
  }
  if (values instanceof BigInt64Array) {
    const wide = new Float64Array(count);
    for (let i = 0; i < count; i++) wide[i] = int64ToNumber(values[i], to === 'f64');
    return to === 'f64' ? wide : castValues('f32', Float32Array.from(wide), to);
  }
  if (to === 'f64') return Float64Array.from(values);
  if (to === 'f32') return Float32Array.from(values);
  if (values instanceof Float32Array) return encodeRaw(to, values);
  // candle's, PyTorch's and the kernels' integers become f32 first.
  if (from in INT_RANGE) return encodeRaw(to, Float32Array.from(values));
  const sticky = new Float32Array(count);
  for (let i = 0; i < count; i++) sticky[i] = f64ToF32Sticky(values[i]);
  return encodeRaw(to, sticky);
}

/** One number in a dtype's storage form, cast as {@link castValues} does; a bigint is taken as i64. */
export function encodeScalar(dtype: DType, value: number | bigint): RawArray {
  if (typeof value === 'bigint') return castValues('i64', BigInt64Array.of(value), dtype);
  return castValues('f64', Float64Array.of(value), dtype);
}

/** One number rounded to a dtype, as a value. */
export function roundScalar(dtype: DType, value: number | bigint): number | bigint {
  if (dtype === 'f32' && typeof value === 'number') return Math.fround(value);
  return decodeRaw(dtype, encodeScalar(dtype, value))[0];
}

const FROM_TYPED: [new (n: number) => ArrayBufferView, DType][] = [
  [Float32Array, 'f32'],
  [Float64Array, 'f64'],
  [Uint8Array, 'u8'],
  [Uint8ClampedArray, 'u8'],
  [Uint32Array, 'u32'],
  [Int16Array, 'i16'],
  [Int32Array, 'i32'],
  [BigInt64Array, 'i64'],
];

/** The dtype that a typed array stands for, or undefined for those without one (Int8Array, Uint16Array, BigUint64Array). */
export function dtypeOfArray(data: ArrayBufferView): DType | undefined {
  return FROM_TYPED.find(([type]) => data instanceof type)?.[1];
}

/**
 * Numbers from a caller into storage form. Unlike a cast, an integer dtype refuses what it cannot hold.
 * @throws DTypeError for a fraction, NaN or out-of-range number given for an integer dtype
 */
export function encodeInput(op: string, dtype: DType, values: ArrayLike<number | bigint | boolean>): RawArray {
  const count = values.length;
  if (dtype === 'i64') {
    const out = new BigInt64Array(count);
    for (let i = 0; i < count; i++) {
      const v = values[i];
      if (typeof v === 'number' && !Number.isInteger(v)) throw notHeld(op, v, dtype);
      const big = BigInt(v);
      if (big > I64_MAX || big < I64_MIN) throw notHeld(op, v, dtype);
      out[i] = big;
    }
    return out;
  }
  const range = INT_RANGE[dtype];
  if (range) {
    const out = allocRaw(dtype, count) as NumberArray;
    for (let i = 0; i < count; i++) {
      const v = Number(values[i]);
      if (!Number.isInteger(v) || v < range[0] || v > range[1]) throw notHeld(op, values[i], dtype);
      out[i] = v;
    }
    return out;
  }
  const wide = new Float64Array(count);
  for (let i = 0; i < count; i++) wide[i] = Number(values[i]);
  return castValues('f64', wide, dtype);
}

/**
 * One number for every element of a tensor, as a backend takes it: an integer dtype refuses what it cannot hold, a float
 * dtype refuses bigints that it would have to round.
 * @throws DTypeError
 */
export function heldScalar(op: string, dtype: DType, value: number | bigint): number | bigint {
  if (isInt(dtype)) encodeInput(op, dtype, [value]);
  else if (typeof value === 'bigint') {
    const rounded = Number(roundScalar(dtype, Number(value)));
    if (!Number.isFinite(rounded) || BigInt(rounded) !== value) throw notHeld(op, value, dtype);
    return rounded;
  }
  return value;
}

function notHeld(op: string, value: number | bigint | boolean, dtype: DType): DTypeError {
  return new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: ${show(value)} is not a value of ${dtype}; use another dtype, or round and clamp the data first.`,
  );
}
