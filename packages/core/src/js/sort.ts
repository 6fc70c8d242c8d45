/** Arg-sort and top-k of the plain backend: stable in both directions, -0 equals 0, NaN greater than every number whatever its sign. */
import { Layout } from '../layout';
import { denseValues } from './copy';
import { indexing } from './indexing';
import type { JsOperand, JsStorage } from './storage';

export function argSortLastDim(src: JsOperand, descending: boolean): JsStorage {
  const values = denseValues(src);
  const width = src.layout.dim(-1);
  const out = new Uint32Array(values.length);
  for (let start = 0; start < values.length; start += width) {
    const row = values.subarray(start, start + width);
    const positions = out.subarray(start, start + width);
    for (let i = 0; i < width; i++) positions[i] = i;
    positions.sort((i, j) => (descending ? order(row[j], row[i]) : order(row[i], row[j])));
  }
  return src.storage.make('u32', out);
}

export function sortLastDim(src: JsOperand, descending: boolean): { values: JsStorage; positions: JsStorage } {
  const positions = argSortLastDim(src, descending);
  const { shape } = src.layout;
  const ids = { storage: positions, layout: Layout.contiguous(shape) };
  const values = indexing.gather(src, ids, shape.length - 1) as JsStorage;
  return { values, positions };
}

/** The reference of top-k sorts everything and keeps the beginning of each row. */
export function topkLastDim(src: JsOperand, k: number, descending: boolean): JsStorage {
  const sorted = argSortLastDim(src, descending);
  const width = src.layout.dim(-1);
  const all = sorted.raw() as Uint32Array;
  const out = new Uint32Array((all.length / width) * k);
  for (let row = 0; row * k < out.length; row++) out.set(all.subarray(row * width, row * width + k), row * k);
  sorted.dispose();
  return src.storage.make('u32', out);
}

function order(a: number | bigint, b: number | bigint): number {
  if (a < b) return -1;
  if (a > b) return 1;
  return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
}
