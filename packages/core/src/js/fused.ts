/** Softmax, norms and rotary embedding of the plain backend: the arithmetic of candle-nn's ops, sums in f64. */
import type { RopeKind } from '../backend';
import { isFloat } from '../dtype';
import { allocValues, type NumberArray } from '../host-array';
import { denseValues } from './copy';
import { fromValues, unsupported } from './elementwise';
import type { JsOperand, JsStorage } from './storage';

/** Runs `row(x, out, start, width)` for each row of the last dimension. */
function byRow(
  op: string,
  input: JsOperand,
  row: (x: NumberArray, out: NumberArray, start: number, width: number) => void,
): JsStorage {
  const { storage, layout } = input;
  if (!isFloat(storage.dtype)) throw unsupported(op, storage);
  const x = denseValues(input) as NumberArray;
  const out = allocValues(storage.dtype, x.length) as NumberArray;
  const width = layout.dim(-1);
  for (let start = 0; start < x.length; start += width) row(x, out, start, width);
  return fromValues(storage, storage.dtype, out);
}

export function softmaxLastDim(input: JsOperand): JsStorage {
  return byRow('softmaxLastDim', input, (x, out, start, width) => {
    let top = -Infinity;
    for (let i = start; i < start + width; i++) top = Math.max(top, x[i]);
    let sum = 0;
    for (let i = start; i < start + width; i++) sum += Math.exp(x[i] - top);
    for (let i = start; i < start + width; i++) out[i] = Math.exp(x[i] - top) / sum;
  });
}

export function rmsNorm(input: JsOperand, alpha: JsOperand, eps: number): JsStorage {
  const weight = denseValues(alpha) as NumberArray;
  return byRow('rmsNorm', input, (x, out, start, width) => {
    let squares = 0;
    for (let i = start; i < start + width; i++) squares += x[i] * x[i];
    const scale = 1 / Math.sqrt(squares / width + eps);
    for (let i = 0; i < width; i++) out[start + i] = x[start + i] * scale * weight[i];
  });
}

export function layerNorm(input: JsOperand, alpha: JsOperand, beta: JsOperand, eps: number): JsStorage {
  const weight = denseValues(alpha) as NumberArray;
  const bias = denseValues(beta) as NumberArray;
  return byRow('layerNorm', input, (x, out, start, width) => {
    let sum = 0;
    for (let i = start; i < start + width; i++) sum += x[i];
    const mean = sum / width;
    let squares = 0;
    for (let i = start; i < start + width; i++) squares += (x[i] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / width + eps);
    for (let i = 0; i < width; i++) out[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
  });
}

export function rope(kind: RopeKind, input: JsOperand, cos: JsOperand, sin: JsOperand): JsStorage {
  const { storage, layout } = input;
  if (!isFloat(storage.dtype)) throw unsupported('rope', storage);
  const x = denseValues(input) as NumberArray;
  const cosines = denseValues(cos) as NumberArray;
  const sines = denseValues(sin) as NumberArray;
  const out = allocValues(storage.dtype, x.length) as NumberArray;
  const byTime = kind === 'thd';
  const [b, h, t, d] = byTime ? layout.permute([0, 2, 1, 3]).shape : layout.shape;
  const half = d / 2;
  const perBatch = cos.layout.rank === 3 ? t * half : 0;
  const [near, far] = kind === 'interleaved' ? [2, 1] : [1, half];
  for (let row = 0; row < b * h * t; row++) {
    const position = byTime ? Math.floor(row / h) % t : row % t;
    const angles = Math.floor(row / (h * t)) * perBatch + position * half;
    for (let p = 0; p < half; p++) {
      const c = cosines[angles + p];
      const s = sines[angles + p];
      const first = row * d + p * near;
      const second = first + far;
      out[first] = x[first] * c - x[second] * s;
      out[second] = x[first] * s + x[second] * c;
    }
  }
  return fromValues(storage, storage.dtype, out);
}
