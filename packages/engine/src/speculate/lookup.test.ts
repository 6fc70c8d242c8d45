import { describe, expect, it } from 'vitest';
import { continuation } from './lookup';

describe('continuation', () => {
  it('is behind the earlier place with most tokens in common', () => {
    // 1 2 3 came before 7 and before 8, once with the 9 in front that the end has, too.
    expect(continuation([9, 1, 2, 3, 7, 5, 1, 2, 3, 8, 9, 1, 2, 3], 2)).toBe(4);
  });

  it('is behind the latest of equal places', () => {
    expect(continuation([1, 2, 7, 1, 2, 8, 1, 2], 2)).toBe(5);
  });

  it('may overlap the end', () => {
    expect(continuation([4, 4, 4, 4], 2)).toBe(3);
    expect(continuation([1, 2, 1, 2, 1, 2], 2)).toBe(4);
  });

  it('wants as many tokens as it is told to', () => {
    const history = [5, 1, 2, 3, 4, 6, 1, 2, 3];
    expect(continuation(history, 3)).toBe(4);
    expect(continuation(history, 4)).toBe(undefined);
    expect(continuation([7, 1, 8, 1], 2)).toBe(undefined);
    expect(continuation([7, 1, 8, 1], 1)).toBe(2);
    const long = Array.from({ length: 20 }, (_, i) => i);
    expect(continuation([...long, 50, ...long], 20)).toBe(20);
    expect(continuation([...long, 50, ...long], 21)).toBe(undefined);
  });

  it('is nowhere in a text that says nothing twice', () => {
    expect(continuation([], 1)).toBe(undefined);
    expect(continuation([1], 1)).toBe(undefined);
    expect(continuation([1, 2, 3], 1)).toBe(undefined);
  });
});
