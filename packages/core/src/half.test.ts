import { describe, expect, test } from 'vitest';
import * as half from './half';

/** The nearest of a format's finite values, ties to the even code: slow, and independent of the bit tricks. */
function nearest(
  value: number,
  decode: (bits: number) => number,
  codes: number,
  max: number,
  overflow: number,
): number {
  if (Math.abs(value) >= max) return Math.sign(value) * overflow;
  let best = 0;
  let error = Number.POSITIVE_INFINITY;
  for (let bits = 0; bits < codes; bits++) {
    const distance = Math.abs(decode(bits) - Math.abs(value));
    if (distance < error || (distance === error && bits % 2 === 0)) {
      best = bits;
      error = distance;
    }
  }
  return Math.sign(value) * decode(best);
}

describe('half precision', () => {
  test('known f16 values', () => {
    const known: [number, number][] = [
      [0x0000, 0],
      [0x8000, -0],
      [0x3c00, 1],
      [0xc000, -2],
      [0x7bff, 65504],
      [0x0400, 2 ** -14],
      [0x0001, 2 ** -24],
      [0x3555, 0.333251953125],
      [0x7c00, Infinity],
      [0xfc00, -Infinity],
    ];
    for (const [bits, value] of known) {
      expect(half.f16ToF32(bits)).toBe(value);
      expect(half.f32ToF16(value)).toBe(bits);
    }
  });

  test('f16 rounds to nearest even and overflows to infinity', () => {
    expect(half.f32ToF16(1 + 2 ** -11)).toBe(0x3c00);
    expect(half.f32ToF16(1 + 3 * 2 ** -11)).toBe(0x3c02);
    expect(half.f32ToF16(65519.99)).toBe(0x7bff);
    expect(half.f32ToF16(65520)).toBe(0x7c00);
    expect(half.f32ToF16(2 ** -25)).toBe(0);
    expect(half.f32ToF16(1.5 * 2 ** -25)).toBe(1);
    expect(half.f32ToF16(2 ** -14 - 2 ** -26)).toBe(0x0400);
  });

  test('every f16, bf16 and f8e4m3 survives the way up and down', () => {
    for (let bits = 0; bits < 65536; bits++) {
      const f16 = half.f16ToF32(bits);
      if (!Number.isNaN(f16) && half.f32ToF16(f16) !== bits) expect.fail(`f16 ${bits}`);
      const bf16 = half.bf16ToF32(bits);
      if (!Number.isNaN(bf16) && half.f32ToBf16(bf16) !== bits) expect.fail(`bf16 ${bits}`);
    }
    for (let bits = 0; bits < 256; bits++) {
      const f8 = half.f8e4m3ToF32(bits);
      if (!Number.isNaN(f8)) expect(half.f32ToF8e4m3(f8)).toBe(bits);
    }
  });

  test('bf16', () => {
    expect(half.f32ToBf16(1)).toBe(0x3f80);
    expect(half.bf16ToF32(0x4049)).toBe(3.140625);
    expect(half.f32ToBf16(1 + 2 ** -8)).toBe(0x3f80);
    expect(half.f32ToBf16(1 + 3 * 2 ** -8)).toBe(0x3f82);
    expect(half.f32ToBf16(3.4e38)).toBe(0x7f80);
  });

  test('f8e4m3 is OCP E4M3FN and saturates', () => {
    expect(half.f8e4m3ToF32(0x7e)).toBe(448);
    expect(half.f8e4m3ToF32(0x01)).toBe(2 ** -9);
    expect(half.f8e4m3ToF32(0x08)).toBe(2 ** -6);
    expect(half.f32ToF8e4m3(1000)).toBe(0x7e);
    expect(half.f32ToF8e4m3(-Infinity)).toBe(0xfe);
    expect(half.f32ToF8e4m3(2 ** -10)).toBe(0);
    for (let x = -460; x < 460; x += 0.37) {
      const expected = nearest(Math.fround(x), half.f8e4m3ToF32, 127, 448, 448);
      expect(half.f8e4m3ToF32(half.f32ToF8e4m3(x))).toBe(expected);
    }
    for (let x = -0.05; x < 0.05; x += 0.00031) {
      const expected = nearest(Math.fround(x), half.f8e4m3ToF32, 127, 448, 448);
      expect(Math.abs(half.f8e4m3ToF32(half.f32ToF8e4m3(x)))).toBe(Math.abs(expected));
    }
  });

  test('NaN stays NaN', () => {
    expect(half.f16ToF32(half.f32ToF16(Number.NaN))).toBeNaN();
    expect(half.bf16ToF32(half.f32ToBf16(Number.NaN))).toBeNaN();
    expect(half.f32ToF8e4m3(Number.NaN)).toBe(0x7f);
    expect(half.f8e4m3ToF32(0xff)).toBeNaN();
    // A NaN whose payload lies only in the bits that are cut off.
    const quiet = new Float32Array(Uint32Array.of(0x7f800001).buffer);
    expect(half.decodeF16(half.encodeF16(quiet))[0]).toBeNaN();
    expect(half.decodeBf16(half.encodeBf16(quiet))[0]).toBeNaN();
  });

  test('bulk forms equal the scalar ones, at any offset', () => {
    const values = Float32Array.from({ length: 501 }, (_, i) => Math.sin(i) * 2 ** ((i % 40) - 20)).subarray(1);
    expect(Array.from(half.encodeF16(values))).toEqual(Array.from(values, half.f32ToF16));
    expect(Array.from(half.encodeBf16(values))).toEqual(Array.from(values, half.f32ToBf16));
    expect(Array.from(half.encodeF8e4m3(values))).toEqual(Array.from(values, half.f32ToF8e4m3));
    const bits = half.encodeF16(values);
    expect(Array.from(half.decodeF16(bits))).toEqual(Array.from(bits, half.f16ToF32));
    expect(Array.from(half.decodeBf16(bits))).toEqual(Array.from(bits, half.bf16ToF32));
  });

  test('doubles on the way down are rounded once', () => {
    const justOver = 1 + 2 ** -11 + 2 ** -40;
    expect(half.f32ToF16(justOver)).toBe(0x3c00);
    expect(half.f32ToF16(half.f64ToF32Sticky(justOver))).toBe(0x3c01);
    expect(half.f64ToF32Sticky(0.5)).toBe(0.5);
    expect(half.f64ToF32Sticky(-justOver)).toBeLessThan(-1 - 2 ** -11);
  });
});
