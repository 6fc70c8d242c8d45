/** What happens at edges: rows and steps beyond a narrow float, slopes at kinks and infinities, arguments that have no meaning. */
import { type Device, type DType, GradStore, Tensor, Var } from '@x/core';
import { Adam, AdamW, loss, type Optimizer, ops, PReLU, RMSProp } from '@x/nn';
import { expect } from 'vitest';
import { expectFlat, numbers } from '../core/close';
import { check } from './check';

export function edgesSuite(name: string, device: () => Device): void {
  const made = (values: readonly number[], dtype: DType = 'f32') => Tensor.from(values, { dtype, device: device() });
  const variable = (values: readonly number[], dtype?: DType) => Var.fromTensor(made(values, dtype));
  const title = (text: string) => `${text}: edges on ${name}`;

  for (const [dtype, tolerance] of [
    ['f16', 2 ** -8],
    ['bf16', 2 ** -5],
  ] as const) {
    const count = 70_000;
    const expectShares = (tensor: Tensor) => {
      expect(tensor.dtype).toBe(dtype);
      const values = numbers(tensor);
      for (const value of [values[0], values.at(-1)!]) expect(Math.abs(value * count - 1)).toBeLessThan(0.01);
    };
    check(title(`softmax of ${dtype} over more elements than 65504`), () => {
      const x = Var.zeros([count, 2], dtype, device());
      expectShares(ops.softmax(x, 0));
      const logs = ops.logSoftmax(x, 0);
      expect(logs.dtype).toBe(dtype);
      expectFlat(logs.narrow(0, 0, 1), [1, 2], [-Math.log(count), -Math.log(count)], tolerance);
      // Of the first row's sum: 1 - p there and -p elsewhere.
      const slopes = numbers(logs.narrow(0, 0, 1).sumAll().backward().get(x)!);
      expect([slopes[0], slopes[1]]).toEqual([1, 1]);
      expect(Math.abs(slopes[2] * count + 1)).toBeLessThan(0.01);
    });
    check(title(`crossEntropy of ${dtype} with more classes than 65504`), () => {
      const x = Var.zeros([2, count], dtype, device());
      const result = loss.crossEntropy(x, Tensor.from([0, 1], { dtype: 'u32', device: device() }));
      expect(result.dtype).toBe(dtype);
      expectFlat(result, [], [Math.log(count)], tolerance);
      const slopes = numbers(result.backward().get(x)!);
      expect([slopes[0], slopes[count + 1]]).toEqual([-0.5, -0.5]);
      expect(Math.abs(slopes[count - 1] * 2 * count - 1)).toBeLessThan(0.02);
    });
  }

  const step = (optimizer: Optimizer, of: Var, grad: Tensor) => {
    using grads = new GradStore();
    grads.insert(of, grad);
    optimizer.step(grads);
  };
  const optimizers = {
    Adam: (of: Var, lr: number) => new Adam([of], { lr }),
    AdamW: (of: Var, lr: number) => new AdamW([of], { lr, weightDecay: 0 }),
    RMSProp: (of: Var, lr: number) => new RMSProp([of], { lr, alpha: 0 }),
    'RMSProp, centred, with momentum': (of: Var, lr: number) =>
      new RMSProp([of], { lr, alpha: 0.75, centered: true, momentum: 0.5 }),
  };
  for (const [kind, make] of Object.entries(optimizers).slice(0, 3))
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      check(title(`a step of ${kind} on ${dtype} by gradients that are small or nothing`), () => {
        // None so small that the eps of 1e-8 counts, but for nothing at all; the squares of all are nothing in f16.
        const x = variable([1, 1, 1, -2], dtype);
        using optimizer = make(x, 2 ** -6);
        step(optimizer, x, made([0, 2 ** -13, -(2 ** -14), 2 ** -12], dtype));
        const by = 2 ** -6;
        expectFlat(x, [4], [1, 1 - by, 1 + by, -2 - by], 2 ** -10);
      });
      check(title(`steps of ${kind} on ${dtype} by large gradients`), () => {
        const x = variable([1, -1, 1], dtype);
        using optimizer = make(x, 2 ** -6);
        for (let i = 0; i < 16; i++) step(optimizer, x, made([1000, -30_000, 50], dtype));
        expectFlat(x, [3], [0.75, -0.75, 0.75], 2 ** -10);
      });
    }
  for (const dtype of ['f16', 'bf16'] as const)
    check(title(`what optimisers remember of ${dtype} is f32`), () => {
      for (const make of Object.values(optimizers)) {
        const [x, y] = [variable([1, -2, 0.5], dtype), variable([1, -2, 0.5], 'f32')];
        using narrow = make(x, 2 ** -10);
        using wide = make(y, 2 ** -10);
        // Powers of two, so that both have the same gradients; the values of the narrow one are rounded once a step.
        for (let i = 0; i < 12; i++) {
          const grad = [2 ** -(i % 3), 2 ** -9, -(2 ** (i % 2))];
          step(narrow, x, made(grad, dtype));
          step(wide, y, made(grad));
          y.set(y.toDtype(dtype).toDtype('f32'));
        }
        expectFlat(x, [3], numbers(y), dtype === 'f16' ? 2 ** -8 : 2 ** -5);
        expect(numbers(x).every(Number.isFinite)).toBe(true);
      }
    });
  check(title('an f16 variable takes gradients in f32'), () => {
    const x = variable([1, 1], 'f16');
    using optimizer = new Adam([x], { lr: 0.25 });
    step(optimizer, x, made([1e6, -1e-6]));
    expectFlat(x, [2], [0.75, 1.25], 0.01);
  });

  check(title('the gradient of huber of infinite distances'), () => {
    const x = variable([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5, -1, 3, Number.NaN]);
    const slopes = numbers(
      loss
        .huber(x, made([0, 0, 0, 0, 0, 0]), 1)
        .backward()
        .get(x)!,
    );
    const expected = [1, -1, 0.5, -1, 1];
    slopes.slice(0, 5).forEach((slope, i) => {
      expect(slope).toBeCloseTo(expected[i] / 6, 6);
    });
    expectFlat(loss.huber(made([0.5, -1, 3]), made([0, 0, 0]), 1), [], [(0.125 + 0.5 + 2.5) / 3], 1e-6);
    expectFlat(loss.huber(made([Number.NaN]), made([0]), 1), [], [Number.NaN]);
  });

  check(title('the slope of PReLU at 0 is the weight'), () => {
    const x = variable([0, -2, 3, Number.POSITIVE_INFINITY]);
    const weight = Var.fromTensor(made([0.25]));
    const layer = new PReLU(weight, true);
    const result = layer.forward(x);
    expectFlat(result, [4], [0, -0.5, 3, Number.POSITIVE_INFINITY]);
    using grads = result.backward();
    expectFlat(grads.get(x)!, [4], [0.25, 0.25, 1, 1]);
    expectFlat(grads.get(weight)!, [1], [-2]);
    expectFlat(layer.forward(made([Number.NaN])), [1], [Number.NaN]);
  });

  check(title('dimensions of softmax, also of a tensor without elements'), () => {
    for (const shape of [[2, 0], [0], [2, 3]])
      for (const op of ['softmax', 'logSoftmax'] as const) {
        const x = Tensor.zeros(shape, 'f32', device());
        for (const dim of [shape.length, -shape.length - 1, 7])
          expect(() => ops[op](x, dim)).toThrow(
            expect.objectContaining({
              code: 'DIM_OUT_OF_RANGE',
              message: expect.stringMatching(new RegExp(`^${op}: dimension ${dim} `)),
            }),
          );
        expect(ops[op](x, 0).shape).toEqual(shape);
      }
    expect(() => ops.softmax(Tensor.zeros([], 'f32', device()), 0)).toThrow(/^softmax: .* a scalar has no dimensions/);
  });
}
