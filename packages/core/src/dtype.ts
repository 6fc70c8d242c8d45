/**
 * Element types of tensors: candle's ten arithmetic dtypes (candle-core/src/dtype.rs).
 *
 * f16, bf16 and f8e4m3 are kept as raw bits in `Uint16Array`/`Uint8Array`; reading a tensor out converts them to
 * `Float32Array`. i64 is a `BigInt64Array` at the edge.
 */
export const DTYPES = ['u8', 'u32', 'i16', 'i32', 'i64', 'bf16', 'f16', 'f32', 'f64', 'f8e4m3'] as const;

export type DType = (typeof DTYPES)[number];

const SIZES: Record<DType, number> = {
  u8: 1,
  u32: 4,
  i16: 2,
  i32: 4,
  i64: 8,
  bf16: 2,
  f16: 2,
  f32: 4,
  f64: 8,
  f8e4m3: 1,
};

/** Bytes of one element. */
export function sizeInBytes(dtype: DType): number {
  return SIZES[dtype];
}

/** bf16 f16 f32 f64 f8e4m3. */
export function isFloat(dtype: DType): boolean {
  return dtype === 'f32' || dtype === 'f16' || dtype === 'bf16' || dtype === 'f64' || dtype === 'f8e4m3';
}

/** u8 u32 i16 i32 i64: the dtypes of indices and conditions. */
export function isInt(dtype: DType): boolean {
  return !isFloat(dtype);
}

/** Whether this is one of {@link DTYPES}, for names from files and callers. */
export function isDType(name: string): name is DType {
  return (DTYPES as readonly string[]).includes(name);
}
