/**
 * Q2_K and Q3_K: 256 values of 2 and 3 bits in 16 groups of 16 (candle `BlockQ2K`, `BlockQ3K`).
 *
 * Q2_K (84 bytes): 16 bytes of scale (low nibble) and offset (high nibble), q[64], d, dmin f16;
 * value = d * scale * q - dmin * offset.
 * Q3_K (110 bytes): mask[32], q[64], 12 bytes holding 16 six-bit scales, d f16; value = d * (scale - 32) * q, where q is
 * the two low bits, less 4 when the mask's bit is 0.
 * In both, q[32 * h + l] holds the values 128 * h + 32 * s + l for the four shifts 2 * s.
 */
import { BLOCK_TYPES } from '@x/core';
import {
  clamp,
  fitOffset,
  fitPositive,
  fitSigned,
  fitSignedByMoves,
  importanceWeights,
  type OffsetSteps,
  requantize,
  sumOf,
  sumOfSquares,
} from './fit';
import type { BlockFormat } from './format';
import { readHalf, roundHalfEven, writeHalf } from './half';

const f = Math.fround;
const SUPER = 256;
const STEPS: OffsetSteps = { first: f(-0.5), step: f(0.1), last: 15, absolute: true };
const WEIGHTED_STEPS: OffsetSteps = { first: f(-0.9), step: f(0.05), last: 36, absolute: false };

// Work space of one block; nothing here runs in two places at once.
const weights = new Float32Array(16);
const scales = new Float32Array(16);
const mins = new Float32Array(16);
const groupWeights = new Float32Array(16);
const scaleLevels = new Uint8Array(16);
const minLevels = new Uint8Array(16);
const levels = new Uint8Array(SUPER);

export const Q2_K: BlockFormat = {
  type: 'q2_K',
  ...BLOCK_TYPES.q2_K,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 84, o += SUPER) {
      const d = readHalf(src, p + 80);
      const dmin = readHalf(src, p + 82);
      for (let group = 0; group < 16; group++) {
        const scale = d * (src[p + group] & 15);
        const min = dmin * (src[p + group] >> 4);
        const shift = (group >> 1) & 3;
        const q = p + 16 + (group >> 3) * 32 + (group & 1) * 16;
        for (let l = 0; l < 16; l++) out[o + group * 16 + l] = scale * ((src[q + l] >> (2 * shift)) & 3) - min;
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 84, i += SUPER) {
      let maxScale = 0;
      let maxMin = 0;
      for (let group = 0; group < 16; group++) {
        const at = i + group * 16;
        for (let l = 0; l < 16; l++) weights[l] = Math.abs(x[at + l]);
        const fit = fitOffset(x, at, 16, 3, weights, levels, group * 16, STEPS);
        scales[group] = fit.scale;
        mins[group] = fit.min;
        maxScale = Math.max(maxScale, fit.scale);
        maxMin = Math.max(maxMin, fit.min);
      }
      const perScale = maxScale > 0 ? f(15 / maxScale) : 0;
      const perMin = maxMin > 0 ? f(15 / maxMin) : 0;
      for (let group = 0; group < 16; group++) {
        scaleLevels[group] = roundHalfEven(f(perScale * scales[group]));
        minLevels[group] = roundHalfEven(f(perMin * mins[group]));
      }
      writeHalf(out, p + 80, f(maxScale / 15));
      writeHalf(out, p + 82, f(maxMin / 15));
      finishQ2(x, i, out, p);
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 84, i += SUPER) {
      const sigma2 = f(sumOfSquares(x, i, SUPER) / SUPER);
      for (let group = 0; group < 16; group++) {
        const at = i + group * 16;
        importanceWeights(weights, x, at, 16, importance, importanceOffset + at - xOffset, sigma2);
        groupWeights[group] = sumOf(weights, 16);
        const fit = fitOffset(x, at, 16, 3, weights, levels, group * 16, WEIGHTED_STEPS);
        scales[group] = fit.scale;
        mins[group] = fit.min;
      }
      writeHalf(out, p + 80, fitPositive(scales, 16, 15, scaleLevels, groupWeights));
      writeHalf(out, p + 82, fitPositive(mins, 16, 15, minLevels, groupWeights));
      finishQ2(x, i, out, p);
    }
  },
};

/** Scale and offset bytes, and the levels that go with the scales as stored. */
function finishQ2(x: Float32Array, i: number, out: Uint8Array, p: number): void {
  const d = readHalf(out, p + 80);
  const dmin = readHalf(out, p + 82);
  for (let group = 0; group < 16; group++) {
    out[p + group] = scaleLevels[group] | (minLevels[group] << 4);
    const scale = f(d * scaleLevels[group]);
    requantize(levels, group * 16, x, i + group * 16, 16, scale, f(dmin * minLevels[group]), 0, 3);
  }
  packPairs(out, p + 16, levels);
}

export const Q3_K: BlockFormat = {
  type: 'q3_K',
  ...BLOCK_TYPES.q3_K,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 110, o += SUPER) {
      const d = readHalf(src, p + 108);
      for (let group = 0; group < 16; group++) {
        const scale = d * (sixBits(src, p + 96, group) - 32);
        const shift = (group >> 1) & 3;
        const bit = group >> 1;
        const q = p + 32 + (group >> 3) * 32 + (group & 1) * 16;
        const mask = p + (group & 1) * 16;
        for (let l = 0; l < 16; l++) {
          const low = (src[q + l] >> (2 * shift)) & 3;
          out[o + group * 16 + l] = scale * ((src[mask + l] >> bit) & 1 ? low : low - 4);
        }
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 110, i += SUPER) {
      let extreme = 0;
      for (let group = 0; group < 16; group++) {
        const scale = fitSignedByMoves(x, i + group * 16, 16, 4, levels, group * 16);
        if (Math.abs(scale) > Math.abs(extreme)) extreme = scale;
        scales[group] = scale;
      }
      // The largest scale takes the far negative level, so d has the other sign.
      const inverse = extreme === 0 ? 0 : f(-32 / extreme);
      for (let group = 0; group < 16; group++) {
        scaleLevels[group] = clamp(roundHalfEven(f(inverse * scales[group])), -32, 31) + 32;
      }
      // ggml leaves the scales of a block of zeros at zero, which reads as -32.
      if (extreme === 0) scaleLevels.fill(0);
      writeHalf(out, p + 108, extreme === 0 ? 0 : f(1 / inverse));
      finishQ3(x, i, out, p);
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 110, i += SUPER) {
      const sigma2 = f(f(2 * sumOfSquares(x, i, SUPER)) / SUPER);
      for (let group = 0; group < 16; group++) {
        const at = i + group * 16;
        importanceWeights(weights, x, at, 16, importance, importanceOffset + at - xOffset, sigma2);
        groupWeights[group] = sumOf(weights, 16);
        scales[group] = fitSigned(x, at, 16, 4, levels, group * 16, weights);
      }
      writeHalf(out, p + 108, fitSigned(scales, 0, 16, 32, scaleLevels, 0, groupWeights));
      finishQ3(x, i, out, p);
    }
  },
};

/** The packed scales, and the levels that go with them as stored. */
function finishQ3(x: Float32Array, i: number, out: Uint8Array, p: number): void {
  const d = readHalf(out, p + 108);
  out.fill(0, p, p + 32);
  out.fill(0, p + 96, p + 108);
  for (let group = 0; group < 16; group++) {
    const stored = scaleLevels[group];
    out[p + 96 + (group & 7)] |= (stored & 15) << (group < 8 ? 0 : 4);
    out[p + 104 + (group & 3)] |= (stored >> 4) << (2 * (group >> 2));
    requantize(levels, group * 16, x, i + group * 16, 16, f(d * (stored - 32)), 0, -4, 3);
    for (let l = group * 16; l < group * 16 + 16; l++) {
      if (levels[l] > 3) out[p + (l & 31)] |= 1 << (group >> 1);
      levels[l] &= 3;
    }
  }
  packPairs(out, p + 32, levels);
}

/** The `group`-th of 16 six-bit numbers: low four bits in bytes 0-7, high two in bytes 8-11. */
function sixBits(src: Uint8Array, at: number, group: number): number {
  const low = group < 8 ? src[at + group] & 15 : src[at + group - 8] >> 4;
  const high = (src[at + 8 + (group & 3)] >> (2 * (group >> 2))) & 3;
  return low | (high << 4);
}

/** 256 two-bit levels into 64 bytes. */
function packPairs(out: Uint8Array, at: number, levels: Uint8Array): void {
  for (let half = 0; half < 2; half++) {
    for (let l = 0; l < 32; l++) {
      const v = half * 128 + l;
      out[at + half * 32 + l] = levels[v] | (levels[v + 32] << 2) | (levels[v + 64] << 4) | (levels[v + 96] << 6);
    }
  }
}
