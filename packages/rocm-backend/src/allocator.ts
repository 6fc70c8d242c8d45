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
 *
 * A captured graph has a pool: blocks taken while it records stay in it when they are freed, because each replay writes to
 * them again. They are reused within the graph, and go back to the allocator when the pool is closed.
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
  /** The graph's pool that it belongs to, live or not. */
  pool: MemoryPool | null;
}

/** Blocks that belong to one captured graph. */
export class MemoryPool {
  /** @internal All of them, live or not. */
  readonly blocks = new Set<Block>();
  /** @internal Those that may be handed out again, by size. */
  readonly free = new Map<number, Block[]>();
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
  /** Freed bytes of pools. */
  #graphBytes = 0;
  /** The pool that allocations go to. */
  #recording: MemoryPool | null = null;

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
    const pool = this.#recording;
    const block = (pool && this.#reused(pool, blockBytes)) ?? this.#taken(blockBytes);
    if (pool && block.pool === null) {
      block.pool = pool;
      pool.blocks.add(block);
    }
    block.live = true;
    this.#live++;
    this.#liveBytes += blockBytes;
    if (this.#liveBytes > this.#peakBytes) this.#peakBytes = this.#liveBytes;
    return block.ptr;
  }

  /** Runs `fn` with allocations from `pool`, or with null from the common memory. */
  within<T>(pool: MemoryPool | null, fn: () => T): T {
    const outer = this.#recording;
    this.#recording = pool;
    try {
      return fn();
    } finally {
      this.#recording = outer;
    }
  }

  /** Whether an address was allocated in a pool. */
  isIn(pool: MemoryPool, ptr: number): boolean {
    return this.#blocks.get(ptr)?.pool === pool;
  }

  /** Makes the blocks of a pool common ones, at once or when they are freed. No work that uses them is left to run later. */
  close(pool: MemoryPool): void {
    for (const block of pool.blocks) {
      block.pool = null;
      if (block.live) continue;
      this.#graphBytes -= block.bytes;
      this.#giveBack(block);
    }
    pool.blocks.clear();
    pool.free.clear();
  }

  /** Gives a block back for reuse by later work of the same stream. */
  free(ptr: number): void {
    if (ptr === 0) return;
    const block = this.#blocks.get(ptr);
    if (!block?.live) throw new Error(`internal: free of address ${ptr}, which is not allocated`);
    block.live = false;
    this.#live--;
    this.#liveBytes -= block.bytes;
    if (block.pool === null) {
      this.#giveBack(block);
      return;
    }
    this.#graphBytes += block.bytes;
    listOf(block.pool.free, block.bytes).push(block);
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
      cachedBytes: this.#driverBytes - this.#liveBytes - this.#graphBytes,
      graphBytes: this.#graphBytes,
      driverBytes: this.#driverBytes,
      peakBytes: this.#peakBytes,
    };
  }

  /** A freed block of the pool. */
  #reused(pool: MemoryPool, blockBytes: number): Block | undefined {
    const block = pool.free.get(blockBytes)?.pop();
    if (block) this.#graphBytes -= blockBytes;
    return block;
  }

  /** A block from the cache or the driver. */
  #taken(blockBytes: number): Block {
    const block = this.#free.get(blockBytes)?.pop() ?? this.#grow(blockBytes);
    if (block.segment) block.segment.freeBlocks--;
    return block;
  }

  /** Into the cache. */
  #giveBack(block: Block): void {
    if (block.segment) block.segment.freeBlocks++;
    listOf(this.#free, block.bytes).push(block);
  }

  #grow(bytes: number): Block {
    if (bytes > MAX_SEGMENT_BLOCK) return this.#add(this.#fromDriver(bytes), bytes, null);
    const base = this.#fromDriver(SEGMENT);
    const blocks = Math.floor(SEGMENT / bytes);
    const segment: Segment = { base, freeBlocks: blocks, blocks };
    const list = listOf(this.#free, bytes);
    // Highest address first, so that blocks are handed out in ascending order.
    for (let i = blocks - 1; i > 0; i--) list.push(this.#add(base + i * bytes, bytes, segment));
    return this.#add(base, bytes, segment);
  }

  #add(ptr: number, bytes: number, segment: Segment | null): Block {
    const block: Block = { ptr, bytes, segment, live: false, pool: null };
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

function listOf(lists: Map<number, Block[]>, blockBytes: number): Block[] {
  let list = lists.get(blockBytes);
  if (!list) {
    list = [];
    lists.set(blockBytes, list);
  }
  return list;
}
