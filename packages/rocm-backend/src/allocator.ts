/**
 * Caching device allocator.
 *
 * A block that is given back may be handed out again at once to the same stream: whatever still uses it was enqueued
 * earlier and runs earlier. To another stream it goes when the streams that used it have passed the place where it was freed;
 * until then that stream gets other memory. Blocks are therefore never returned to the driver
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

/** What streams know of each other; a device's own stream is 0. See streams.ts. */
export interface StreamOrder {
  /** A stamp for a block that is freed now. */
  nextStamp(): number;
  /** Whether what `stream` was given before the stamp comes before what `forStream` is given from now on. */
  hasPassed(stream: number, stamp: number, forStream: number): boolean;
  /** Makes `waiter` wait for all that `stream` was given so far. */
  wait(waiter: number, stream: number): void;
}

const OWN_STREAM = 0;

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
  /** The stream that it was handed out to. */
  stream: number;
  /** Other streams that have used it since. */
  users: Set<number> | null;
  /** The stamp of its being freed; 0 while nothing depends on it. */
  freed: number;
}

/** Unused blocks by size. */
type FreeLists = Map<number, Block[]>;

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

/** Memory of one device, kept and handed out again, where candle asks the driver for each tensor. Addresses are numbers; 0 is none. */
export class CachingAllocator {
  readonly #driver: DriverMemory;
  /** By stream. */
  readonly #free = new Map<number, FreeLists>();
  /** Those of the stream that work goes to. */
  #lists: FreeLists = new Map();
  #stream = OWN_STREAM;
  /** Absent while there is one stream. */
  #order: StreamOrder | undefined;
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
    this.#free.set(OWN_STREAM, this.#lists);
  }

  /** Allocates and frees for `stream` from now on. `order` is there as soon as there is another stream than the device's own. */
  enter(stream: number, order: StreamOrder): void {
    this.#order = order;
    this.#stream = stream;
    let lists = this.#free.get(stream);
    if (!lists) {
      lists = new Map();
      this.#free.set(stream, lists);
    }
    this.#lists = lists;
  }

  /** `stream` is gone and its work done: what it has freed is the device's own stream's. */
  leave(stream: number): void {
    const own = this.#free.get(OWN_STREAM)!;
    for (const [blockBytes, list] of this.#free.get(stream) ?? []) listOf(own, blockBytes).push(...list);
    this.#free.delete(stream);
  }

  /** The block at `ptr` is used by work of `stream`, too. */
  used(ptr: number, stream: number): void {
    const block = this.#blocks.get(ptr);
    if (!block || block.stream === stream) return;
    block.users ??= new Set();
    block.users.add(stream);
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

  /**
   * Returns every unused driver allocation. The caller has made sure that the device is idle. When the driver fails to free some,
   * the others are freed before the first of its errors passes through.
   */
  emptyCache(): void {
    const unused: { ptr: number; bytes: number }[] = [];
    for (const lists of this.#free.values())
      for (const [blockBytes, list] of lists) lists.set(blockBytes, this.#kept(list, unused));
    const errors: unknown[] = [];
    for (const { ptr, bytes } of unused) {
      this.#driverBytes -= bytes;
      try {
        this.#driver.free(ptr);
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Bytes live, cached and of graphs now, and the most that were live at once. */
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

  /** Takes the blocks of unused driver allocations out of a list, whose others are returned. */
  #kept(list: readonly Block[], unused: { ptr: number; bytes: number }[]): Block[] {
    const kept: Block[] = [];
    for (const block of list) {
      const { ptr, segment, bytes } = block;
      if (segment && segment.freeBlocks < segment.blocks) {
        kept.push(block);
        continue;
      }
      this.#blocks.delete(ptr);
      if (!segment) unused.push({ ptr, bytes });
      else if (ptr === segment.base) unused.push({ ptr, bytes: SEGMENT });
    }
    return kept;
  }

  /** A block from the cache or the driver. */
  #taken(blockBytes: number): Block {
    const block = this.#lists.get(blockBytes)?.pop() ?? this.#passedOn(blockBytes) ?? this.#grow(blockBytes);
    if (block.segment) block.segment.freeBlocks--;
    if (this.#order) this.#handOver(block, this.#order);
    return block;
  }

  /** A block that another stream has freed, where all that used it are through. */
  #passedOn(blockBytes: number): Block | undefined {
    if (!this.#order || this.#free.size === 1) return undefined;
    for (const [stream, lists] of this.#free) {
      const list = lists.get(blockBytes);
      // The first one was freed before the others.
      if (stream !== this.#stream && list?.length && this.#hasPassed(list[0], this.#order)) return list.shift();
    }
    return undefined;
  }

  #hasPassed({ stream, users, freed }: Block, order: StreamOrder): boolean {
    if (freed === 0) return true;
    if (!order.hasPassed(stream, freed, this.#stream)) return false;
    for (const user of users ?? []) if (!order.hasPassed(user, freed, this.#stream)) return false;
    return true;
  }

  /** Makes the current stream the block's, behind the others that have used it. */
  #handOver(block: Block, order: StreamOrder): void {
    for (const user of block.users ?? [])
      if (!order.hasPassed(user, block.freed, this.#stream)) order.wait(this.#stream, user);
    block.stream = this.#stream;
    block.users = null;
    block.freed = 0;
  }

  /** Into the cache. */
  #giveBack(block: Block): void {
    if (block.segment) block.segment.freeBlocks++;
    if (this.#order) {
      block.freed = this.#order.nextStamp();
      // Whoever frees it may have enqueued work on it that has not been told.
      if (block.stream !== this.#stream) this.used(block.ptr, this.#stream);
    }
    const lists = this.#free.get(block.stream) ?? this.#free.get(OWN_STREAM)!;
    listOf(lists, block.bytes).push(block);
  }

  #grow(bytes: number): Block {
    if (bytes > MAX_SEGMENT_BLOCK) return this.#add(this.#fromDriver(bytes), bytes, null);
    const base = this.#fromDriver(SEGMENT);
    const blocks = Math.floor(SEGMENT / bytes);
    const segment: Segment = { base, freeBlocks: blocks, blocks };
    const list = listOf(this.#lists, bytes);
    // Highest address first, so that blocks are handed out in ascending order.
    for (let i = blocks - 1; i > 0; i--) list.push(this.#add(base + i * bytes, bytes, segment));
    return this.#add(base, bytes, segment);
  }

  #add(ptr: number, bytes: number, segment: Segment | null): Block {
    const block: Block = { ptr, bytes, segment, live: false, pool: null, stream: this.#stream, users: null, freed: 0 };
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
}

function listOf(lists: FreeLists, blockBytes: number): Block[] {
  let list = lists.get(blockBytes);
  if (!list) {
    list = [];
    lists.set(blockBytes, list);
  }
  return list;
}
