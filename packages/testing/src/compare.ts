/** Element-by-element comparison of two results, exact for integers, with a tolerance per dtype for floats. */
import { bf16ToF32, type DType, f8e4m3ToF32, f16ToF32 } from '@x/core';

export interface Tolerance {
  relative: number;
  absolute: number;
}

/** One rounding step of the dtype, times two: results are rounded from an f32 or f64 that differs in its last bits. */
const ROUNDING: Record<'f64' | 'f32' | 'f16' | 'bf16' | 'f8e4m3', Tolerance> = {
  f64: { relative: 2e-14, absolute: 1e-300 },
  f32: { relative: 2e-6, absolute: 1e-37 },
  f16: { relative: 2e-3, absolute: 1.2e-7 },
  bf16: { relative: 1.6e-2, absolute: 1e-37 },
  f8e4m3: { relative: 0.13, absolute: 4e-3 },
};

/** Values of raw bytes as numbers (i64 as bigint). */
export function valuesOf(bytes: ArrayBuffer, dtype: DType): ArrayLike<number | bigint> {
  switch (dtype) {
    case 'f32':
      return new Float32Array(bytes);
    case 'f64':
      return new Float64Array(bytes);
    case 'f16':
      return Float32Array.from(new Uint16Array(bytes), f16ToF32);
    case 'bf16':
      return Float32Array.from(new Uint16Array(bytes), bf16ToF32);
    case 'f8e4m3':
      return Float32Array.from(new Uint8Array(bytes), f8e4m3ToF32);
    case 'u8':
      return new Uint8Array(bytes);
    case 'u32':
      return new Uint32Array(bytes);
    case 'i16':
      return new Int16Array(bytes);
    case 'i32':
      return new Int32Array(bytes);
    case 'i64':
      return new BigInt64Array(bytes);
  }
}

/** Throws naming the first element that differs. `scale` widens the tolerance (a sum of many terms). */
export function expectClose(
  result: { expected: ArrayBuffer; actual: ArrayBuffer; dtype: DType },
  label: string,
  scale: Partial<Tolerance> = {},
): void {
  const expected = valuesOf(result.expected, result.dtype);
  const actual = valuesOf(result.actual, result.dtype);
  const base = ROUNDING[result.dtype as keyof typeof ROUNDING] ?? { relative: 0, absolute: 0 };
  const relative = Math.max(base.relative, scale.relative ?? 0);
  const absolute = Math.max(base.absolute, scale.absolute ?? 0);
  for (let i = 0; i < expected.length; i++) {
    const want = expected[i];
    const got = actual[i];
    if (want === got || Object.is(want, got)) continue;
    if (typeof want === 'number' && typeof got === 'number') {
      if (Number.isNaN(want) && Number.isNaN(got)) continue;
      if (Number.isFinite(want) && Math.abs(want - got) <= absolute + relative * Math.abs(want)) continue;
    }
    throw new Error(
      `${label}: element ${i} of ${expected.length} (${result.dtype}) is ${got}, the reference has ${want}`,
    );
  }
}
