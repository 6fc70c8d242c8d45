/**
 * Arg-sort and top-k of the plain backend: stable in both directions, -0 equals 0, NaN greater than every number whatever its
 * sign. What fits in 32 bits is sorted by its bits (radix sort, least significant digit first); f64 and i64 by comparing.
 */
import { Layout } from '../layout';
import { denseValues } from './copy';
import { indexing } from './indexing';
import type { JsOperand, JsStorage } from './storage';

type Row = ReturnType<typeof denseValues>;

export function argSortLastDim(src: JsOperand, descending: boolean): JsStorage {
  return sorted(src, src.layout.dim(-1), descending);
}

export function sortLastDim(src: JsOperand, descending: boolean): { values: JsStorage; positions: JsStorage } {
  const positions = argSortLastDim(src, descending);
  const { shape } = src.layout;
  const ids = { storage: positions, layout: Layout.contiguous(shape) };
  const values = indexing.gather(src, ids, shape.length - 1) as JsStorage;
  return { values, positions };
}

export function topkLastDim(src: JsOperand, k: number, descending: boolean): JsStorage {
  return sorted(src, k, descending);
}

/** The first `k` positions of each row in order. */
function sorted(src: JsOperand, k: number, descending: boolean): JsStorage {
  const values = denseValues(src);
  const width = src.layout.dim(-1);
  const rows = values.length / width;
  const out = new Uint32Array(rows * k);
  for (let row = 0; row < rows; row++) {
    const one = values.subarray(row * width, (row + 1) * width);
    const keys = keysOf(one, descending);
    const positions = keys ? byKeys(keys, firstCandidates(keys, k)) : byComparison(one, descending);
    out.set(positions.subarray(0, k), row * k);
  }
  return src.storage.make('u32', out);
}

function byComparison(row: Row, descending: boolean): Uint32Array {
  const positions = Uint32Array.from(row as Float64Array, (_, i) => i);
  return positions.sort((i, j) => (descending ? order(row[j], row[i]) : order(row[i], row[j])));
}

function order(a: number | bigint, b: number | bigint): number {
  if (a < b) return -1;
  if (a > b) return 1;
  return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
}

/** Integers in the order of the values; undefined for those of 64 bits. */
function keysOf(row: Row, descending: boolean): Uint32Array | undefined {
  if (row instanceof Float64Array || row instanceof BigInt64Array) return undefined;
  const keys = new Uint32Array(row.length);
  const flip = descending ? 0xffffffff : 0;
  if (row instanceof Float32Array) {
    const bits = new Uint32Array(row.buffer, row.byteOffset, row.length);
    for (let i = 0; i < keys.length; i++) {
      const value = row[i];
      // Negative numbers run backwards; NaN, of either sign, is behind all, and both zeros are one.
      const key = Number.isNaN(value)
        ? 0xffffffff
        : value === 0
          ? 0x80000000
          : bits[i] >> 31
            ? ~bits[i]
            : bits[i] | 0x80000000;
      keys[i] = key ^ flip;
    }
    return keys;
  }
  const isUnsigned = row instanceof Uint8Array || row instanceof Uint32Array;
  for (let i = 0; i < keys.length; i++) keys[i] = row[i] ^ (isUnsigned ? 0 : 0x80000000) ^ flip;
  return keys;
}

/** Ascending positions among which the `k` smallest keys are: all, or those up to the high half of the k-th one. */
function firstCandidates(keys: Uint32Array, k: number): Uint32Array {
  if (k * 8 > keys.length) return Uint32Array.from(keys, (_, i) => i);
  const counts = new Uint32Array(2 ** 16);
  for (let i = 0; i < keys.length; i++) counts[keys[i] >>> 16]++;
  let last = 0;
  let total = counts[0];
  while (total < k) total += counts[++last];
  const candidates = new Uint32Array(total);
  for (let i = 0, at = 0; i < keys.length; i++) if (keys[i] >>> 16 <= last) candidates[at++] = i;
  return candidates;
}

const DIGIT = 11;
const MASK = 2 ** DIGIT - 1;

/** `positions` in the order of their keys; equal keys stay as they are. */
function byKeys(keys: Uint32Array, positions: Uint32Array): Uint32Array {
  const count = positions.length;
  // Keys move with their positions: reading them where they were would miss the processor's caches.
  let from = { keys: new Uint32Array(count), positions: new Uint32Array(positions) };
  let to = { keys: new Uint32Array(count), positions: new Uint32Array(count) };
  for (let i = 0; i < count; i++) from.keys[i] = keys[positions[i]];
  const places = new Uint32Array(MASK + 1);
  for (let shift = 0; shift < 32; shift += DIGIT) {
    scatter(from, to, shift, places);
    [from, to] = [to, from];
  }
  return from.positions;
}

interface Keyed {
  keys: Uint32Array;
  positions: Uint32Array;
}

/** One digit of the radix sort. */
function scatter(from: Keyed, to: Keyed, shift: number, places: Uint32Array): void {
  const { keys, positions } = from;
  places.fill(0);
  for (let i = 0; i < keys.length; i++) places[(keys[i] >>> shift) & MASK]++;
  for (let digit = 0, start = 0; digit <= MASK; digit++) {
    const next = start + places[digit];
    places[digit] = start;
    start = next;
  }
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    const at = places[(key >>> shift) & MASK]++;
    to.keys[at] = key;
    to.positions[at] = positions[i];
  }
}
