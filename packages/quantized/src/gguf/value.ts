/**
 * Metadata values of a GGUF file, each with the type it has in the file (candle's `gguf_file::Value`). The type is kept
 * because it is part of the file: writing back what was read gives the same bytes.
 */

/** The 13 value types, at the index that stands for them in a file. */
export const GGUF_TYPES = [
  'uint8',
  'int8',
  'uint16',
  'int16',
  'uint32',
  'int32',
  'float32',
  'bool',
  'string',
  'array',
  'uint64',
  'int64',
  'float64',
] as const;

export type GgufType = (typeof GGUF_TYPES)[number];
/** Types whose values are JavaScript numbers. */
export type GgufNumberType = 'uint8' | 'int8' | 'uint16' | 'int16' | 'uint32' | 'int32' | 'float32' | 'float64';
/** Types whose values are bigints. */
export type GgufBigType = 'uint64' | 'int64';

export type GgufValue =
  | { readonly type: GgufNumberType; readonly value: number }
  | { readonly type: GgufBigType; readonly value: bigint }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | GgufArray;

/** Items of an array: a typed array for numbers (BigInt for the 64-bit types), plain arrays otherwise. */
export type GgufItems =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigUint64Array
  | BigInt64Array
  | readonly boolean[]
  | readonly string[]
  | readonly GgufArray[];

export interface GgufArray {
  readonly type: 'array';
  readonly elementType: GgufType;
  readonly value: GgufItems;
}

interface NumericItems {
  readonly bytes: number;
  make(buffer: ArrayBuffer): Exclude<GgufItems, readonly unknown[]>;
}

/** Bytes of one item and the array type that holds it; undefined for bool, string and array. */
export const NUMERIC_ITEMS: Partial<Record<GgufType, NumericItems>> = {
  uint8: { bytes: 1, make: (b) => new Uint8Array(b) },
  int8: { bytes: 1, make: (b) => new Int8Array(b) },
  uint16: { bytes: 2, make: (b) => new Uint16Array(b) },
  int16: { bytes: 2, make: (b) => new Int16Array(b) },
  uint32: { bytes: 4, make: (b) => new Uint32Array(b) },
  int32: { bytes: 4, make: (b) => new Int32Array(b) },
  float32: { bytes: 4, make: (b) => new Float32Array(b) },
  uint64: { bytes: 8, make: (b) => new BigUint64Array(b) },
  int64: { bytes: 8, make: (b) => new BigInt64Array(b) },
  float64: { bytes: 8, make: (b) => new Float64Array(b) },
};

/** Short ways to write values: `gguf.uint32(5)`, `gguf.strings(['a', 'b'])`. */
export const gguf = {
  uint8: (value: number): GgufValue => ({ type: 'uint8', value }),
  int8: (value: number): GgufValue => ({ type: 'int8', value }),
  uint16: (value: number): GgufValue => ({ type: 'uint16', value }),
  int16: (value: number): GgufValue => ({ type: 'int16', value }),
  uint32: (value: number): GgufValue => ({ type: 'uint32', value }),
  int32: (value: number): GgufValue => ({ type: 'int32', value }),
  float32: (value: number): GgufValue => ({ type: 'float32', value }),
  float64: (value: number): GgufValue => ({ type: 'float64', value }),
  uint64: (value: bigint): GgufValue => ({ type: 'uint64', value }),
  int64: (value: bigint): GgufValue => ({ type: 'int64', value }),
  bool: (value: boolean): GgufValue => ({ type: 'bool', value }),
  string: (value: string): GgufValue => ({ type: 'string', value }),
  strings: (value: readonly string[]): GgufArray => ({ type: 'array', elementType: 'string', value }),
  array: (elementType: GgufType, value: GgufItems): GgufArray => ({ type: 'array', elementType, value }),
};
