/** Comparing values: exact, or within a tolerance for floats; NaN equals NaN, 0 equals -0, a bigint its number. */

import type { Shape, Tensor } from '@x/core';
import { expect } from 'vitest';

function flat(values: unknown): (number | bigint)[] {
  return Array.isArray(values) ? values.flatMap(flat) : [values as number | bigint];
}

function shapeOf(values: unknown): number[] {
  return Array.isArray(values) ? [values.length, ...(values.length > 0 ? shapeOf(values[0]) : [])] : [];
}

/** Where two lists part: beyond the tolerance, which grows with values above 5; -1 where they agree. */
function firstDifference(actual: ArrayLike<number>, expected: ArrayLike<number>, tolerance: number): number {
  const count = Math.max(actual.length, expected.length);
  for (let i = 0; i < count; i++) {
    const [a, e] = [actual[i], expected[i]];
    if (a === e || (Number.isNaN(a) && Number.isNaN(e) && i < actual.length && i < expected.length)) continue;
    if (!(Math.abs(a - e) <= tolerance * Math.max(1, Math.abs(e) / 5))) return i;
  }
  return -1;
}

/** Elements in row-major order as numbers. */
export function numbers(tensor: Tensor): number[] {
  return Array.from(tensor.toArraySync() as ArrayLike<number | bigint>, Number);
}

/** Nested values to four decimals or, for large ones, to a relative 1e-5, as candle's tests round. */
export function expectClose(tensor: Tensor, expected: unknown, tolerance = 6e-5): void {
  const actual = tensor.toVecSync();
  const off = firstDifference(flat(actual).map(Number), flat(expected).map(Number), tolerance);
  if (off >= 0) expect(actual, `element ${off}`).toEqual(expected);
  expect(shapeOf(actual)).toEqual(shapeOf(expected));
}

/** Shape, and elements in row-major order: exact without a tolerance, else as {@link expectClose}. */
export function expectFlat(tensor: Tensor, shape: Shape, expected: ArrayLike<number>, tolerance = 0): void {
  expect(tensor.shape).toEqual(shape);
  const actual = numbers(tensor);
  const off = firstDifference(actual, expected, tolerance);
  if (off >= 0) expect(actual, `element ${off} of ${tensor}`).toEqual(Array.from(expected));
}

/** Equal shapes and elements. */
export function expectSame(actual: Tensor, expected: Tensor, tolerance = 0): void {
  expectFlat(actual, expected.shape, numbers(expected), tolerance);
}
