/**
 * Quantising to the uneven levels of IQ4_NL and IQ4_XS: ggml's search (`quantize_row_iq4_nl_impl` with seven tries to each
 * side, which is what its command line tool writes), rounded to f32 where C rounds.
 */
import { clamp, extremeOf, importanceWeights, sumOfSquares, TINY } from './fit';
import { roundHalfEven, writeHalf } from './half';

const f = Math.fround;
const GROUP = 32;
const TRIES = 7;

const weights = new Float32Array(GROUP);
const scales = new Float32Array(8);

/** The values of the 16 levels, in rising order. */
export const UNEVEN = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

/** The level whose value is nearest. */
function nearestLevel(x: number): number {
  if (!(x > UNEVEN[0])) return 0;
  if (x >= UNEVEN[15]) return 15;
  let below = 0;
  let above = 15;
  while (above - below > 1) {
    const middle = (below + above) >> 1;
    if (x < UNEVEN[middle]) above = middle;
    else below = middle;
  }
  return f(x - UNEVEN[below]) < f(UNEVEN[above] - x) ? below : above;
}

/** Best scale of 32 values that weigh `weights`. */
function fitGroup(x: Float32Array, at: number): number {
  const extreme = extremeOf(x, at, GROUP);
  if (Math.abs(extreme) < TINY) return 0;
  let scale = 0;
  let best = 0;
  for (let tries = -1; tries <= 2 * TRIES; tries++) {
    const inverse = tries < 0 ? f(1 / f(-extreme / UNEVEN[0])) : f((tries - TRIES + UNEVEN[0]) / extreme);
    let qx = 0;
    let q2 = 0;
    for (let j = 0; j < GROUP; j++) {
      const value = x[at + j];
      const q = UNEVEN[nearestLevel(f(inverse * value))];
      const product = f(weights[j] * q);
      qx = f(qx + f(product * value));
      q2 = f(q2 + f(product * q));
    }
    if (tries < 0) {
      scale = q2 > 0 ? f(qx / q2) : 0;
      best = f(scale * qx);
    } else if (q2 > 0 && f(qx * qx) > f(best * q2)) {
      scale = f(qx / q2);
      best = f(scale * qx);
    }
  }
  return scale;
}

function setWeights(
  x: Float32Array,
  at: number,
  sigma2: number,
  importance: Float32Array | undefined,
  importanceAt: number,
): void {
  if (importance !== undefined) importanceWeights(weights, x, at, GROUP, importance, importanceAt, sigma2);
  else for (let j = 0; j < GROUP; j++) weights[j] = x[at + j] * x[at + j];
}

/** Nibbles of 32 values: byte j has value j low and value j + 16 high. */
function writeLevels(x: Float32Array, at: number, inverse: number, out: Uint8Array, q: number): void {
  for (let j = 0; j < 16; j++) {
    const low = nearestLevel(f(inverse * x[at + j]));
    out[q + j] = low | (nearestLevel(f(inverse * x[at + j + 16])) << 4);
  }
}

/** One IQ4_NL block of 32 values: its scale and levels. */
export function quantizeUneven(
  x: Float32Array,
  at: number,
  out: Uint8Array,
  p: number,
  importance?: Float32Array,
  importanceAt = 0,
): void {
  setWeights(x, at, f(sumOfSquares(x, at, GROUP) / 16), importance, importanceAt);
  const scale = fitGroup(x, at);
  writeHalf(out, p, scale);
  writeLevels(x, at, scale === 0 ? 0 : f(1 / scale), out, p + 2);
}

/** One IQ4_XS block of 256 values: d, eight scales and levels. */
export function quantizeUnevenSuper(
  x: Float32Array,
  at: number,
  out: Uint8Array,
  p: number,
  importance?: Float32Array,
  importanceAt = 0,
): void {
  const sigma2 = f(sumOfSquares(x, at, 256) / 128);
  let extreme = 0;
  for (let group = 0; group < 8; group++) {
    setWeights(x, at + group * GROUP, sigma2, importance, importanceAt + group * GROUP);
    const scale = fitGroup(x, at + group * GROUP);
    scales[group] = scale;
    if (Math.abs(scale) > Math.abs(extreme)) extreme = scale;
  }
  const d = f(-extreme / 32);
  const inverse = d === 0 ? 0 : f(1 / d);
  writeHalf(out, p, d);
  out.fill(0, p + 2, p + 8);
  for (let group = 0; group < 8; group++) {
    const scale = clamp(roundHalfEven(f(inverse * scales[group])), -32, 31);
    const step = f(d * scale);
    writeLevels(x, at + group * GROUP, step === 0 ? 0 : f(1 / step), out, p + 8 + group * 16);
    const stored = scale + 32;
    out[p + 4 + (group >> 1)] |= (stored & 15) << (4 * (group & 1));
    out[p + 2 + (group >> 2)] |= (stored >> 4) << (2 * (group & 3));
  }
}
