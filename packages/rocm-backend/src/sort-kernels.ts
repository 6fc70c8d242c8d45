/** Launch functions of the SORT module, as kernels.ts has them for the others. */
import { type DType, sizeInBytes } from '@x/core';
import { SORT } from '@x/kernels';
import type { RocmDevice } from './device';
import { kernelName } from './kernel-name';

/** Columns that `sort_chunk_*` sorts at once: kernels/sort/wide.h. */
export const SORT_CHUNK = 4096;

/** The largest k of `topk_*`: kernels/sort/topk.h. */
export const TOPK_MAX = 1024;

/** `asort_{asc,desc}_{t}(x, dst, ncols, ncols_pad)`: a block a row, the row's positions in dynamic shared memory. */
export function launchArgSortRows(
  device: RocmDevice,
  order: 'asc' | 'desc',
  dtype: DType,
  rows: number,
  cols: number,
  src: number,
  out: number,
): void {
  const padded = 2 ** Math.ceil(Math.log2(cols));
  device.shapes.rowSlices(rows, padded, 64, (first, shape) => {
    const [from, to] = [src + first * cols * sizeInBytes(dtype), out + first * cols * 4];
    device.launch(SORT, kernelName(kernelName('asort', order), dtype), { ...shape, sharedBytes: padded * 4 }, [
      from,
      to,
      cols,
      padded,
    ]);
  });
}

/** `sort_chunk_{asc,desc}_{t}(rows, cols, size, x, index)`: positions sorted within chunks of {@link SORT_CHUNK} columns. */
export function launchSortChunks(
  device: RocmDevice,
  order: 'asc' | 'desc',
  dtype: DType,
  rows: number,
  cols: number,
  src: number,
  out: number,
): void {
  const size = Math.min(SORT_CHUNK, 2 ** Math.ceil(Math.log2(cols)));
  const itemBytes = sizeInBytes(dtype);
  // Eight columns a thread; a word of key and position each, and a gap after 16 of them.
  const shape = device.shapes.rows(rows * Math.ceil(cols / SORT_CHUNK), size, 8);
  const sharedBytes = itemBytes === 8 ? size * 10 : (size + Math.ceil(size / 16)) * (itemBytes === 4 ? 8 : 4);
  device.launch(SORT, kernelName(kernelName('sort_chunk', order), dtype), { ...shape, sharedBytes }, [
    rows,
    cols,
    size,
    src,
    out,
  ]);
}

/** `sort_merge_{asc,desc}_{t}(rows, cols, width, x, from, to)`: neighbouring runs of `width` positions merged. */
export function launchSortMerge(
  device: RocmDevice,
  kernel: string,
  rows: number,
  cols: number,
  width: number,
  src: number,
  from: number,
  to: number,
): void {
  device.launch(SORT, kernelName('sort_merge', kernel), device.shapes.elementwise(rows * cols), [
    rows,
    cols,
    width,
    src,
    from,
    to,
  ]);
}

/**
 * `topk_{asc,desc}_{t}(rows, cols, width, k, parts, x, from, to)`: the first `k` of each part of `width` candidates a row,
 * [rows, parts, k]. `from` 0: the candidates are the columns. k <= {@link TOPK_MAX} and <= width / parts.
 */
export function launchTopk(
  device: RocmDevice,
  kernel: string,
  size: { rows: number; cols: number; width: number; k: number; parts: number },
  src: number,
  from: number,
  to: number,
): void {
  const { rows, cols, width, k, parts } = size;
  const share = Math.ceil(width / parts);
  const shape = device.shapes.rows(rows * parts, share, 64);
  // A long share is read several times by one block: twice the threads hide more of its latency.
  if (!device.shapes.isHost && share > SORT_CHUNK) shape.block = 1024;
  device.launch(SORT, kernelName('topk', kernel), shape, [rows, cols, width, k, parts, src, from, to]);
}
