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
  freeBlocks: number;
  blocks: number;
}

/** Memory that is handed out as a whole. */
interface Block {
  readonly ptr: number;
  readonly bytes: number;
  /** Null for a driver allocation of its own. */
  readonly segment: Segment | null;
  live: boolean;
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
  /** Unused blocks by size. */
  readonly #free = new Map<number, Block[]>();
  /** Live and cached blocks by address. */
  readonly #blocks = new Map<number, Block>();
  #live = 0;
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
    const block = this.#free.get(blockBytes)?.pop() ?? this.#grow(blockBytes);
    if (block.segment) block.segment.freeBlocks--;
    block.live = true;
    this.#live++;
    this.#liveBytes += blockBytes;
    if (this.#liveBytes > this.#peakBytes) this.#peakBytes = this.#liveBytes;
    return block.ptr;
  }

  /** Gives a block back for reuse by later work of the same stream. */
  free(ptr: number): void {
    if (ptr === 0) return;
    const block = this.#blocks.get(ptr);
    if (!block?.live) throw new Error(`internal: free of address ${ptr}, which is not allocated`);
    block.live = false;
    this.#live--;
    this.#liveBytes -= block.bytes;
    if (block.segment) block.segment.freeBlocks++;
    this.#freeList(block.bytes).push(block);
  }

  /** Returns every unused driver allocation. The caller has made sure that the device is idle. */
  emptyCache(): void {
    for (const [blockBytes, list] of this.#free) {
      const kept: Block[] = [];
      for (const block of list) {
        const { ptr, segment } = block;
        if (segment && segment.freeBlocks < segment.blocks) {
          kept.push(block);
          continue;
        }
        this.#blocks.delete(ptr);
        if (!segment) this.#release(ptr, blockBytes);
        else if (ptr === segment.base) this.#release(ptr, SEGMENT);
      }
      this.#free.set(blockBytes, kept);
    }
  }

  memory(): DeviceMemory {
    return {
      liveStorages: this.#live,
      liveBytes: this.#liveBytes,
      cachedBytes: this.#driverBytes - this.#liveBytes,
      driverBytes: this.#driverBytes,
      peakBytes: this.#peakBytes,
    };
  }

  #freeList(blockBytes: number): Block[] {
    let list = this.#free.get(blockBytes);
    if (!list) {
      list = [];
      this.#free.set(blockBytes, list);
    }
    return list;
  }

  #grow(bytes: number): Block {
    if (bytes > MAX_SEGMENT_BLOCK) return this.#add(this.#fromDriver(bytes), bytes, null);
    const base = this.#fromDriver(SEGMENT);
    const blocks = Math.floor(SEGMENT / bytes);
    const segment: Segment = { base, freeBlocks: blocks, blocks };
    const list = this.#freeList(bytes);
    // Highest address first, so that blocks are handed out in ascending order.
    for (let i = blocks - 1; i > 0; i--) list.push(this.#add(base + i * bytes, bytes, segment));
    return this.#add(base, bytes, segment);
  }

  #add(ptr: number, bytes: number, segment: Segment | null): Block {
    const block: Block = { ptr, bytes, segment, live: false };
    this.#blocks.set(ptr, block);
    return block;
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
