/** What arguments of several functions of this package may be; see `kinds` of core. */
import { kinds } from '@x/core';
import { isQTensor } from './is-qtensor';

export const BYTES: kinds.Kind = kinds.kind((value) => value instanceof Uint8Array, 'give bytes as a Uint8Array');
export const QUANTIZED: kinds.Kind = kinds.kind(isQTensor, 'give a QTensor');
export const FLOATS: kinds.Kind = kinds.kind((value) => value instanceof Float32Array, 'give a Float32Array');
/** Dtypes of numbers in the place of blocks. */
export const DENSE: kinds.Kind = kinds.optional(kinds.oneOf(['f32', 'f16', 'bf16']));

/** Options of functions that quantise. Whether the importance fits is checked with the weight. */
export const QUANTIZE_OPTIONS: Readonly<Record<string, kinds.Kind>> = {
  importance: kinds.optional(FLOATS),
  threads: kinds.optional(kinds.POSITIVE),
  signal: kinds.optional(kinds.SIGNAL),
  weight: kinds.optional(kinds.fields({ name: kinds.STRING, firstRow: kinds.COUNT })),
};
