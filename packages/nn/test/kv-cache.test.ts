import { memoryStats, scope } from '@x/core';
import { deviceNames, expectClose, openDevice, tensor, values } from '@x/testing/nn/helpers';
import { describe, expect, it } from 'vitest';
import { Cache, KvCache } from '../src';

describe.each(deviceNames)('KvCache on %s', (name) => {
  const device = openDevice(name);
  const heads = 2;
  const d = 3;
  const positions = values(heads * 40 * d, 19);
  const value = (head: number, position: number, i: number) => positions[(head * 40 + position) * d + i];
  /** [heads, positions, d] of the given positions. */
  const gathered = (order: number[]) => {
    const data: number[] = [];
    for (let h = 0; h < heads; h++) for (const p of order) for (let i = 0; i < d; i++) data.push(value(h, p, i));
    return data;
  };
  const block = (start: number, count: number) => gathered(Array.from({ length: count }, (_, i) => start + i));
  const at = (start: number, count: number) => tensor(block(start, count), [heads, count, d], device);

  it('returns everything appended, and grows when it is full', () => {
    scope(() => {
      using cache = new KvCache(1, 4);
      let held = 0;
      for (const count of [1, 3, 1, 6, 2]) {
        const { k, v } = cache.append(at(held, count), at(held, count).affine(2, 0));
        held += count;
        expect(cache.length).toBe(held);
        expectClose(k, [heads, held, d], block(0, held), 0);
        expectClose(
          v,
          [heads, held, d],
          block(0, held).map((x) => 2 * x),
          0,
        );
      }
      expect(cache.k.capacity).toBe(16);
    });
  });

  it('starts again after reset and goes back with truncate, in the same memory', () => {
    scope(() => {
      using cache = new KvCache(1, 8);
      cache.reserve([heads, 1, d], 'f32', device);
      const allocated = memoryStats().liveBytes;
      expect(cache.k.capacity).toBe(8);
      expect(cache.k.current()).toBeUndefined();
      cache.append(at(0, 5), at(0, 5));
      cache.truncate(2);
      expectClose(cache.append(at(10, 1), at(10, 1)).k, [heads, 3, d], gathered([0, 1, 10]), 0);
      cache.reset();
      expect(cache.length).toBe(0);
      expectClose(cache.append(at(7, 2), at(7, 2)).v, [heads, 2, d], block(7, 2), 0);
      expect(() => cache.truncate(3)).toThrow(/truncate to 3 of 2/);
      expect(() => cache.truncate(-1)).toThrow(/-1/);
      expect(() => cache.append(tensor(values(4), [2, 1, 2], device), at(0, 1))).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
      );
      expect(memoryStats().liveBytes).toBeLessThan(allocated + 10 * heads * 5 * d * 4);
    });
    expect(() => new Cache(1, 0)).toThrow(/0 positions/);
  });

  it('outlives the scope of its first append, and is gone after dispose', () => {
    const before = memoryStats();
    const cache = new KvCache(1, 4);
    for (const start of [0, 3]) {
      scope(() => {
        cache.append(at(start, 3), at(start, 3));
      });
    }
    scope(() => expectClose(cache.k.current()!, [heads, 6, d], block(0, 6), 0));
    expect(memoryStats().liveTensors).toBe(before.liveTensors + 2);
    cache.dispose();
    cache.dispose();
    expect(memoryStats()).toEqual(before);
  });
});
