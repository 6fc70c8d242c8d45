/**
 * Quantized products and look-ups in TypeScript, for devices without kernels for them (`Device.js()`): candle's
 * `k_quants::matmul` and its CPU embedding.
 *
 * candle quantises the activations to 8 bits first, because integer dot products are fast on a CPU; here they stay f32
 * and sums are kept in doubles, so this is the reference that other devices are compared with. A weight is read in
 * pieces of some rows and turned into numbers one row at a time: there is never a full dense copy.
 */
import type { BackendStorage } from '@x/core';
import { type BlockFormat, byteLengthOf } from './blocks';

/** Bytes of weight that are read from the storage at a time. */
const PIECE_BYTES = 512 * 1024;

/** Calls `each` with the bytes of some rows in turn, from row `start` on; `first` and `count` are in rows from there. */
function eachPiece(
  weight: BackendStorage,
  format: BlockFormat,
  rows: number,
  k: number,
  each: (first: number, count: number, bytes: Uint8Array) => void,
  start = 0,
): void {
  const rowBytes = byteLengthOf(format, k);
  const perPiece = Math.max(1, Math.floor(PIECE_BYTES / rowBytes));
  for (let first = 0; first < rows; first += perPiece) {
    const count = Math.min(perPiece, rows - first);
    each(first, count, new Uint8Array(weight.toHostSync((start + first) * rowBytes, count * rowBytes)));
  }
}

/** Calls `each` with the values of `rows` rows in turn, counted from 0; the array is reused. */
export function eachRow(
  weight: BackendStorage,
  format: BlockFormat,
  rows: number,
  k: number,
  each: (row: number, values: Float32Array) => void,
): void {
  const rowBytes = byteLengthOf(format, k);
  const values = new Float32Array(k);
  eachPiece(weight, format, rows, k, (first, count, bytes) => {
    for (let row = 0; row < count; row++) {
      format.dequantize(bytes, row * rowBytes, values, 0, k / format.blockSize);
      each(first + row, values);
    }
  });
}

/** x [m, k] times the transpose of the rows [n, k] of the weight that begin at row `firstRow`: [m, n]. */
export function matmulRows(
  weight: BackendStorage,
  format: BlockFormat,
  size: { m: number; n: number; k: number; firstRow?: number },
  x: Float32Array,
): Float32Array {
  const { m, n, k, firstRow } = size;
  const out = new Float32Array(m * n);
  const rowBytes = byteLengthOf(format, k);
  const blocks = k / format.blockSize;
  // Numbers that are read again for every row of the weight: doubles, once.
  const a = new Float64Array(x);
  const { multiply } = format;
  if (m === 1 && multiply) {
    eachPiece(weight, format, n, k, (first, count, bytes) => multiply(bytes, rowBytes, count, a, out, first), firstRow);
    return out;
  }
  const pair = new Float32Array(2 * k);
  eachPiece(
    weight,
    format,
    n,
    k,
    (first, count, bytes) => {
      for (let row = 0; row < count; row += 2) {
        const width = Math.min(2, count - row);
        for (let r = 0; r < width; r++) format.dequantize(bytes, (row + r) * rowBytes, pair, r * k, blocks);
        dots(a, pair, width, out, first + row, size);
      }
    },
    firstRow,
  );
  return out;
}

/** Columns `to` of `out` and the next one if `width` is 2: every row of x times these rows of the weight. */
function dots(
  x: Float64Array,
  pair: Float32Array,
  width: number,
  out: Float32Array,
  to: number,
  { m, n, k }: { m: number; n: number; k: number },
): void {
  let i = 0;
  if (width === 2) for (; i + 4 <= m; i += 4) eightDots(x, i * k, pair, k, out, i * n + to, n);
  for (; i < m; i++) for (let r = 0; r < width; r++) out[i * n + to + r] = dot(x, i * k, pair, r * k, k);
}

/** Rows of the weight at `ids`, which it has, one after the other. */
export function gatherRows(weight: BackendStorage, format: BlockFormat, k: number, ids: Uint32Array): Float32Array {
  const rowBytes = byteLengthOf(format, k);
  const out = new Float32Array(ids.length * k);
  for (let i = 0; i < ids.length; i++) {
    const bytes = new Uint8Array(weight.toHostSync(ids[i] * rowBytes, rowBytes));
    format.dequantize(bytes, 0, out, i * k, k / format.blockSize);
  }
  return out;
}

function dot(x: Float64Array, at: number, w: Float32Array, from: number, k: number): number {
  // Independent sums, so that the additions of one do not wait for those of another.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let j = 0;
  for (; j + 4 <= k; j += 4) {
    a += x[at + j] * w[from + j];
    b += x[at + j + 1] * w[from + j + 1];
    c += x[at + j + 2] * w[from + j + 2];
    d += x[at + j + 3] * w[from + j + 3];
  }
  for (; j < k; j++) a += x[at + j] * w[from + j];
  return a + b + (c + d);
}

/** Dot products of four neighbouring rows of x with two of the weight; those of a row of x are stored `stride` behind the last. */
function eightDots(
  x: Float64Array,
  at: number,
  w: Float32Array,
  k: number,
  out: Float32Array,
  to: number,
  stride: number,
): void {
  const [at1, at2, at3] = [at + k, at + 2 * k, at + 3 * k];
  let [a0, a1, b0, b1, c0, c1, d0, d1] = [0, 0, 0, 0, 0, 0, 0, 0];
  for (let j = 0; j < k; j++) {
    const w0 = w[j];
    const w1 = w[k + j];
    const a = x[at + j];
    const b = x[at1 + j];
    const c = x[at2 + j];
    const d = x[at3 + j];
    a0 += a * w0;
    a1 += a * w1;
    b0 += b * w0;
    b1 += b * w1;
    c0 += c * w0;
    c1 += c * w1;
    d0 += d * w0;
    d1 += d * w1;
  }
  const [to1, to2, to3] = [to + stride, to + 2 * stride, to + 3 * stride];
  out[to] = a0;
  out[to + 1] = a1;
  out[to1] = b0;
  out[to1 + 1] = b1;
  out[to2] = c0;
  out[to2 + 1] = c1;
  out[to3] = d0;
  out[to3 + 1] = d1;
}
