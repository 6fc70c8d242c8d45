/** Which kernels of the module SORT sort contiguous rows, and how they are launched. */
import { type DType, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import { clamp } from '../launch-shape';
import { SORT_CHUNK, SORT_RADIX_BITS, SORT_WARP_ROW, SORT_WARP_THREADS } from '../launchers/constants';
import {
  launchAsort,
  launchSortChunk,
  launchSortRadixCount,
  launchSortRadixCountFirst,
  launchSortRadixScatter,
  launchSortRadixScatterFirst,
  launchSortWarp,
  launchTopk,
} from '../launchers/sort';

/** Rows up to which a network of few steps is better than the passes of a radix sort, which cost as much for any row. */
const SORT_NETWORK = 256;

/** Digits of a radix pass, a counter each. */
export const RADIX_DIGITS = 2 ** SORT_RADIX_BITS;

/** The largest k of `topk_*`: kernels/sort/topk.h. */
export const TOPK_MAX = 1024;

/** Contiguous rows to sort, from the address `src` on. */
export interface SortProblem {
  descending: boolean;
  dtype: DType;
  rows: number;
  cols: number;
  src: number;
}

/** candle's kernel: a block a row, the row's positions in dynamic shared memory. */
export function argSortRows(device: KernelDevice, problem: SortProblem, out: number): void {
  const { dtype, rows, cols, src } = problem;
  const padded = 2 ** Math.ceil(Math.log2(cols));
  device.shapes.rowSlices(rows, padded, 64, (first, shape) => {
    const [from, to] = [src + first * cols * sizeInBytes(dtype), out + first * cols * 4];
    const args = { x: from, dst: to, ncols: cols, ncolsPad: padded };
    launchAsort(
      device,
      kernelName(problem.descending ? 'asort_desc' : 'asort_asc', dtype),
      { ...shape, sharedBytes: padded * 4 },
      args,
    );
  });
}

/** Rows of up to {@link SORT_CHUNK} columns on a GPU: positions in sorted order and, unless `values` is 0, the values. */
export function sortRows(device: KernelDevice, problem: SortProblem, out: number, values: number): void {
  const { dtype, cols } = problem;
  const byWarp = cols > SORT_NETWORK && cols <= SORT_WARP_ROW && sizeInBytes(dtype) < 8;
  const sort = byWarp ? sortByWarps : sortInChunks;
  sort(device, problem, out, values);
}

/** A warp a row of up to {@link SORT_WARP_ROW} columns. */
function sortByWarps(device: KernelDevice, problem: SortProblem, out: number, values: number): void {
  const { dtype, rows, cols, descending, src } = problem;
  const wanted = Math.ceil(rows / (SORT_WARP_THREADS / device.hip.properties.warpSize));
  const shape = { grid: device.shapes.blocks(wanted, SORT_WARP_THREADS), block: SORT_WARP_THREADS };
  const args = { rows, cols, descending: Number(descending), x: src, index: out, values };
  launchSortWarp(device, kernelName('sort_warp', dtype), shape, args);
}

/** Positions, and values unless they are 0, sorted within chunks of {@link SORT_CHUNK} columns. */
function sortInChunks(device: KernelDevice, problem: SortProblem, out: number, values: number): void {
  const { dtype, rows, cols, descending, src } = problem;
  const size = Math.min(SORT_CHUNK, 2 ** Math.ceil(Math.log2(cols)));
  const itemBytes = sizeInBytes(dtype);
  // Eight columns a thread; a word of key and position each, and a gap after 16 of them.
  const shape = device.shapes.rows(rows * Math.ceil(cols / SORT_CHUNK), size, 8);
  const sharedBytes = itemBytes === 8 ? size * 10 : (size + Math.ceil(size / 16)) * (itemBytes === 4 ? 8 : 4);
  const args = { rows, cols, size, descending: Number(descending), x: src, index: out, values };
  launchSortChunk(device, kernelName('sort_chunk', dtype), { ...shape, sharedBytes }, args);
}

const RADIX_BLOCK = 256;
/** Columns that a host thread counts and moves at least: its counters cost as much as some hundred of them. */
const HOST_PART = 8192;

/**
 * Columns of a row's parts, each of which is a block's. A part is whole tiles of the kernel; a row has parts enough to fill
 * the device, and so few that a block reads their counts quickly.
 */
export function radixPart(device: KernelDevice, rows: number, cols: number, itemBytes: number): number {
  const { isHost } = device.shapes;
  const units = device.hip.properties.multiprocessorCount;
  const tile = isHost ? HOST_PART : RADIX_BLOCK * (itemBytes === 8 ? 8 : 16);
  const most = isHost ? Math.ceil((4 * units) / rows) : clamp(Math.ceil((8 * units) / rows), 64, 512);
  return Math.ceil(Math.ceil(cols / tile) / most) * tile;
}

/**
 * One digit of a radix sort: `sort_radix_count_*`, then `sort_radix_scatter_*`. The first pass is from values (`{t}`), the others from the keys and
 * positions of the pass before (`b16`, `b32`, `b64`).
 */
export function radixPass(
  device: KernelDevice,
  suffix: string,
  { rows, cols, part }: { rows: number; cols: number; part: number },
  from: { values: number; descending: boolean } | { shift: number; keys: number; positions: number },
  counts: number,
  to: { keys: number; positions: number },
): void {
  const block = device.shapes.isHost ? 1 : RADIX_BLOCK;
  const shape = { grid: device.shapes.blocks(rows * Math.ceil(cols / part), block), block };
  const [count, move] = [kernelName('sort_radix_count', suffix), kernelName('sort_radix_scatter', suffix)];
  const target = { keys: to.keys, to: to.positions };
  if ('values' in from) {
    const args = { rows, cols, part, descending: Number(from.descending), x: from.values, counts };
    launchSortRadixCountFirst(device, count, shape, args);
    launchSortRadixScatterFirst(device, move, shape, { ...args, ...target });
  } else {
    const args = { rows, cols, part, shift: from.shift, from: from.keys, counts };
    launchSortRadixCount(device, count, shape, args);
    launchSortRadixScatter(device, move, shape, { ...args, positions: from.positions, ...target });
  }
}

/**
 * The first `k` of each part of `width` candidates a row, [rows, parts, k]. `from` 0: the candidates are the columns. k <= {@link TOPK_MAX} and <= width / parts.
 */
export function selectTopk(
  device: KernelDevice,
  { dtype, descending, rows, cols, src }: SortProblem,
  { width, k, parts }: { width: number; k: number; parts: number },
  from: number,
  to: number,
): void {
  const share = Math.ceil(width / parts);
  const shape = device.shapes.rows(rows * parts, share, 64);
  // A long share is read several times by one block: twice the threads hide more of its latency.
  if (!device.shapes.isHost && share > SORT_CHUNK) shape.block = 1024;
  const args = { rows, cols, width, k, parts, descending: Number(descending), x: src, from, to };
  launchTopk(device, kernelName('topk', dtype), shape, args);
}
