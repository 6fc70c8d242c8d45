/** Half-precision scales in blocks, and the roundings that ggml's quantisers use. */
import { f16ToF32, f32ToF16 } from '@x/core';

/** The half at `bytes[at]`, little-endian. */
export function readHalf(bytes: Uint8Array, at: number): number {
  return f16ToF32(bytes[at] | (bytes[at + 1] << 8));
}

/** Stores the half nearest to a value. */
export function writeHalf(bytes: Uint8Array, at: number, value: number): void {
  const bits = f32ToF16(value);
  bytes[at] = bits & 255;
  bytes[at + 1] = bits >>> 8;
}

/** Adding it leaves a double no bits below the point, so the processor's own rounding to even does the work. */
const NO_FRACTION = 1.5 * 2 ** 52;

/** The nearest integer, ties to even, for magnitudes below 2^51. */
export function roundHalfEven(value: number): number {
  return value + NO_FRACTION - NO_FRACTION;
}

/** The nearest integer, ties away from zero (C's `roundf`). */
export function roundHalfAway(value: number): number {
  return value < 0 ? -Math.floor(0.5 - value) : Math.floor(value + 0.5);
}

/** 1 / d in f32, with 0 for a zero scale. */
export function inverse(d: number): number {
  return d === 0 ? 0 : Math.fround(1 / d);
}
