/** Attention as its formula says, in double precision on the host, for the tests to compare with. */
import type { Device } from '@x/core';
import { Tensor } from '@x/core';
import { values } from './helpers';

export interface Sizes {
  b: number;
  heads: number;
  kvHeads: number;
  seq: number;
  kv: number;
  d: number;
}

export interface Scoring {
  scale: number;
  /** Scores become cap · tanh(score / cap). */
  cap?: number;
  /** Added to the score of query i and key j; -Infinity hides. */
  bias?: (head: number, i: number, j: number) => number;
}

/** Random q, k, v as candle's tests make them: [b, heads, seq, d], and [b, kvHeads, kv, d] twice. */
export function randomInputs(sizes: Sizes, device: Device, seed: number) {
  const { b, heads, kvHeads, seq, kv, d } = sizes;
  const make = (shape: number[], offset: number) => {
    const data = values(
      shape.reduce((x, y) => x * y, 1),
      seed + offset,
    ).map((value) => value * 1.7);
    return Tensor.from(data, { shape, device });
  };
  return { q: make([b, heads, seq, d], 0), k: make([b, kvHeads, kv, d], 1), v: make([b, kvHeads, kv, d], 2) };
}

/** [b, heads, seq, d] of q, k and v in row-major order; queries that see nothing give 0. */
export function attentionOf(
  [q, k, v]: [ArrayLike<number>, ArrayLike<number>, ArrayLike<number>],
  { b, heads, kvHeads, seq, kv, d }: Sizes,
  { scale, cap, bias }: Scoring,
): Float64Array {
  const out = new Float64Array(b * heads * seq * d);
  for (let row = 0; row < b * heads * seq; row++) {
    const i = row % seq;
    const head = Math.floor(row / seq) % heads;
    const entry = Math.floor(row / seq / heads);
    const group = entry * kvHeads + Math.floor(head / (heads / kvHeads));
    const scores = Array.from({ length: kv }, (_, j) => {
      let score = 0;
      for (let t = 0; t < d; t++) score += q[row * d + t] * k[(group * kv + j) * d + t];
      score *= scale;
      if (cap) score = cap * Math.tanh(score / cap);
      return score + (bias?.(head, i, j) ?? 0);
    });
    const top = Math.max(...scores);
    if (top === Number.NEGATIVE_INFINITY) continue;
    const weights = scores.map((score) => Math.exp(score - top));
    const sum = weights.reduce((x, y) => x + y, 0);
    weights.forEach((weight, j) => {
      for (let t = 0; t < d; t++) out[row * d + t] += (weight / sum) * v[(group * kv + j) * d + t];
    });
  }
  return out;
}

/** {@link attentionOf} tensors in those layouts. */
export function attentionOfTensors(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring): Float64Array {
  const [b, heads, seq, d] = q.shape;
  const arrays = [q, k, v].map((tensor) => tensor.toArraySync<Float32Array>());
  const sizes = { b, heads, kvHeads: k.dim(1), seq, kv: k.dim(2), d };
  return attentionOf(arrays as [Float32Array, Float32Array, Float32Array], sizes, scoring);
}

/** Largest distance of a tensor's values from the expected ones, in row-major order. */
export function largestError(actual: Tensor, expected: ArrayLike<number>): number {
  const numbers = actual.toArraySync<Float32Array>();
  if (numbers.length !== expected.length) return Number.NaN;
  return numbers.reduce((worst, value, i) => {
    const error = Math.abs(value - expected[i]);
    return Math.max(worst, error);
  }, 0);
}

/** The distances relative to the expected values, added up: candle's measure for sdpa. */
export function sumOfRelativeErrors(actual: Tensor, expected: ArrayLike<number>): number {
  const numbers = actual.toArraySync<Float32Array>();
  return numbers.reduce((sum, value, i) => sum + Math.abs((value - expected[i]) / expected[i]), 0);
}
