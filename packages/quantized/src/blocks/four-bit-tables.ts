/**
 * Four-bit formats whose levels come from a table of 16 values: IQ4_NL and IQ4_XS (uneven steps fitted to weights), and
 * MXFP4 and NVFP4 (levels of a 4-bit float). candle has none of these and refuses a whole file that holds one.
 *
 * IQ4_NL (18 bytes, 32 values): d f16, q[16].
 * IQ4_XS (136 bytes, 256 values): d f16, eight six-bit scales as high pairs (u16) and low nibbles (4 bytes), q[128].
 * MXFP4 (17 bytes, 32 values): an 8-bit exponent, q[16].
 * NVFP4 (36 bytes, 64 values): four 8-bit float scales, one for each 16 values, q[32].
 * Within a run of 2n values, byte j holds value j low and value j + n high.
 */
import { BLOCK_TYPES } from '@x/core';
import { extremeOf } from './fit';
import type { BlockFormat } from './format';
import { readHalf } from './half';
import { quantizeUneven, quantizeUnevenSuper, UNEVEN } from './uneven-fit';

/** Twice the values of a float of one sign, two exponent and one fraction bit; the scales below are halved for it. */
const FLOAT4 = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

function run(
  src: Uint8Array,
  q: number,
  out: Float32Array,
  o: number,
  half: number,
  scale: number,
  table: Int8Array,
): void {
  for (let j = 0; j < half; j++) {
    out[o + j] = scale * table[src[q + j] & 15];
    out[o + half + j] = scale * table[src[q + j] >> 4];
  }
}

export const IQ4_NL: BlockFormat = {
  type: 'iq4_nl',
  ...BLOCK_TYPES.iq4_nl,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 18, o += 32) {
      run(src, p + 2, out, o, 16, readHalf(src, p), UNEVEN);
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0; b < blocks; b++) quantizeUneven(x, xOffset + b * 32, out, outOffset + b * 18);
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0; b < blocks; b++) {
      quantizeUneven(x, xOffset + b * 32, out, outOffset + b * 18, importance, importanceOffset + b * 32);
    }
  },
};

export const IQ4_XS: BlockFormat = {
  type: 'iq4_xs',
  ...BLOCK_TYPES.iq4_xs,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 136, o += 256) {
      const d = readHalf(src, p);
      const pairs = src[p + 2] | (src[p + 3] << 8);
      for (let group = 0; group < 8; group++) {
        const low = (src[p + 4 + (group >> 1)] >> (4 * (group & 1))) & 15;
        const scale = low | (((pairs >> (2 * group)) & 3) << 4);
        run(src, p + 8 + group * 16, out, o + group * 32, 16, d * (scale - 32), UNEVEN);
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0; b < blocks; b++) quantizeUnevenSuper(x, xOffset + b * 256, out, outOffset + b * 136);
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0; b < blocks; b++) {
      quantizeUnevenSuper(x, xOffset + b * 256, out, outOffset + b * 136, importance, importanceOffset + b * 256);
    }
  },
};

export const MXFP4: BlockFormat = {
  type: 'mxfp4',
  ...BLOCK_TYPES.mxfp4,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 17, o += 32) {
      run(src, p + 1, out, o, 16, 2 ** (src[p] - 128), FLOAT4);
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 17, i += 32) {
      const largest = Math.abs(extremeOf(x, i, 32));
      // The logarithm is rounded to f32 as ggml's is; the largest level is between 4 and 8 steps. Exponents outside a
      // byte, where ggml's conversion is undefined, stop at its ends.
      const exponent = largest > 0 ? Math.floor(Math.fround(Math.log2(largest))) - 2 + 127 : 0;
      out[p] = Math.min(254, Math.max(0, exponent));
      packFloat4(x, i, 16, 2 ** (out[p] - 128), out, p + 1);
    }
  },
};

export const NVFP4: BlockFormat = {
  type: 'nvfp4',
  ...BLOCK_TYPES.nvfp4,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 36, o += 64) {
      for (let group = 0; group < 4; group++) {
        run(src, p + 4 + group * 8, out, o + group * 16, 8, float8(src[p + group]) / 2, FLOAT4);
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 36, i += 64) {
      for (let group = 0; group < 4; group++) {
        const from = i + group * 16;
        out[p + group] = toFloat8(Math.fround(Math.abs(extremeOf(x, from, 16)) / 6));
        packFloat4(x, from, 8, float8(out[p + group]) / 2, out, p + 4 + group * 8);
      }
    }
  },
};

/** Levels of 2 * half values in steps of `scale`; of two as near, the first in the table. */
function packFloat4(x: Float32Array, at: number, half: number, scale: number, out: Uint8Array, q: number): void {
  for (let j = 0; j < half; j++) {
    out[q + j] = nearestFloat4(x[at + j], scale) | (nearestFloat4(x[at + half + j], scale) << 4);
  }
}

function nearestFloat4(value: number, scale: number): number {
  let best = 0;
  let error = Math.abs(value);
  for (let level = 1; level < 16; level++) {
    const other = Math.abs(Math.fround(FLOAT4[level] * scale - value));
    if (other < error) {
      error = other;
      best = level;
    }
  }
  return best;
}

/** A float of four exponent and three fraction bits, its top bit ignored; 0x7f, and as in ggml it alone, reads as 0. */
function float8(byte: number): number {
  if (byte === 0x7f) return 0;
  const exponent = (byte >> 3) & 15;
  const fraction = byte & 7;
  return exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
}

/** The nearest such float of a value of zero or more; halves round up, and what is too large becomes the largest, 448. */
function toFloat8(value: number): number {
  if (!(value > 0)) return 0;
  if (value < 2 ** -6) return Math.min(7, Math.floor(value * 512 + 0.5));
  const exponent = Math.min(8, Math.floor(Math.log2(value)));
  // 8 to 16 eighths; 16 carries into the exponent by itself.
  const eighths = Math.floor((value / 2 ** exponent) * 8 + 0.5);
  return Math.min(0x7e, ((exponent + 6) << 3) + eighths);
}
