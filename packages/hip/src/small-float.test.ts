import { expect, test } from 'vitest';
import { encodeBF16, encodeF8E4M3, encodeF16 } from './small-float';

/** Every finite non-negative value of a format, from its definition. */
function decode(bits: number, exponentBits: number, mantissaBits: number): number {
  const exponent = bits >> mantissaBits;
  const mantissa = bits & ((1 << mantissaBits) - 1);
  const bias = 2 ** (exponentBits - 1) - 1;
  if (exponent === 0) return mantissa * 2 ** (1 - bias - mantissaBits);
  return (1 + mantissa * 2 ** -mantissaBits) * 2 ** (exponent - bias);
}

const FORMATS = [
  { name: 'f16', encode: encodeF16, exponentBits: 5, mantissaBits: 10, last: 0x7bff, sign: 0x8000 },
  { name: 'bf16', encode: encodeBF16, exponentBits: 8, mantissaBits: 7, last: 0x7f7f, sign: 0x8000 },
  { name: 'f8e4m3', encode: encodeF8E4M3, exponentBits: 4, mantissaBits: 3, last: 0x7e, sign: 0x80 },
];

test.each(FORMATS)('$name: every value encodes to itself, ties go to even, anything else to the nearer', (format) => {
  const { encode, exponentBits, mantissaBits, last, sign } = format;
  let wrong = 0;
  for (let bits = 0; bits <= last; bits++) {
    const value = decode(bits, exponentBits, mantissaBits);
    if (encode(value) !== bits || encode(-value) !== (bits | sign)) wrong++;
    if (bits === last) break;
    const next = decode(bits + 1, exponentBits, mantissaBits);
    const middle = (value + next) / 2;
    if (encode(middle) !== (bits % 2 === 0 ? bits : bits + 1)) wrong++;
    if (encode(middle - (next - value) / 16) !== bits) wrong++;
    if (encode(middle + (next - value) / 16) !== bits + 1) wrong++;
  }
  expect(wrong).toBe(0);
});

test('beyond the range: infinity, or saturation for f8e4m3', () => {
  expect(encodeF16(65519.99)).toBe(0x7bff);
  expect(encodeF16(65520)).toBe(0x7c00);
  expect(encodeF16(-Infinity)).toBe(0xfc00);
  expect(encodeBF16(3.4e38)).toBe(0x7f80);
  expect(encodeBF16(-1e300)).toBe(0xff80);
  expect(encodeF8E4M3(1e9)).toBe(0x7e);
  expect(encodeF8E4M3(-Infinity)).toBe(0xfe);
});

test('NaN stays NaN and zero keeps its sign', () => {
  expect(encodeF16(Number.NaN)).toBe(0x7e00);
  expect(encodeBF16(Number.NaN)).toBe(0x7fc0);
  expect(encodeF8E4M3(Number.NaN)).toBe(0x7f);
  expect(encodeF16(-0)).toBe(0x8000);
  expect(encodeF8E4M3(-0)).toBe(0x80);
});

test('a double is rounded once', () => {
  // Just above a tie: through f32 it would become the tie and round down to even.
  expect(encodeF16(1 + 2 ** -11 + 2 ** -40)).toBe(0x3c01);
});
