/** Gradients by kernels of their own against those made of operations, which is what a graph of gradients is made of. */
import { type DType, isFloat, scope, Tensor, Var } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';

/** As kernels take it, in f32. */
const EPS = 2 ** -7;
const TOLERANCES = { f32: 1e-6, bf16: 0.02, f16: 0.003 };

describe.each(kernelDevices())('gradients of maxima of windows on %s', (device) => {
  const next = generator(7);
  /** Of few values, so that windows have ties. */
  const numbers = (count: number, from: number) => new Float32Array(count).map(() => Math.floor(next() * from) - 2);

  function gradients(shape: number[], dtype: DType, use: (x: Tensor) => Tensor): Tensor[] {
    const count = shape.reduce((product, size) => product * size, 1);
    const x = Var.fromTensor(Tensor.from(numbers(count, 6), { shape, device }).toDtype(dtype));
    const y = use(x);
    const weights = Tensor.from(numbers(y.elemCount, 9), { shape: y.shape, device }).toDtype(dtype);
    const loss = y.mul(weights).sumAll();
    return [false, true].map((createGraph) => loss.backward({ createGraph }).get(x)!.toDtype('f32').detach());
  }

  it.each(Object.entries(TOLERANCES))('in %s', async (dtype, tolerance) => {
    expect(isFloat(dtype as DType)).toBe(true);
    const [kernel, composed] = scope(() =>
      gradients([2, 3, 9, 70], dtype as DType, (x) => x.maxPool2d([3, 2], [2, 1])),
    );
    const [own, expected] = [kernel, composed].map((tensor) => Array.from(tensor.toArraySync<Float32Array>()));
    for (const [i, value] of own.entries()) expect(Math.abs(value - expected[i])).toBeLessThanOrEqual(tolerance * 16);
    expect(own.some((value) => value !== 0)).toBe(true);
  });

  it.each([
    ['windows side by side', [2, 2, 8, 12], [2, 2], [2, 2]],
    ['more windows than are taken at once', [1, 2, 4, 300], [2, 2], [2, 2]],
    ['every place a window', [1, 2, 5, 131], [3, 3], [1, 1]],
    ['places that no window has', [2, 1, 11, 17], [2, 3], [4, 5]],
    ['one window', [1, 3, 4, 5], [4, 5], [1, 1]],
    ['single elements', [1, 1, 3, 3], [1, 1], [2, 3]],
  ] as const)('%s', (_, shape, kernel, stride) => {
    scope(() => {
      const [own, expected] = gradients([...shape], 'f32', (x) => x.maxPool2d(kernel, stride));
      const [a, b] = [own, expected].map((tensor) => Array.from(tensor.toArraySync<Float32Array>()));
      for (const [i, value] of a.entries()) expect(value).toBeCloseTo(b[i], 5);
    });
  });

  it('of an image whose axes are exchanged', () => {
    scope(() => {
      const [own, expected] = gradients([2, 12, 3, 8], 'f32', (x) => x.transpose(1, 3).maxPool2d([2, 3], [1, 2]));
      const [a, b] = [own, expected].map((tensor) => Array.from(tensor.toArraySync<Float32Array>()));
      for (const [i, value] of a.entries()) expect(value).toBeCloseTo(b[i], 5);
    });
  });

  it('of windows with a NaN, all of whose places have none', () => {
    scope(() => {
      const values = Float32Array.of(1, Number.NaN, 3, 4, 5, 6, 7, 7);
      const x = Var.fromTensor(Tensor.from(values, { shape: [1, 1, 2, 4], device }));
      const gradient = x.maxPool2d(2).sumAll().backward().get(x)!;
      const [first, second] = [gradient.narrow(3, 0, 2), gradient.narrow(3, 2, 2)].map((part) => part.flattenAll());
      expect(Array.from(first.toArraySync<Float32Array>()).every(Number.isNaN)).toBe(true);
      expect(Array.from(second.toArraySync<Float32Array>())).toEqual([0, 0, 0.5, 0.5]);
    });
  });
});

describe.each(kernelDevices())('gradients of norms on %s', (device) => {
  const next = generator(11);
  const numbers = (shape: readonly number[], dtype: DType) => {
    const count = shape.reduce((product, size) => product * size, 1);
    return Tensor.from(
      new Float64Array(count).map(() => 4 * next() - 1),
      { shape, device },
    ).toDtype(dtype);
  };

  function compare(loss: Tensor, vars: readonly Var[], tolerance: number): void {
    const [own, composed] = [false, true].map((createGraph) => loss.backward({ createGraph }));
    for (const variable of vars) {
      const [a, b] = [own, composed].map((grads) =>
        Array.from(grads.get(variable)!.toDtype('f64').contiguous().toArraySync<Float64Array>()),
      );
      const most = b.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
      for (const [i, value] of a.entries())
        if (!(Math.abs(value - b[i]) <= tolerance * (1 + most))) expect.fail(`element ${i}: ${value}, not ${b[i]}`);
    }
  }

  it('of rows of all lengths', () => {
    for (const [rows, width] of [
      [1, 1],
      [17, 3],
      [5, 64],
      [2, 300],
      [3, 4100],
      [2, 20_001],
    ])
      scope(() => {
        const [x, alpha, beta] = [[2, rows, width], [width], [width]].map((shape) =>
          Var.fromTensor(numbers(shape, 'f32')),
        );
        const weights = numbers([2, rows, width], 'f32');
        compare(x.rmsNorm(alpha, EPS).mul(weights).sumAll(), [x, alpha], 2e-5);
        compare(x.layerNorm(alpha, beta, EPS).mul(weights).sumAll(), [x, alpha, beta], 2e-5);
      });
  });

  it('of a source whose axes are exchanged, of weights alone and of none', () => {
    scope(() => {
      const [x, alpha] = [Var.fromTensor(numbers([6, 5, 4], 'f32')), Var.fromTensor(numbers([6], 'f32'))];
      const weights = numbers([4, 5, 6], 'f32');
      compare(x.transpose(0, 2).rmsNorm(alpha, EPS).mul(weights).sumAll(), [x, alpha], 2e-5);
      compare(weights.rmsNorm(alpha, EPS).sqr().sumAll(), [alpha], 2e-5);
      compare(x.transpose(0, 2).rmsNorm(alpha.detach(), EPS).mul(weights).sumAll(), [x], 2e-5);
    });
  });
});
