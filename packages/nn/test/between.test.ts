/** What lies between products: a device's kernels give what single operations give on `js`. */
import { Device, type DType, memoryStats, QuantizedActivations, scope, Tensor, Var } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import {
  activate,
  activateAs,
  fusesHeads,
  gatedActivation,
  gatedGroupNorm,
  headsAppend,
  headsAttend,
  LayerNorm,
  normAdd,
  promptHeads,
  RmsNorm,
} from '../src';
import { noise, valuesOf } from './blocks';

const TOLERANCE: Partial<Record<DType, number>> = { f32: 1e-5, f16: 4e-3, bf16: 3e-2 };

function expectSame(actual: Tensor, expected: Tensor, label: string): void {
  expect(actual.shape, label).toEqual(expected.shape);
  const difference = actual.toDeviceSync('js').toDtype('f32').sub(expected.toDtype('f32')).abs();
  // The largest of a tensor with a NaN is NaN.
  expect(difference.flattenAll().max(0).toScalarSync(), label).toBeLessThan(TOLERANCE[actual.dtype]!);
}

function expectNear(actual: Tensor, expected: Tensor, tolerance: number, label: string): void {
  const difference = actual.toDeviceSync('js').toDtype('f32').sub(expected.toDtype('f32')).abs();
  expect(difference.flattenAll().max(0).toScalarSync(), label).toBeLessThan(tolerance);
}

/** Blocks hold values to a 254th of the largest of 32, numbers as their dtype does. */
function expectBlocks(actual: QuantizedActivations, expected: Tensor): void {
  expect([actual.rows, actual.width]).toEqual(expected.shape);
  const largest = expected.abs().flattenAll().max(0).toScalarSync() as number;
  expectNear(valuesOf(actual), expected, largest / 100, 'blocks');
}

/** What `body` gives on `js`, and checks that it leaves no memory behind on `device`. */
function balanced(body: () => void): void {
  const before = memoryStats();
  scope(body);
  expect(memoryStats()).toEqual(before);
}

describe.each(testDevices())('between products on %s', (device) => {
  const here = (x: Tensor) => x.toDeviceSync(device);

  it.each([
    [1, 64],
    [9, 160],
    [3, 4096],
    // No multiple of 32: numbers only.
    [2, 45],
  ])('the norm of a sum of %i rows of %i values', (rows, n) => {
    for (const as of ['f32', 'f16', 'bf16', 'blocks'] as const) {
      for (const kind of ['none', 'plain', 'normed'] as const) {
        balanced(() => {
          const [x, delta] = [noise([rows, n], 1), noise([rows, n], 2)];
          const norms = (on: Device) => [3, 4].map((seed) => new RmsNorm(noise([n], seed).toDeviceSync(on), 1e-5));
          const run = (on: Device, form: typeof as) => {
            const [norm, deltaNorm] = norms(on);
            const given = kind === 'none' ? undefined : delta.toDeviceSync(on);
            const result = normAdd(x.toDeviceSync(on), given, norm, {
              as: form,
              ...(kind === 'normed' && { deltaNorm }),
            });
            for (const layer of [norm, deltaNorm]) layer.dispose();
            return result;
          };
          const expected = run(Device.js(), as === 'blocks' ? 'f32' : as);
          const { sum, normed } = run(device, as);
          expectSame(sum, expected.sum, `${kind} sum`);
          if (normed instanceof QuantizedActivations) {
            expect(as).toBe('blocks');
            expect([normed.rows, normed.width]).toEqual([rows, n]);
          } else expectSame(normed, expected.normed as Tensor, `${kind} as ${as}`);
          const blocks = as === 'blocks' && device.backend.decode !== undefined && n % 32 === 0;
          expect(normed instanceof QuantizedActivations).toBe(blocks);
        });
      }
    }
  });

  it.each([
    [1, 64, 1],
    [9, 160, 0.22],
    // Rows through memory, long rows, and numbers only.
    [2, 45, 0.22],
    [1, 16416, 1],
    [2, 20000, -3],
  ])('norms of %i rows of %i values without their mean, of a sum scaled by %f', (rows, n, deltaScale) => {
    for (const as of ['f32', 'bf16', 'blocks'] as const) {
      for (const kind of ['rms', 'layer', 'biased'] as const) {
        balanced(() => {
          const run = (on: Device, form: typeof as) => {
            const [weight, bias] = [3, 4].map((seed) => noise([n], seed).toDeviceSync(on));
            const norm =
              kind === 'rms'
                ? new RmsNorm(weight, 1e-5)
                : new LayerNorm(weight, kind === 'layer' ? undefined : bias, 1e-5);
            // Far from zero, so that a variance without its mean is seen.
            const [x, delta] = [noise([rows, n], 1).add(40), noise([rows, n], 2)].map((part) => part.toDeviceSync(on));
            const result = normAdd(x, delta, norm, { as: form, deltaScale });
            norm.dispose();
            return result;
          };
          const expected = run(Device.js(), as === 'blocks' ? 'f32' : as);
          const { sum, normed } = run(device, as);
          expectNear(sum, expected.sum, 1e-5 * 45, `${kind} sum`);
          if (normed instanceof QuantizedActivations) expectBlocks(normed, expected.normed as Tensor);
          else expectNear(normed, expected.normed as Tensor, 8 * TOLERANCE[normed.dtype]!, `${kind} as ${as}`);
        });
      }
    }
  });

  it.each([
    [1, 64],
    [3, 4096],
    [2, 16416],
    // No multiple of 32: numbers only.
    [2, 45],
  ])('sums of %i rows of %i values, without a norm', (rows, n) => {
    for (const as of ['f32', 'bf16', 'blocks'] as const) {
      for (const kind of ['none', 'plain', 'normed'] as const) {
        balanced(() => {
          const run = (on: Device, form: typeof as) => {
            const [x, delta] = [noise([rows, n], 1), noise([rows, n], 2)].map((part) => part.toDeviceSync(on));
            const deltaNorm = new RmsNorm(noise([n], 3).toDeviceSync(on), 1e-5);
            const options = { as: form, ...(kind === 'normed' && { deltaNorm }) };
            const result = normAdd(x, kind === 'none' ? undefined : delta, undefined, options);
            deltaNorm.dispose();
            return result;
          };
          const expected = run(Device.js(), as === 'blocks' ? 'f32' : as);
          const { sum, normed } = run(device, as);
          expectSame(sum, expected.sum, `${kind} sum`);
          const can = as === 'blocks' && kind !== 'none' && n % 32 === 0 && device.backend.decode !== undefined;
          expect(normed instanceof QuantizedActivations).toBe(can);
          if (normed instanceof QuantizedActivations) expectBlocks(normed, expected.normed as Tensor);
          else expectSame(normed, expected.normed as Tensor, `${kind} as ${as}`);
        });
      }
    }
  });

  it('composes norms whose eps differ, of views, and those that gradients pass through', () => {
    balanced(() => {
      const wide = noise([4, 96], 1);
      const weight = noise([64], 3);
      const [norm, other] = [1e-5, 1e-1].map((eps) => new RmsNorm(here(weight), eps));
      const x = wide.narrow(1, 16, 64);
      const { sum, normed } = normAdd(here(wide).narrow(1, 16, 64), here(x), norm, { deltaNorm: other, as: 'f32' });
      const expected = x.add(x.contiguous().rmsNorm(weight, 1e-1));
      expectSame(sum, expected, 'sum');
      expectSame(normed as Tensor, expected.rmsNorm(weight, 1e-5), 'norm');
      const variable = Var.fromTensor(here(x).contiguous());
      const followed = normAdd(variable, undefined, norm).normed as Tensor;
      const gradients = followed.sumAll().backward();
      expect(gradients.get(variable)?.shape).toEqual([4, 64]);
      for (const thing of [norm, other, variable]) thing.dispose();
    });
  });

  it.each(['silu', 'gelu_pytorch_tanh', 'sigmoid', 'relu'] as const)('gates of %s', (activation) => {
    balanced(() => {
      for (const [rows, n] of [
        [1, 64],
        [9, 160],
        [2, 20],
      ]) {
        const both = noise([rows, 2 * n], 5);
        const half = (x: Tensor, i: number) => x.narrow(1, i * n, n);
        const expected = activate(half(both, 0), activation).mul(half(both, 1));
        const given = here(both);
        const numbers = gatedActivation(half(given, 0), half(given, 1), activation) as Tensor;
        expectSame(numbers, expected, `${rows} rows of ${n}`);
        const blocks = gatedActivation(half(given, 0), half(given, 1), activation, 'blocks');
        const fused = device.backend.decode !== undefined && activation !== 'relu' && n % 32 === 0;
        expect(blocks instanceof QuantizedActivations).toBe(fused);
        if (!(blocks instanceof QuantizedActivations)) expectSame(blocks, expected, 'composed');
      }
    });
  });

  it.each(['silu', 'gelu_new', 'relu'] as const)('%s without a gate', (name) => {
    balanced(() => {
      for (const [rows, n] of [
        [1, 64],
        [9, 160],
        [2, 20],
      ]) {
        const wide = noise([rows, n + 32], 6);
        const expected = activate(wide.narrow(1, 32, n).contiguous(), name);
        const made = activateAs(here(wide).narrow(1, 32, n), name, 'blocks');
        const fused = device.backend.decode !== undefined && name !== 'relu' && n % 32 === 0;
        expect(made instanceof QuantizedActivations).toBe(fused);
        if (made instanceof QuantizedActivations) expectBlocks(made, expected);
        else expectSame(made, expected, `${rows} rows of ${n}`);
        expectSame(activateAs(here(wide), name) as Tensor, activate(wide, name), 'numbers');
      }
    });
  });

  it.each([
    { rows: 1, groups: 1, d: 1536, fused: true },
    { rows: 3, groups: 8, d: 1024, fused: true },
    { rows: 2, groups: 3, d: 96, fused: true },
    { rows: 1, groups: 2, d: 8192, fused: true },
    { rows: 2, groups: 3, d: 40, fused: false },
    { rows: 1, groups: 1, d: 8224, fused: false },
  ])('norms of groups times a gate, %j', ({ rows, groups, d, fused }) => {
    balanced(() => {
      const n = groups * d;
      const [x, both] = [noise([rows, n], 1), noise([rows, 2 * n], 2)];
      const weight = noise([groups, d], 3);
      const expected = gatedGroupNorm(x, weight, 1e-5, both.narrow(1, n, n)) as Tensor;
      const gated = x.mul(both.narrow(1, n, n).silu()).reshape([rows, groups, d]);
      const squares = gated.sqr().meanKeepdim(2).add(1e-5);
      expectSame(expected, gated.div(squares.sqrt()).mul(weight).reshape([rows, n]), 'composed');
      const made = gatedGroupNorm(here(x), here(weight), 1e-5, here(both).narrow(1, n, n), 'blocks');
      const can = fused && device.backend.decode?.supportsGroupNorm(rows, d) === true;
      expect(made instanceof QuantizedActivations).toBe(can);
      if (made instanceof QuantizedActivations) expectBlocks(made, expected);
      else expectSame(made, expected, 'numbers');
    });
  });

  const HEADS = [
    { tokens: 1, heads: 4, kvHeads: 4, d: 64, rotated: 64, kind: 'half', norms: false },
    { tokens: 5, heads: 8, kvHeads: 2, d: 80, rotated: 32, kind: 'half', norms: true },
    { tokens: 9, heads: 8, kvHeads: 1, d: 96, rotated: 96, kind: 'interleaved', norms: true },
    { tokens: 2, heads: 2, kvHeads: 1, d: 128, rotated: 64, kind: 'interleaved', norms: false },
    { tokens: 3, heads: 2, kvHeads: 2, d: 256, rotated: 256, kind: 'half', norms: true },
    // No kernel has such heads.
    { tokens: 2, heads: 2, kvHeads: 1, d: 520, rotated: 520, kind: 'half', norms: false },
  ] as const;
  it.each(HEADS)('heads of %j', ({ tokens, heads, kvHeads, d, rotated, kind, norms }) => {
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      balanced(() => {
        const [length, blockSize] = [24, 16];
        const product = noise([tokens, (heads + 2 * kvHeads) * d], 1);
        const table = noise([length, 2, rotated / 2], 2);
        const ids = (value: (i: number) => number) => new Uint32Array(tokens).map((_, i) => value(i));
        const run = (on: Device) => {
          const all = product.toDeviceSync(on);
          const [cos, sin] = [0, 1].map((i) => table.toDeviceSync(on).narrow(1, i, 1).squeeze(1));
          const positions = Tensor.from(
            // One beyond the table.
            ids((i) => (i === 1 ? 99 : (i * 5) % length)),
            { device: on },
          );
          const slots = Tensor.from(
            ids((i) => 31 - 3 * i),
            { device: on },
          );
          const layers = [3, 4].map((seed) => new RmsNorm(noise([d], seed).toDeviceSync(on), 1e-6));
          const cache = {
            keys: Tensor.zeros([32, kvHeads, d], { dtype, device: on }),
            values: Tensor.zeros([32, kvHeads, d], { dtype, device: on }),
            blockSize,
          };
          expect(fusesHeads(cache)).toBe(on.backend.decode !== undefined && d <= 512);
          const part = (from: number, count: number) => all.narrow(1, from * d, count * d);
          const parts = { q: part(0, heads), k: part(heads, kvHeads), v: part(heads + kvHeads, kvHeads) };
          const rotation = { cos, sin, positions, kind };
          const options = { scale: 0.3, ...(norms && { norms: { q: layers[0], k: layers[1] } }) };
          const q = headsAppend(parts, rotation, options, cache, slots);
          const { keys, values } = cache;
          const made: Record<string, Tensor> = { q, keys: keys.copy(), values: values.copy() };
          if (dtype !== 'f32') {
            // Of no tokens, of some and of all.
            for (const wide of [0, 1, tokens]) {
              for (const pool of [keys, values]) pool.copyFrom(Tensor.zeros(pool.shape, { dtype, device: on }));
              const of = promptHeads(parts, rotation, options, cache, slots, wide);
              for (const [name, rows] of Object.entries(of)) made[`${name} from ${wide}`] = rows;
              made[`keys from ${wide}`] = keys.copy();
              made[`values from ${wide}`] = values.copy();
            }
          }
          for (const layer of layers) layer.dispose();
          return made;
        };
        const expected = run(Device.js());
        const actual = run(device);
        expect(Object.keys(actual)).toEqual(Object.keys(expected));
        for (const [name, tensor] of Object.entries(expected))
          if (tensor.elemCount > 0) expectSame(actual[name], tensor, `${name} ${dtype}`);
          else expect(actual[name].shape).toEqual(tensor.shape);
      });
    }
  });

  it('appends heads and attends to them, in one kernel where there is one', () => {
    // Of 32 values and of 20, which blocks do not hold.
    for (const d of [32, 20]) {
      balanced(() => {
        const [tokens, heads, kvHeads, blockSize] = [2, 4, 2, 8];
        const product = noise([tokens, (heads + 2 * kvHeads) * d], 1);
        const table = noise([16, d / 2], 2);
        const run = (on: Device) => {
          const put = (...ids: number[]) => Tensor.from(Uint32Array.from(ids), { device: on });
          const all = product.toDeviceSync(on);
          const part = (from: number, count: number) => all.narrow(1, from * d, count * d);
          const cos = table.toDeviceSync(on);
          const rotation = { cos, sin: cos, positions: put(3, 9), kind: 'half' } as const;
          const cache = {
            keys: noise([32, kvHeads, d], 3).toDeviceSync(on),
            values: noise([32, kvHeads, d], 4).toDeviceSync(on),
            blockSize,
          };
          const parts = { q: part(0, heads), k: part(heads, kvHeads), v: part(heads + kvHeads, kvHeads) };
          const tables = put(2, 3, 1, 0).reshape([tokens, 2]);
          const places = { slots: put(2 * blockSize + 3, 1), tables, lengths: put(4, 10) };
          const attended = headsAttend(parts, rotation, { scale: 0.3, window: 6 }, cache, places);
          return { attended, keys: cache.keys, values: cache.values };
        };
        const [expected, actual] = [run(Device.js()), run(device)];
        expect((expected.attended as Tensor).shape).toEqual([tokens, heads * d]);
        const fused = device.backend.decode !== undefined && d % 32 === 0;
        expect(actual.attended instanceof QuantizedActivations).toBe(fused);
        if (actual.attended instanceof QuantizedActivations)
          expect([actual.attended.rows, actual.attended.width]).toEqual([tokens, heads * d]);
        else expectSame(actual.attended, expected.attended as Tensor, 'attention');
        for (const name of ['keys', 'values'] as const) expectSame(actual[name], expected[name], name);
      });
    }
  });

  it('refuses heads that are not those of the cache, with the numbers', () => {
    balanced(() => {
      const pool = Tensor.zeros([16, 2, 8], { device });
      const [cos, sin] = [1, 2].map((seed) => here(noise([4, 4], seed)));
      const ids = Tensor.zeros([1], { dtype: 'u32', device });
      const rotation = { cos, sin, positions: ids, kind: 'half' } as const;
      const cache = { keys: pool, values: pool, blockSize: 16 };
      const parts = { q: here(noise([1, 32], 3)), k: here(noise([1, 24], 4)), v: here(noise([1, 16], 5)) };
      expect(() => headsAppend(parts, rotation, {}, cache, ids)).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH', message: expect.stringMatching(/\[1,24\]/) }),
      );
    });
  });
});
