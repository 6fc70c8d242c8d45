// What the tests of hostile files share.
import { expect } from 'vitest';
import { CandleError } from '../src';

/** The CandleError that `body` throws. */
export function thrown(body: () => unknown): CandleError {
  try {
    body();
  } catch (error) {
    expect(error).toBeInstanceOf(CandleError);
    return error as CandleError;
  }
  throw new Error('nothing was thrown');
}

/** Whole numbers below what is asked for, the same for a seed: xorshift32. */
export function stream(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
