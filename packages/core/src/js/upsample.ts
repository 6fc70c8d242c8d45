/**
 * Resizing of the plain backend. Nearest takes the element at floor(i * in / out), in f64 as candle's kernels do; bilinear
 * follows PyTorch's area_pixel rules with weights in f64 and casts the result as `toDtype` does.
 */
import type { BilinearParams } from '../backend';
import { allocRaw, castValues } from '../host-array';
import type { Layout } from '../layout';
import { denseRaw, denseValues } from './copy';
import type { JsStorage } from './storage';

/** The input position of every output position. */
function nearest(size: number, out: number): Int32Array {
  const scale = size / out;
  return Int32Array.from({ length: out }, (_, i) => Math.min(size - 1, Math.floor(i * scale)));
}

export function upsampleNearest1d(src: JsStorage, layout: Layout, lOut: number): JsStorage {
  return upsampleNearest2d(src, layout.unsqueeze(2), 1, lOut);
}

export function upsampleNearest2d(src: JsStorage, layout: Layout, hOut: number, wOut: number): JsStorage {
  const [b, c, h, w] = layout.shape;
  const x = denseRaw(src, layout);
  const out = allocRaw(src.dtype, b * c * hOut * wOut);
  const [rows, columns] = [nearest(h, hOut), nearest(w, wOut)];
  let to = 0;
  for (let plane = 0; plane < b * c; plane++) {
    for (const row of rows) {
      const from = (plane * h + row) * w;
      for (const column of columns) out[to++] = x[from + column];
    }
  }
  return src.make(src.dtype, out);
}

/** Where each output of an axis lies between two inputs, and the weight of the second. */
interface Between {
  low: number;
  high: number;
  weight: number;
}

function between(size: number, out: number, alignCorners: boolean, factor: number | undefined): Between[] {
  const ratio = factor === undefined ? size / out : 1 / factor;
  const spread = out > 1 ? (size - 1) / (out - 1) : 0;
  return Array.from({ length: out }, (_, i) => {
    const position = Math.max(0, alignCorners ? spread * i : ratio * (i + 0.5) - 0.5);
    const low = Math.min(Math.floor(position), size - 1);
    return { low, high: Math.min(low + 1, size - 1), weight: Math.min(1, position - low) };
  });
}

export function upsampleBilinear2d(src: JsStorage, layout: Layout, params: BilinearParams): JsStorage {
  const { hOut, wOut, alignCorners, scaleH, scaleW } = params;
  const [b, c, h, w] = layout.shape;
  const x = denseValues(src, layout);
  const rows = between(h, hOut, alignCorners, scaleH);
  const columns = between(w, wOut, alignCorners, scaleW);
  const out = new Float64Array(b * c * hOut * wOut);
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
  return src.make(src.dtype, castValues('f64', out, src.dtype));
}
