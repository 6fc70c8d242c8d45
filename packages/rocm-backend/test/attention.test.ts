/**
 * The ATTENTION kernels against attention in f64 on the host: on every device with kernels, whether or not it has matrix
 * units, since those without get the plain form.
 */
import { Device, type DType, type Layout, Tensor } from '@x/core';
import { describe, expect, it } from 'vitest';
import { kernelDevices } from './devices';

interface Case {
  b: number;
  heads: number;
  kvHeads: number;
  seq: number;
  kv: number;
  d: 64 | 128;
  causal: boolean;
}

const CASES: Case[] = [
  { b: 1, heads: 1, kvHeads: 1, seq: 16, kv: 16, d: 64, causal: false },
  { b: 1, heads: 2, kvHeads: 2, seq: 130, kv: 130, d: 64, causal: true },
  { b: 2, heads: 4, kvHeads: 2, seq: 33, kv: 71, d: 128, causal: true },
  { b: 1, heads: 3, kvHeads: 1, seq: 200, kv: 65, d: 128, causal: false },
  { b: 1, heads: 1, kvHeads: 1, seq: 129, kv: 100, d: 64, causal: true },
  { b: 1, heads: 2, kvHeads: 1, seq: 17, kv: 300, d: 128, causal: true },
];
const ERROR = { f16: 4e-3, bf16: 3e-2 };

describe.each(kernelDevices())('attention on %s', (device) => {
  it.each(CASES)('%j', (problem) => {
    for (const dtype of ['f16', 'bf16'] as const) {
      const { b, heads, kvHeads, seq, kv, d, causal } = problem;
      // Positions before heads, as projections give them: rows are not contiguous.
      const q = operand(device, [b, seq, heads, d], dtype, 1).transpose(1, 2);
      const k = operand(device, [b, kv, kvHeads, d], dtype, 2).transpose(1, 2);
      const v = operand(device, [b, kv, kvHeads, d], dtype, 3).transpose(1, 2);
      const scale = 1 / Math.sqrt(d);
      const parts = [q, k, v].flatMap((x) => Object.values(x.storageAndLayout())) as Parts;
      const storage = device.backend.attention!.forward({ ...problem, scale }, ...parts);
      const result = new Float32Array(b * heads * seq * d);
      const out = Tensor.fromBytes(new Uint8Array(storage.toHostSync(0, result.length)), [result.length], dtype);
      result.set(out.toDtype('f32').toVecSync() as number[]);
      storage.dispose();
      const expected = reference({ ...problem, scale }, numbers(q), numbers(k), numbers(v));
      let worst = 0;
      for (let i = 0; i < result.length; i++) {
        expect(Number.isNaN(result[i])).toBe(Number.isNaN(expected[i]));
        if (!Number.isNaN(expected[i])) worst = Math.max(worst, Math.abs(result[i] - expected[i]));
      }
      expect(worst).toBeLessThan(ERROR[dtype]);
      // A causal query before the first key sees nothing.
      expect(Number.isNaN(result[0])).toBe(causal && seq > kv);
    }
  });
});

type Storage = ReturnType<Tensor['storageAndLayout']>['storage'];
type Parts = [Storage, Layout, Storage, Layout, Storage, Layout];

function operand(device: Device, shape: number[], dtype: DType, seed: number): Tensor {
  // Normal numbers of a fixed stream, the same on every device.
  const host = Device.js();
  host.setSeed(seed);
  return Tensor.randn(0, 1, shape, 'f32', host).toDtype(dtype).toDeviceSync(device);
}

function numbers(x: Tensor): Float32Array {
  return Float32Array.from(x.toDtype('f32').flattenAll().toVecSync() as number[]);
}

/** q [b, heads, seq, d], k and v [b, kvHeads, kv, d], row-major. */
function reference(p: Case & { scale: number }, q: Float32Array, k: Float32Array, v: Float32Array): Float64Array {
  const out = new Float64Array(q.length);
  for (let row = 0; row < p.b * p.heads * p.seq; row++) {
    const head = Math.floor(row / p.seq);
    const b = Math.floor(head / p.heads);
    const kvHead = b * p.kvHeads + Math.floor((head % p.heads) / (p.heads / p.kvHeads));
    const seen = p.causal ? Math.max(0, Math.min(p.kv, (row % p.seq) + 1 + p.kv - p.seq)) : p.kv;
    const scores = Array.from({ length: seen }, (_, j) => {
      let dot = 0;
      for (let i = 0; i < p.d; i++) dot += q[row * p.d + i] * k[(kvHead * p.kv + j) * p.d + i];
      return dot * p.scale;
    });
    const top = Math.max(...scores);
    const weights = scores.map((score) => Math.exp(score - top));
    const sum = weights.reduce((a, w) => a + w, 0);
    for (let i = 0; i < p.d; i++) {
      let value = 0;
      weights.forEach((w, j) => {
        value += w * v[(kvHead * p.kv + j) * p.d + i];
      });
      out[row * p.d + i] = value / sum;
    }
  }
  return out;
}
