import { describe, expect, it } from 'vitest';
import { blockBytesFor, CachingAllocator, MemoryPool, type StreamOrder } from './allocator';

class FakeDriver {
  next = 0x10000000;
  live = new Map<number, number>();
  allocs = 0;
  limit = Number.POSITIVE_INFINITY;
  alloc(bytes: number): number {
    const used = [...this.live.values()].reduce((a, b) => a + b, 0);
    if (used + bytes > this.limit) throw Object.assign(new Error('out of memory'), { code: 'OUT_OF_MEMORY' });
    this.allocs++;
    const ptr = this.next;
    this.next += bytes;
    this.live.set(ptr, bytes);
    return ptr;
  }
  free(ptr: number): void {
    if (!this.live.delete(ptr)) throw new Error('free of unknown address');
  }
}

describe('blockBytesFor', () => {
  it('holds the request and wastes at most an eighth above 4 KiB', () => {
    for (let bytes = 1; bytes < 100e6; bytes = Math.ceil(bytes * 1.37)) {
      const block = blockBytesFor(bytes);
      expect(block).toBeGreaterThanOrEqual(bytes);
      expect(block % 512).toBe(0);
      if (bytes > 4096) expect(block / bytes).toBeLessThanOrEqual(1.126);
    }
  });
});

describe('CachingAllocator', () => {
  it('reuses a freed block of the same class without asking the driver', () => {
    const driver = new FakeDriver();
    const allocator = new CachingAllocator(driver);
    const a = allocator.alloc(1 << 20);
    allocator.free(a);
    expect(allocator.alloc((1 << 20) - 100)).toBe(a);
    expect(driver.allocs).toBe(1);
  });

  it('cuts small blocks from one segment, disjoint and in order', () => {
    const driver = new FakeDriver();
    const allocator = new CachingAllocator(driver);
    const ptrs = Array.from({ length: 100 }, () => allocator.alloc(1000));
    expect(driver.allocs).toBe(1);
    for (let i = 1; i < ptrs.length; i++) expect(ptrs[i] - ptrs[i - 1]).toBe(1024);
  });

  it('empties the cache and retries once when the driver is out of memory', () => {
    const driver = new FakeDriver();
    const allocator = new CachingAllocator(driver);
    driver.limit = 96 << 20;
    const a = allocator.alloc(64 << 20);
    allocator.free(a);
    const b = allocator.alloc(80 << 20);
    expect(b).toBeGreaterThan(0);
    expect(() => allocator.alloc(64 << 20)).toThrow('out of memory');
    expect(allocator.memory().liveBytes).toBe(80 << 20);
  });

  it('returns whole segments only, and counts', () => {
    const driver = new FakeDriver();
    const allocator = new CachingAllocator(driver);
    const a = allocator.alloc(1000);
    const b = allocator.alloc(1000);
    allocator.free(a);
    allocator.emptyCache();
    expect(driver.live.size).toBe(1);
    allocator.free(b);
    allocator.emptyCache();
    expect(driver.live.size).toBe(0);
    expect(allocator.memory()).toMatchObject({
      liveStorages: 0,
      liveBytes: 0,
      cachedBytes: 0,
      driverBytes: 0,
      peakBytes: 2048,
    });
  });

  it('refuses a double free and gives no memory for an empty request', () => {
    const allocator = new CachingAllocator(new FakeDriver());
    const a = allocator.alloc(10);
    allocator.free(a);
    expect(() => allocator.free(a)).toThrow('not allocated');
    expect(allocator.alloc(0)).toBe(0);
    allocator.free(0);
  });

  it('keeps what a graph takes in its pool until that is closed', () => {
    const driver = new FakeDriver();
    const allocator = new CachingAllocator(driver);
    const pool = new MemoryPool();
    allocator.free(allocator.alloc(1 << 20));
    const [first, again, kept] = allocator.within(pool, () => {
      const a = allocator.alloc(1 << 20);
      allocator.free(a);
      return [a, allocator.alloc(1 << 20), allocator.alloc(1 << 20)];
    });
    expect(again).toBe(first);
    allocator.free(again);
    expect(allocator.memory()).toMatchObject({ graphBytes: 1 << 20, liveBytes: 1 << 20, cachedBytes: 0 });
    const other = allocator.alloc(1 << 20);
    expect(other).not.toBe(first);
    allocator.emptyCache();
    allocator.close(pool);
    expect(allocator.memory()).toMatchObject({ graphBytes: 0, liveBytes: 2 << 20, cachedBytes: 1 << 20 });
    expect(allocator.alloc(1 << 20)).toBe(first);
    for (const ptr of [first, kept, other]) allocator.free(ptr);
    allocator.emptyCache();
    expect(allocator.memory()).toMatchObject({ liveStorages: 0, driverBytes: 0 });
  });

  it('hands memory to another stream only when those that used it are through', () => {
    const allocator = new CachingAllocator(new FakeDriver());
    const passed = new Set<number>();
    const waits: [number, number][] = [];
    let stamp = 0;
    const order: StreamOrder = {
      nextStamp: () => ++stamp,
      hasPassed: (stream, _, forStream) => stream === forStream || passed.has(stream),
      wait: (waiter, stream) => waits.push([waiter, stream]),
    };
    allocator.enter(1, order);
    const a = allocator.alloc(1 << 20);
    allocator.free(a);
    allocator.enter(0, order);
    const b = allocator.alloc(1 << 20);
    expect(b).not.toBe(a);
    passed.add(1);
    expect(allocator.alloc(1 << 20)).toBe(a);
    // Freed by its own stream while another one reads it: that one is waited for.
    passed.clear();
    allocator.used(a, 2);
    allocator.free(a);
    expect(allocator.alloc(1 << 20)).toBe(a);
    expect(waits).toEqual([[0, 2]]);
    // Of a stream that is gone: the own stream's.
    allocator.enter(1, order);
    const c = allocator.alloc(1 << 20);
    allocator.enter(0, order);
    allocator.free(c);
    allocator.leave(1);
    passed.add(1);
    expect(allocator.alloc(1 << 20)).toBe(c);
  });
});
