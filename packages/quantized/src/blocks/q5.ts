/**
 * Q5_0 and Q5_1: 32 values of 5 bits (candle `BlockQ5_0`, `BlockQ5_1`).
 *
 * Q5_0 (22 bytes): d f16, the 32 high bits as a u32, 16 bytes of low nibbles as in Q4_0; value = d * (q - 16).
 * Q5_1 (24 bytes): d, m f16, then the same; value = d * q + m.
 */
import { BLOCK_TYPES } from '@x/core';
import { extremeOf } from './fit';
import type { BlockFormat } from './format';
import { inverse, readHalf, writeHalf } from './half';
import { eachWeighted, eachWeightedOffset, offset, range, shifted } from './q4';

const SIZE = 32;

export const Q5_0: BlockFormat = {
  type: 'q5_0',
  ...BLOCK_TYPES.q5_0,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 22, o += SIZE) {
      const d = readHalf(src, p);
      const high = src[p + 2] | (src[p + 3] << 8) | (src[p + 4] << 16) | (src[p + 5] << 24);
      for (let j = 0; j < 16; j++) {
        const q = src[p + 6 + j];
        out[o + j] = d * (((q & 15) | (((high >>> j) & 1) << 4)) - 16);
        out[o + 16 + j] = d * (((q >> 4) | (((high >>> (j + 16)) & 1) << 4)) - 16);
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 22, i += SIZE) {
      const d = Math.fround(extremeOf(x, i, SIZE) / -16);
      const scale = inverse(d);
      writeHalf(out, p, d);
      pack(out, p + 2, (j) => shifted(x[i + j], scale, 16, 31));
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    const size = blocks * SIZE;
    eachWeighted(x, xOffset, size, importance, importanceOffset, 16, (block, d, levels) => {
      const p = outOffset + block * 22;
      writeHalf(out, p, d);
      pack(out, p + 2, (j) => levels[j]);
    });
  },
};

export const Q5_1: BlockFormat = {
  type: 'q5_1',
  ...BLOCK_TYPES.q5_1,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 24, o += SIZE) {
      const d = readHalf(src, p);
      const m = readHalf(src, p + 2);
      const high = src[p + 4] | (src[p + 5] << 8) | (src[p + 6] << 16) | (src[p + 7] << 24);
      for (let j = 0; j < 16; j++) {
        const q = src[p + 8 + j];
        out[o + j] = d * ((q & 15) | (((high >>> j) & 1) << 4)) + m;
        out[o + 16 + j] = d * ((q >> 4) | (((high >>> (j + 16)) & 1) << 4)) + m;
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 24, i += SIZE) {
      const { min, d } = range(x, i, 31);
      const scale = inverse(d);
      writeHalf(out, p, d);
      writeHalf(out, p + 2, min);
      pack(out, p + 4, (j) => offset(x[i + j], min, scale, 31));
    }
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    const size = blocks * SIZE;
    eachWeightedOffset(x, xOffset, size, importance, importanceOffset, 31, (block, d, min, levels) => {
      const p = outOffset + block * 24;
      writeHalf(out, p, d);
      writeHalf(out, p + 2, -min);
      pack(out, p + 4, (j) => levels[j]);
    });
  },
};

/** Writes the u32 of high bits and the 16 bytes of low nibbles. */
function pack(out: Uint8Array, at: number, level: (j: number) => number): void {
  let high = 0;
  for (let j = 0; j < 16; j++) {
    const a = level(j);
    const b = level(j + 16);
    out[at + 4 + j] = (a & 15) | ((b & 15) << 4);
    high |= ((a >> 4) << j) | ((b >> 4) << (j + 16));
  }
  for (let i = 0; i < 4; i++) out[at + i] = (high >>> (8 * i)) & 255;
}
