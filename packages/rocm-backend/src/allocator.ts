/**
 * Caching device allocator.
 *
 * Every device of this package runs its work on one stream, so a block that is given back may be handed out again at
 * once: whatever still uses it was enqueued earlier and runs earlier. Blocks are therefore never returned to the driver
 * in steady state (driver frees synchronise the device on HIP, and HIP's own memory pools are unreliable across
 * versions), and candle's one `malloc` per tensor is avoided.
 *
 * Sizes up to 256 KiB are cut from 2 MiB segments that hold blocks of one size class; larger ones are driver
 * allocations of their own, rounded to a class (at most 12.5 % waste up to 32 MiB, then to 2 MiB).
 */
import type { DeviceMemory } from '@x/core';

/** What the allocator needs of a device: raw driver memory. */
export interface DriverMemory {
  alloc(bytes: number): number;
  free(ptr: number): void;
}

const MIN_BLOCK = 512;
const SEGMENT = 2 * 1024 * 1024;
const MAX_SEGMENT_BLOCK = 256 * 1024;
const MAX_CLASSED = 32 * 1024 * 1024;

/** A driver allocation that is cut into equal blocks. */
interface Segment {
  base: number;
  blockBytes: number;
  freeBlocks: number;
  blocks: number;
}

/** Size of the block that serves a request: 512 B steps, then eight classes between powers of two, then 2 MiB steps. */
export function blockBytesFor(bytes: number): number {
  if (bytes <= MIN_BLOCK) return MIN_BLOCK;
  if (bytes > MAX_CLASSED) return Math.ceil(bytes / SEGMENT) * SEGMENT;
  const power = 2 ** Math.floor(Math.log2(bytes));
  const step = Math.max(MIN_BLOCK, power / 8);
  return Math.ceil(bytes / step) * step;
}

export class CachingAllocator {
  readonly #driver: DriverMemory;
  readonly #free = new Map<number, number[]>();
  /** Live and cached blocks: address to block size. */
  readonly #blocks = new Map<number, number>();
  readonly #segmentOf = new Map<number, Segment>();
  readonly #live = new Set<number>();
  #liveBytes = 0;
  #driverBytes = 0;
  #peakBytes = 0;

  constructor(driver: DriverMemory) {
    this.#driver = driver;
  }

  /**
   * A device address with room for `bytes`; 0 for an empty request. When the driver is out of memory the cache is
   * emptied and the driver asked once more; its error passes through when that fails too.
   */
  alloc(bytes: number): number {
    if (bytes === 0) return 0;
    const blockBytes = blockBytesFor(bytes);
    const ptr = this.#free.get(blockBytes)?.pop() ?? this.#grow(blockBytes);
    const segment = this.#segmentOf.get(ptr);
    if (segment) segment.freeBlocks--;
    this.#live.add(ptr);
    this.#liveBytes += blockBytes;
    this.#peakBytes = Math.max(this.#peakBytes, this.#liveBytes);
    return ptr;
  }

  /** Gives a block back for reuse by later work of the same stream. */
  free(ptr: number): void {
    if (ptr === 0) return;
    if (!this.#live.delete(ptr)) throw new Error(`internal: free of address ${ptr}, which is not allocated`);
    const blockBytes = this.#blocks.get(ptr)!;
    this.#liveBytes -= blockBytes;
    const segment = this.#segmentOf.get(ptr);
    if (segment) segment.freeBlocks++;
    this.#freeList(blockBytes).push(ptr);
  }

  /** Returns every unused driver allocation. The caller has made sure that the device is idle. */
  emptyCache(): void {
    for (const [blockBytes, list] of this.#free) {
      const kept: number[] = [];
      for (const ptr of list) {
        const segment = this.#segmentOf.get(ptr);
        if (segment && segment.freeBlocks < segment.blocks) {
          kept.push(ptr);
          continue;
        }
        this.#blocks.delete(ptr);
        this.#segmentOf.delete(ptr);
        if (!segment) this.#release(ptr, blockBytes);
        else if (ptr === segment.base) this.#release(ptr, SEGMENT);
      }
      this.#free.set(blockBytes, kept);
    }
  }

  memory(): DeviceMemory {
    return {
      liveStorages: this.#live.size,
      liveBytes: this.#liveBytes,
      cachedBytes: this.#driverBytes - this.#liveBytes,
      driverBytes: this.#driverBytes,
      peakBytes: this.#peakBytes,
    };
  }

  #freeList(blockBytes: number): number[] {
    let list = this.#free.get(blockBytes);
    if (!list) {
      list = [];
      this.#free.set(blockBytes, list);
    }
    return list;
  }

  #grow(blockBytes: number): number {
    if (blockBytes > MAX_SEGMENT_BLOCK) {
      const ptr = this.#fromDriver(blockBytes);
      this.#blocks.set(ptr, blockBytes);
      return ptr;
    }
    const base = this.#fromDriver(SEGMENT);
    const blocks = Math.floor(SEGMENT / blockBytes);
    const segment: Segment = { base, blockBytes, freeBlocks: blocks, blocks };
    const list = this.#freeList(blockBytes);
    // Highest address first, so that blocks are handed out in ascending order.
    for (let i = blocks - 1; i >= 0; i--) {
      const ptr = base + i * blockBytes;
      this.#blocks.set(ptr, blockBytes);
      this.#segmentOf.set(ptr, segment);
      list.push(ptr);
    }
    return list.pop()!;
  }

  #fromDriver(bytes: number): number {
    let ptr: number;
    try {
      ptr = this.#driver.alloc(bytes);
    } catch (error) {
      if ((error as { code?: string }).code !== 'OUT_OF_MEMORY') throw error;
      this.emptyCache();
      ptr = this.#driver.alloc(bytes);
    }
    this.#driverBytes += bytes;
    return ptr;
  }

  #release(ptr: number, bytes: number): void {
    this.#driver.free(ptr);
    this.#driverBytes -= bytes;
  }
}
