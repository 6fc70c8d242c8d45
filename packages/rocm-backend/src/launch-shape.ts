/**
 * Grid and block sizes by platform. On the host platform a block is one thread and the driver ignores block sizes, so
 * only the number of blocks matters: elementwise work is split into a few chunks a thread, row work is a block a row.
 */
import type { DeviceProperties, Platform } from '@x/hip';

export interface LaunchShape {
  grid: number | readonly [number, number, number];
  block: number | readonly [number, number, number];
  sharedBytes?: number;
}

const BLOCK = 256;
/**
 * What a thread of elementwise work does for an access: a few instructions or several inputs' loads, more than that, or
 * first work out places from strides or indices.
 */
export type Work = 'short' | 'long' | 'strided';
/**
 * Threads a block of elementwise work, and how many accesses a thread makes, one after the other, once the device has
 * no room for more threads; more in flight a thread read slower. cuda measured on an H200 (tools/bench/ops.ts).
 */
const ELEMENTWISE: Record<'cuda' | 'rocm', { block: number; accesses: Record<Work, number> }> = {
  cuda: { block: 128, accesses: { short: 1, long: 2, strided: 4 } },
  rocm: { block: 256, accesses: { short: 2, long: 2, strided: 4 } },
};
/** Threads of elementwise work that a compute unit has before a thread makes several accesses. */
const THREADS_PER_CU = 4096;
/** Of columns reduced in parts: cuda measured on an H200, where twice as many take 3 % longer. */
const COLUMN_BLOCKS_PER_CU = { cuda: 4, rocm: 8 };
/** Shares are combined by one thread a column. */
const MAX_COLUMN_PARTS = 256;
/** Threads of a grid's dimension: AMD's runtimes count them in 32 bits. Kernels stride over what a grid does not cover. */
const MAX_THREADS = 2 ** 31;
/** Values that a thread of a norm has where that leaves enough threads: all loads of a row are on their way at once. */
export const NORM_VALUES = 8;
export const MAX_NORM_THREADS = 1024;
/** Fewer elements than this per host chunk cost more to hand out than to compute. */
const HOST_CHUNK = 8192;
/** Blocks a thread of the host, so that threads that others disturb hand work on. */
const HOST_BLOCKS = 8;

export class LaunchShapes {
  readonly #properties: DeviceProperties;
  readonly #elementwise: (typeof ELEMENTWISE)['cuda'];
  readonly #columnBlocks: number;
  readonly isHost: boolean;

  constructor(properties: DeviceProperties, platform: Platform) {
    this.#properties = properties;
    const like = platform === 'cuda' ? 'cuda' : 'rocm';
    this.#elementwise = ELEMENTWISE[like];
    this.#columnBlocks = COLUMN_BLOCKS_PER_CU[like];
    this.isHost = properties.warpSize === 1;
  }

  /**
   * Threads for `elements`, of which one takes as many in an access as fill 16 bytes; kernels that take them one by one
   * leave `itemBytes` out.
   */
  elementwise(elements: number, itemBytes = 16, work: Work = 'long'): LaunchShape {
    const units = this.#properties.multiprocessorCount;
    if (this.isHost) return { grid: clamp(Math.ceil(elements / HOST_CHUNK), 1, units * 4), block: 1 };
    const { block, accesses } = this.#elementwise;
    const blocks = Math.ceil((elements * itemBytes) / (16 * block));
    const atOnce = Math.min(blocks, (units * THREADS_PER_CU) / block);
    return { grid: this.blocks(Math.max(atOnce, Math.ceil(blocks / accesses[work])), block), block };
  }

  /** One thread per unit of work that is heavier than an element (a column of a scatter). */
  perItem(items: number): LaunchShape {
    if (this.isHost)
      return { grid: clamp(Math.ceil(items / 256), 1, this.#properties.multiprocessorCount * 4), block: 1 };
    return { grid: this.blocks(Math.ceil(items / BLOCK), BLOCK), block: BLOCK };
  }

  /** One block a square tile of `tile` elements a side. */
  tiles(batches: number, rows: number, cols: number, tile: number): LaunchShape {
    const grid = batches * Math.ceil(rows / tile) * Math.ceil(cols / tile);
    const block = this.isHost ? 1 : BLOCK;
    return { grid: this.blocks(grid, block), block };
  }

  /**
   * A reduction over the middle of [left, size, right]: how many tiles of columns a row has (as kernels/reduce/columns.h
   * cuts them), and into how many shares the middle is cut to fill the device.
   */
  columns(left: number, size: number, right: number, elementBytes: number): { tiles: number; parts: number } {
    const { multiprocessorCount, warpSize } = this.#properties;
    if (this.isHost) {
      const tiles = Math.ceil(right / 256);
      const wanted = Math.ceil((multiprocessorCount * 4) / (left * tiles));
      return { tiles, parts: clamp(Math.min(wanted, Math.floor((size * right) / HOST_CHUNK)), 1, MAX_COLUMN_PARTS) };
    }
    const atOnce = Math.min(8, 16 / elementBytes);
    const vectors = right % atOnce === 0 ? right / atOnce : right;
    const across = Math.min(warpSize, powerOfTwo(vectors));
    const tiles = Math.ceil(vectors / across);
    const rowsAtOnce = Math.floor(BLOCK / across) * 4;
    const wanted = Math.floor((multiprocessorCount * this.#columnBlocks) / (left * tiles));
    return { tiles, parts: clamp(Math.min(wanted, Math.ceil(size / (rowsAtOnce * 2))), 1, MAX_COLUMN_PARTS) };
  }

  /**
   * One block a row of `width` elements, 64 bytes of them a thread, which is what a thread keeps in registers (kernels/reduce/row.h);
   * wider blocks only add to the cost of the block's reduction.
   */
  rows(rows: number, width: number, itemBytes = 4): LaunchShape {
    const threads = powerOfTwo((width * itemBytes) / 64);
    const block = this.isHost ? 1 : clamp(threads, this.#properties.warpSize, BLOCK);
    return { grid: this.blocks(rows, block), block };
  }

  /** Warps of their own for many rows, so that no row waits for a block; on the host some rows a block. */
  warpRows(rows: number): LaunchShape {
    if (this.isHost) return { grid: this.hostBlocks(rows), block: 1 };
    const warps = BLOCK / this.#properties.warpSize;
    return { grid: this.blocks(Math.ceil(rows / warps), BLOCK), block: BLOCK };
  }

  /** Threads of a norm's block, whose row is n values. */
  normThreads(n: number): number {
    const threads = 2 ** Math.ceil(Math.log2(Math.max(1, n / NORM_VALUES)));
    return clamp(threads, this.#properties.warpSize, MAX_NORM_THREADS);
  }

  /** `wanted` blocks, or as many as one dimension of a grid may have. */
  blocks(wanted: number, block: number): number {
    return clamp(wanted, 1, MAX_THREADS / block);
  }

  /** Blocks of the host for `wanted` rows, or tiles of a product, which kernels make larger where each thread has some all the same. */
  hostBlocks(wanted: number): number {
    return clamp(wanted, 1, this.#properties.multiprocessorCount * HOST_BLOCKS);
  }

  /**
   * For kernels whose grid is the number of rows: calls `launch(first, shape)` for slices of rows that a grid can have,
   * where shape's grid is the slice's rows.
   */
  rowSlices(rows: number, width: number, itemBytes: number, launch: (first: number, shape: LaunchShape) => void): void {
    for (let first = 0; first < rows; ) {
      const shape = this.rows(rows - first, width, itemBytes);
      launch(first, shape);
      first += shape.grid as number;
    }
  }
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}

function powerOfTwo(value: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, value)));
}
