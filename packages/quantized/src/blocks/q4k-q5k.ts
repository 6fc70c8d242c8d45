/**
 * Q4_K and Q5_K: 256 values of 4 and 5 bits in 8 groups of 32 (candle `BlockQ4K`, `BlockQ5K`).
 *
 * Q4_K (144 bytes): d, dmin f16, 12 bytes holding 8 six-bit scales and 8 six-bit offsets, q[128].
 * Q5_K (176 bytes): the same with the fifth bits, high[32], before q. Value = d * scale * q - dmin * offset; byte l of
 * the i-th 32 bytes of q holds group 2i in its low nibble and group 2i + 1 in its high one; bit g of high[l] is the
 * fifth bit of group g's value l.
 */
import { BLOCK_TYPES } from '@x/core';
import { fitOffset, fitPositive, importanceWeights, type OffsetSteps, requantize, sumOf, sumOfSquares } from './fit';
import type { BlockFormat } from './format';
import { readHalf, roundHalfEven, writeHalf } from './half';

const f = Math.fround;
const SUPER = 256;
const STEPS_4: OffsetSteps = { first: -1, step: f(0.1), last: 20, absolute: false };
const STEPS_5: OffsetSteps = { first: f(-0.5), step: f(0.1), last: 15, absolute: false };
const WEIGHTED_STEPS: OffsetSteps = { first: f(-0.9), step: f(0.05), last: 36, absolute: false };

// Work space of one block; nothing here runs in two places at once.
const weights = new Float32Array(32);
const scales = new Float32Array(8);
const mins = new Float32Array(8);
const groupWeights = new Float32Array(8);
const scaleLevels = new Uint8Array(8);
const minLevels = new Uint8Array(8);
const levels = new Uint8Array(SUPER);

export const Q4_K: BlockFormat = {
  type: 'q4_K',
  ...BLOCK_TYPES.q4_K,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 144, o += SUPER) {
      const d = readHalf(src, p);
      const dmin = readHalf(src, p + 2);
      for (let pair = 0; pair < 4; pair++) {
        const scale0 = d * scaleOf(src, p + 4, 2 * pair);
        const min0 = dmin * minOf(src, p + 4, 2 * pair);
        const scale1 = d * scaleOf(src, p + 4, 2 * pair + 1);
        const min1 = dmin * minOf(src, p + 4, 2 * pair + 1);
        const q = p + 16 + pair * 32;
        const to = o + pair * 64;
        for (let l = 0; l < 32; l++) {
          out[to + l] = scale0 * (src[q + l] & 15) - min0;
          out[to + 32 + l] = scale1 * (src[q + l] >> 4) - min1;
        }
      }
    }
  },
  multiply(src, rowBytes, rows, x, out, to) {
    const sums = groupSums(x);
    for (let row = 0; row < rows; row++) {
      let total = 0;
      for (let i = 0, p = row * rowBytes; i < x.length; i += SUPER, p += 144) {
        let scaled = 0;
        let least = 0;
        for (let pair = 0; pair < 4; pair++) {
          const q = p + 16 + pair * 32;
          const at = i + pair * 64;
          let low = 0;
          let high = 0;
          for (let l = 0; l < 32; l++) {
            const both = src[q + l];
            low += x[at + l] * (both & 15);
            high += x[at + 32 + l] * (both >> 4);
          }
          scaled += scaleOf(src, p + 4, 2 * pair) * low + scaleOf(src, p + 4, 2 * pair + 1) * high;
          least += minOf(src, p + 4, 2 * pair) * sums[at >> 5] + minOf(src, p + 4, 2 * pair + 1) * sums[(at >> 5) + 1];
        }
        total += readHalf(src, p) * scaled - readHalf(src, p + 2) * least;
      }
      out[to + row] = total;
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 144, i += SUPER) {
      fitGroups(x, i, out, p, 15, STEPS_4);
      packNibbles(out, p + 16);
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 144, i += SUPER) {
      fitGroupsWeighted(x, i, out, p, 15, importance, importanceOffset + i - xOffset);
      packNibbles(out, p + 16);
    }
  },
};

/** Of each 32 values, which have one offset. */
function groupSums(x: Float64Array): Float64Array {
  const sums = new Float64Array(x.length / 32);
  for (let i = 0; i < x.length; i++) sums[i >> 5] += x[i];
  return sums;
}

export const Q5_K: BlockFormat = {
  type: 'q5_K',
  ...BLOCK_TYPES.q5_K,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 176, o += SUPER) {
      const d = readHalf(src, p);
      const dmin = readHalf(src, p + 2);
      for (let group = 0; group < 8; group++) {
        const scale = d * scaleOf(src, p + 4, group);
        const min = dmin * minOf(src, p + 4, group);
        const q = p + 48 + (group >> 1) * 32;
        const shift = (group & 1) * 4;
        for (let l = 0; l < 32; l++) {
          const level = ((src[q + l] >> shift) & 15) | (((src[p + 16 + l] >> group) & 1) << 4);
          out[o + group * 32 + l] = scale * level - min;
        }
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 176, i += SUPER) {
      fitGroups(x, i, out, p, 31, STEPS_5);
      packFifthBits(out, p + 16);
      packNibbles(out, p + 48);
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 176, i += SUPER) {
      fitGroupsWeighted(x, i, out, p, 31, importance, importanceOffset + i - xOffset);
      packFifthBits(out, p + 16);
      packNibbles(out, p + 48);
    }
  },
};

/** Six-bit scale of a group: whole in bytes 0-3, else nibble of bytes 8-11 with two bits from bytes 0-3. */
function scaleOf(src: Uint8Array, at: number, group: number): number {
  if (group < 4) return src[at + group] & 63;
  return (src[at + group + 4] & 15) | ((src[at + group - 4] >> 6) << 4);
}

/** Six-bit offset of a group, likewise from bytes 4-7 and the high nibbles of bytes 8-11. */
function minOf(src: Uint8Array, at: number, group: number): number {
  if (group < 4) return src[at + group + 4] & 63;
  return (src[at + group + 4] >> 4) | ((src[at + group] >> 6) << 4);
}

/** Writes d, dmin and the packed scales of one block at `out[p]` and fills `levels`. */
function fitGroups(x: Float32Array, at: number, out: Uint8Array, p: number, top: number, steps: OffsetSteps): void {
  let maxScale = 0;
  let maxMin = 0;
  for (let group = 0; group < 8; group++) {
    const from = at + group * 32;
    const typical = f(Math.sqrt(f(sumOfSquares(x, from, 32) / 32)));
    for (let l = 0; l < 32; l++) weights[l] = typical + Math.abs(x[from + l]);
    const fit = fitOffset(x, from, 32, top, weights, levels, group * 32, steps);
    scales[group] = fit.scale;
    mins[group] = fit.min;
    maxScale = Math.max(maxScale, fit.scale);
    maxMin = Math.max(maxMin, fit.min);
  }
  const perScale = maxScale > 0 ? f(63 / maxScale) : 0;
  const perMin = maxMin > 0 ? f(63 / maxMin) : 0;
  for (let group = 0; group < 8; group++) {
    scaleLevels[group] = Math.min(63, roundHalfEven(f(perScale * scales[group])));
    minLevels[group] = Math.min(63, roundHalfEven(f(perMin * mins[group])));
  }
  writeHalf(out, p, f(maxScale / 63));
  writeHalf(out, p + 2, f(maxMin / 63));
  finishGroups(x, at, out, p, top);
}

function fitGroupsWeighted(
  x: Float32Array,
  at: number,
  out: Uint8Array,
  p: number,
  top: number,
  importance: Float32Array,
  importanceAt: number,
): void {
  const sigma2 = f(f(2 * sumOfSquares(x, at, SUPER)) / SUPER);
  for (let group = 0; group < 8; group++) {
    const from = at + group * 32;
    importanceWeights(weights, x, from, 32, importance, importanceAt + group * 32, sigma2);
    groupWeights[group] = sumOf(weights, 32);
    const fit = fitOffset(x, from, 32, top, weights, levels, group * 32, WEIGHTED_STEPS);
    scales[group] = fit.scale;
    mins[group] = fit.min;
  }
  writeHalf(out, p, fitPositive(scales, 8, 63, scaleLevels, groupWeights));
  writeHalf(out, p + 2, fitPositive(mins, 8, 63, minLevels, groupWeights));
  finishGroups(x, at, out, p, top);
}

/** The packed scales and offsets, and the levels that go with them as stored. */
function finishGroups(x: Float32Array, at: number, out: Uint8Array, p: number, top: number): void {
  const d = readHalf(out, p);
  const dmin = readHalf(out, p + 2);
  out.fill(0, p + 4, p + 16);
  for (let group = 0; group < 8; group++) {
    const scale = scaleLevels[group];
    const min = minLevels[group];
    if (group < 4) {
      out[p + 4 + group] |= scale;
      out[p + 8 + group] |= min;
    } else {
      out[p + 8 + group] = (scale & 15) | ((min & 15) << 4);
      out[p + group] |= (scale >> 4) << 6;
      out[p + 4 + group] |= (min >> 4) << 6;
    }
    requantize(levels, group * 32, x, at + group * 32, 32, f(d * scale), f(dmin * min), 0, top);
  }
}

function packFifthBits(out: Uint8Array, at: number): void {
  for (let l = 0; l < 32; l++) {
    let high = 0;
    for (let group = 0; group < 8; group++) high |= (levels[group * 32 + l] >> 4) << group;
    out[at + l] = high;
  }
}

function packNibbles(out: Uint8Array, at: number): void {
  for (let pair = 0; pair < 4; pair++) {
    for (let l = 0; l < 32; l++) {
      out[at + pair * 32 + l] = (levels[pair * 64 + l] & 15) | ((levels[pair * 64 + 32 + l] & 15) << 4);
    }
  }
}
