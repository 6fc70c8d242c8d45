/**
 * Reductions of the plain backend. The reduced dimensions are permuted to the end and the operand made dense, so that
 * each result is a run of neighbours. Float sums add in f64; integers wrap.
 */
import type { ReduceOp } from '../backend';
import { isFloat } from '../dtype';
import { allocValues, type NumberArray, type TensorArray } from '../host-array';
import { denseValues } from './copy';
import { fromValues } from './elementwise';
import type { JsOperand, JsStorage } from './storage';

export function reduce(op: ReduceOp, { storage, layout }: JsOperand, dims: readonly number[]): JsStorage {
  const kept = layout.shape.map((_, i) => i).filter((i) => !dims.includes(i));
  const values = denseValues({ storage, layout: layout.permute([...kept, ...dims]) });
  const run = dims.reduce((product, d) => product * layout.shape[d], 1);
  const count = kept.reduce((product, d) => product * layout.shape[d], 1);
  if (op === 'argmin' || op === 'argmax') {
    const out = new Uint32Array(count);
    for (let i = 0; i < count; i++) out[i] = extreme(op === 'argmax', values, i * run, run);
    return storage.make('u32', out);
  }
  const out = allocValues(storage.dtype, count);
  if (op !== 'sum' && isFloat(storage.dtype)) {
    const better = op === 'max' ? Math.max : Math.min;
    for (let i = 0; i < count; i++) out[i] = foldFloats(better, values as NumberArray, i * run, run);
  } else if (op !== 'sum') {
    for (let i = 0; i < count; i++) out[i] = values[i * run + extreme(op === 'max', values, i * run, run)];
  } else if (values instanceof BigInt64Array) {
    for (let i = 0; i < count; i++) out[i] = sumBigints(values, i * run, run);
  } else {
    const sum = isFloat(storage.dtype) ? sumFloats : sumInts;
    for (let i = 0; i < count; i++) out[i] = sum(values, i * run, run);
  }
  return fromValues(storage, storage.dtype, out);
}

/** Position in the run of its first largest (or smallest) element; the first NaN wins over everything. */
function extreme(largest: boolean, values: TensorArray, start: number, run: number): number {
  let best = values[start];
  let at = 0;
  for (let i = 0; i < run; i++) {
    const value = values[start + i];
    if (Number.isNaN(value)) return i;
    if (largest ? value > best : value < best) {
      best = value;
      at = i;
    }
  }
  return at;
}

/** `better` is Math.max or Math.min: a NaN wins over everything, and +0 is larger than -0. */
function foldFloats(better: (a: number, b: number) => number, values: NumberArray, start: number, run: number): number {
  let best = values[start];
  for (let i = start + 1; i < start + run; i++) best = better(best, values[i]);
  return best;
}

function sumFloats(values: NumberArray, start: number, run: number): number {
  let sum = 0;
  for (let i = start; i < start + run; i++) sum += values[i];
  return sum;
}

function sumInts(values: NumberArray, start: number, run: number): number {
  let sum = 0;
  for (let i = start; i < start + run; i++) sum = (sum + values[i]) | 0;
  return sum;
}

function sumBigints(values: BigInt64Array, start: number, run: number): bigint {
  let sum = 0n;
  for (let i = start; i < start + run; i++) sum += values[i];
  return BigInt.asIntN(64, sum);
}
