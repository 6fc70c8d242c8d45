import { describe, expect, it } from 'vitest';
import { BlockIndex } from './blocks';

const tokens = (first: number) => [first, first + 1];

describe('BlockIndex', () => {
  it('gives blocks until all are in use, the lowest first', () => {
    const index = new BlockIndex();
    expect(index.take()).toBeUndefined();
    index.grow(3);
    expect([index.take(), index.take(), index.take(), index.take()]).toEqual([0, 1, 2, undefined]);
    index.release(1);
    expect([index.used, index.free, index.take()]).toEqual([2, 1, 1]);
  });

  it('finds what a block holds behind what came before it, and nowhere else', () => {
    const index = new BlockIndex();
    index.grow(4);
    const [a, b, c] = [index.take()!, index.take()!, index.take()!];
    index.fill(a, undefined, tokens(1));
    index.fill(b, a, tokens(3));
    index.fill(c, undefined, tokens(3));
    expect(index.find(undefined, tokens(1))).toBe(a);
    expect(index.find(a, tokens(3))).toBe(b);
    expect(index.find(undefined, tokens(3))).toBe(c);
    expect(index.find(b, tokens(3))).toBeUndefined();
    expect(index.find(undefined, [1, 23])).toBeUndefined();
    expect(index.find(undefined, [12, 3])).toBeUndefined();
  });

  it('keeps what is in no use until the memory is needed, and evicts what went out of use first', () => {
    const index = new BlockIndex();
    index.grow(3);
    const [a, b, c] = [index.take()!, index.take()!, index.take()!];
    for (const [block, first] of [
      [a, 1],
      [b, 3],
      [c, 5],
    ])
      index.fill(block, undefined, tokens(first));
    for (const block of [b, c, a]) index.release(block);
    expect([index.used, index.free]).toEqual([0, 3]);
    // One that is used again is not evicted.
    index.share(b);
    expect(index.take()).toBe(c);
    expect(index.find(undefined, tokens(5))).toBeUndefined();
    expect(index.find(undefined, tokens(1))).toBe(a);
    expect(index.take()).toBe(a);
    expect(index.take()).toBeUndefined();
    expect(index.find(undefined, tokens(3))).toBe(b);
  });

  it('lets nobody write into a block that two use', () => {
    const index = new BlockIndex();
    index.grow(1);
    const block = index.take()!;
    index.fill(block, undefined, tokens(1));
    index.share(block);
    expect(index.own(block)).toBe(false);
    index.release(block);
    // Alone it may, and what it held is not found any more.
    expect(index.own(block)).toBe(true);
    expect(index.find(undefined, tokens(1))).toBeUndefined();
  });

  it('takes two blocks with one content for the same beginning', () => {
    const index = new BlockIndex();
    index.grow(4);
    const [a, b, c] = [index.take()!, index.take()!, index.take()!];
    index.fill(a, undefined, tokens(1));
    index.fill(b, undefined, tokens(1));
    index.fill(c, b, tokens(3));
    expect(index.find(a, tokens(3))).toBe(c);
    index.release(b);
    expect(index.find(undefined, tokens(1))).toBe(a);
  });
});
