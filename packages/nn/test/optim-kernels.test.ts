/** Steps of optimisers in one kernel, and norms of gradients, against the same of operations on the plain backend. */
import { Device, type DType, GradStore, isFloat, noGrad, scope, Tensor, Var } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import { Adam, AdamW, clipGradNorm, type ParamsAdam } from '../src';

/** How far values may be after some steps: results are rounded to the dtype once a step here, several times there. */
const TOLERANCES = { f64: 1e-12, f32: 2e-6, bf16: 0.06, f16: 0.01 };
const SHAPES = [[], [1], [7, 3], [5, 0], [129, 257], [70_001]];

describe.each(testDevices())('optimisers on %s', (device) => {
  it.each([Adam, AdamW])('$name is not part of a captured graph, whose replays would all be the same step', (kind) => {
    const variable = Var.ones([3], { device });
    using optimizer = new kind([variable], {});
    using grads = new GradStore();
    grads.insert(variable, Tensor.ones([3], { device }));
    const capture = () =>
      device.capture(() => {
        optimizer.step(grads);
        return variable.copy();
      });
    expect(capture).toThrow(
      expect.objectContaining({ code: 'CAPTURE_UNSUPPORTED', message: expect.stringContaining(`${kind.name}.step`) }),
    );
    expect([optimizer.stepT, variable.toArraySync()]).toEqual([0, Float32Array.of(1, 1, 1)]);
    variable.dispose();
  });

  const numbers = (seed: number, count: number) => {
    const next = generator(seed);
    // None so small that its square is nothing in f16.
    return new Float64Array(count).map(() => (next() < 0.5 ? -1 : 1) * (0.25 + next()));
  };
  const made = (seed: number, shape: number[], dtype: DType, on: Device) => {
    const count = shape.reduce((product, size) => product * size, 1);
    return Tensor.from(numbers(seed, count), { shape, device: on }).toDtype(dtype);
  };
  const valuesOf = (tensor: Tensor) => tensor.toDtype('f64').contiguous().toArraySync<Float64Array>();

  function close(actual: Tensor, expected: Tensor, tolerance: number): void {
    const [a, b] = [valuesOf(actual), valuesOf(expected)];
    expect(a.length).toBe(b.length);
    for (let i = 0; i < a.length; i++)
      if (!(Math.abs(a[i] - b[i]) <= tolerance * (1 + Math.abs(b[i]))))
        expect.fail(`element ${i}: ${a[i]}, not ${b[i]}`);
  }

  it.each(
    Object.entries(TOLERANCES).flatMap(([dtype, tolerance]) =>
      [Adam, AdamW].map((kind) => [kind.name, dtype as DType, tolerance, kind] as const),
    ),
  )('%s of %s', (_, dtype, tolerance, kind) => {
    const params: Partial<ParamsAdam> = { lr: 0.02, beta1: 0.8, beta2: 0.95, eps: 1e-6, weightDecay: 0.1 };
    const steps = (on: Device) => {
      const vars = SHAPES.map((shape, i) => Var.fromTensor(made(i, shape, dtype, on)));
      using optimizer = new kind(vars, params);
      for (let step = 0; step < 4; step++) {
        using grads = new GradStore();
        for (const [i, shape] of SHAPES.entries()) grads.insert(vars[i], made(100 + 10 * step + i, shape, dtype, on));
        optimizer.step(grads);
      }
      return vars;
    };
    scope(() => {
      expect(isFloat(dtype)).toBe(true);
      const [own, plain] = [steps(device), steps(Device.js())];
      for (const [i, variable] of own.entries()) close(variable, plain[i], tolerance);
    });
  });

  it.each([
    ['f32', 1e-5, [1e-3, 2, 1e4]],
    ['f64', 1e-12, [0.5]],
    ['bf16', 0.02, [1.5]],
    ['f16', 0.004, [1.5]],
  ] as const)('norms of gradients of %s', (dtype, tolerance, norms) => {
    const clipped = (on: Device, most: number) => {
      const vars = SHAPES.map((shape) => Var.zeros(shape, dtype, on));
      const grads = new GradStore();
      for (const [i, shape] of SHAPES.entries()) grads.insert(vars[i], made(i, shape, dtype, on));
      const norm = clipGradNorm(grads, vars, most);
      return [norm, ...vars.map((variable) => grads.get(variable)!)];
    };
    for (const most of norms)
      scope(() => {
        const [own, plain] = [clipped(device, most), clipped(Device.js(), most)];
        expect(own[0].dtype).toBe(plain[0].dtype);
        for (const [i, tensor] of own.entries()) {
          expect(tensor.shape).toEqual(plain[i].shape);
          close(tensor, plain[i], tolerance);
        }
      });
  });

  it('gradients that lie by columns, and NaN in one element', () => {
    scope(() => {
      const start = made(1, [4, 6], 'f32', device);
      const [a, b] = [Var.fromTensor(start), Var.fromTensor(start)];
      const gradient = made(2, [6, 4], 'f32', device);
      using optimizer = new AdamW([a, b]);
      const grads = new GradStore();
      grads.insert(a, gradient.t());
      grads.insert(b, gradient.t().contiguous());
      optimizer.step(grads);
      expect(valuesOf(a)).toEqual(valuesOf(b));
      const bad = new GradStore();
      bad.insert(
        a,
        noGrad(() => Tensor.from([[Number.NaN, 1, 1, 1, 1, 1]], { device }).broadcastAs([4, 6])),
      );
      optimizer.step(bad);
      const after = valuesOf(a);
      for (const [i, value] of after.entries()) expect(Number.isNaN(value)).toBe(i % 6 === 0);
    });
  });

  it('refuses gradients of another shape', () => {
    scope(() => {
      const x = Var.fromTensor(made(3, [2, 3], 'f32', device));
      using optimizer = new AdamW([x]);
      for (const shape of [[3], [3, 2], [2, 3, 1], []]) {
        const grads = new GradStore();
        grads.insert(x, made(4, shape, 'f32', device));
        expect(() => optimizer.step(grads)).toThrow(/AdamW.step: a gradient \[.*\] for a variable \[2,3\]/);
      }
    });
  });

  it('a backward pass that needs the old values raises an error', () => {
    scope(() => {
      const x = Var.fromTensor(made(3, [3], 'f32', device));
      using optimizer = new AdamW([x]);
      const loss = x.sqr().sumAll();
      optimizer.step(loss.backward());
      expect(() => loss.backward()).toThrow(/changed|written/);
    });
  });
});
