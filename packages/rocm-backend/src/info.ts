/**
 * The `info` argument of candle's kernels: dims ++ strides (usize) in device memory, null when contiguous. Uploads are
 * cached by content, so a repeated op uploads nothing (candle uploads a fresh buffer per launch).
 *
 * Neighbouring dims that are laid out as one are merged first: fewer divisions per element, and many views (a narrow
 * of the first dim, a transposed batch of matrices) become 1-D or 2-D.
 */
import type { Layout } from '@x/core';

export interface StridedInfo {
  numDims: number;
  /** Device address of dims ++ strides..., or 0. */
  ptr: number;
}

/** Entries kept; a growing KV cache makes a new layout per token, so old ones must go. */
const MAX_ENTRIES = 2048;

export interface InfoMemory {
  alloc(bytes: number): number;
  free(ptr: number): void;
  upload(ptr: number, words: BigUint64Array): void;
}

export class InfoCache {
  readonly #memory: InfoMemory;
  readonly #entries = new Map<string, StridedInfo>();

  constructor(memory: InfoMemory) {
    this.#memory = memory;
  }

  /** Info for layouts of one shape; null (0) when `nullWhenContiguous` and every layout is contiguous. */
  get(layouts: readonly Layout[], nullWhenContiguous: boolean): StridedInfo {
    if (nullWhenContiguous && layouts.every((layout) => layout.isContiguous()))
      return { numDims: layouts[0].shape.length, ptr: 0 };
    const { dims, strides } = collapse(
      layouts[0].shape,
      layouts.map((layout) => layout.strides),
    );
    return this.upload(dims, strides);
  }

  /** Info for these dims and strides exactly, never null. */
  upload(dims: readonly number[], strides: readonly (readonly number[])[]): StridedInfo {
    const words = [...dims, ...strides.flat()];
    const key = `${dims.length}:${words.join()}`;
    const known = this.#entries.get(key);
    if (known) {
      // Keep recently used entries at the end, so that the oldest is evicted.
      this.#entries.delete(key);
      this.#entries.set(key, known);
      return known;
    }
    if (this.#entries.size >= MAX_ENTRIES) this.#evictOldest();
    const ptr = this.#memory.alloc(Math.max(1, words.length) * 8);
    this.#memory.upload(ptr, BigUint64Array.from(words, BigInt));
    const info = { numDims: dims.length, ptr };
    this.#entries.set(key, info);
    return info;
  }

  clear(): void {
    for (const { ptr } of this.#entries.values()) this.#memory.free(ptr);
    this.#entries.clear();
  }

  #evictOldest(): void {
    const [key, info] = this.#entries.entries().next().value!;
    this.#entries.delete(key);
    this.#memory.free(info.ptr);
  }
}

/** Drops dims of size 1 and merges dim i with i + 1 where every operand steps through them as through one. */
export function collapse(
  shape: readonly number[],
  strideSets: readonly (readonly number[])[],
): { dims: number[]; strides: number[][] } {
  const dims: number[] = [];
  const strides: number[][] = strideSets.map(() => []);
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 1) continue;
    const last = dims.length - 1;
    if (last >= 0 && strideSets.every((set, s) => strides[s][last] === set[i] * shape[i])) {
      dims[last] *= shape[i];
      strideSets.forEach((set, s) => {
        strides[s][last] = set[i];
      });
    } else {
      dims.push(shape[i]);
      strideSets.forEach((set, s) => {
        strides[s].push(set[i]);
      });
    }
  }
  if (dims.length === 0) return { dims: [1], strides: strideSets.map(() => [1]) };
  return { dims, strides };
}

/** A view as matrices to transpose: `rows` is its dim of stride 1, `cols` its last, the rest are batches. */
export interface Transposition {
  rows: number;
  cols: number;
  /** Elements from a row to the next in the result, and from a column to the next in the source. */
  rowStep: number;
  colStep: number;
  batches: { dims: number[]; inStrides: number[]; outStrides: number[] };
}

/** Smaller matrices gain nothing from tiles. */
const MIN_TRANSPOSED = 8;

/** The {@link Transposition} that copies a collapsed view into row-major order, where it is one. */
export function transposition(dims: readonly number[], strides: readonly number[]): Transposition | undefined {
  const last = dims.length - 1;
  const unit = strides.indexOf(1);
  if (unit < 0 || unit === last || strides[last] === 0) return undefined;
  if (dims[unit] < MIN_TRANSPOSED || dims[last] < MIN_TRANSPOSED) return undefined;
  const outStrides = dims.map((_, dim) => dims.slice(dim + 1).reduce((a, b) => a * b, 1));
  const rest = [...dims.keys()].filter((dim) => dim !== unit && dim !== last);
  return {
    rows: dims[unit],
    cols: dims[last],
    rowStep: outStrides[unit],
    colStep: strides[last],
    batches: {
      dims: rest.map((dim) => dims[dim]),
      inStrides: rest.map((dim) => strides[dim]),
      outStrides: rest.map((dim) => outStrides[dim]),
    },
  };
}
