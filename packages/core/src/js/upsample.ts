/**
 * Resizing of the plain backend. Nearest takes the element at floor(i * in / out), in f64 as candle's kernels do; bilinear
 * follows PyTorch's area_pixel rules with weights in f64 and casts the result as `toDtype` does.
 */
import type { BilinearParams } from '../backend';
import { allocRaw, castValues } from '../host-array';
import { between, nearest } from '../windows';
import { denseRaw, denseValues } from './copy';
import type { JsOperand, JsStorage } from './storage';

export function upsampleNearest1d(src: JsOperand, lOut: number): JsStorage {
  return upsampleNearest2d({ storage: src.storage, layout: src.layout.unsqueeze(2) }, 1, lOut);
}

export function upsampleNearest2d(src: JsOperand, hOut: number, wOut: number): JsStorage {
  const [b, c, h, w] = src.layout.shape;
  const x = denseRaw(src);
  const out = allocRaw(src.storage.dtype, b * c * hOut * wOut);
  const [rows, columns] = [nearest(h, hOut), nearest(w, wOut)];
  let to = 0;
  for (let plane = 0; plane < b * c; plane++) {
    for (const row of rows) {
      const from = (plane * h + row) * w;
      for (const column of columns) out[to++] = x[from + column];
    }
  }
  return src.storage.make(src.storage.dtype, out);
}

export function upsampleBilinear2d(src: JsOperand, params: BilinearParams): JsStorage {
  const { hOut, wOut, alignCorners, scaleH, scaleW } = params;
  const [b, c, h, w] = src.layout.shape;
  const x = denseValues(src);
  const out = allocRaw('f64', b * c * hOut * wOut) as Float64Array;
  const rows = between(h, hOut, alignCorners, scaleH);
  const columns = between(w, wOut, alignCorners, scaleW);
  let to = 0;
  for (let plane = 0; plane < b * c; plane++) {
    for (const row of rows) {
      const top = (plane * h + row.low) * w;
      const bottom = (plane * h + row.high) * w;
      for (const { low, high, weight } of columns) {
        const above = Number(x[top + low]) * (1 - weight) + Number(x[top + high]) * weight;
        const below = Number(x[bottom + low]) * (1 - weight) + Number(x[bottom + high]) * weight;
        out[to++] = above * (1 - row.weight) + below * row.weight;
      }
    }
  }
  return src.storage.make(src.storage.dtype, castValues('f64', out, src.storage.dtype));
}
