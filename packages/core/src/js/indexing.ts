/**
 * Index ops of the plain backend: select, gather, add, scatter. Every operand is seen as [outer, dim, inner]. {@link checkIds}
 * has seen the ids before.
 */
import { allocRaw, decodeRaw, encodeRaw, type NumberArray, type RawArray } from '../host-array';
import { type IdRange, idOutOfRange } from '../id-range';
import type { Layout } from '../layout';
import { elemCount } from '../shape';
import { denseRaw } from './copy';
import type { JsStorage } from './storage';

export function checkIds(op: string, ids: JsStorage, layout: Layout, range: IdRange): void {
  const { size, low = 0 } = range;
  const raw = denseRaw(ids, layout);
  for (let i = 0; i < raw.length; i++) {
    if (raw[i] < low || raw[i] >= size) throw idOutOfRange(op, raw[i], i, range);
  }
}

function readIds(ids: JsStorage, layout: Layout): Float64Array {
  return Float64Array.from(denseRaw(ids, layout) as ArrayLike<number | bigint>, Number);
}

function split(layout: Layout, dim: number): { outer: number; size: number; inner: number } {
  return {
    outer: elemCount(layout.shape.slice(0, dim)),
    size: layout.shape[dim],
    inner: elemCount(layout.shape.slice(dim + 1)),
  };
}

export function indexSelect(
  self: JsStorage,
  layout: Layout,
  ids: JsStorage,
  idsLayout: Layout,
  dim: number,
): JsStorage {
  const { outer, size, inner } = split(layout, dim);
  const picks = readIds(ids, idsLayout);
  const src = denseRaw(self, layout);
  const out = allocRaw(self.dtype, outer * picks.length * inner);
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const id of picks) {
      const start = (o * size + id) * inner;
      out.set(src.subarray(start, start + inner) as never, at);
      at += inner;
    }
  }
  return self.make(self.dtype, out);
}

/** Calls `visit(place in self, place in ids)` for every id. */
function forEachId(
  layout: Layout,
  ids: JsStorage,
  idsLayout: Layout,
  dim: number,
  visit: (inSelf: number, inIds: number) => void,
): void {
  const picks = readIds(ids, idsLayout);
  const index = new Array<number>(idsLayout.rank).fill(0);
  const strides = new Array<number>(idsLayout.rank);
  for (let d = layout.rank - 1, acc = 1; d >= 0; d--) {
    strides[d] = acc;
    acc *= layout.shape[d];
  }
  let base = 0;
  for (let i = 0; i < picks.length; i++) {
    visit(base + picks[i] * strides[dim], i);
    for (let d = idsLayout.rank - 1; d >= 0; d--) {
      const step = d === dim ? 0 : strides[d];
      base += step;
      if (++index[d] < idsLayout.shape[d]) break;
      base -= idsLayout.shape[d] * step;
      index[d] = 0;
    }
  }
}

export function gather(self: JsStorage, layout: Layout, ids: JsStorage, idsLayout: Layout, dim: number): JsStorage {
  const src = denseRaw(self, layout);
  const out = allocRaw(self.dtype, idsLayout.elemCount);
  forEachId(layout, ids, idsLayout, dim, (inSelf, inIds) => {
    out[inIds] = src[inSelf];
  });
  return self.make(self.dtype, out);
}

export function indexAdd(
  self: JsStorage,
  layout: Layout,
  ids: JsStorage,
  idsLayout: Layout,
  src: JsStorage,
  srcLayout: Layout,
  dim: number,
): JsStorage {
  const { outer, size, inner } = split(layout, dim);
  const picks = readIds(ids, idsLayout);
  const added = decodeRaw(src.dtype, denseRaw(src, srcLayout));
  const sums = decodeRaw(self.dtype, denseRaw(self, layout).slice()) as NumberArray;
  for (let o = 0; o < outer; o++) {
    picks.forEach((id: number, i: number) => {
      const to = (o * size + id) * inner;
      const from = (o * picks.length + i) * inner;
      for (let j = 0; j < inner; j++) sums[to + j] += added[from + j] as number;
    });
  }
  return self.make(self.dtype, encodeRaw(self.dtype, sums));
}

/** In place; `add` sums instead of overwriting. Self is contiguous. */
export function scatter(
  self: JsStorage,
  layout: Layout,
  ids: JsStorage,
  idsLayout: Layout,
  src: JsStorage,
  srcLayout: Layout,
  dim: number,
  add: boolean,
): void {
  const target = self.raw().subarray(layout.startOffset, layout.startOffset + layout.elemCount);
  const from = denseRaw(src, srcLayout);
  if (!add) {
    forEachId(layout, ids, idsLayout, dim, (inSelf, inIds) => {
      target[inSelf] = from[inIds];
    });
    return;
  }
  const added = decodeRaw(src.dtype, from);
  const sums = decodeRaw(self.dtype, target) as NumberArray;
  forEachId(layout, ids, idsLayout, dim, (inSelf, inIds) => {
    sums[inSelf] += added[inIds] as number;
  });
  const encoded: RawArray = encodeRaw(self.dtype, sums);
  if (encoded !== target) target.set(encoded as never);
}
