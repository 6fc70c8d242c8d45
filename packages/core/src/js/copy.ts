/** Moving elements between layouts: the raw copies everything else on the plain backend stands on. */
import type { Copy2d, CopyOps } from '../backend';
import { allocRaw, decodeRaw, encodeScalar, type RawArray, type TensorArray } from '../host-array';
import type { Layout } from '../layout';
import type { JsOperand, JsStorage } from './storage';

/** Calls `row(offset)` for every position of all dimensions but the last, in row-major order. */
function forEachRow(
  shape: readonly number[],
  strides: readonly number[],
  start: number,
  row: (offset: number) => void,
): void {
  const outer = shape.length - 1;
  const index = new Array<number>(Math.max(outer, 0)).fill(0);
  let offset = start;
  for (;;) {
    row(offset);
    let d = outer - 1;
    for (; d >= 0; d--) {
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= shape[d] * strides[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

/** Neighbouring dimensions that step evenly merged into one, sizes of 1 dropped; at least one dimension remains. */
function collapse(layout: Layout): { shape: number[]; strides: number[] } {
  const shape: number[] = [];
  const strides: number[] = [];
  for (let i = 0; i < layout.rank; i++) {
    const size = layout.shape[i];
    const stride = layout.strides[i];
    if (size === 1) continue;
    const last = shape.length - 1;
    if (last >= 0 && strides[last] === size * stride) {
      shape[last] *= size;
      strides[last] = stride;
    } else {
      shape.push(size);
      strides.push(stride);
    }
  }
  return shape.length > 0 ? { shape, strides } : { shape: [1], strides: [1] };
}

/** dst[dstOffset + i] = the i-th element of `layout` in `src`. */
function copyStrided<T extends RawArray>(src: T, layout: Layout, dst: T, dstOffset: number): void {
  if (layout.elemCount === 0) return;
  const { shape, strides } = collapse(layout);
  const length = shape[shape.length - 1];
  const step = strides[strides.length - 1];
  let at = dstOffset;
  forEachRow(shape, strides, layout.startOffset, (offset) => {
    if (step === 1) dst.set(src.subarray(offset, offset + length) as never, at);
    else if (step === 0) dst.fill(src[offset] as never, at, at + length);
    else for (let i = 0; i < length; i++) dst[at + i] = src[offset + i * step];
    at += length;
  });
}

/** The elements of a view in row-major order, raw; a view of the storage when they lie so already. */
export function denseRaw({ storage, layout }: JsOperand): RawArray {
  const raw = storage.raw();
  const range = layout.contiguousOffsets();
  if (range) return raw.subarray(range[0], range[1]);
  const out = allocRaw(storage.dtype, layout.elemCount);
  copyStrided(raw, layout, out, 0);
  return out;
}

/** {@link denseRaw} in compute form: narrow floats as f32. Not to be written to. */
export function denseValues(x: JsOperand): TensorArray {
  return decodeRaw(x.storage.dtype, denseRaw(x));
}

/** A result, or where one was given the `out` that it goes to. */
export function place(result: JsStorage, out: JsOperand | undefined): JsStorage {
  if (!out) return result;
  out.storage.raw().set(result.raw() as never, out.layout.startOffset);
  result.dispose();
  return out.storage;
}

export const copying: CopyOps = {
  copy(x: JsOperand, out?: JsOperand): JsStorage {
    const { dtype } = x.storage;
    const target = out ?? { storage: x.storage.make(dtype, allocRaw(dtype, x.layout.elemCount)), layout: undefined };
    copyStrided(x.storage.raw(), x.layout, target.storage.raw(), target.layout?.startOffset ?? 0);
    return target.storage;
  },

  copy2d(src: JsStorage, dst: JsStorage, copy: Copy2d): void {
    const from = src.raw();
    const to = dst.raw();
    for (let row = 0; row < copy.d1; row++) {
      const start = copy.srcOffset + row * copy.srcStride;
      to.set(from.subarray(start, start + copy.d2) as never, copy.dstOffset + row * copy.dstStride);
    }
  },

  fill({ storage, layout }: JsOperand, value: number | bigint): void {
    if (layout.elemCount === 0) return;
    const raw = storage.raw();
    const one = encodeScalar(storage.dtype, value)[0];
    const { shape, strides } = collapse(layout);
    const length = shape[shape.length - 1];
    const step = strides[strides.length - 1];
    forEachRow(shape, strides, layout.startOffset, (offset) => {
      if (step === 1) raw.fill(one as never, offset, offset + length);
      else for (let i = 0; i < length; i++) raw[offset + i * step] = one;
    });
  },
};
