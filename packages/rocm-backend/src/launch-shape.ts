/**
 * Grid and block sizes by platform. On the host platform a block is one thread and the driver ignores block sizes, so
 * only the number of blocks matters: elementwise work is split into a few chunks a thread, row work is a block a row.
 */
import type { DeviceProperties } from '@x/hip';

export interface LaunchShape {
  grid: number | readonly [number, number, number];
  block: number | readonly [number, number, number];
  sharedBytes?: number;
}

const ELEMENTWISE_BLOCK = 256;
const ROW_BLOCK = 256;
/** Elements a thread handles before the grid stops growing with the tensor: one 16-byte vector of f32. */
const ELEMENTS_PER_THREAD = 4;
const BLOCKS_PER_CU = 32;
/** Fewer elements than this per host chunk cost more to hand out than to compute. */
const HOST_CHUNK = 8192;

export class LaunchShapes {
  readonly #properties: DeviceProperties;
  readonly isHost: boolean;

  constructor(properties: DeviceProperties) {
    this.#properties = properties;
    this.isHost = properties.warpSize === 1;
  }

  /** One thread per few elements, grid-stride. */
  elementwise(elements: number): LaunchShape {
    const units = this.#properties.multiprocessorCount;
    if (this.isHost) return { grid: clamp(Math.ceil(elements / HOST_CHUNK), 1, units * 4), block: 1 };
    const blocks = Math.ceil(elements / (ELEMENTWISE_BLOCK * ELEMENTS_PER_THREAD));
    return { grid: clamp(blocks, 1, units * BLOCKS_PER_CU), block: ELEMENTWISE_BLOCK };
  }

  /** One thread per unit of work that is heavier than an element (a column of a scatter). */
  perItem(items: number): LaunchShape {
    if (this.isHost)
      return { grid: clamp(Math.ceil(items / 256), 1, this.#properties.multiprocessorCount * 4), block: 1 };
    return { grid: Math.max(1, Math.ceil(items / ELEMENTWISE_BLOCK)), block: ELEMENTWISE_BLOCK };
  }

  /** One block a row of `width` elements; wider blocks than this only add to the cost of the block's reduction. */
  rows(rows: number, width: number): LaunchShape {
    return {
      grid: Math.max(1, rows),
      block: this.isHost ? 1 : clamp(powerOfTwo(width), this.#properties.warpSize, ROW_BLOCK),
    };
  }
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}

function powerOfTwo(value: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, value)));
}
