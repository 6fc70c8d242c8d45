/** Comparing nested values: exact for integers, within a tolerance for floats; NaN equals NaN. */
import { expect } from 'vitest';
import type { Tensor } from '../../src';

function flat(values: unknown): (number | bigint)[] {
  return Array.isArray(values) ? values.flatMap(flat) : [values as number | bigint];
}

/** Values to four decimals or, for large ones, to a relative 1e-5, as candle's tests round. */
export function expectClose(tensor: Tensor, expected: unknown, tolerance = 6e-5): void {
  const actual = tensor.toVecSync();
  const [a, e] = [flat(actual).map(Number), flat(expected).map(Number)];
  const off = a.findIndex((value, i) => {
    if (Object.is(value, e[i]) || value === e[i]) return false;
    return !(Math.abs(value - e[i]) <= tolerance * Math.max(1, Math.abs(e[i]) / 5));
  });
  if (off >= 0 || a.length !== e.length) expect(actual, `element ${off}`).toEqual(expected);
  expect(shapeOf(actual)).toEqual(shapeOf(expected));
}

export function shapeOf(values: unknown): number[] {
  return Array.isArray(values) ? [values.length, ...(values.length > 0 ? shapeOf(values[0]) : [])] : [];
}
