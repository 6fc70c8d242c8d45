/** Running sums of the plain backend: floats in f64, rounded once an element; integers wrap. */
import { isFloat } from '../dtype';
import { allocValues, type NumberArray } from '../host-array';
import { elemCount } from '../shape';
import { denseValues } from './copy';
import { fromValues } from './elementwise';
import type { JsOperand, JsStorage } from './storage';

export function cumsum(src: JsOperand, dim: number): JsStorage {
  const { dtype } = src.storage;
  const values = denseValues(src);
  const { shape } = src.layout;
  const size = shape[dim];
  const inner = elemCount(shape.slice(dim + 1));
  const out = allocValues(dtype, values.length);
  for (let start = 0; start < values.length; start += size * inner) {
    for (let column = start; column < start + inner; column++) {
      if (out instanceof BigInt64Array) sumBigints(values as BigInt64Array, out, column, size, inner);
      else if (isFloat(dtype)) sumFloats(values as NumberArray, out, column, size, inner);
      else sumInts(values as NumberArray, out, column, size, inner);
    }
  }
  return fromValues(src.storage, dtype, out);
}

function sumFloats(values: NumberArray, out: NumberArray, at: number, size: number, step: number): void {
  let sum = 0;
  for (let i = 0, j = at; i < size; i++, j += step) out[j] = sum += values[j];
}

/** The array's own elements wrap. */
function sumInts(values: NumberArray, out: NumberArray, at: number, size: number, step: number): void {
  let sum = 0;
  for (let i = 0, j = at; i < size; i++, j += step) out[j] = sum = (sum + values[j]) | 0;
}

function sumBigints(values: BigInt64Array, out: BigInt64Array, at: number, size: number, step: number): void {
  let sum = 0n;
  for (let i = 0, j = at; i < size; i++, j += step) out[j] = sum += values[j];
}
