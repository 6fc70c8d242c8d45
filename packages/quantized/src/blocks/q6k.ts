/**
 * Q6_K: 256 values of 6 bits in 16 groups of 16 (candle `BlockQ6K`), 210 bytes: low nibbles ql[128], high pairs qh[64],
 * 16 signed-byte scales, d f16; value = d * scale * (q - 32).
 *
 * Each half of 128 values uses 64 bytes of ql and 32 of qh. Its four runs of 32 take, in order: low nibbles of ql[0..31]
 * and of ql[32..63], then their high nibbles; run r takes bits 2r and 2r + 1 of qh.
 */
import { BLOCK_TYPES } from '@x/core';
import { fitSigned, requantize, TINY } from './fit';
import type { BlockFormat } from './format';
import { readHalf, roundHalfEven, writeHalf } from './half';

const f = Math.fround;
const SUPER = 256;

// Work space of one block; nothing here runs in two places at once.
const scales = new Float32Array(16);
const levels = new Uint8Array(SUPER);

export const Q6_K: BlockFormat = {
  type: 'q6_K',
  ...BLOCK_TYPES.q6_K,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 210, o += SUPER) {
      const d = readHalf(src, p + 208);
      for (let group = 0; group < 16; group++) {
        const scale = d * signed(src[p + 192 + group]);
        const run = (group >> 1) & 3;
        const within = (group & 1) * 16;
        const low = p + (group >> 3) * 64 + (run & 1) * 32 + within;
        const high = p + 128 + (group >> 3) * 32 + within;
        const nibble = (run >> 1) * 4;
        const pair = run * 2;
        for (let l = 0; l < 16; l++) {
          const q = ((src[low + l] >> nibble) & 15) | (((src[high + l] >> pair) & 3) << 4);
          out[o + group * 16 + l] = scale * (q - 32);
        }
      }
    }
  },
  multiply(src, rowBytes, rows, x, out, to) {
    for (let row = 0; row < rows; row++) {
      let total = 0;
      for (let i = 0, p = row * rowBytes; i < x.length; i += SUPER, p += 210) {
        let scaled = 0;
        // Sixteen of each of a half's four runs at a time.
        for (let part = 0; part < 4; part++) {
          const half = part >> 1;
          const within = (part & 1) * 16;
          const low = p + half * 64 + within;
          const high = p + 128 + half * 32 + within;
          const at = i + half * 128 + within;
          let a = 0;
          let b = 0;
          let c = 0;
          let d = 0;
          for (let l = 0; l < 16; l++) {
            const first = src[low + l];
            const second = src[low + 32 + l];
            const pairs = src[high + l];
            a += x[at + l] * (((first & 15) | ((pairs & 3) << 4)) - 32);
            b += x[at + 32 + l] * (((second & 15) | ((pairs & 12) << 2)) - 32);
            c += x[at + 64 + l] * (((first >> 4) | (pairs & 48)) - 32);
            d += x[at + 96 + l] * (((second >> 4) | ((pairs & 192) >> 2)) - 32);
          }
          const scale = p + 192 + half * 8 + (part & 1);
          scaled += signed(src[scale]) * a + signed(src[scale + 2]) * b;
          scaled += signed(src[scale + 4]) * c + signed(src[scale + 6]) * d;
        }
        total += readHalf(src, p + 208) * scaled;
      }
      out[to + row] = total;
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0; b < blocks; b++) quantizeBlock(x, xOffset + b * SUPER, out, outOffset + b * 210);
  },
  quantizeWeighted(x, xOffset, out, outOffset, blocks, importance, importanceOffset) {
    for (let b = 0; b < blocks; b++) {
      quantizeBlock(x, xOffset + b * SUPER, out, outOffset + b * 210, importance, importanceOffset + b * SUPER);
    }
  },
};

function signed(byte: number): number {
  return (byte << 24) >> 24;
}

/** One block; ggml takes the importance here as it is, where other formats scale it by the size of values. */
function quantizeBlock(
  x: Float32Array,
  i: number,
  out: Uint8Array,
  p: number,
  importance?: Float32Array,
  importanceAt = 0,
): void {
  let extreme = 0;
  for (let group = 0; group < 16; group++) {
    const scale = fitSigned(x, i + group * 16, 16, 32, levels, group * 16, importance, importanceAt + group * 16);
    if (Math.abs(scale) > Math.abs(extreme)) extreme = scale;
    scales[group] = scale;
  }
  out.fill(0, p, p + 210);
  if (Math.abs(extreme) < TINY) return;
  const inverse = f(-128 / extreme);
  writeHalf(out, p + 208, f(1 / inverse));
  const d = readHalf(out, p + 208);
  for (let group = 0; group < 16; group++) {
    const scale = Math.min(127, roundHalfEven(f(inverse * scales[group])));
    out[p + 192 + group] = scale & 255;
    requantize(levels, group * 16, x, i + group * 16, 16, f(d * scale), 0, -32, 31);
    const run = (group >> 1) & 3;
    const within = (group & 1) * 16;
    const low = p + (group >> 3) * 64 + (run & 1) * 32 + within;
    const high = p + 128 + (group >> 3) * 32 + within;
    for (let l = 0; l < 16; l++) {
      const q = levels[group * 16 + l];
      out[low + l] |= (q & 15) << ((run >> 1) * 4);
      out[high + l] |= (q >> 4) << (run * 2);
    }
  }
}
