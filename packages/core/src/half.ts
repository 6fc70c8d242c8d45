/**
 * f16, bf16 and f8e4m3 as raw bits, to and from f32: what the crates `half` and `float8` are to candle.
 *
 * - Narrowing rounds to nearest, ties to even. f16 overflows to infinity; f8e4m3 (OCP E4M3FN, which has no infinity)
 *   saturates at ±448. NaN stays NaN (f8e4m3: 0x7f).
 * - Widening is exact. f16 and f8e4m3 widen through a table built on first use, bf16 by shifting.
 */

const f32Cell = new Float32Array(1);
const u32Cell = new Uint32Array(f32Cell.buffer);

function bitsOf(value: number): number {
  f32Cell[0] = value;
  return u32Cell[0];
}

/** Adds one to `kept` when the bits cut off are over half a unit, or exactly half beside an odd `kept`. */
function roundEven(kept: number, cut: number, half: number): number {
  return cut > half || (cut === half && (kept & 1) === 1) ? kept + 1 : kept;
}

function f16FromF32Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const abs = bits & 0x7fffffff;
  if (abs >= 0x47800000) {
    if (abs > 0x7f800000) return sign | 0x7e00 | ((abs >>> 13) & 0x3ff);
    return sign | 0x7c00;
  }
  if (abs >= 0x38800000) {
    const rebased = abs - 0x38000000;
    return sign | roundEven(rebased >>> 13, rebased & 0x1fff, 0x1000);
  }
  if (abs < 0x33000000) return sign;
  const shift = 126 - (abs >>> 23);
  const mantissa = (abs & 0x7fffff) | 0x800000;
  return sign | roundEven(mantissa >>> shift, mantissa & ((1 << shift) - 1), 1 << (shift - 1));
}

function bf16FromF32Bits(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function f8FromF32Bits(bits: number): number {
  const sign = (bits >>> 24) & 0x80;
  const abs = bits & 0x7fffffff;
  if (abs > 0x7f800000) return 0x7f;
  if (abs >= 0x43e00000) return sign | 0x7e;
  if (abs >= 0x3c800000) {
    const rebased = abs - 0x3c000000;
    return sign | roundEven(rebased >>> 20, rebased & 0xfffff, 0x80000);
  }
  if (abs < 0x3a800000) return sign;
  const shift = 141 - (abs >>> 23);
  const mantissa = (abs & 0x7fffff) | 0x800000;
  return sign | roundEven(mantissa >>> shift, mantissa & ((1 << shift) - 1), 1 << (shift - 1));
}

function widen(bits: number, exponentBits: number, mantissaBits: number): number {
  const exponentMax = (1 << exponentBits) - 1;
  const bias = exponentMax >> 1;
  const sign = bits >>> (exponentBits + mantissaBits) ? -1 : 1;
  const exponent = (bits >>> mantissaBits) & exponentMax;
  const fraction = (bits & ((1 << mantissaBits) - 1)) / (1 << mantissaBits);
  return sign * (exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias));
}

let f16Table: Float32Array | undefined;
let f8Table: Float32Array | undefined;

function f16Values(): Float32Array {
  if (f16Table) return f16Table;
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    if ((bits & 0x7c00) !== 0x7c00) table[bits] = widen(bits, 5, 10);
    else table[bits] = bits & 0x3ff ? Number.NaN : bits & 0x8000 ? -Infinity : Infinity;
  }
  f16Table = table;
  return table;
}

function f8Values(): Float32Array {
  if (f8Table) return f8Table;
  const table = new Float32Array(256);
  for (let bits = 0; bits < 256; bits++) table[bits] = (bits & 0x7f) === 0x7f ? Number.NaN : widen(bits, 4, 3);
  f8Table = table;
  return table;
}

/** The value of 16 raw bits. */
export function f16ToF32(bits: number): number {
  return f16Values()[bits & 0xffff];
}

/** Raw bits of the nearest f16; the argument is rounded to f32 first. */
export function f32ToF16(value: number): number {
  return f16FromF32Bits(bitsOf(value));
}

/** As {@link f16ToF32}, of bf16. */
export function bf16ToF32(bits: number): number {
  u32Cell[0] = bits << 16;
  return f32Cell[0];
}

/** Raw bits of the nearest bf16; the argument is rounded to f32 first. */
export function f32ToBf16(value: number): number {
  return bf16FromF32Bits(bitsOf(value));
}

/** The value of 8 raw bits. */
export function f8e4m3ToF32(bits: number): number {
  return f8Values()[bits & 0xff];
}

/** Raw bits of the nearest f8e4m3, saturating; the argument is rounded to f32 first. */
export function f32ToF8e4m3(value: number): number {
  return f8FromF32Bits(bitsOf(value));
}

/**
 * A double as the f32 that later rounds to a narrower type as the double itself would: inexact values get an odd last
 * bit ("round to odd"), so no tie appears that was not there. Only for the way down to f16, bf16 and f8e4m3.
 */
export function f64ToF32Sticky(value: number): number {
  f32Cell[0] = value;
  const rounded = f32Cell[0];
  if (rounded === value || !Number.isFinite(rounded) || u32Cell[0] & 1) return rounded;
  u32Cell[0] += Math.abs(rounded) < Math.abs(value) ? 1 : -1;
  return f32Cell[0];
}

/** Widens a run of f16 bits; `out` must be as long as `bits`. */
export function decodeF16(bits: Uint16Array, out = new Float32Array(bits.length)): Float32Array {
  const table = f16Values();
  for (let i = 0; i < bits.length; i++) out[i] = table[bits[i]];
  return out;
}

/** As {@link decodeF16}, of bf16. */
export function decodeBf16(bits: Uint16Array, out = new Float32Array(bits.length)): Float32Array {
  const words = new Uint32Array(out.buffer, out.byteOffset, out.length);
  for (let i = 0; i < bits.length; i++) words[i] = bits[i] << 16;
  return out;
}

/** As {@link decodeF16}, of f8e4m3. */
export function decodeF8e4m3(bits: Uint8Array, out = new Float32Array(bits.length)): Float32Array {
  const table = f8Values();
  for (let i = 0; i < bits.length; i++) out[i] = table[bits[i]];
  return out;
}

/** Narrows a run of f32 to f16 bits; `out` must be as long as `values`. */
export function encodeF16(values: Float32Array, out = new Uint16Array(values.length)): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < words.length; i++) out[i] = f16FromF32Bits(words[i]);
  return out;
}

/** As {@link encodeF16}, to bf16. */
export function encodeBf16(values: Float32Array, out = new Uint16Array(values.length)): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < words.length; i++) out[i] = bf16FromF32Bits(words[i]);
  return out;
}

/** As {@link encodeF16}, to f8e4m3, saturating. */
export function encodeF8e4m3(values: Float32Array, out = new Uint8Array(values.length)): Uint8Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < words.length; i++) out[i] = f8FromF32Bits(words[i]);
  return out;
}
