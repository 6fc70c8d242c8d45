/**
 * Index ops of the plain backend: select, gather, add, scatter. Every operand is seen as [outer, dim, inner]. The largest
 * value of u8, u32 and i64 ids is a blank (0 when picking, nothing when placing); other ids outside raise an error.
 */
import { ShapeError } from '../errors';
import { allocRaw, decodeRaw, encodeRaw, type NumberArray, type RawArray } from '../host-array';
import type { Layout } from '../layout';
import { elemCount } from '../shape';
import { denseRaw } from './copy';
import { JsStorage } from './storage';

const BLANK = -1;
const BLANK_ID: Record<string, number | bigint> = { u8: 255, u32: 4294967295, i64: 2n ** 63n - 1n };

/** Ids as numbers, blanks as {@link BLANK}, all others checked against `size`. */
function readIds(op: string, ids: JsStorage, layout: Layout, size: number): Float64Array {
  const raw = denseRaw(ids, layout);
  const blank = BLANK_ID[ids.dtype];
  const out = new Float64Array(raw.length);
  for (let i = 0; i < raw.length; i++) {
    const id = raw[i];
    if (id === blank) {
      out[i] = BLANK;
      continue;
    }
    if (id < 0 || id >= size) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `${op}: id ${id} at position ${i} is outside 0..${size - 1}; correct the ids.`,
      );
    }
    out[i] = Number(id);
  }
  return out;
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
  const picks = readIds('indexSelect', ids, idsLayout, size);
  const src = denseRaw(self, layout);
  const out = allocRaw(self.dtype, outer * picks.length * inner);
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const id of picks) {
      const start = (o * size + id) * inner;
      if (id !== BLANK) out.set(src.subarray(start, start + inner) as never, at);
      at += inner;
    }
  }
  return new JsStorage(self.device, self.dtype, out);
}

/** Calls `visit(place in self, place in ids)` for every id that is no blank. */
function forEachId(
  op: string,
  layout: Layout,
  ids: JsStorage,
  idsLayout: Layout,
  dim: number,
  visit: (inSelf: number, inIds: number) => void,
): void {
  const picks = readIds(op, ids, idsLayout, layout.shape[dim]);
  const index = new Array<number>(idsLayout.rank).fill(0);
  const strides = new Array<number>(idsLayout.rank);
  for (let d = layout.rank - 1, acc = 1; d >= 0; d--) {
    strides[d] = acc;
    acc *= layout.shape[d];
  }
  let base = 0;
  for (let i = 0; i < picks.length; i++) {
    if (picks[i] !== BLANK) visit(base + picks[i] * strides[dim], i);
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
  forEachId('gather', layout, ids, idsLayout, dim, (inSelf, inIds) => {
    out[inIds] = src[inSelf];
  });
  return new JsStorage(self.device, self.dtype, out);
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
  const picks = readIds('indexAdd', ids, idsLayout, size);
  const added = decodeRaw(src.dtype, denseRaw(src, srcLayout));
  const sums = decodeRaw(self.dtype, denseRaw(self, layout).slice()) as NumberArray;
  for (let o = 0; o < outer; o++) {
    picks.forEach((id: number, i: number) => {
      if (id === BLANK) return;
      const to = (o * size + id) * inner;
      const from = (o * picks.length + i) * inner;
      for (let j = 0; j < inner; j++) sums[to + j] += added[from + j] as number;
    });
  }
  return new JsStorage(self.device, self.dtype, encodeRaw(self.dtype, sums));
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
    forEachId('scatterSet', layout, ids, idsLayout, dim, (inSelf, inIds) => {
      target[inSelf] = from[inIds];
    });
    return;
  }
  const added = decodeRaw(src.dtype, from);
  const sums = decodeRaw(self.dtype, target) as NumberArray;
  forEachId('scatterAddSet', layout, ids, idsLayout, dim, (inSelf, inIds) => {
    sums[inSelf] += added[inIds] as number;
  });
  const encoded: RawArray = encodeRaw(self.dtype, sums);
  if (encoded !== target) target.set(encoded as never);
}
