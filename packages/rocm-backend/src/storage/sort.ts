/**
 * Arg-sort of rows of any width. Narrow rows are candle's kernel, a block a row in shared memory; candle fails where that
 * memory ends, here wider rows are sorted in chunks and merged, doubling the sorted width from one buffer to another.
 */
import type { Layout } from '@x/core';
import type { RocmDevice } from '../device';
import { launchArgSortRows, launchSortChunks, launchSortMerge, SORT_CHUNK } from '../kernels';
import { run } from '../ops';
import { withContiguous } from './copy';
import type { RocmStorage } from './index';

/** Columns up to which one block a row sorts by positions alone; beyond, chunks keep their keys in shared memory. */
const NARROW = 1024;

export function argSortLastDim(src: RocmStorage, layout: Layout, descending: boolean): RocmStorage {
  const { device, dtype } = src;
  const kernel = `${descending ? 'desc' : 'asc'}_${dtype}`;
  const cols = layout.shape[layout.rank - 1];
  const rows = layout.elemCount / cols;
  return withContiguous(src, layout, (from, fromLayout) =>
    run(device, 'u32', layout.elemCount, (out) => {
      const { ptr } = from.operand(fromLayout);
      if (cols <= NARROW) launchArgSortRows(device, kernel, rows, cols, ptr, out);
      else sortWide(device, kernel, rows, cols, ptr, out);
    }),
  );
}

function sortWide(device: RocmDevice, kernel: string, rows: number, cols: number, src: number, out: number): void {
  const passes = Math.ceil(Math.log2(Math.max(1, cols / SORT_CHUNK)));
  if (passes === 0) {
    launchSortChunks(device, kernel, rows, cols, src, out);
    return;
  }
  const other = device.allocUninit(rows * cols, 'u32');
  try {
    // Buffers alternate, so that the last pass writes the result.
    let [from, to] = passes % 2 === 0 ? [out, other.ptr] : [other.ptr, out];
    launchSortChunks(device, kernel, rows, cols, src, from);
    for (let width = SORT_CHUNK; width < cols; width *= 2) {
      launchSortMerge(device, kernel, rows, cols, width, src, from, to);
      [from, to] = [to, from];
    }
  } finally {
    other.dispose();
  }
}
