/** Finding a block format by name or by its number in a file. */
import { IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS } from './codebook';
import { type BlockFormat, QUANT_TYPES, type QuantType } from './format';
import { IQ4_NL, IQ4_XS, MXFP4, NVFP4 } from './four-bit-tables';
import { BF16, F16, F32, F64, I8, I16, I32, I64 } from './plain';
import { Q2_K, Q3_K } from './q2k-q3k';
import { Q4_0, Q4_1 } from './q4';
import { Q4_K, Q5_K } from './q4k-q5k';
import { Q5_0, Q5_1 } from './q5';
import { Q6_K } from './q6k';
import { Q8_0, Q8_1, Q8_K } from './q8';
import { TQ1_0, TQ2_0 } from './ternary';

const FORMATS: Record<QuantType, BlockFormat> = {
  f32: F32,
  f16: F16,
  bf16: BF16,
  q4_0: Q4_0,
  q4_1: Q4_1,
  q5_0: Q5_0,
  q5_1: Q5_1,
  q8_0: Q8_0,
  q8_1: Q8_1,
  q2_K: Q2_K,
  q3_K: Q3_K,
  q4_K: Q4_K,
  q5_K: Q5_K,
  q6_K: Q6_K,
  q8_K: Q8_K,
  iq1_s: IQ1_S,
  iq1_m: IQ1_M,
  iq2_xxs: IQ2_XXS,
  iq2_xs: IQ2_XS,
  iq2_s: IQ2_S,
  iq3_xxs: IQ3_XXS,
  iq3_s: IQ3_S,
  iq4_nl: IQ4_NL,
  iq4_xs: IQ4_XS,
  tq1_0: TQ1_0,
  tq2_0: TQ2_0,
  mxfp4: MXFP4,
  nvfp4: NVFP4,
  f64: F64,
  i8: I8,
  i16: I16,
  i32: I32,
  i64: I64,
};

const BY_ID = new Map<number, BlockFormat>(Object.values(FORMATS).map((format) => [format.ggmlType, format]));

/** Whether {@link QUANT_TYPES} has the name, in candle's spelling: `q4_K`, not `q4_k`. */
export function isQuantType(name: string): name is QuantType {
  return (QUANT_TYPES as readonly string[]).includes(name);
}

/** The format of a type. */
export function blockFormat(type: QuantType): BlockFormat {
  return FORMATS[type];
}

/** The format with a number; undefined for numbers that ggml has not given out, has taken back, or gave out later. */
export function formatById(ggmlType: number): BlockFormat | undefined {
  return BY_ID.get(ggmlType);
}

/** Bytes of `elemCount` values; the count is a multiple of the block size. */
export function byteLengthOf(format: { blockSize: number; blockBytes: number }, elemCount: number): number {
  return (elemCount / format.blockSize) * format.blockBytes;
}
