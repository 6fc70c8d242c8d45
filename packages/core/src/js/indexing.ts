/**
 * Index ops of the plain backend: select, gather, add, scatter. Every operand is seen as [outer, dim, inner]. {@link checkIds}
 * has seen the ids before.
 */
import type { IndexingOps } from '../backend';
import { allocRaw, decodeRaw, encodeRaw, type NumberArray, type RawArray } from '../host-array';
import { type IdRange, idOutOfRange } from '../id-range';
import type { Layout } from '../layout';
import { elemCount } from '../shape';
import { denseRaw, denseValues } from './copy';
import type { JsOperand, JsStorage } from './storage';

function readIds(ids: JsOperand): Float64Array {
  return Float64Array.from(denseRaw(ids) as ArrayLike<number | bigint>, Number);
}

function split(layout: Layout, dim: number): { outer: number; size: number; inner: number } {
  return {
    outer: elemCount(layout.shape.slice(0, dim)),
    size: layout.shape[dim],
    inner: elemCount(layout.shape.slice(dim + 1)),
  };
}

/** Calls `visit(place in x, place in ids)` for every id. */
function forEachId(layout: Layout, ids: JsOperand, dim: number, visit: (inX: number, inIds: number) => void): void {
  const picks = readIds(ids);
  const index = new Array<number>(ids.layout.rank).fill(0);
  const strides = new Array<number>(ids.layout.rank);
  for (let d = layout.rank - 1, acc = 1; d >= 0; d--) {
    strides[d] = acc;
    acc *= layout.shape[d];
  }
  let base = 0;
  for (let i = 0; i < picks.length; i++) {
    visit(base + picks[i] * strides[dim], i);
    for (let d = ids.layout.rank - 1; d >= 0; d--) {
      const step = d === dim ? 0 : strides[d];
      base += step;
      if (++index[d] < ids.layout.shape[d]) break;
      base -= ids.layout.shape[d] * step;
      index[d] = 0;
    }
  }
}

export const indexing: IndexingOps = {
  checkIds(op: string, ids: JsOperand, range: IdRange): void {
    const { size, low = 0 } = range;
    const raw = denseRaw(ids);
    for (let i = 0; i < raw.length; i++) {
      if (raw[i] < low || raw[i] >= size) throw idOutOfRange(op, raw[i], i, range);
    }
  },

  indexSelect(x: JsOperand, ids: JsOperand, dim: number): JsStorage {
    const { outer, size, inner } = split(x.layout, dim);
    const picks = readIds(ids);
    const src = denseRaw(x);
    const out = allocRaw(x.storage.dtype, outer * picks.length * inner);
    let at = 0;
    for (let o = 0; o < outer; o++) {
      if (inner === 1) {
        for (let i = 0; i < picks.length; i++) out[at++] = src[o * size + picks[i]];
        continue;
      }
      for (const id of picks) {
        const start = (o * size + id) * inner;
        out.set(src.subarray(start, start + inner) as never, at);
        at += inner;
      }
    }
    return x.storage.make(x.storage.dtype, out);
  },

  gather(x: JsOperand, ids: JsOperand, dim: number): JsStorage {
    const src = denseRaw(x);
    const out = allocRaw(x.storage.dtype, ids.layout.elemCount);
    forEachId(x.layout, ids, dim, (inX, inIds) => {
      out[inIds] = src[inX];
    });
    return x.storage.make(x.storage.dtype, out);
  },

  indexAdd(x: JsOperand, ids: JsOperand, src: JsOperand, dim: number): JsStorage {
    const { outer, size, inner } = split(x.layout, dim);
    const picks = readIds(ids);
    const added = denseValues(src);
    const { dtype } = x.storage;
    const sums = decodeRaw(dtype, denseRaw(x).slice()) as NumberArray;
    for (let o = 0; o < outer; o++) {
      picks.forEach((id: number, i: number) => {
        const to = (o * size + id) * inner;
        const from = (o * picks.length + i) * inner;
        for (let j = 0; j < inner; j++) sums[to + j] += added[from + j] as number;
      });
    }
    return x.storage.make(dtype, encodeRaw(dtype, sums));
  },

  scatterSet(dst: JsOperand, ids: JsOperand, src: JsOperand, dim: number): void {
    const target = elementsOf(dst);
    const from = denseRaw(src);
    forEachId(dst.layout, ids, dim, (inDst, inIds) => {
      target[inDst] = from[inIds];
    });
  },

  scatterAddSet(dst: JsOperand, ids: JsOperand, src: JsOperand, dim: number): void {
    const target = elementsOf(dst);
    const added = denseValues(src);
    const sums = decodeRaw(dst.storage.dtype, target) as NumberArray;
    forEachId(dst.layout, ids, dim, (inDst, inIds) => {
      sums[inDst] += added[inIds] as number;
    });
    const encoded: RawArray = encodeRaw(dst.storage.dtype, sums);
    if (encoded !== target) target.set(encoded as never);
  },
};

/** What a contiguous view sees, to be written to. */
function elementsOf({ storage, layout }: JsOperand): RawArray {
  return storage.raw().subarray(layout.startOffset, layout.startOffset + layout.elemCount);
}
