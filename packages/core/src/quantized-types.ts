/**
 * Block-quantized types: a fixed number of neighbouring values of a row packed into a fixed number of bytes. These facts
 * are here alone; `@x/quantized` adds how blocks are read and written, a device which kernels it launches.
 */

/** What there is to know of a type without reading its blocks. */
export interface BlockFacts {
  /** The number that stands for the type in a GGUF file. */
  readonly ggmlType: number;
  /** Values in a block. */
  readonly blockSize: number;
  /** Bytes of a block. */
  readonly blockBytes: number;
}

const facts = (ggmlType: number, blockSize: number, blockBytes: number): BlockFacts => ({
  ggmlType,
  blockSize,
  blockBytes,
});

/** By ggml's name in candle's spelling (`q4_K`, not `q4_k`). */
export const BLOCK_TYPES = {
  q4_0: facts(2, 32, 18),
  q4_1: facts(3, 32, 20),
  q5_0: facts(6, 32, 22),
  q5_1: facts(7, 32, 24),
  q8_0: facts(8, 32, 34),
  q8_1: facts(9, 32, 36),
  q2_K: facts(10, 256, 84),
  q3_K: facts(11, 256, 110),
  q4_K: facts(12, 256, 144),
  q5_K: facts(13, 256, 176),
  q6_K: facts(14, 256, 210),
  q8_K: facts(15, 256, 292),
  iq2_xxs: facts(16, 256, 66),
  iq2_xs: facts(17, 256, 74),
  iq3_xxs: facts(18, 256, 98),
  iq1_s: facts(19, 256, 50),
  iq4_nl: facts(20, 32, 18),
  iq3_s: facts(21, 256, 110),
  iq2_s: facts(22, 256, 82),
  iq4_xs: facts(23, 256, 136),
  iq1_m: facts(29, 256, 56),
  tq1_0: facts(34, 256, 54),
  tq2_0: facts(35, 256, 66),
  mxfp4: facts(39, 32, 17),
  nvfp4: facts(40, 64, 36),
} as const satisfies Record<string, BlockFacts>;

/** A name of {@link BLOCK_TYPES}. */
export type BlockType = keyof typeof BLOCK_TYPES;

/** Whether {@link BLOCK_TYPES} has the name: `q4_K`, but not `q4_k`. */
export function isBlockType(name: string): name is BlockType {
  return Object.hasOwn(BLOCK_TYPES, name);
}
