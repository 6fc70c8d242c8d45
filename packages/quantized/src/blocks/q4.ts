/**
 * Q4_0 and Q4_1: 32 values of 4 bits (candle `BlockQ4_0`, `BlockQ4_1`).
 *
 * Q4_0 (18 bytes): d f16, 16 bytes; value = d * (q - 8).  Q4_1 (20 bytes): d, m f16, 16 bytes; value = d * q + m.
 * Byte j holds value j in its low nibble and value j + 16 in its high one.
 */
import { BLOCK_TYPES } from '@x/core';
import { extremeOf, fitOffset, fitSigned, importanceWeights, type OffsetSteps, sumOfSquares } from './fit';
import type { BlockFormat } from './format';
import { inverse, readHalf, writeHalf } from './half';

const SIZE = 32;
const STEPS: OffsetSteps = { first: Math.fround(-0.9), step: Math.fround(0.05), last: 36, absolute: false };

const weights = new Float32Array(SIZE);

export const Q4_0: BlockFormat = {
  type: 'q4_0',
  ...BLOCK_TYPES.q4_0,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 18, o += SIZE) {
      const d = readHalf(src, p);
      for (let j = 0; j < 16; j++) {
        const q = src[p + 2 + j];
        out[o + j] = d * ((q & 15) - 8);
        out[o + 16 + j] = d * ((q >> 4) - 8);
      }
    }
  },
  multiply(src, rowBytes, rows, x, out, to) {
    for (let row = 0; row < rows; row++) {
      let total = 0;
      for (let i = 0, p = row * rowBytes; i < x.length; i += SIZE, p += 18) {
        let low = 0;
        let high = 0;
        for (let j = 0; j < 16; j++) {
          const both = src[p + 2 + j];
          low += x[i + j] * ((both & 15) - 8);
          high += x[i + 16 + j] * ((both >> 4) - 8);
        }
        total += readHalf(src, p) * (low + high);
      }
      out[to + row] = total;
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 18, i += SIZE) {
      const d = Math.fround(extremeOf(x, i, SIZE) / -8);
      const scale = inverse(d);
      writeHalf(out, p, d);
      for (let j = 0; j < 16; j++) {
        out[p + 2 + j] = shifted(x[i + j], scale, 8, 15) | (shifted(x[i + 16 + j], scale, 8, 15) << 4);
      }
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    const size = blocks * SIZE;
    eachWeighted(x, xOffset, size, importance, importanceOffset, 8, (block, d, levels) => {
      const p = outOffset + block * 18;
      writeHalf(out, p, d);
      for (let j = 0; j < 16; j++) out[p + 2 + j] = levels[j] | (levels[j + 16] << 4);
    });
  },
};

export const Q4_1: BlockFormat = {
  type: 'q4_1',
  ...BLOCK_TYPES.q4_1,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 20, o += SIZE) {
      const d = readHalf(src, p);
      const m = readHalf(src, p + 2);
      for (let j = 0; j < 16; j++) {
        const q = src[p + 4 + j];
        out[o + j] = d * (q & 15) + m;
        out[o + 16 + j] = d * (q >> 4) + m;
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 20, i += SIZE) {
      const { min, d } = range(x, i, 15);
      const scale = inverse(d);
      writeHalf(out, p, d);
      writeHalf(out, p + 2, min);
      for (let j = 0; j < 16; j++) {
        out[p + 4 + j] = offset(x[i + j], min, scale, 15) | (offset(x[i + 16 + j], min, scale, 15) << 4);
      }
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    const size = blocks * SIZE;
    eachWeightedOffset(x, xOffset, size, importance, importanceOffset, 15, (block, d, min, levels) => {
      const p = outOffset + block * 20;
      writeHalf(out, p, d);
      writeHalf(out, p + 2, -min);
      for (let j = 0; j < 16; j++) out[p + 4 + j] = levels[j] | (levels[j + 16] << 4);
    });
  },
};

const levels = new Uint8Array(SIZE);

/** Scale and levels of every block of a row of `size` values, for the formats that are centred on level `half`. */
export function eachWeighted(
  x: Float32Array,
  xOffset: number,
  size: number,
  importance: Float32Array,
  importanceOffset: number,
  half: number,
  write: (block: number, d: number, levels: Uint8Array) => void,
): void {
  const sigma2 = Math.fround(sumOfSquares(x, xOffset, size) / size);
  for (let at = 0; at < size; at += SIZE) {
    importanceWeights(weights, x, xOffset + at, SIZE, importance, importanceOffset + at, sigma2);
    write(at / SIZE, fitSigned(x, xOffset + at, SIZE, half, levels, 0, weights), levels);
  }
}

/** The same for formats with an offset; value = d * level - min. */
export function eachWeightedOffset(
  x: Float32Array,
  xOffset: number,
  size: number,
  importance: Float32Array,
  importanceOffset: number,
  top: number,
  write: (block: number, d: number, min: number, levels: Uint8Array) => void,
): void {
  const sigma2 = Math.fround(sumOfSquares(x, xOffset, size) / size);
  for (let at = 0; at < size; at += SIZE) {
    importanceWeights(weights, x, xOffset + at, SIZE, importance, importanceOffset + at, sigma2);
    const { scale, min } = fitOffset(x, xOffset + at, SIZE, top, weights, levels, 0, STEPS);
    write(at / SIZE, scale, min, levels);
  }
}

/** Smallest of 32 values, and the f32 step that spreads `steps` levels up to the largest. */
export function range(x: Float32Array, at: number, steps: number): { min: number; d: number } {
  let min = x[at];
  let max = x[at];
  for (let j = 1; j < SIZE; j++) {
    const value = x[at + j];
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return { min, d: Math.fround(Math.fround(max - min) / steps) };
}

/**
 * Level of a value in a format centred on `zero`. The product is rounded once together with the sum, as a fused
 * multiply-add does it: ggml's result here depends on whether its compiler fused the two, and the files in the wild
 * come from builds that do.
 */
export function shifted(value: number, scale: number, zero: number, top: number): number {
  return clampLevel(Math.trunc(Math.fround(value * scale + (zero + 0.5))), top);
}

/** Level of a value in a format that starts at `min`; every step rounded to f32. */
export function offset(value: number, min: number, scale: number, top: number): number {
  return clampLevel(Math.trunc(Math.fround(Math.fround(Math.fround(value - min) * scale) + 0.5)), top);
}

/** NaN, which no level can express, becomes 0. */
function clampLevel(level: number, top: number): number {
  return level > 0 ? Math.min(level, top) : 0;
}
