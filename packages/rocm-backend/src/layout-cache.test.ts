import { describe, expect, it } from 'vitest';
import { LayoutCache } from './layout-cache';

describe('LayoutCache', () => {
  it('tells layouts apart by every dim and stride, also where their numbers are the same in a row', () => {
    const cache = new LayoutCache<string>();
    const layouts: [number[], number[][]][] = [
      [[3, 4], [[1, 3]]],
      [[3, 4], [[4, 1]]],
      [[4, 3], [[1, 3]]],
      [
        [3, 4],
        [
          [1, 3],
          [4, 1],
        ],
      ],
      [[3], [[4], [1], [3]]],
      [[3, 4, 1, 3], []],
      [[2 ** 33, 4], [[1, 3]]],
      [[2 ** 34, 4], [[1, 3]]],
      [[], [[]]],
    ];
    for (const [dims, sets] of layouts) expect(cache.find(dims, sets)).toBeUndefined();
    for (const [dims, sets] of layouts) cache.add(dims, sets, JSON.stringify([dims, sets]));
    for (const [dims, sets] of layouts) {
      expect(
        cache.find(
          [...dims],
          sets.map((set) => [...set]),
        ),
      ).toBe(JSON.stringify([dims, sets]));
    }
  });

  it('keeps what was used lately and takes leave of each of the others once', () => {
    const dropped: number[] = [];
    const cache = new LayoutCache<number>((value) => dropped.push(value));
    for (let i = 0; i < 2048; i++) cache.add([i], [[1]], i);
    expect(cache.find([7], [[1]])).toBe(7);
    cache.add([5000], [[1]], 5000);
    expect(cache.find([7], [[1]])).toBe(7);
    expect(cache.find([8], [[1]])).toBeUndefined();
    expect(dropped.length).toBeGreaterThan(0);
    cache.clear();
    expect(dropped.sort((a, b) => a - b)).toEqual([...Array(2048).keys(), 5000]);
    expect(cache.find([7], [[1]])).toBeUndefined();
  });
});
