// Attention of packed sequences: against products and a softmax of each sequence by itself on the host.
import { Device, type DType, memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { flashAttnVarlenUnfused, type PackedAttentionOptions, packedAttention, Segments, Slopes } from '../src';

let before: ReturnType<typeof memoryStats>;
beforeEach(() => {
  before = memoryStats();
});
afterEach(() => expect(memoryStats()).toEqual(before));

interface Case {
  lengths: number[];
  heads: number;
  kvHeads?: number;
  d: number;
  options?: Omit<PackedAttentionOptions, 'slopes'>;
  slopes?: number[];
  dtype?: DType;
}

const CASES: Record<string, Case> = {
  'one token': { lengths: [1], heads: 2, d: 64 },
  'lengths about a tile': { lengths: [64, 65, 63, 1, 130], heads: 2, d: 16 },
  'heads of 32': { lengths: [9, 70], heads: 2, d: 32 },
  'heads of 80': { lengths: [5, 67], heads: 2, d: 80 },
  'heads of 20': { lengths: [5, 33], heads: 2, d: 20 },
  'heads of 96, grouped': { lengths: [40, 8], heads: 6, kvHeads: 2, d: 96 },
  'heads of 128': { lengths: [66, 3], heads: 2, d: 128 },
  'heads of 256': { lengths: [70, 31], heads: 2, kvHeads: 1, d: 256 },
  'a window': { lengths: [150, 7, 64], heads: 2, d: 64, options: { window: 5 } },
  'a window of none but itself': { lengths: [70, 2], heads: 1, d: 16, options: { window: 0 } },
  'a wide window': { lengths: [200, 90], heads: 1, d: 16, options: { window: 70 } },
  causal: { lengths: [130, 1, 20], heads: 2, d: 64, options: { causal: true } },
  'a causal window': { lengths: [130, 20], heads: 2, d: 32, options: { causal: true, window: 9 } },
  slopes: { lengths: [90, 12], heads: 4, d: 64, slopes: [0.5, 0.25, 0.125, 0.0625] },
  'large scores': { lengths: [100], heads: 1, d: 64, options: { scale: 20 } },
  f16: { lengths: [70, 12], heads: 2, d: 64, dtype: 'f16' },
  bf16: { lengths: [70, 12], heads: 2, d: 64, dtype: 'bf16' },
};
const TOLERANCE: Partial<Record<DType, number>> = { f16: 4e-3, bf16: 3e-2 };

describe.each(testDevices().map(String))('packed attention on %s', (name) => {
  it.each(Object.keys(CASES))('%s', async (key) => {
    const { lengths, heads, kvHeads = heads, d, options = {}, slopes, dtype = 'f32' } = CASES[key];
    const device = Device.parse(name);
    const tokens = lengths.reduce((a, b) => a + b, 0);
    const values = (count: number, seed: number) =>
      new Float32Array(count).map((_, i) => Math.fround(Math.sin(i * 12.9898 + seed) * 1.5));
    // Views of one tensor, as products of stacked weights give them.
    const width = heads + 2 * kvHeads;
    const all = values(tokens * width * d, 1);
    const parts = (on: Device, as: DType) => {
      const whole = Tensor.from(all, { shape: [tokens, width, d], device: on }).toDtype(as);
      return [whole.narrow(1, 0, heads), whole.narrow(1, heads, kvHeads), whole.narrow(1, heads + kvHeads, kvHeads)];
    };
    using segments = new Segments(lengths, device);
    const bias = slopes && new Slopes(slopes, device);
    using made = scope(() => {
      const [q, k, v] = parts(device, dtype);
      return packedAttention(q, k, v, segments, { ...options, slopes: bias }).toDtype('f32');
    });
    const { causal = false, window, scale = 1 / Math.sqrt(d) } = options;
    using expected = scope(() => {
      const [q, k, v] = parts(Device.js(), 'f32');
      return flashAttnVarlenUnfused(q, k, v, lengths, lengths, scale, {
        causal,
        ...(window !== undefined && { windowLeft: window, ...(!causal && { windowRight: window }) }),
        alibiSlopes: slopes,
      });
    });
    const [actual, wanted] = [made, expected].map((x) => x.toArraySync<Float32Array>());
    const difference = actual.reduce((most, x, i) => Math.max(most, Math.abs(x - wanted[i])), 0);
    expect(difference).toBeLessThan(TOLERANCE[dtype] ?? 5e-6 * Math.max(1, scale * 8));
    expect(actual.some(Number.isNaN)).toBe(false);
    bias?.dispose();
  });

  it('says what does not fit', () => {
    const device = Device.parse(name);
    using segments = new Segments([2, 3], device);
    using q = Tensor.zeros([4, 1, 8], 'f32', device);
    expect(() => packedAttention(q, q, q, segments)).toThrow('5 tokens');
    expect(() => new Segments([0], device)).toThrow('whole numbers from 1');
    using x = Tensor.zeros([5, 3, 8], 'f32', device);
    using y = Tensor.zeros([5, 2, 8], 'f32', device);
    expect(() => packedAttention(x, y, y, segments)).toThrow('multiple');
    expect(() => packedAttention(x, x, x, segments, { window: -1 })).toThrow('window');
  });
});
