/** What arguments of this package's functions may be, beside those of `kinds`. */
import { kinds } from '@x/core';

/** A `GgufMetadata`, of whichever copy of `@x/quantized`. */
export const METADATA: kinds.Kind = kinds.kind(
  (value) => typeof (value as { strings?: unknown } | null | undefined)?.strings === 'function',
  'give the metadata of a GGUF file, as file.metadata',
);

/** Ids of tokens. */
export const IDS: kinds.Kind = kinds.kind(
  (value) => Array.isArray(value) || value instanceof Uint32Array,
  'give ids of tokens, as an array or a Uint32Array',
);

export const PATH: kinds.Kind = kinds.STRING;
export const OPTIONS: kinds.Kind = kinds.optional(kinds.OBJECT);
