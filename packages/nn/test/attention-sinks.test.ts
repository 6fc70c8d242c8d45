/** Scores without values in the softmax of attention, against the softmax written out on the host. */
import { memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import { pagedAppend, pagedAttention, sdpa } from '../src';

const HEADS = 4;
const KV = 5;
const D = 8;
const SINKS = [-1.5, 0, 0.7, 3];
const noise = (count: number, seed: number) =>
  new Float32Array(count).map((_, i) => Math.sin(i * 12.9898 + seed * 78.233) * 1.3);

/** One query of each head over KV keys of two heads. */
function expected(q: Float32Array, k: Float32Array, v: Float32Array): number[] {
  return Array.from({ length: HEADS }, (_, head) => {
    const group = Math.floor(head / 2);
    const scores = Array.from({ length: KV }, (_, key) => {
      let sum = 0;
      for (let i = 0; i < D; i++) sum += q[head * D + i] * k[(group * KV + key) * D + i];
      return Math.exp(sum / Math.sqrt(D));
    });
    const all = scores.reduce((sum, score) => sum + score, Math.exp(SINKS[head]));
    return Array.from({ length: D }, (_, i) =>
      scores.reduce((sum, score, key) => sum + (score / all) * v[(group * KV + key) * D + i], 0),
    );
  }).flat();
}

describe.each(testDevices())('sinks on %s', (device) => {
  const [q, k, v] = [noise(HEADS * D, 1), noise(2 * KV * D, 2), noise(2 * KV * D, 3)];
  const close = (got: Tensor) => {
    for (const [i, value] of (got.toArraySync() as Float32Array).entries())
      expect(value).toBeCloseTo(expected(q, k, v)[i], 5);
  };

  it('sdpa and paged attention leave their share out', () => {
    const before = memoryStats();
    scope(() => {
      const sinks = Tensor.from(Float32Array.from(SINKS), { device });
      const keys = Tensor.from(k, { shape: [2, KV, D], device });
      const values = Tensor.from(v, { shape: [2, KV, D], device });
      const queries = Tensor.from(q, { shape: [1, HEADS, 1, D], device });
      close(sdpa(queries, keys.unsqueeze(0), values.unsqueeze(0), { sinks }));
      const pool = () => Tensor.zeros([8, 2, D], 'f32', device);
      const cache = { keys: pool(), values: pool(), blockSize: 8 };
      pagedAppend(cache, keys, values, Tensor.from(Uint32Array.of(0, 1, 2, 3, 4), { device }));
      const tables = Tensor.from(Uint32Array.of(0), { shape: [1, 1], device });
      const lengths = Tensor.from(Uint32Array.of(KV), { device });
      close(pagedAttention(queries.reshape([1, HEADS, D]), cache, tables, lengths, { sinks }));
    });
    expect(memoryStats()).toEqual(before);
  });

  it('needs one a head', () => {
    scope(() => {
      const x = Tensor.zeros([1, 2, 1, D], 'f32', device);
      const error = expect.objectContaining({ code: 'SHAPE_MISMATCH' });
      expect(() => sdpa(x, x, x, { sinks: Tensor.zeros([3], 'f32', device) })).toThrow(error);
    });
  });
});
