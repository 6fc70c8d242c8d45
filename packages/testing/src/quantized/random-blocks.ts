/** Blocks of random bits with sane scales, for any block type: every quant, sub-scale and codebook entry is possible. */
import { type BlockType, BLOCK_TYPES as FACTS } from '@x/core';
import { blockFormat, type QuantType } from '@x/quantized';

/** Types with blocks: every one but plain numbers. */
export const BLOCK_TYPES = Object.keys(FACTS) as BlockType[];

/** Where halves lie in a block: scales, and the minima of some types. */
const HALVES: Partial<Record<QuantType, readonly number[]>> = {
  q4_1: [0, 2],
  q5_1: [0, 2],
  q2_K: [80, 82],
  q3_K: [108],
  q4_K: [0, 2],
  q5_K: [0, 2],
  q6_K: [208],
  tq1_0: [52],
  tq2_0: [64],
};

/** `count` blocks; the same ones for the same seed. Scales are from 2^-8 to 2^-7, in MXFP4 and NVFP4 some powers of two more. */
export function randomBlocks(type: QuantType, count: number, seed: number): Uint8Array {
  const { blockBytes } = blockFormat(type);
  const words = new Uint32Array(Math.ceil((count * blockBytes) / 4));
  let state = (Math.imul(seed, 0x9e3779b9) | 1) >>> 0;
  for (let i = 0; i < words.length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[i] = state;
  }
  const bytes = new Uint8Array(words.buffer, 0, count * blockBytes);
  for (let at = 0; at < bytes.length; at += blockBytes) scale(type, bytes, at);
  return bytes;
}

/** Makes scales of the random bits in a block's place for them. */
function scale(type: QuantType, bytes: Uint8Array, at: number): void {
  // The upper byte of a half from 2^-8 to 2^-7.
  const high = 0x1c;
  switch (type) {
    case 'q8_K':
      bytes[at + 2] &= 0x7f;
      bytes[at + 3] = 0x3c;
      return;
    case 'iq1_m':
      // The half is in the top nibbles of four words.
      bytes[at + 55] = (bytes[at + 55] & 15) | (high & 0xf0);
      bytes[at + 53] = (bytes[at + 53] & 15) | ((high & 15) << 4);
      return;
    case 'mxfp4':
      bytes[at] = 118 + (bytes[at] & 7);
      return;
    case 'nvfp4':
      for (let i = 0; i < 4; i++) bytes[at + i] &= 0x3f;
      return;
    default:
      for (const offset of HALVES[type] ?? [0]) bytes[at + offset + 1] = high | (bytes[at + offset + 1] & 3);
  }
}
