/**
 * The random stream that all devices share: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011), a counter-based generator: the i-th number is a function of (seed, call, i), so any thread can make it alone.
 * candle has a different generator on each device; here a seed gives the same numbers everywhere.
 *
 * The stream, for whoever writes a kernel:
 * - key = (seed mod 2^32, floor(seed / 2^32)). Each randUniform/randNormal with at least one element is one *call*;
 *   `call` counts them from 0 and `setSeed` sets it back to 0. The seed starts as {@link DEFAULT_SEED}.
 * - counter = (block mod 2^32, floor(block / 2^32), call mod 2^32, floor(call / 2^32)); a block gives four words w0..w3.
 * - f32, f16, bf16, f8e4m3: element i takes word i % 4 of block floor(i / 4).
 *   uniform: u = (w >>> 8) * 2^-24 in [0, 1), value = lo + u * (up - lo).
 *   normal (Box-Muller): words come in pairs (w0, w1), (w2, w3); u1 = ((first >>> 8) + 1) * 2^-24 in (0, 1],
 *   u2 = (second >>> 8) * 2^-24, r = sqrt(-2 ln u1); the pair's first element is mean + std * r * cos(2 pi u2), the
 *   second mean + std * r * sin(2 pi u2). Narrow floats are rounded from the f32 value.
 * - f64: element i takes words a = w[2 * (i % 2)] and b = w[2 * (i % 2) + 1] of block floor(i / 2);
 *   u = ((a >>> 5) * 2^26 + (b >>> 6)) * 2^-53. Normal: both of a block's u make the pair, with u1 = 1 - u.
 * - Logarithm, cosine and sine are the ones below, of sums, products, quotients and square roots of f64 without fused
 *   operations, because those of libraries differ in the last places.
 * So all numbers agree bit for bit between devices.
 */

import { allocRaw } from './host-array';
import { cosine, LN_2_HIGH, LN_2_LOW, logarithm, sine } from './philox-series';

/** candle's default seed on CUDA. */
export const DEFAULT_SEED = 299792458;

const M0 = 0xd2511f53;
const M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9;
const W1 = 0xbb67ae85;

/** High 32 bits of the product of two 32-bit numbers. */
function mulHigh(a: number, b: number): number {
  const al = a & 0xffff;
  const ah = a >>> 16;
  const bl = b & 0xffff;
  const bh = b >>> 16;
  const middle = ah * bl + ((al * bl) >>> 16);
  const cross = al * bh + (middle & 0xffff);
  return (ah * bh + Math.floor(middle / 65536) + Math.floor(cross / 65536)) >>> 0;
}

/**
 * Ten rounds of Philox on a 128-bit counter.
 * @param counter four 32-bit words
 * @param key two 32-bit words
 * @param out receives four random 32-bit words
 */
export function philox4x32(counter: ArrayLike<number>, key: ArrayLike<number>, out: Uint32Array): Uint32Array {
  let c0 = counter[0] >>> 0;
  let c1 = counter[1] >>> 0;
  let c2 = counter[2] >>> 0;
  let c3 = counter[3] >>> 0;
  let k0 = key[0] >>> 0;
  let k1 = key[1] >>> 0;
  for (let round = 0; round < 10; round++) {
    const high0 = mulHigh(M0, c0);
    const low0 = Math.imul(M0, c0);
    const high1 = mulHigh(M1, c2);
    const low1 = Math.imul(M1, c2);
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1 >>> 0;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0 >>> 0;
    k0 = (k0 + W0) >>> 0;
    k1 = (k1 + W1) >>> 0;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
  return out;
}

/** The pair of words that a seed or a call number makes. */
function splitWords(value: number): [low: number, high: number] {
  return [value >>> 0, Math.floor(value / 4294967296) >>> 0];
}

/**
 * Uniform numbers in [0, 1) of one call: 24 random bits each, or 53 with `wide` (f64).
 * @param count how many
 */
export function philoxUniform(seed: number, call: number, count: number, wide: boolean): Float64Array {
  const out = allocRaw('f64', count) as Float64Array;
  const words = new Uint32Array(4);
  const key = splitWords(seed);
  const [call0, call1] = splitWords(call);
  const perBlock = wide ? 2 : 4;
  for (let i = 0, block = 0; i < count; block++) {
    philox4x32([block >>> 0, Math.floor(block / 4294967296), call0, call1], key, words);
    for (let lane = 0; lane < perBlock && i < count; lane++, i++) {
      out[i] = wide
        ? ((words[2 * lane] >>> 5) * 67108864 + (words[2 * lane + 1] >>> 6)) / 9007199254740992
        : (words[lane] >>> 8) / 16777216;
    }
  }
  return out;
}

const cell = new Float64Array(1);
const halves = new Uint32Array(cell.buffer);
const MANTISSA = 0xfffff;
/** The upper part of the mantissa of sqrt(2), and the lower. */
const ROOT_OF_TWO = [0x6a09e, 0x667f3bcd];

/** ln of a positive normal x: x is 2^count m with m in [sqrt(1/2), sqrt(2)], and m is (1 + f) / (1 - f). */
function ln(x: number): number {
  cell[0] = x;
  const upper = halves[1] & MANTISSA;
  const above = upper > ROOT_OF_TWO[0] || (upper === ROOT_OF_TWO[0] && halves[0] > ROOT_OF_TWO[1]) ? 1 : 0;
  const count = (halves[1] >>> 20) + above - 1023;
  halves[1] = upper | ((1023 - above) << 20);
  const m = cell[0];
  const f = (m - 1) / (m + 1);
  const square = f * f;
  const tail = f * (square * logarithm(square)) + count * LN_2_LOW;
  return count * LN_2_HIGH + (2 * f + tail);
}

/** (cos, sin) of 2 pi `turns`, which is in [0, 1): polynomials on an eighth of a turn to either side of a quarter. */
function onCircle(turns: number, point: { x: number; y: number }): void {
  const quarter = Math.floor(turns * 4 + 0.5);
  const rest = turns - quarter * 0.25;
  const square = rest * rest;
  const s = rest * sine(square);
  const c = square * cosine(square) + 1;
  const turn = quarter & 3;
  const [x, y] = turn & 1 ? [s, c] : [c, s];
  point.x = turn === 1 || turn === 2 ? -x : x;
  point.y = turn >= 2 ? -y : y;
}

/** Standard normal numbers of one call, in pairs by Box-Muller; `wide` as in {@link philoxUniform}. */
export function philoxNormal(seed: number, call: number, count: number, wide: boolean): Float64Array {
  const uniform = philoxUniform(seed, call, count + (count & 1), wide);
  const out = new Float64Array(count);
  const point = { x: 0, y: 0 };
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * ln(wide ? 1 - uniform[i] : uniform[i] + 2 ** -24));
    onCircle(uniform[i + 1], point);
    out[i] = radius * point.x;
    if (i + 1 < count) out[i + 1] = radius * point.y;
  }
  return out;
}
