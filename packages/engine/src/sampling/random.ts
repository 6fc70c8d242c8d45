/**
 * The random numbers of sampling: xoshiro128** (Blackman and Vigna), its four state words filled from a 53-bit seed by
 * SplitMix64. candle uses Rust's `StdRng`, whose algorithm may change between releases; ours is fixed, so a seed gives
 * the same text on every machine and in every release.
 */
import { kinds } from '@x/core';

const MASK64 = (1n << 64n) - 1n;

/** Successive 64-bit outputs of SplitMix64 started at `seed`. */
export function splitMix64(seed: bigint, count: number): bigint[] {
  const out: bigint[] = [];
  let state = seed & MASK64;
  for (let i = 0; i < count; i++) {
    state = (state + 0x9e3779b97f4a7c15n) & MASK64;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK64;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK64;
    out.push(z ^ (z >> 31n));
  }
  return out;
}

function rotl(x: number, k: number): number {
  return (x << k) | (x >>> (32 - k));
}

/** xoshiro128**: period 2^128 - 1, 32 bits a step. */
export class Random {
  private s0: number;
  private s1: number;
  private s2: number;
  private s3: number;

  /** The state as it is; at least one word must be non-zero. Use {@link Random.fromSeed} for anything but tests. */
  constructor(state: readonly [number, number, number, number]) {
    [this.s0, this.s1, this.s2, this.s3] = state;
  }

  /** @param seed an integer in [0, 2^53). */
  static fromSeed(seed: number): Random {
    kinds.check('Random.fromSeed', 'seed', seed, kinds.COUNT);
    const [a, b] = splitMix64(BigInt(seed), 2);
    const low = (x: bigint) => Number(x & 0xffffffffn);
    return new Random([low(a), low(a >> 32n), low(b), low(b >> 32n)]);
  }

  /** An integer in [0, 2^32). */
  nextUint32(): number {
    const result = Math.imul(rotl(Math.imul(this.s1, 5), 7), 9) >>> 0;
    const t = this.s1 << 9;
    this.s2 ^= this.s0;
    this.s3 ^= this.s1;
    this.s1 ^= this.s2;
    this.s0 ^= this.s3;
    this.s2 ^= t;
    this.s3 = rotl(this.s3, 11);
    return result;
  }

  /** A multiple of 2^-53 in [0, 1). */
  nextFloat(): number {
    const high = this.nextUint32() >>> 5;
    const low = this.nextUint32() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }
}
