/**
 * TQ1_0 and TQ2_0: 256 values of -1, 0 or 1 times d (BitNet files; not in candle).
 *
 * TQ1_0 (54 bytes): five ternary digits a byte in q[48], four in high[4], d f16. A byte holds its digits as a fraction of
 * 256, so multiplying by 3 pushes the next digit over the top. TQ2_0 (66 bytes): two bits a value in q[64], d f16.
 */
import { BLOCK_TYPES } from '@x/core';
import { extremeOf } from './fit';
import type { BlockFormat } from './format';
import { inverse, readHalf, roundHalfAway, writeHalf } from './half';

const SUPER = 256;

function digits(src: Uint8Array, q: number, bytes: number, count: number, out: Float32Array, o: number, d: number) {
  for (let n = 0, power = 1; n < count; n++, power *= 3) {
    for (let m = 0; m < bytes; m++) {
      const fraction = (src[q + m] * power) & 255;
      out[o + n * bytes + m] = d * (((fraction * 3) >> 8) - 1);
    }
  }
}

/** 0, 1 or 2 for the nearest of -d, 0 and d. */
function digit(value: number, perD: number): number {
  const q = roundHalfAway(Math.fround(value * perD)) + 1;
  return q >= 0 ? q & 3 : 0;
}

/** The inverse of {@link digits}: `count` of five digits, the first being the most significant, as a fraction of 256. */
function packDigits(
  out: Uint8Array,
  q: number,
  bytes: number,
  count: number,
  x: Float32Array,
  i: number,
  perD: number,
): void {
  for (let m = 0; m < bytes; m++) {
    let number = 0;
    for (let n = 0; n < 5; n++) number = number * 3 + (n < count ? digit(x[i + n * bytes + m], perD) : 0);
    out[q + m] = Math.ceil((number * 256) / 243);
  }
}

export const TQ1_0: BlockFormat = {
  type: 'tq1_0',
  ...BLOCK_TYPES.tq1_0,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 54, o += SUPER) {
      const d = readHalf(src, p + 52);
      digits(src, p, 32, 5, out, o, d);
      digits(src, p + 32, 16, 5, out, o + 160, d);
      digits(src, p + 48, 4, 4, out, o + 240, d);
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 54, i += SUPER) {
      const d = Math.abs(extremeOf(x, i, SUPER));
      const perD = inverse(d);
      packDigits(out, p, 32, 5, x, i, perD);
      packDigits(out, p + 32, 16, 5, x, i + 160, perD);
      packDigits(out, p + 48, 4, 4, x, i + 240, perD);
      writeHalf(out, p + 52, d);
    }
  },
};

export const TQ2_0: BlockFormat = {
  type: 'tq2_0',
  ...BLOCK_TYPES.tq2_0,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 66, o += SUPER) {
      const d = readHalf(src, p + 64);
      for (let half = 0; half < 2; half++) {
        for (let shift = 0; shift < 4; shift++) {
          for (let m = 0; m < 32; m++) {
            const q = (src[p + half * 32 + m] >> (2 * shift)) & 3;
            out[o + half * 128 + shift * 32 + m] = d * (q - 1);
          }
        }
      }
    }
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    for (let b = 0, p = outOffset, i = xOffset; b < blocks; b++, p += 66, i += SUPER) {
      const d = Math.abs(extremeOf(x, i, SUPER));
      const perD = inverse(d);
      for (let l = 0; l < 64; l++) {
        const at = i + (l >> 5) * 128 + (l & 31);
        let byte = 0;
        for (let n = 0; n < 4; n++) byte |= digit(x[at + n * 32], perD) << (2 * n);
        out[p + l] = byte;
      }
      writeHalf(out, p + 64, d);
    }
  },
};
