/**
 * TQ1_0 and TQ2_0: 256 values of -1, 0 or 1 times d (BitNet files; not in candle).
 *
 * TQ1_0 (54 bytes): five ternary digits a byte in q[48], four in high[4], d f16. A byte holds its digits as a fraction of
 * 256, so multiplying by 3 pushes the next digit over the top. TQ2_0 (66 bytes): two bits a value in q[64], d f16.
 */
import type { BlockFormat } from './format';
import { readHalf } from './half';

const SUPER = 256;

function digits(src: Uint8Array, q: number, bytes: number, count: number, out: Float32Array, o: number, d: number) {
  for (let n = 0, power = 1; n < count; n++, power *= 3) {
    for (let m = 0; m < bytes; m++) {
      const fraction = (src[q + m] * power) & 255;
      out[o + n * bytes + m] = d * (((fraction * 3) >> 8) - 1);
    }
  }
}

export const TQ1_0: BlockFormat = {
  type: 'tq1_0',
  ggmlType: 34,
  blockSize: SUPER,
  blockBytes: 54,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    for (let b = 0, p = srcOffset, o = outOffset; b < blocks; b++, p += 54, o += SUPER) {
      const d = readHalf(src, p + 52);
      digits(src, p, 32, 5, out, o, d);
      digits(src, p + 32, 16, 5, out, o + 160, d);
      digits(src, p + 48, 4, 4, out, o + 240, d);
    }
  },
};

export const TQ2_0: BlockFormat = {
  type: 'tq2_0',
  ggmlType: 35,
  blockSize: SUPER,
  blockBytes: 66,
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
};
