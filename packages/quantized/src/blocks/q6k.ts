/**
 * Q6_K: 256 values of 6 bits in 16 groups of 16 (candle `BlockQ6K`), 210 bytes: low nibbles ql[128], high pairs qh[64],
 * 16 signed-byte scales, d f16; value = d * scale * (q - 32).
 *
 * Each half of 128 values uses 64 bytes of ql and 32 of qh. Its four runs of 32 take, in order: low nibbles of ql[0..31]
 * and of ql[32..63], then their high nibbles; run r takes bits 2r and 2r + 1 of qh.
 */
import type { BlockFormat } from './format';
import { readHalf, roundHalfEven, writeHalf } from './half';
import { clamp, fitSymmetric } from './k-search';

const SUPER = 256;

export const Q6_K: BlockFormat = {
  type: 'q6_K',
  ggmlType: 14,
  blockSize: SUPER,
  blockBytes: 210,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 210, o += SUPER) {
      const d = readHalf(src, p + 208);
      for (let group = 0; group < 16; group++) {
        const scale = d * ((src[p + 192 + group] << 24) >> 24);
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
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 210, i += SUPER) {
      const fits: number[] = [];
      let extreme = 0;
      for (let group = 0; group < 16; group++) {
        const { scale } = fitSymmetric(x, i + group * 16, 16, 32);
        if (Math.abs(scale) > Math.abs(extreme)) extreme = scale;
        fits.push(scale);
      }
      out.fill(0, p, p + 208);
      writeHalf(out, p + 208, extreme / -128);
      const d = readHalf(out, p + 208);
      for (let group = 0; group < 16; group++) {
        const scale = d === 0 ? 0 : clamp(roundHalfEven(fits[group] / d), -128, 127);
        out[p + 192 + group] = scale & 255;
        const inverse = d * scale === 0 ? 0 : 1 / (d * scale);
        const run = (group >> 1) & 3;
        const within = (group & 1) * 16;
        const low = p + (group >> 3) * 64 + (run & 1) * 32 + within;
        const high = p + 128 + (group >> 3) * 32 + within;
        for (let l = 0; l < 16; l++) {
          const q = clamp(roundHalfEven(x[i + group * 16 + l] * inverse), -32, 31) + 32;
          out[low + l] |= (q & 15) << ((run >> 1) * 4);
          out[high + l] |= (q >> 4) << (run * 2);
        }
      }
    }
  },
};
