/**
 * The codebook formats of one to three bits (not in candle, which refuses whole files that hold one): eight or four
 * neighbouring values are an entry of a table, with signs and a scale beside it. All have 256 values a block.
 *
 * | type | bytes | layout |
 * |---|---|---|
 * | IQ2_XXS | 66 | d f16; 8 × { 4 entries u8, u32: 4 × 7 sign bits and a 4-bit scale } |
 * | IQ2_XS | 74 | d f16; 32 × u16: 9-bit entry, 7 sign bits; 16 four-bit scales |
 * | IQ2_S | 82 | d f16; 32 low bytes of entries; 32 bytes of signs; 32 high pairs; 16 four-bit scales |
 * | IQ3_XXS | 98 | d f16; 64 entries u8; 8 × u32: 4 × 7 sign bits and a 4-bit scale |
 * | IQ3_S | 110 | d f16; 64 low bytes of entries; 64 high bits; 32 bytes of signs; 8 four-bit scales |
 * | IQ1_S | 50 | d f16; 32 low bytes of entries; 8 × u16: 4 high triples, 3-bit scale, sign of the shift |
 * | IQ1_M | 56 | 32 low bytes of entries; 32 nibbles: high triple, sign of the shift; 16 three-bit scales and d between them |
 *
 * Seven stored signs stand for eight: the last one makes the number of minus signs even.
 */
import { BLOCK_TYPES, type BlockType, f16ToF32 } from '@x/core';
import { IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID } from './codebook-data';
import type { BlockFormat } from './format';
import { readHalf } from './half';

const SUPER = 256;

/** A table that is unpacked when it is first needed. */
function codebook(data: string, bits: 2 | 4, levels: readonly number[]): () => Int8Array {
  let table: Int8Array | undefined;
  return () => {
    if (table === undefined) {
      const bytes = Buffer.from(data, 'base64');
      const perByte = 8 / bits;
      table = new Int8Array(bytes.length * perByte);
      for (let i = 0; i < table.length; i++) {
        table[i] = levels[(bytes[Math.floor(i / perByte)] >> (bits * (i % perByte))) & ((1 << bits) - 1)];
      }
    }
    return table;
  };
}

const TWO_BIT = [8, 25, 43];
const iq2xxs = codebook(IQ2_XXS_GRID, 2, TWO_BIT);
const iq2xs = codebook(IQ2_XS_GRID, 2, TWO_BIT);
const iq2s = codebook(IQ2_S_GRID, 2, TWO_BIT);
const iq3xxs = codebook(IQ3_XXS_GRID, 4, [4, 12, 20, 28, 36, 44, 52, 62]);
const iq3s = codebook(IQ3_S_GRID, 4, [1, 3, 5, 7, 9, 11, 13, 15]);
const iq1 = codebook(IQ1_GRID, 2, [-1, 0, 1]);

const u16 = (src: Uint8Array, at: number) => src[at] | (src[at + 1] << 8);
const u32 = (src: Uint8Array, at: number) => (u16(src, at) | (u16(src, at + 2) << 16)) >>> 0;
const nibble = (src: Uint8Array, at: number, i: number) => (src[at + (i >> 1)] >> (4 * (i & 1))) & 15;

/** Eight signs, as bits, from seven. */
function evenSigns(seven: number): number {
  let parity = seven ^ (seven >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | ((parity & 1) << 7);
}

/** `count` values of entry `index`, negated where a bit of `signs` is set. */
function signed(
  out: Float32Array,
  o: number,
  table: Int8Array,
  index: number,
  count: number,
  signs: number,
  scale: number,
): void {
  for (let j = 0; j < count; j++) {
    const value = scale * table[index * count + j];
    out[o + j] = (signs >> j) & 1 ? -value : value;
  }
}

/** Eight values of entry `index`, all shifted by an eighth. */
function shifted(out: Float32Array, o: number, index: number, shift: number, scale: number): void {
  const table = iq1();
  for (let j = 0; j < 8; j++) out[o + j] = scale * (table[index * 8 + j] + shift);
}

function format(
  type: BlockType,
  block: (src: Uint8Array, p: number, out: Float32Array, o: number) => void,
): BlockFormat {
  const { blockBytes } = BLOCK_TYPES[type];
  return {
    type,
    ...BLOCK_TYPES[type],
    dequantize(src, srcOffset, out, outOffset, blocks) {
      for (let b = 0; b < blocks; b++) block(src, srcOffset + b * blockBytes, out, outOffset + b * SUPER);
    },
  };
}

export const IQ2_XXS = format('iq2_xxs', (src, p, out, o) => {
  const d = readHalf(src, p);
  const table = iq2xxs();
  for (let group = 0; group < 8; group++) {
    const at = p + 2 + group * 8;
    const word = u32(src, at + 4);
    const scale = d * (0.5 + (word >>> 28)) * 0.25;
    for (let i = 0; i < 4; i++) {
      signed(out, o + group * 32 + i * 8, table, src[at + i], 8, evenSigns((word >>> (7 * i)) & 127), scale);
    }
  }
});

export const IQ2_XS = format('iq2_xs', (src, p, out, o) => {
  const d = readHalf(src, p);
  const table = iq2xs();
  for (let i = 0; i < 32; i++) {
    const word = u16(src, p + 2 + i * 2);
    const scale = d * (0.5 + nibble(src, p + 66, i >> 1)) * 0.25;
    signed(out, o + i * 8, table, word & 511, 8, evenSigns(word >> 9), scale);
  }
});

export const IQ2_S = format('iq2_s', (src, p, out, o) => {
  const d = readHalf(src, p);
  const table = iq2s();
  for (let i = 0; i < 32; i++) {
    const high = (src[p + 66 + (i >> 2)] >> (2 * (i & 3))) & 3;
    const scale = d * (0.5 + nibble(src, p + 74, i >> 1)) * 0.25;
    signed(out, o + i * 8, table, src[p + 2 + i] | (high << 8), 8, src[p + 34 + i], scale);
  }
});

export const IQ3_XXS = format('iq3_xxs', (src, p, out, o) => {
  const d = readHalf(src, p);
  const table = iq3xxs();
  for (let group = 0; group < 8; group++) {
    const word = u32(src, p + 66 + group * 4);
    const scale = d * (0.5 + (word >>> 28)) * 0.5;
    for (let i = 0; i < 4; i++) {
      const signs = evenSigns((word >>> (7 * i)) & 127);
      const entry = p + 2 + group * 8 + i * 2;
      const to = o + group * 32 + i * 8;
      signed(out, to, table, src[entry], 4, signs, scale);
      signed(out, to + 4, table, src[entry + 1], 4, signs >> 4, scale);
    }
  }
});

export const IQ3_S = format('iq3_s', (src, p, out, o) => {
  const d = readHalf(src, p);
  const table = iq3s();
  for (let i = 0; i < 64; i++) {
    const high = (src[p + 66 + (i >> 3)] >> (i & 7)) & 1;
    const signs = nibble(src, p + 74, i);
    const scale = d * (1 + 2 * nibble(src, p + 106, i >> 3));
    signed(out, o + i * 4, table, src[p + 2 + i] | (high << 8), 4, signs, scale);
  }
});

export const IQ1_S = format('iq1_s', (src, p, out, o) => {
  const d = readHalf(src, p);
  for (let i = 0; i < 32; i++) {
    const word = u16(src, p + 34 + (i >> 2) * 2);
    const high = (word >> (3 * (i & 3))) & 7;
    const scale = d * (2 * ((word >> 12) & 7) + 1);
    shifted(out, o + i * 8, src[p + 2 + i] | (high << 8), word & 0x8000 ? -0.125 : 0.125, scale);
  }
});

export const IQ1_M = format('iq1_m', (src, p, out, o) => {
  // The top nibbles of the four scale words, lowest first, are the half.
  let bits = 0;
  for (let w = 0; w < 4; w++) bits |= (src[p + 49 + w * 2] >> 4) << (4 * w);
  const d = f16ToF32(bits);
  for (let i = 0; i < 32; i++) {
    const group = i >> 1;
    const scale = d * (2 * ((u16(src, p + 48 + (group >> 2) * 2) >> (3 * (group & 3))) & 7) + 1);
    const high = nibble(src, p + 32, i);
    shifted(out, o + i * 8, src[p + i] | ((high & 7) << 8), high & 8 ? -0.125 : 0.125, scale);
  }
});
