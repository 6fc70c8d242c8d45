/**
 * The `info` argument of candle's kernels: dims ++ strides (usize) in device memory, null when contiguous. Uploads are
 * cached by content, so a repeated op uploads nothing (candle uploads a fresh buffer per launch).
 *
 * Neighbouring dims that are laid out as one are merged first: fewer divisions per element, and many views (a narrow
 * of the first dim, a transposed batch of matrices) become 1-D or 2-D.
 */
import type { Layout } from '@x/core';
import { LayoutCache } from './layout-cache';

export interface StridedInfo {
  numDims: number;
  /** Device address of dims ++ strides..., or 0. */
  ptr: number;
}

/** An uploaded block, which outlives its place in the cache while captured graphs use it. */
interface HeldInfo extends StridedInfo {
  graphs: number;
  evicted: boolean;
}

export interface InfoMemory {
  alloc(bytes: number): number;
  free(ptr: number): void;
  upload(ptr: number, words: BigUint64Array): void;
}

export class InfoCache {
  readonly #memory: InfoMemory;
  /** By layouts as they came; those that collapse to the same have a block each. */
  readonly #collapsed = new LayoutCache<HeldInfo>((info) => this.#evict(info));
  readonly #exact = new LayoutCache<HeldInfo>((info) => this.#evict(info));
  /** What the graph that is being captured uses. */
  #held: Set<HeldInfo> | undefined;

  constructor(memory: InfoMemory) {
    this.#memory = memory;
  }

  /** Info for layouts of one shape; null (0) when every layout is contiguous. */
  get(layouts: readonly Layout[]): StridedInfo {
    const { shape } = layouts[0];
    if (allContiguous(layouts)) return { numDims: shape.length, ptr: 0 };
    const strideSets = layouts.map((layout) => layout.strides);
    const known = this.#collapsed.find(shape, strideSets);
    if (known) return this.#hold(known);
    const { dims, strides } = collapse(shape, strideSets);
    return this.#hold(this.#collapsed.add(shape, strideSets, this.#put(dims, strides)));
  }

  /** Info for these dims and strides exactly, never null. */
  upload(dims: readonly number[], strides: readonly (readonly number[])[]): StridedInfo {
    return this.#hold(this.#exact.find(dims, strides) ?? this.#exact.add(dims, strides, this.#put(dims, strides)));
  }

  /** Runs `fn`; what it gets stays on the device until the function that is returned is called. */
  holding(fn: () => void): () => void {
    const held = new Set<HeldInfo>();
    const release = () => {
      for (const info of held) if (--info.graphs === 0 && info.evicted) this.#memory.free(info.ptr);
      held.clear();
    };
    this.#held = held;
    try {
      fn();
    } catch (error) {
      release();
      throw error;
    } finally {
      this.#held = undefined;
    }
    return release;
  }

  clear(): void {
    this.#collapsed.clear();
    this.#exact.clear();
  }

  #hold(info: HeldInfo): StridedInfo {
    if (this.#held && !this.#held.has(info)) {
      this.#held.add(info);
      info.graphs++;
    }
    return info;
  }

  #evict(info: HeldInfo): void {
    info.evicted = true;
    if (info.graphs === 0) this.#memory.free(info.ptr);
  }

  #put(dims: readonly number[], strides: readonly (readonly number[])[]): HeldInfo {
    const words = [...dims, ...strides.flat()];
    const ptr = this.#memory.alloc(Math.max(1, words.length) * 8);
    try {
      this.#memory.upload(ptr, BigUint64Array.from(words, BigInt));
    } catch (error) {
      this.#memory.free(ptr);
      throw error;
    }
    return { numDims: dims.length, ptr, graphs: 0, evicted: false };
  }
}

function allContiguous(layouts: readonly Layout[]): boolean {
  for (let i = 0; i < layouts.length; i++) if (!layouts[i].isContiguous()) return false;
  return true;
}

/** Drops dims of size 1 and merges dim i with i + 1 where every operand steps through them as through one. */
function collapse(
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

/** {@link transposition} of layouts, worked out once each. */
export class TranspositionCache {
  /** Null for a layout that is none. */
  readonly #known = new LayoutCache<Transposition | null>();

  get({ shape, strides }: Layout): Transposition | null {
    const sets = [strides];
    const known = this.#known.find(shape, sets);
    if (known !== undefined) return known;
    const collapsed = collapse(shape, sets);
    return this.#known.add(shape, sets, transposition(collapsed.dims, collapsed.strides[0]) ?? null);
  }
}

/** The {@link Transposition} that copies a collapsed view into row-major order, where it is one. */
function transposition(dims: readonly number[], strides: readonly number[]): Transposition | undefined {
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
