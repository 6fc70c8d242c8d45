/**
 * Bits of the narrow float formats, for kernel arguments: f16, bf16 and f8e4m3 (the finite-only variant, `fn`). Rounds a
 * number once, to nearest with ties to even, so a double is not rounded twice on its way.
 */
const scratch = new Float64Array(1);
const scratchWords = new Uint32Array(scratch.buffer);

/** Magnitude bits of a finite positive number; the carry out of the mantissa runs into the exponent as it should. */
function magnitudeBits(value: number, exponentBits: number, mantissaBits: number): number {
  const lowest = 2 - 2 ** (exponentBits - 1); // exponent of the smallest normal number
  scratch[0] = value;
  const exponent = Math.max(((scratchWords[1] >>> 20) & 0x7ff) - 1023, lowest);
  const scaled = value * 2 ** (mantissaBits - exponent);
  let rounded = Math.floor(scaled);
  const rest = scaled - rounded;
  if (rest > 0.5 || (rest === 0.5 && rounded % 2 === 1)) rounded += 1;
  return (exponent - lowest) * 2 ** mantissaBits + rounded;
}

function isNegative(value: number): boolean {
  return value < 0 || Object.is(value, -0);
}

export function encodeF16(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = isNegative(value) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  return sign | (magnitude >= 65520 ? 0x7c00 : magnitudeBits(magnitude, 5, 10));
}

export function encodeBF16(value: number): number {
  if (Number.isNaN(value)) return 0x7fc0;
  const sign = isNegative(value) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  // Half a unit above the largest finite value rounds to infinity.
  return sign | (magnitude >= 2 ** 127 * (2 - 2 ** -8) ? 0x7f80 : magnitudeBits(magnitude, 8, 7));
}

/** Values beyond ±448 saturate, as the hardware conversions and candle's float8 crate do; the format has no infinity. */
export function encodeF8E4M3(value: number): number {
  if (Number.isNaN(value)) return 0x7f;
  const sign = isNegative(value) ? 0x80 : 0;
  const magnitude = Math.abs(value);
  return sign | (magnitude >= 448 ? 0x7e : magnitudeBits(magnitude, 4, 3));
}
