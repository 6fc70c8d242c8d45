/**
 * Q4_K and Q5_K: 256 values of 4 and 5 bits in 8 groups of 32 (candle `BlockQ4K`, `BlockQ5K`).
 *
 * Q4_K (144 bytes): d, dmin f16, 12 bytes holding 8 six-bit scales and 8 six-bit offsets, q[128].
 * Q5_K (176 bytes): the same with the fifth bits, high[32], before q. Value = d * scale * q - dmin * offset; byte l of
 * the i-th 32 bytes of q holds group 2i in its low nibble and group 2i + 1 in its high one; bit g of high[l] is the
 * fifth bit of group g's value l.
 */
import type { BlockFormat } from './format';
import { readHalf, roundHalfEven, writeHalf } from './half';
import { clamp, fitOffset, type OffsetFit, setLevels } from './k-search';

const SUPER = 256;

export const Q4_K: BlockFormat = {
  type: 'q4_K',
  ggmlType: 12,
  blockSize: SUPER,
  blockBytes: 144,
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
  quantize(x, xOffset, out, outOffset, blocks) {
    const levels = new Uint8Array(SUPER);
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 144, i += SUPER) {
      quantizeGroups(x, i, out, p, levels, 15);
      packNibbles(out, p + 16, levels);
    }
  },
};

export const Q5_K: BlockFormat = {
  type: 'q5_K',
  ggmlType: 13,
  blockSize: SUPER,
  blockBytes: 176,
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
    const levels = new Uint8Array(SUPER);
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 176, i += SUPER) {
      quantizeGroups(x, i, out, p, levels, 31);
      for (let l = 0; l < 32; l++) {
        let high = 0;
        for (let group = 0; group < 8; group++) high |= (levels[group * 32 + l] >> 4) << group;
        out[p + 16 + l] = high;
      }
      packNibbles(out, p + 48, levels);
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
function quantizeGroups(
  x: Float32Array,
  at: number,
  out: Uint8Array,
  p: number,
  levels: Uint8Array,
  top: number,
): void {
  const fits: OffsetFit[] = [];
  for (let group = 0; group < 8; group++) fits.push(fitOffset(x, at + group * 32, 32, top));
  writeHalf(out, p, Math.max(...fits.map((fit) => fit.scale)) / 63);
  writeHalf(out, p + 2, Math.max(...fits.map((fit) => fit.min)) / 63);
  const d = readHalf(out, p);
  const dmin = readHalf(out, p + 2);
  out.fill(0, p + 4, p + 16);
  for (let group = 0; group < 8; group++) {
    const scale = d > 0 ? clamp(roundHalfEven(fits[group].scale / d), 0, 63) : 0;
    const min = dmin > 0 ? clamp(roundHalfEven(fits[group].min / dmin), 0, 63) : 0;
    if (group < 4) {
      out[p + 4 + group] |= scale;
      out[p + 8 + group] |= min;
    } else {
      out[p + 8 + group] = (scale & 15) | ((min & 15) << 4);
      out[p + group] |= (scale >> 4) << 6;
      out[p + 4 + group] |= (min >> 4) << 6;
    }
    setLevels(levels, group * 32, x, at + group * 32, 32, { scale: d * scale, min: dmin * min }, top);
  }
}

function packNibbles(out: Uint8Array, at: number, levels: Uint8Array): void {
  for (let pair = 0; pair < 4; pair++) {
    for (let l = 0; l < 32; l++) {
      out[at + pair * 32 + l] = (levels[pair * 64 + l] & 15) | ((levels[pair * 64 + 32 + l] & 15) << 4);
    }
  }
}
