/**
 * Q2_K and Q3_K: 256 values of 2 and 3 bits in 16 groups of 16 (candle `BlockQ2K`, `BlockQ3K`).
 *
 * Q2_K (84 bytes): 16 bytes of scale (low nibble) and offset (high nibble), q[64], d, dmin f16;
 * value = d * scale * q - dmin * offset.
 * Q3_K (110 bytes): mask[32], q[64], 12 bytes holding 16 six-bit scales, d f16; value = d * (scale - 32) * q, where q is
 * the two low bits, less 4 when the mask's bit is 0.
 * In both, q[32 * h + l] holds the values 128 * h + 32 * s + l for the four shifts 2 * s.
 */
import type { BlockFormat } from './format';
import { readHalf, roundHalfEven, writeHalf } from './half';
import { clamp, fitOffset, fitSymmetric, type OffsetFit, setLevels } from './k-search';

const SUPER = 256;

export const Q2_K: BlockFormat = {
  type: 'q2_K',
  ggmlType: 10,
  blockSize: SUPER,
  blockBytes: 84,
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
    const levels = new Uint8Array(SUPER);
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 84, i += SUPER) {
      const fits: OffsetFit[] = [];
      for (let group = 0; group < 16; group++) fits.push(fitOffset(x, i + group * 16, 16, 3));
      const scales = Math.max(...fits.map((fit) => fit.scale));
      const mins = Math.max(...fits.map((fit) => fit.min));
      writeHalf(out, p + 80, scales / 15);
      writeHalf(out, p + 82, mins / 15);
      const d = readHalf(out, p + 80);
      const dmin = readHalf(out, p + 82);
      for (let group = 0; group < 16; group++) {
        const scale = d > 0 ? clamp(roundHalfEven(fits[group].scale / d), 0, 15) : 0;
        const min = dmin > 0 ? clamp(roundHalfEven(fits[group].min / dmin), 0, 15) : 0;
        out[p + group] = scale | (min << 4);
        setLevels(levels, group * 16, x, i + group * 16, 16, { scale: d * scale, min: dmin * min }, 3);
      }
      packPairs(out, p + 16, levels);
    }
  },
};

export const Q3_K: BlockFormat = {
  type: 'q3_K',
  ggmlType: 11,
  blockSize: SUPER,
  blockBytes: 110,
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
    const levels = new Uint8Array(SUPER);
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 110, i += SUPER) {
      const fits: number[] = [];
      let extreme = 0;
      for (let group = 0; group < 16; group++) {
        const { scale } = fitSymmetric(x, i + group * 16, 16, 4);
        if (Math.abs(scale) > Math.abs(extreme)) extreme = scale;
        fits.push(scale);
      }
      // The largest scale takes the far negative level, so d has the other sign.
      writeHalf(out, p + 108, extreme / -32);
      const d = readHalf(out, p + 108);
      out.fill(0, p, p + 32);
      out.fill(0, p + 96, p + 108);
      for (let group = 0; group < 16; group++) {
        const scale = d === 0 ? 0 : clamp(roundHalfEven(fits[group] / d), -32, 31);
        const stored = scale + 32;
        out[p + 96 + (group & 7)] |= (stored & 15) << (group < 8 ? 0 : 4);
        out[p + 104 + (group & 3)] |= (stored >> 4) << (2 * (group >> 2));
        const inverse = d * scale === 0 ? 0 : 1 / (d * scale);
        for (let l = 0; l < 16; l++) {
          const q = clamp(roundHalfEven(x[i + group * 16 + l] * inverse), -4, 3) + 4;
          if (q > 3) out[p + (group & 1) * 16 + l] |= 1 << (group >> 1);
          levels[group * 16 + l] = q & 3;
        }
      }
      packPairs(out, p + 32, levels);
    }
  },
};

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
