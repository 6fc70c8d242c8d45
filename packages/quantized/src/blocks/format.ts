/**
 * What a block format is: a fixed number of neighbouring values of a row packed into a fixed number of bytes, after
 * candle's `GgmlType` trait (candle-core/src/quantized/k_quants.rs).
 *
 * Arithmetic follows ggml's scalar reference in f32. A product of a half-precision scale, a small sub-scale and a
 * small integer is exact in a double, so the one rounding that happens is the store into the `Float32Array`, the same
 * rounding that f32 code makes; where f32 code rounds in between, the TypeScript does it with `Math.fround`.
 */

import { BLOCK_TYPES, type BlockFacts, type BlockType } from '@x/core';

const ACTIVATION_TYPES = ['f32', 'f16', 'bf16'] as const;
const OTHER_PLAIN_TYPES = ['f64', 'i8', 'i16', 'i32', 'i64'] as const;

/** A type that can be read as numbers, in candle's spelling (`q4_K`, not `q4_k`): numbers as they are, or blocks. */
export type QuantType = (typeof ACTIVATION_TYPES)[number] | BlockType | (typeof OTHER_PLAIN_TYPES)[number];

export const QUANT_TYPES: readonly QuantType[] = [
  ...ACTIVATION_TYPES,
  ...(Object.keys(BLOCK_TYPES) as BlockType[]),
  ...OTHER_PLAIN_TYPES,
];

/** Reads `blocks` blocks at `src[srcOffset]` into `out[outOffset ...]`. */
export type Dequantize = (
  src: Uint8Array,
  srcOffset: number,
  out: Float32Array,
  outOffset: number,
  blocks: number,
) => void;

/** Packs `blocks` blocks of values at `x[xOffset]` into `out[outOffset ...]`. The bytes written are all overwritten. */
export type Quantize = (x: Float32Array, xOffset: number, out: Uint8Array, outOffset: number, blocks: number) => void;

/**
 * Packs one row of `blocks` blocks as {@link Quantize} does, but such that errors of values with a large `importance`
 * (the mean square of the activations that they are multiplied with; one for each value of the row) are the smaller ones.
 */
export type QuantizeWeighted = (
  x: Float32Array,
  xOffset: number,
  out: Uint8Array,
  outOffset: number,
  blocks: number,
  importance: Float32Array,
  importanceOffset: number,
) => void;

/**
 * The products of `rows` rows at `src`, each `rowBytes` long, with `x`, a row of as many values, into `out[to ...]`: sums in doubles,
 * in which a scale is multiplied with the sum of what it belongs to.
 */
export type Multiply = (
  src: Uint8Array,
  rowBytes: number,
  rows: number,
  x: Float64Array,
  out: Float32Array,
  to: number,
) => void;

export interface BlockFormat extends BlockFacts {
  readonly type: QuantType;
  readonly dequantize: Dequantize;
  /** Faster than to read rows first, which is done where it is absent. */
  readonly multiply?: Multiply;
  /** Absent where we can read a format but not write it. */
  readonly quantize?: Quantize;
  /** Absent where ggml's quantiser makes no use of importance. */
  readonly quantizeWeighted?: QuantizeWeighted;
}
