/** Arg-sort and top-k of the plain backend: stable in both directions, -0 equals 0, NaN greater than every number whatever its sign. */
import { Layout } from '../layout';
import { denseValues } from './copy';
import { gather } from './indexing';
import type { JsStorage } from './storage';

export function argSortLastDim(src: JsStorage, layout: Layout, descending: boolean): JsStorage {
  const values = denseValues(src, layout);
  const width = layout.dim(-1);
  const out = new Uint32Array(values.length);
  for (let start = 0; start < values.length; start += width) {
    const row = values.subarray(start, start + width);
    const positions = out.subarray(start, start + width);
    for (let i = 0; i < width; i++) positions[i] = i;
    positions.sort((i, j) => (descending ? order(row[j], row[i]) : order(row[i], row[j])));
  }
  return src.make('u32', out);
}

export function sortLastDim(
  src: JsStorage,
  layout: Layout,
  descending: boolean,
): { values: JsStorage; positions: JsStorage } {
  const positions = argSortLastDim(src, layout, descending);
  const values = gather(src, layout, positions, Layout.contiguous(layout.shape), layout.rank - 1);
  return { values, positions };
}

/** The reference of top-k sorts everything and keeps the beginning of each row. */
export function topkLastDim(src: JsStorage, layout: Layout, k: number, descending: boolean): JsStorage {
  const sorted = argSortLastDim(src, layout, descending);
  const width = layout.dim(-1);
  const all = sorted.raw() as Uint32Array;
  const out = new Uint32Array((all.length / width) * k);
  for (let row = 0; row * k < out.length; row++) out.set(all.subarray(row * width, row * width + k), row * k);
  sorted.dispose();
  return src.make('u32', out);
}

function order(a: number | bigint, b: number | bigint): number {
  if (a < b) return -1;
  if (a > b) return 1;
  return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
}
