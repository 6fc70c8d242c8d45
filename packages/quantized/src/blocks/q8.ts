/**
 * The 8-bit formats (candle `BlockQ8_0`, `BlockQ8_1`, `BlockQ8K`); value = d * q with q a signed byte.
 *
 * Q8_0 (34 bytes, 32 values): d f16, q[32].  Q8_1 (36 bytes, 32 values): d f16, s f16 = d * sum of q, q[32].
 * Q8_K (292 bytes, 256 values): d f32, q[256], 16 i16 sums of 16 values each. Q8_1 and Q8_K exist to hold activations:
 * the sums let a dot product with an offset format skip a pass; reading the values back needs none of them.
 */
import { BLOCK_TYPES } from '@x/core';
import { extremeOf } from './fit';
import type { BlockFormat } from './format';
import { inverse, readHalf, roundHalfAway, roundHalfEven, writeHalf } from './half';

const SIZE = 32;
const SUPER = 256;

function amax32(x: Float32Array, at: number): number {
  let largest = 0;
  for (let j = 0; j < SIZE; j++) largest = Math.max(largest, Math.abs(x[at + j]));
  return largest;
}

export const Q8_0: BlockFormat = {
  type: 'q8_0',
  ...BLOCK_TYPES.q8_0,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 34, o += SIZE) {
      const d = readHalf(src, p);
      for (let j = 0; j < SIZE; j++) out[o + j] = d * ((src[p + 2 + j] << 24) >> 24);
    }
  },
  multiply(src, rowBytes, rows, x, out, to) {
    const quants = new Int8Array(src.buffer, src.byteOffset, src.byteLength);
    // Two rows at a time, so that a value of x is read once for both; the last one of an odd number with itself.
    for (let row = 0; row < rows; row += 2) {
      const both = row + 1 < rows;
      let first = 0;
      let second = 0;
      for (let i = 0, p = row * rowBytes, q = both ? p + rowBytes : p; i < x.length; i += SIZE, p += 34, q += 34) {
        let a = 0;
        let b = 0;
        let c = 0;
        let d = 0;
        for (let j = 0; j < SIZE; j += 2) {
          const even = x[i + j];
          const odd = x[i + j + 1];
          a += even * quants[p + 2 + j];
          b += odd * quants[p + 3 + j];
          c += even * quants[q + 2 + j];
          d += odd * quants[q + 3 + j];
        }
        first += readHalf(src, p) * (a + b);
        second += readHalf(src, q) * (c + d);
      }
      out[to + row] = first;
      if (both) out[to + row + 1] = second;
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 34, i += SIZE) {
      const d = Math.fround(amax32(x, i) / 127);
      const scale = inverse(d);
      writeHalf(out, p, d);
      for (let j = 0; j < SIZE; j++) out[p + 2 + j] = roundHalfAway(Math.fround(x[i + j] * scale)) & 255;
    }
  },
};

export const Q8_1: BlockFormat = {
  type: 'q8_1',
  ...BLOCK_TYPES.q8_1,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 36, o += SIZE) {
      const d = readHalf(src, p);
      for (let j = 0; j < SIZE; j++) out[o + j] = d * ((src[p + 4 + j] << 24) >> 24);
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 36, i += SIZE) {
      const d = Math.fround(amax32(x, i) / 127);
      const scale = inverse(d);
      let sum = 0;
      for (let j = 0; j < SIZE; j++) {
        const q = roundHalfAway(Math.fround(x[i + j] * scale));
        sum += q;
        out[p + 4 + j] = q & 255;
      }
      writeHalf(out, p, d);
      writeHalf(out, p + 2, Math.fround(sum * d));
    }
  },
};

export const Q8_K: BlockFormat = {
  type: 'q8_K',
  ...BLOCK_TYPES.q8_K,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    const view = new DataView(src.buffer, src.byteOffset, src.byteLength);
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 292, o += SUPER) {
      const d = view.getFloat32(p, true);
      for (let j = 0; j < SUPER; j++) out[o + j] = d * ((src[p + 4 + j] << 24) >> 24);
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    const view = new DataView(out.buffer, out.byteOffset, out.byteLength);
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 292, i += SUPER) {
      const extreme = extremeOf(x, i, SUPER);
      const scale = extreme === 0 ? 0 : Math.fround(-127 / extreme);
      view.setFloat32(p, inverse(scale), true);
      for (let group = 0; group < 16; group++) {
        let sum = 0;
        for (let j = group * 16; j < group * 16 + 16; j++) {
          const q = Math.min(127, roundHalfEven(Math.fround(x[i + j] * scale)));
          sum += q;
          out[p + 4 + j] = q & 255;
        }
        view.setInt16(p + 260 + group * 2, sum, true);
      }
    }
  },
};
