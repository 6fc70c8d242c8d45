/**
 * Big-endian files: every number of more than a byte lies the other way round, in the header and inside blocks. Where a
 * block has such numbers is the layout of ggml's C structures (ggml-common.h); bytes that only hold bits stay.
 */
import type { BlockFormat, QuantType } from '../blocks';

/** `count` numbers of `size` bytes one after the other, from byte `at` of a block. */
type Field = readonly [at: number, size: 2 | 4 | 8, count: number];

const FIELDS: Record<QuantType, readonly Field[]> = {
  f32: [[0, 4, 1]],
  f16: [[0, 2, 1]],
  bf16: [[0, 2, 1]],
  f64: [[0, 8, 1]],
  i8: [],
  i16: [[0, 2, 1]],
  i32: [[0, 4, 1]],
  i64: [[0, 8, 1]],
  q4_0: [[0, 2, 1]],
  q4_1: [[0, 2, 2]],
  // The 32 high bits are one number in the machine's order.
  q5_0: [
    [0, 2, 1],
    [2, 4, 1],
  ],
  q5_1: [
    [0, 2, 2],
    [4, 4, 1],
  ],
  q8_0: [[0, 2, 1]],
  q8_1: [[0, 2, 2]],
  q2_K: [[80, 2, 2]],
  q3_K: [[108, 2, 1]],
  q4_K: [[0, 2, 2]],
  q5_K: [[0, 2, 2]],
  q6_K: [[208, 2, 1]],
  q8_K: [
    [0, 4, 1],
    [260, 2, 16],
  ],
  iq1_s: [
    [0, 2, 1],
    [34, 2, 8],
  ],
  iq1_m: [],
  iq2_xxs: [[0, 2, 33]],
  iq2_xs: [[0, 2, 33]],
  iq2_s: [[0, 2, 1]],
  iq3_xxs: [[0, 2, 1]],
  iq3_s: [[0, 2, 1]],
  iq4_nl: [[0, 2, 1]],
  iq4_xs: [[0, 2, 2]],
  tq1_0: [[52, 2, 1]],
  tq2_0: [[64, 2, 1]],
  mxfp4: [],
  nvfp4: [],
};

/** Turns the numbers in whole blocks round, in place: from one order of bytes to the other. */
export function swapBlocks(format: BlockFormat, bytes: Uint8Array): void {
  for (const [at, size, count] of FIELDS[format.type]) {
    for (let block = at; block < bytes.byteLength; block += format.blockBytes) {
      for (let i = 0; i < count; i++) swap(bytes, block + i * size, size);
    }
  }
}

/** Turns every number of `size` bytes round, in place. */
export function swapNumbers(bytes: Uint8Array, size: number): void {
  if (size > 1) for (let at = 0; at < bytes.byteLength; at += size) swap(bytes, at, size);
}

function swap(bytes: Uint8Array, at: number, size: number): void {
  for (let low = at, high = at + size - 1; low < high; low++, high--) {
    const byte = bytes[low];
    bytes[low] = bytes[high];
    bytes[high] = byte;
  }
}
