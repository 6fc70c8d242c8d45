/**
 * Finding a block format by name or by its number in a file. Types that ggml knows and we cannot read as numbers are
 * listed too, so that a file holding one is checked, copied and described like any other.
 */
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

/** Name and block size of a type; `format` is absent when its values cannot be read. */
export interface GgmlTypeInfo {
  readonly name: string;
  readonly blockSize: number;
  readonly blockBytes: number;
  readonly format?: BlockFormat;
}

/** Codebook formats: ggml id, values and bytes of a block. */
const SIZED_ONLY: readonly (readonly [number, string, number, number])[] = [
  [16, 'iq2_xxs', 256, 66],
  [17, 'iq2_xs', 256, 74],
  [18, 'iq3_xxs', 256, 98],
  [19, 'iq1_s', 256, 50],
  [21, 'iq3_s', 256, 110],
  [22, 'iq2_s', 256, 82],
  [29, 'iq1_m', 256, 56],
];

const BY_ID = new Map<number, GgmlTypeInfo>([
  ...Object.values(FORMATS).map((format): [number, GgmlTypeInfo] => [
    format.ggmlType,
    { name: format.type, blockSize: format.blockSize, blockBytes: format.blockBytes, format },
  ]),
  ...SIZED_ONLY.map(([id, name, blockSize, blockBytes]): [number, GgmlTypeInfo] => [
    id,
    { name, blockSize, blockBytes },
  ]),
]);

export function isQuantType(name: string): name is QuantType {
  return (QUANT_TYPES as readonly string[]).includes(name);
}

/** The format of a type. */
export function blockFormat(type: QuantType): BlockFormat {
  return FORMATS[type];
}

/** What is known of a type number; undefined for a number that ggml had not given out, or took back. */
export function ggmlTypeInfo(ggmlType: number): GgmlTypeInfo | undefined {
  return BY_ID.get(ggmlType);
}

/** Bytes of `elemCount` values; the count is a multiple of the block size. */
export function byteLengthOf(format: { blockSize: number; blockBytes: number }, elemCount: number): number {
  return (elemCount / format.blockSize) * format.blockBytes;
}
