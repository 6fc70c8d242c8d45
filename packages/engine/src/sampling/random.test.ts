import { describe, expect, it } from 'vitest';
import { Random, splitMix64 } from './random';

describe('Random', () => {
  it('follows the published sequences', () => {
    // The reference outputs for state (1, 2, 3, 4) and for SplitMix64 seeded with 1234567.
    const random = new Random([1, 2, 3, 4]);
    expect(Array.from({ length: 5 }, () => random.nextUint32())).toEqual([11520, 0, 5927040, 70819200, 2031721883]);
    expect(splitMix64(1234567n, 3)).toEqual([6457827717110365317n, 3203168211198807973n, 9817491932198370423n]);
  });

  it('gives the same numbers for the same seed, others for another', () => {
    const draw = (seed: number) => {
      const random = Random.fromSeed(seed);
      return Array.from({ length: 8 }, () => random.nextFloat());
    };
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
    expect(draw(7)).not.toEqual(draw(7 + 2 ** 40));
  });

  it('is uniform in [0, 1)', () => {
    const random = Random.fromSeed(42);
    const bins = new Array<number>(10).fill(0);
    const n = 100_000;
    for (let i = 0; i < n; i++) bins[Math.floor(random.nextFloat() * 10)]++;
    const chi2 = bins.reduce((sum, count) => sum + (count - n / 10) ** 2 / (n / 10), 0);
    expect(chi2).toBeLessThan(27.9); // 9 degrees of freedom, p = 0.001
  });
});
