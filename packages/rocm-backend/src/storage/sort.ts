/**
 * Arg-sort of rows of any width: on GPUs a warp or a block sorts a row in shared memory, and wide rows are sorted by the digits
 * of their keys, a byte a pass, by as many blocks as the device has room for; the host does so from far fewer columns on.
 * candle's own kernel (a block a row, fails where shared memory ends) serves narrow rows on the host.
 * Top-k selects instead of sorting; candle sorts the whole row for it.
 */
import { type DType, Layout, sizeInBytes } from '@x/core';
import type { RocmDevice } from '../device';
import { checkPositions } from '../errors';
import { kernelName } from '../kernel-name';
import { launchCopy2d } from '../kernels';
import { clamp } from '../launch-shape';
import { run } from '../ops';
import {
  launchArgSortRows,
  launchRadixPass,
  launchSortRows,
  launchTopk,
  RADIX_DIGITS,
  radixPart,
  SORT_CHUNK,
  type SortProblem,
  TOPK_MAX,
} from '../sort-kernels';
import { withContiguous } from './copy';
import type { RocmStorage } from './index';
import { gather } from './indexing';

/** Columns up to which candle's kernel, which has no counters to clear, is better on the host. */
const HOST_ROW = 256;

export function argSortLastDim(src: RocmStorage, layout: Layout, descending: boolean): RocmStorage {
  const { device } = src;
  const cols = layout.shape[layout.rank - 1];
  checkPositions('argSortLastDim', cols);
  return withContiguous(src, layout, (from, fromLayout) =>
    run(device, 'u32', layout.elemCount, (out) => {
      const problem = problemOf(from, fromLayout, descending);
      const narrow = device.shapes.isHost ? HOST_ROW : SORT_CHUNK;
      if (cols > narrow) sortByDigits(device, problem, out);
      else if (device.shapes.isHost) launchArgSortRows(device, problem, out);
      else launchSortRows(device, problem, out, 0);
    }),
  );
}

function problemOf(from: RocmStorage, layout: Layout, descending: boolean): SortProblem {
  const cols = layout.shape[layout.rank - 1];
  const { ptr } = from.operand(layout);
  return { order: descending ? 'desc' : 'asc', dtype: from.dtype, rows: layout.elemCount / cols, cols, src: ptr };
}

/** Positions and values. What sorts a row in shared memory writes both; elsewhere the values are gathered. */
export function sortLastDim(
  src: RocmStorage,
  layout: Layout,
  descending: boolean,
): { values: RocmStorage; positions: RocmStorage } {
  const { device, dtype } = src;
  const cols = layout.shape[layout.rank - 1];
  if (device.shapes.isHost || cols > SORT_CHUNK) {
    const positions = argSortLastDim(src, layout, descending);
    try {
      const values = gather(src, layout, positions, Layout.contiguous(layout.shape), layout.rank - 1);
      return { values, positions };
    } catch (error) {
      positions.dispose();
      throw error;
    }
  }
  return withContiguous(src, layout, (from, fromLayout) => {
    const positions = device.allocUninit(layout.elemCount, 'u32');
    try {
      const values = run(device, dtype, layout.elemCount, (out) => {
        launchSortRows(device, problemOf(from, fromLayout, descending), positions.ptr, out);
      });
      return { values, positions };
    } catch (error) {
      positions.dispose();
      throw error;
    }
  });
}

/** Candidates a block gets at least when a row is cut into parts: fewer cost more to hand out than to look at. */
const MIN_PART = 8192;

export function topkLastDim(src: RocmStorage, layout: Layout, k: number, descending: boolean): RocmStorage {
  const { device, dtype } = src;
  const kernel = kernelName(descending ? 'desc' : 'asc', dtype);
  const cols = layout.shape[layout.rank - 1];
  const rows = layout.elemCount / cols;
  if (k > TOPK_MAX) return sortedPrefix(src, layout, rows, cols, k, descending);
  return withContiguous(src, layout, (from, fromLayout) =>
    run(device, 'u32', rows * k, (out) => {
      const { ptr } = from.operand(fromLayout);
      const parts = partsOf(device, rows, cols, k);
      if (parts === 1) {
        launchTopk(device, kernel, { rows, cols, width: cols, k, parts }, ptr, 0, out);
        return;
      }
      const winners = device.allocUninit(rows * parts * k, 'u32');
      try {
        launchTopk(device, kernel, { rows, cols, width: cols, k, parts }, ptr, 0, winners.ptr);
        launchTopk(device, kernel, { rows, cols, width: parts * k, k, parts: 1 }, ptr, winners.ptr, out);
      } finally {
        winners.dispose();
      }
    }),
  );
}

/** Into how many parts a row is cut, so that few long rows occupy the whole device. */
function partsOf(device: RocmDevice, rows: number, cols: number, k: number): number {
  const wanted = Math.ceil(device.hip.properties.multiprocessorCount / rows);
  return clamp(Math.floor(cols / Math.max(MIN_PART, 4 * k)), 1, wanted);
}

/** The beginning of every row of an arg-sort. */
function sortedPrefix(
  src: RocmStorage,
  layout: Layout,
  rows: number,
  cols: number,
  k: number,
  descending: boolean,
): RocmStorage {
  const sorted = argSortLastDim(src, layout, descending);
  try {
    return run(src.device, 'u32', rows * k, (out) =>
      launchCopy2d(src.device, 'u32', sorted.ptr, out, rows, k, cols, k),
    );
  } finally {
    sorted.dispose();
  }
}

/** What holds the keys of elements of so many bytes. */
const KEYS: Record<number, [dtype: DType, kernel: string]> = {
  1: ['i16', 'b16'],
  2: ['i16', 'b16'],
  4: ['u32', 'b32'],
  8: ['i64', 'b64'],
};

function sortByDigits(device: RocmDevice, { order, dtype, rows, cols, src }: SortProblem, out: number): void {
  const passes = sizeInBytes(dtype);
  const [keyType, later] = KEYS[passes];
  const part = radixPart(device, rows, cols, passes);
  const scratch: RocmStorage[] = [];
  const allocate = (elements: number, type: DType) => {
    scratch.push(device.allocUninit(elements, type));
    return scratch[scratch.length - 1].ptr;
  };
  try {
    const counts = allocate(rows * Math.ceil(cols / part) * RADIX_DIGITS, 'u32');
    // Buffers alternate, so that the last pass writes the result; it leaves no keys.
    const keys = Array.from({ length: Math.min(2, passes - 1) }, () => allocate(rows * cols, keyType));
    const positions = passes === 1 ? [out] : [out, allocate(rows * cols, 'u32')];
    for (let pass = 0; pass < passes; pass++) {
      const left = passes - 1 - pass;
      launchRadixPass(
        device,
        pass === 0 ? kernelName(order, dtype) : later,
        { rows, cols, part },
        pass === 0
          ? { values: src }
          : { shift: 8 * pass, keys: keys[(pass - 1) % 2], positions: positions[(left + 1) % 2] },
        counts,
        { keys: left === 0 ? 0 : keys[pass % 2], positions: positions[left % 2] },
      );
    }
  } finally {
    for (const storage of scratch) storage.dispose();
  }
}
