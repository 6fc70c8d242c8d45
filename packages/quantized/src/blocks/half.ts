/**
 * Half-precision and bfloat16 conversions for block scales. Reading goes through a table of all 65,536 halves, because
 * a dequantiser converts one or two scales for every block and nothing else in its loop is as slow.
 */
const scratch = new DataView(new ArrayBuffer(8));
let table: Float32Array | undefined;

function decodeHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** All halves by their bits; built on first use. */
export function halfTable(): Float32Array {
  if (table === undefined) {
    table = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) table[bits] = decodeHalf(bits);
  }
  return table;
}

/** The half at `bytes[at]`, little-endian. */
export function readHalf(bytes: Uint8Array, at: number): number {
  return halfTable()[bytes[at] | (bytes[at + 1] << 8)];
}

/** Bits of the half nearest to an f32 value, ties to even; too large becomes infinity. */
export function halfBits(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Subnormal half: a whole number of 2^-24 steps.
    const steps = roundHalfEven(Math.abs(value) * 2 ** 24);
    return sign | steps;
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

export function writeHalf(bytes: Uint8Array, at: number, value: number): void {
  const bits = halfBits(value);
  bytes[at] = bits & 255;
  bytes[at + 1] = bits >>> 8;
}

/** Bits of the bfloat16 nearest to an f32 value, ties to even; a NaN stays one. */
export function bfloatBits(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 64;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** The nearest integer, ties to even. */
export function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

/** The nearest integer, ties away from zero (C's `roundf`). */
export function roundHalfAway(value: number): number {
  return value < 0 ? -Math.floor(0.5 - value) : Math.floor(value + 0.5);
}

/** 1 / d in f32, with 0 for a zero scale. */
export function inverse(d: number): number {
  return d === 0 ? 0 : Math.fround(1 / d);
}
