/**
 * Batched matrix product of the plain backend, for any strides. Floats of several rows go by tiles of sums that stay in
 * registers. One or two rows read rhs once: where its columns are dense (a transposed weight) as dot products, four columns
 * at a time; otherwise its rows are added up, so that the inner loop always runs over neighbours. Floats accumulate in f64
 * and in the order of k, whatever the loop; integers wrap.
 */
import type { MatmulSize } from '../backend';
import { isFloat } from '../dtype';
import { allocValues, type NumberArray } from '../host-array';
import { Layout } from '../layout';
import { denseValues, place } from './copy';
import { fromValues } from './elementwise';
import type { JsOperand, JsStorage } from './storage';

export function matmul(lhs: JsOperand, rhs: JsOperand, size: MatmulSize, into?: JsOperand): JsStorage {
  const { b, m, n, k } = size;
  const { dtype } = lhs.storage;
  const out = allocValues(dtype, b * m * n);
  const left = matrices(lhs.layout);
  const right = matrices(rhs.layout);
  // A matrix that a broadcast repeats is read once; `columns` keeps a transposed weight in the order it lies in.
  let previous: { key: string; values: ReturnType<typeof denseValues> } | undefined;
  for (let i = 0; i < b; i++) {
    const a = denseValues({ storage: lhs.storage, layout: left(i) });
    const one = right(i);
    const columns = !one.isContiguous() && one.strides[0] === 1;
    const key = String(one.startOffset);
    if (previous?.key !== key) {
      const layout = columns ? one.transpose(0, 1) : one;
      previous = { key, values: denseValues({ storage: rhs.storage, layout }) };
    }
    const w = previous.values;
    const at = i * m * n;
    if (dtype === 'i64') {
      bigProduct(a as BigInt64Array, w as BigInt64Array, out as BigInt64Array, at, m, n, k, columns);
    } else if (!isFloat(dtype)) {
      intProduct(a as NumberArray, w as NumberArray, out as NumberArray, at, m, n, k, columns);
    } else if (m > 2) {
      tiledProduct(a as Float32Array, w as Float32Array, out as Float32Array, at, m, n, k, columns);
    } else if (columns) {
      dotProduct(a as Float32Array, w as Float32Array, out as Float32Array, at, m, n, k);
    } else {
      rowProduct(a as Float32Array, w as Float32Array, out as Float32Array, at, m, n, k);
    }
  }
  return place(fromValues(lhs.storage, dtype, out), into);
}

/** The i-th matrix of a batch, as a layout of its own. */
function matrices(layout: Layout): (i: number) => Layout {
  const split = layout.rank - 2;
  const offsets = [
    ...new Layout(layout.shape.slice(0, split), layout.strides.slice(0, split), layout.startOffset).stridedIndices(),
  ];
  return (i) => new Layout(layout.shape.slice(split), layout.strides.slice(split), offsets[i]);
}

/** Rows and columns of a tile, and columns that are packed together. */
const [TILE_ROWS, TILE_COLUMNS, PANEL] = [4, 2, 64];

/**
 * out = a · w by tiles. Both sides are packed so that a tile reads neighbours: `left` [rows of a tile, k] and, for a panel of
 * columns, `right` [tile, k, columns of a tile], zeros behind the last row and column.
 */
function tiledProduct(
  a: Float32Array,
  w: Float32Array,
  out: Float32Array,
  at: number,
  m: number,
  n: number,
  k: number,
  columns: boolean,
): void {
  const left = new Float64Array(TILE_ROWS * k);
  const right = new Float64Array(PANEL * k);
  const tile = new Float64Array(TILE_ROWS * TILE_COLUMNS);
  for (let j0 = 0; j0 < n; j0 += PANEL) {
    const width = Math.min(PANEL, n - j0);
    for (let j = 0; j < width || j % TILE_COLUMNS !== 0; j++) {
      const [step, from] = columns ? [1, (j0 + j) * k] : [n, j0 + j];
      const to = (j - (j % TILE_COLUMNS)) * k + (j % TILE_COLUMNS);
      for (let p = 0; p < k; p++) right[to + p * TILE_COLUMNS] = j < width ? w[from + p * step] : 0;
    }
    for (let i = 0; i < m; i += TILE_ROWS) {
      const height = Math.min(TILE_ROWS, m - i);
      for (let r = 0; r < TILE_ROWS; r++)
        for (let p = 0; p < k; p++) left[p * TILE_ROWS + r] = r < height ? a[(i + r) * k + p] : 0;
      for (let j = 0; j < width; j += TILE_COLUMNS) {
        tileProduct(left, right, j * k, k, tile);
        const wide = Math.min(TILE_COLUMNS, width - j);
        for (let r = 0; r < height; r++)
          for (let c = 0; c < wide; c++) out[at + (i + r) * n + j0 + j + c] = tile[r * TILE_COLUMNS + c];
      }
    }
  }
}

function tileProduct(left: Float64Array, right: Float64Array, from: number, k: number, tile: Float64Array): void {
  let [s00, s01, s10, s11, s20, s21, s30, s31] = [0, 0, 0, 0, 0, 0, 0, 0];
  for (let p = 0, l = 0, b = from; p < k; p++, l += TILE_ROWS, b += TILE_COLUMNS) {
    const w0 = right[b];
    const w1 = right[b + 1];
    const a0 = left[l];
    const a1 = left[l + 1];
    const a2 = left[l + 2];
    const a3 = left[l + 3];
    s00 += a0 * w0;
    s01 += a0 * w1;
    s10 += a1 * w0;
    s11 += a1 * w1;
    s20 += a2 * w0;
    s21 += a2 * w1;
    s30 += a3 * w0;
    s31 += a3 * w1;
  }
  tile[0] = s00;
  tile[1] = s01;
  tile[2] = s10;
  tile[3] = s11;
  tile[4] = s20;
  tile[5] = s21;
  tile[6] = s30;
  tile[7] = s31;
}

/** out[i, j] = a[i, :] · w[j, :]. */
function dotProduct(
  a: Float32Array,
  w: Float32Array,
  out: Float32Array,
  at: number,
  m: number,
  n: number,
  k: number,
): void {
  const blocked = n - (n % 4);
  for (let i = 0; i < m; i++) {
    const row = i * k;
    const to = at + i * n;
    for (let j = 0; j < blocked; j += 4) {
      const [w0, w1, w2, w3] = [j * k, (j + 1) * k, (j + 2) * k, (j + 3) * k];
      let s0 = 0;
      let s1 = 0;
      let s2 = 0;
      let s3 = 0;
      for (let p = 0; p < k; p++) {
        const v = a[row + p];
        s0 += v * w[w0 + p];
        s1 += v * w[w1 + p];
        s2 += v * w[w2 + p];
        s3 += v * w[w3 + p];
      }
      out[to + j] = s0;
      out[to + j + 1] = s1;
      out[to + j + 2] = s2;
      out[to + j + 3] = s3;
    }
    for (let j = blocked; j < n; j++) {
      let sum = 0;
      for (let p = 0; p < k; p++) sum += a[row + p] * w[j * k + p];
      out[to + j] = sum;
    }
  }
}

/** out[i, :] = sum over p of a[i, p] * w[p, :]. */
function rowProduct(
  a: Float32Array,
  w: Float32Array,
  out: Float32Array,
  at: number,
  m: number,
  n: number,
  k: number,
): void {
  const sums = new Float64Array(n);
  for (let i = 0; i < m; i++) {
    sums.fill(0);
    for (let p = 0; p < k; p++) {
      const v = a[i * k + p];
      const from = p * n;
      for (let j = 0; j < n; j++) sums[j] += v * w[from + j];
    }
    out.set(sums, at + i * n);
  }
}

function intProduct(
  a: NumberArray,
  w: NumberArray,
  out: NumberArray,
  at: number,
  m: number,
  n: number,
  k: number,
  columns: boolean,
): void {
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let p = 0; p < k; p++) sum = (sum + Math.imul(a[i * k + p], w[columns ? j * k + p : p * n + j])) | 0;
      out[at + i * n + j] = sum;
    }
  }
}

function bigProduct(
  a: BigInt64Array,
  w: BigInt64Array,
  out: BigInt64Array,
  at: number,
  m: number,
  n: number,
  k: number,
  columns: boolean,
): void {
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0n;
      for (let p = 0; p < k; p++) sum += a[i * k + p] * w[columns ? j * k + p : p * n + j];
      out[at + i * n + j] = BigInt.asIntN(64, sum);
    }
  }
}
