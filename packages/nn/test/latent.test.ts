/** Latent attention between its products: a device's kernel gives what single operations give on `js`. */
import { memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import { type HeadRotation, latentAppend, RmsNorm } from '../src';
import { noise, valuesOf } from './blocks';

const SIZES = [
  { tokens: 1, heads: 16, plain: 128, rotated: 64, rank: 512, kind: 'interleaved' },
  { tokens: 3, heads: 4, plain: 32, rotated: 16, rank: 64, kind: 'half' },
  { tokens: 8, heads: 1, plain: 96, rotated: 8, rank: 40, kind: 'interleaved' },
  { tokens: 2, heads: 3, plain: 544, rotated: 66, rank: 7, kind: 'half' },
] as const;

describe.each(testDevices())('latent attention between products on %s', (device) => {
  const can = device.backend.decode !== undefined;

  it.each(SIZES)('of %j', ({ tokens, heads, plain, rotated, rank, kind }) => {
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      const before = memoryStats();
      scope(() => {
        const [length, slotCount, width] = [24, 32, rank + rotated];
        const product = noise([tokens, heads * (plain + rotated) + width], 1);
        const table = noise([length, 2, rotated / 2], 2);
        const alpha = noise([rank], 3);
        // One position beyond the table, one slot beyond the cache.
        const positions = Array.from({ length: tokens }, (_, i) => (i === 1 ? 99 : (i * 5) % length));
        const slots = Array.from({ length: tokens }, (_, i) => (i === 2 ? slotCount : slotCount - 1 - 3 * i));
        const all = product.toDeviceSync(device);
        const ids = (list: readonly number[]) => Tensor.from(Uint32Array.from(list), { device });
        const [cos, sin] = [0, 1].map((i) => table.toDeviceSync(device).narrow(1, i, 1).squeeze(1));
        const rotation: HeadRotation = { cos, sin, positions: ids(positions), kind };
        const norm = new RmsNorm(alpha.toDeviceSync(device), 1e-6);
        const keys = Tensor.zeros([slotCount, 1, width], { dtype, device });
        const cache = { keys, values: keys.narrow(2, 0, rank), blockSize: 16 };
        const parts = {
          q: all.narrow(1, 0, heads * (plain + rotated)),
          heads,
          latent: all.narrow(1, heads * (plain + rotated), width),
        };
        const made = latentAppend(parts, rotation, norm, cache, ids(slots));
        norm.dispose();
        expect(made !== undefined).toBe(can && device.backend.decode!.supportsLatent(dtype, tokens, plain));
        if (!made) return;

        const at = positions.map((position) => Math.min(position, length - 1));
        const rows = Tensor.from(Uint32Array.from(at), { device: 'js' });
        const [c, s] = [0, 1].map((i) => table.narrow(1, i, 1).squeeze(1).contiguous().indexSelect(rows, 0));
        const turned = (x: Tensor) =>
          x.transpose(0, 1).contiguous().unsqueeze(0).rope(c, s, kind).squeeze(0).transpose(0, 1);
        const q = product
          .narrow(1, 0, heads * (plain + rotated))
          .contiguous()
          .reshape([tokens, heads, plain + rotated]);
        const latent = product.narrow(1, heads * (plain + rotated), width);
        const tails = made.queries.narrow(1, rank, rotated).toDeviceSync('js').reshape([tokens, heads, rotated]);
        expectNear(tails, turned(q.narrow(2, plain, rotated)), 1e-5, 'rotated queries');
        const plainRows = q
          .narrow(2, 0, plain)
          .contiguous()
          .reshape([tokens * heads, plain]);
        expectNear(valuesOf(made.plain), plainRows, 0.013, 'plain queries');
        const key = Tensor.cat(
          [
            latent.narrow(1, 0, rank).contiguous().rmsNorm(alpha, 1e-6),
            turned(latent.narrow(1, rank, rotated).unsqueeze(1)).squeeze(1),
          ],
          1,
        );
        const expected = new Map(slots.map((slot, i) => [slot, key.narrow(0, i, 1).squeeze(0)]));
        const tolerance = { f32: 1e-5, f16: 4e-3, bf16: 3e-2 }[dtype];
        const pool = keys.toDeviceSync('js').toDtype('f32').squeeze(1);
        for (let slot = 0; slot < slotCount; slot++) {
          const wanted = expected.get(slot) ?? Tensor.zeros([width], { device: 'js' });
          expectNear(pool.narrow(0, slot, 1).squeeze(0), wanted, tolerance, `slot ${slot} of ${dtype}`);
        }
      });
      expect(memoryStats()).toEqual(before);
    }
  });

  it('refuses rows that are no queries and keys of the cache', () => {
    scope(() => {
      const here = (shape: number[]) => Tensor.zeros(shape, { device });
      const norm = new RmsNorm(here([8]), 1e-6);
      const ids = Tensor.zeros([1], { dtype: 'u32', device });
      const rotation: HeadRotation = { cos: here([4, 2]), sin: here([4, 2]), positions: ids, kind: 'half' };
      const keys = here([16, 1, 12]);
      const cache = { keys, values: keys.narrow(2, 0, 8), blockSize: 16 };
      const run = (q: number[], heads: number, latent: number[]) => () =>
        latentAppend({ q: here(q), heads, latent: here(latent) }, rotation, norm, cache, ids);
      for (const wrong of [
        run([1, 2 * 36 + 1], 2, [1, 12]),
        run([1, 2], 1, [1, 12]),
        run([1, 72], 2, [1, 13]),
        run([2, 72], 2, [1, 12]),
      ]) {
        expect(wrong).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
      }
      expect(run([1, 72], 0, [1, 12])).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }));
      norm.dispose();
    });
  });
});

function expectNear(actual: Tensor, expected: Tensor, tolerance: number, label: string): void {
  expect(actual.shape, label).toEqual(expected.shape);
  const difference = actual.sub(expected).abs().flattenAll().max(0).toScalarSync();
  expect(difference, label).toBeLessThan(tolerance);
}
