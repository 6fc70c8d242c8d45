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

/** Calls `each` with the values of `rows` rows from row `start` on in turn, counted from 0; the array is reused. */
export function eachRow(
  weight: BackendStorage,
  format: BlockFormat,
  rows: number,
  k: number,
  each: (row: number, values: Float32Array) => void,
  start = 0,
): void {
  const rowBytes = byteLengthOf(format, k);
  const blocks = k / format.blockSize;
  const perPiece = Math.max(1, Math.floor(PIECE_BYTES / rowBytes));
  const values = new Float32Array(k);
  for (let first = 0; first < rows; first += perPiece) {
    const count = Math.min(perPiece, rows - first);
    const bytes = new Uint8Array(weight.toHostSync((start + first) * rowBytes, count * rowBytes));
    for (let row = 0; row < count; row++) {
      format.dequantize(bytes, row * rowBytes, values, 0, blocks);
      each(first + row, values);
    }
  }
}

/** x [m, k] times the transpose of the rows [n, k] of the weight that begin at row `firstRow`: [m, n]. */
export function matmulRows(
  weight: BackendStorage,
  format: BlockFormat,
  size: { m: number; n: number; k: number; firstRow?: number },
  x: Float32Array,
): Float32Array {
  const { m, n, k } = size;
  const out = new Float32Array(m * n);
  const dots = (row: number, values: Float32Array) => {
    let i = 0;
    for (; i + 4 <= m; i += 4) fourDots(x, i * k, values, k, out, i * n + row, n);
    for (; i < m; i++) out[i * n + row] = dot(x, i * k, values, k);
  };
  eachRow(weight, format, n, k, dots, size.firstRow);
  return out;
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

function dot(x: Float32Array, at: number, w: Float32Array, k: number): number {
  // Independent sums, so that the additions of one do not wait for those of another.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let j = 0;
  for (; j + 4 <= k; j += 4) {
    a += x[at + j] * w[j];
    b += x[at + j + 1] * w[j + 1];
    c += x[at + j + 2] * w[j + 2];
    d += x[at + j + 3] * w[j + 3];
  }
  for (; j < k; j++) a += x[at + j] * w[j];
  return a + b + (c + d);
}

/** Dot products of four neighbouring rows of x with one row of the weight, stored `stride` apart. */
function fourDots(
  x: Float32Array,
  at: number,
  w: Float32Array,
  k: number,
  out: Float32Array,
  to: number,
  stride: number,
): void {
  const at1 = at + k;
  const at2 = at1 + k;
  const at3 = at2 + k;
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  for (let j = 0; j < k; j++) {
    const value = w[j];
    a += x[at + j] * value;
    b += x[at1 + j] * value;
    c += x[at2 + j] * value;
    d += x[at3 + j] * value;
  }
  out[to] = a;
  out[to + stride] = b;
  out[to + 2 * stride] = c;
  out[to + 3 * stride] = d;
}
