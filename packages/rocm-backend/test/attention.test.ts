/**
 * The ATTENTION kernels against attention in f64 on the host: on every device with kernels, whether or not it has matrix
 * units, since those without get the plain form of f16 and bf16.
 */
import { Device, type DType, Tensor } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

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
  { b: 1, heads: 3, kvHeads: 3, seq: 257, kv: 257, d: 128, causal: true },
  { b: 1, heads: 1, kvHeads: 1, seq: 193, kv: 31, d: 128, causal: true },
  { b: 3, heads: 2, kvHeads: 1, seq: 64, kv: 1, d: 64, causal: false },
  { b: 1, heads: 6, kvHeads: 2, seq: 70, kv: 209, d: 64, causal: true },
];
const DTYPES = ['f16', 'bf16', 'f32'] as const;
const ERROR = { f16: 4e-3, bf16: 3e-2, f32: 3e-6 };

describe.each(kernelDevices())('attention on %s', (device) => {
  it.each(CASES)('%j', (problem) => {
    for (const dtype of DTYPES) {
      const { b, heads, kvHeads, seq, kv, d, causal } = problem;
      // Positions before heads, as projections give them: rows are not contiguous.
      const q = operand(device, [b, seq, heads, d], dtype, 1).transpose(1, 2);
      const k = operand(device, [b, kv, kvHeads, d], dtype, 2).transpose(1, 2);
      const v = operand(device, [b, kv, kvHeads, d], dtype, 3).transpose(1, 2);
      const result = check({ ...problem, scale: 1 / Math.sqrt(d) }, q, k, v);
      // A causal query before the first key sees nothing.
      expect(Number.isNaN(result[0])).toBe(causal && seq > kv);
    }
  });

  it('is for f32 where it is for f16, from as many tiles of queries on as fill the device', () => {
    const { attention, hip } = device.backend as RocmDevice;
    const heads = hip.properties.multiprocessorCount;
    const problem = { b: 1, heads, kvHeads: heads, seq: 64, kv: 64, d: 128, causal: true, scale: 1 };
    expect(attention.supports('f32', problem)).toBe(attention.supports('f16', problem));
    expect(attention.supports('f32', { ...problem, seq: 63 })).toBe(false);
    expect(attention.supports('f32', { ...problem, heads: heads - 1 })).toBe(false);
    expect(attention.supports('f32', { ...problem, d: 96 })).toBe(false);
  });

  const odd = { b: 1, heads: 2, kvHeads: 1, seq: 75, kv: 75, scale: 0.125 };

  it('takes operands that are parts of others, whose rows begin anywhere', () => {
    for (const dtype of DTYPES) {
      for (const d of [64, 128] as const) {
        const q = operand(device, [1, 2, 75, d + 3], dtype, 1).narrow(3, 3, d);
        const k = operand(device, [1, 1, d, 75], dtype, 2).transpose(2, 3);
        const v = operand(device, [1, 3, 80, d], dtype, 3).narrow(1, 1, 1).narrow(2, 5, 75);
        check({ ...odd, d, causal: true }, q, k, v);
      }
    }
  });

  it('goes through more tiles than blocks run at once', () => {
    const shape = { b: 1, heads: 140, kvHeads: 70, seq: 66, kv: 40, d: 64, causal: true } as const;
    const q = operand(device, [1, 140, 66, 64], 'f32', 1);
    const [k, v] = [2, 3].map((seed) => operand(device, [1, 70, 40, 64], 'f32', seed));
    check({ ...shape, scale: 0.125 }, q, k, v);
  });

  it('keeps what far apart scores leave', () => {
    for (const d of [64, 128] as const) {
      const [q, k, v] = [1, 2, 3].map((seed) => operand(device, [1, seed === 1 ? 2 : 1, 75, d], 'f32', seed));
      // Rising and falling tops, and weights that vanish.
      check({ ...odd, d, causal: false, scale: 2 }, q, k, v, 3e-5);
      check({ ...odd, d, causal: true, scale: 1e-20 }, q, k, v);
    }
  });

  it('gives NaN to the queries that see one', () => {
    for (const dtype of DTYPES) {
      for (const d of [64, 128] as const) {
        const [q, k, v] = [1, 2, 3].map((seed) => operand(device, [1, seed === 1 ? 2 : 1, 75, d], dtype, seed));
        const mark = new Float32Array(75 * d);
        mark[74 * d + 5] = Number.NaN;
        const spoiled = k.add(Tensor.fromArray(mark, k.shape, { device }).toDtype(dtype));
        const result = check({ ...odd, d, causal: true }, q, spoiled, v);
        expect(Number.isNaN(result[74 * d])).toBe(true);
        expect(Number.isNaN(result[73 * d])).toBe(false);
      }
    }
  });
});

/** The kernel's result, which is the reference's. */
function check(problem: Case & { scale: number }, q: Tensor, k: Tensor, v: Tensor, most?: number): Float32Array {
  const { dtype, device } = q;
  const storage = device.backend.attention!.forward(
    problem,
    q.storageAndLayout(),
    k.storageAndLayout(),
    v.storageAndLayout(),
  );
  const result = new Float32Array(q.elemCount);
  const out = Tensor.fromBytes(new Uint8Array(storage.toHostSync(0, result.length)), [result.length], dtype);
  result.set(out.toDtype('f32').toVecSync() as number[]);
  storage.dispose();
  const expected = reference(problem, numbers(q), numbers(k), numbers(v));
  let worst = 0;
  // Compared here: an expectation an element took half of the time.
  const differing: number[] = [];
  for (let i = 0; i < result.length; i++) {
    if (Number.isNaN(result[i]) !== Number.isNaN(expected[i])) differing.push(i);
    if (!Number.isNaN(expected[i])) worst = Math.max(worst, Math.abs(result[i] - expected[i]));
  }
  expect(differing, 'elements that are NaN in one of result and reference').toEqual([]);
  expect(worst).toBeLessThan(most ?? ERROR[dtype as keyof typeof ERROR]);
  return result;
}

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
