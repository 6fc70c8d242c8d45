/**
 * Arg-sort of rows of any width: chunks of a row are sorted by a block each in shared memory, and the chunks of wide rows
 * merged, doubling the sorted width from one buffer to another. candle's own kernel (a block a row, fails where shared
 * memory ends) serves narrow rows on the host.
 * Top-k selects instead of sorting; candle sorts the whole row for it.
 */
import type { DType, Layout } from '@x/core';
import type { RocmDevice } from '../device';
import { checkPositions } from '../errors';
import { kernelName } from '../kernel-name';
import { launchCopy2d } from '../kernels';
import { clamp } from '../launch-shape';
import { run } from '../ops';
import {
  launchArgSortRows,
  launchSortChunks,
  launchSortMerge,
  launchTopk,
  SORT_CHUNK,
  TOPK_MAX,
} from '../sort-kernels';
import { withContiguous } from './copy';
import type { RocmStorage } from './index';

/** Columns up to which candle's kernel, which needs no copy of the keys, is better on the host. */
const HOST_ROW = 1024;

export function argSortLastDim(src: RocmStorage, layout: Layout, descending: boolean): RocmStorage {
  const { device, dtype } = src;
  const order = descending ? 'desc' : 'asc';
  const cols = layout.shape[layout.rank - 1];
  checkPositions('argSortLastDim', cols);
  const rows = layout.elemCount / cols;
  return withContiguous(src, layout, (from, fromLayout) =>
    run(device, 'u32', layout.elemCount, (out) => {
      const { ptr } = from.operand(fromLayout);
      if (device.shapes.isHost && cols <= HOST_ROW) launchArgSortRows(device, order, dtype, rows, cols, ptr, out);
      else sortWide(device, order, dtype, rows, cols, ptr, out);
    }),
  );
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

function sortWide(
  device: RocmDevice,
  order: 'asc' | 'desc',
  dtype: DType,
  rows: number,
  cols: number,
  src: number,
  out: number,
): void {
  const passes = Math.ceil(Math.log2(Math.max(1, cols / SORT_CHUNK)));
  if (passes === 0) {
    launchSortChunks(device, order, dtype, rows, cols, src, out);
    return;
  }
  const other = device.allocUninit(rows * cols, 'u32');
  try {
    // Buffers alternate, so that the last pass writes the result.
    let [from, to] = passes % 2 === 0 ? [out, other.ptr] : [other.ptr, out];
    launchSortChunks(device, order, dtype, rows, cols, src, from);
    for (let width = SORT_CHUNK; width < cols; width *= 2) {
      launchSortMerge(device, kernelName(order, dtype), rows, cols, width, src, from, to);
      [from, to] = [to, from];
    }
  } finally {
    other.dispose();
  }
}
