/**
 * Batched matrix product of the plain backend, for any strides. Two loops: where rhs columns are dense (a transposed
 * weight) rows are multiplied as dot products, four columns at a time; otherwise rhs rows are added up, so that the inner
 * loop always runs over neighbours. Floats accumulate in f64, integers wrap.
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
