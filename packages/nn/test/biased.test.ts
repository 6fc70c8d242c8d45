/** What lies between products whose biases are still to be added: a device's kernels give what single operations give on `js`. */
import { Device, memoryStats, QuantizedActivations, scope, type Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import { type ActivationName, type Activations, activate, activateAs, LayerNorm, normAdd, RmsNorm } from '../src';
import { noise, valuesOf } from './blocks';

function expectNear(actual: Tensor, expected: Tensor, tolerance: number): void {
  expect(actual.shape).toEqual(expected.shape);
  const difference = actual.toDeviceSync('js').sub(expected.toDeviceSync('js')).abs();
  expect(difference.flattenAll().max(0).toScalarSync()).toBeLessThan(tolerance);
}

/** Numbers, and blocks to a hundredth of their largest value, near those expected. */
function expectSame(actual: Activations, expected: Tensor): void {
  if (!(actual instanceof QuantizedActivations)) {
    expectNear(actual, expected, 1e-5);
    return;
  }
  expect([actual.rows, actual.width]).toEqual(expected.shape);
  const largest = expected.abs().flattenAll().max(0).toScalarSync() as number;
  expectNear(valuesOf(actual), expected, largest / 100);
  if (actual.numbers) expectNear(actual.numbers, expected, 1e-5);
}

function balanced(body: () => void): void {
  const before = memoryStats();
  scope(body);
  expect(memoryStats()).toEqual(before);
}

const SIZES = [
  [1, 64],
  [9, 160],
  [40, 768],
  [3, 4096],
  // No multiple of 32: numbers only.
  [2, 45],
] as const;

describe.each(testDevices())('biases between products on %s', (device) => {
  it.each(SIZES)('the norm of a sum of %i rows of %i values', (rows, n) => {
    for (const as of ['f32', 'bf16', 'both', 'blocks'] as const) {
      for (const kind of ['layer', 'rms', 'scaled', 'none'] as const) {
        balanced(() => {
          const run = (on: Device, form: typeof as) => {
            const here = (shape: readonly number[], seed: number) => noise(shape, seed).toDeviceSync(on);
            const norm =
              kind === 'layer' ? new LayerNorm(here([n], 3), here([n], 4), 1e-5) : new RmsNorm(here([n], 3), 1e-5);
            const options = { as: form, deltaBias: here([n], 5), ...(kind === 'scaled' && { deltaScale: 0.5 }) };
            const made = normAdd(here([rows, n], 1), here([rows, n], 2), kind === 'none' ? undefined : norm, options);
            norm.dispose();
            return made;
          };
          const expected = run(Device.js(), 'f32');
          const { sum, normed } = run(device, as);
          expectNear(sum, expected.sum, 1e-5);
          if (as === 'bf16') expectNear((normed as Tensor).toDtype('f32'), expected.normed as Tensor, 3e-2);
          else expectSame(normed, expected.normed as Tensor);
          const beside = normed instanceof QuantizedActivations && normed.numbers !== undefined;
          if (as === 'both' && normed instanceof QuantizedActivations) expect(beside).toBe(true);
        });
      }
    }
  });

  it.each(SIZES)('activations of %i rows of %i values, of a view too', (rows, n) => {
    for (const name of ['gelu', 'gelu_new', 'silu', 'relu'] satisfies ActivationName[]) {
      for (const as of ['numbers', 'blocks'] as const) {
        for (const hasBias of [true, false]) {
          balanced(() => {
            const both = noise([rows, 2 * n], 1);
            const bias = hasBias ? noise([n], 2) : undefined;
            const view = both.narrow(1, n, n);
            const expected = activate(bias ? view.broadcastAdd(bias) : view, name);
            const given = both.toDeviceSync(device).narrow(1, n, n);
            expectSame(activateAs(given, name, as, bias?.toDeviceSync(device)), expected);
          });
        }
      }
    }
  });

  it('gives infinities as single operations do', () => {
    const x = noise([2, 64], 1).toDeviceSync(device).mul(1e30).mul(1e30);
    const made = activateAs(x, 'gelu', 'numbers', noise([64], 2).toDeviceSync(device)) as Tensor;
    const expected = activate(x.add(0), 'gelu');
    expect(made.toDeviceSync('js').toVecSync()).toEqual(expected.toDeviceSync('js').toVecSync());
  });
});
