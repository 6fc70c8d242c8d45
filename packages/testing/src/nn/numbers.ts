/** Activations far out and at 0, and layers on empty batches, on one device: no overflow on the way, slopes of PyTorch. */
import { type Device, type DType, Tensor, Var } from '@x/core';
import { BatchNorm, GroupNorm, LayerNorm, logSoftmax, loss, ops, RmsNorm, selu } from '@x/nn';
import { describe, expect } from 'vitest';
import { activate } from '../../../nn/src/activation';
import { check } from './check';

const INF = Number.POSITIVE_INFINITY;
const DTYPES = ['f64', 'f32', 'bf16', 'f16'] as const;
/** A few units in the last place. */
const PRECISION = { f64: 1e-15, f32: 5e-7, bf16: 2 ** -8, f16: 2 ** -10 };

export function numbersSuite(name: string, device: () => Device): void {
  const from = (data: readonly number[], dtype: DType = 'f32') => Tensor.from(data, { dtype, device: device() });
  const flat = (t: Tensor) => Array.from(t.toArraySync() as ArrayLike<number>);
  const slope = (f: (x: Tensor) => Tensor, at: readonly number[], dtype: DType = 'f32') => {
    using x = Var.fromTensor(from(at, dtype));
    using grads = f(x).sumAll().backward();
    return flat(grads.get(x)!);
  };

  describe(`activations far out on ${name}`, () => {
    for (const dtype of DTYPES) {
      check(`softplus and mish in ${dtype}`, () => {
        const points = [-80, -20, -12, -9, -5, -1, -0.01, 0, 0.01, 1, 5, 12, 20, 39, 40, 41, 300];
        const x = flat(from(points, dtype));
        const softplus = (v: number) => Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v)));
        const close = (actual: Tensor, f: (v: number) => number) => {
          const wanted = x.map(f);
          flat(actual).forEach((value, i) => {
            // f16 has nothing between 0 and 2^-24.
            const tolerance = Math.abs(wanted[i]) * PRECISION[dtype] + (dtype === 'f16' ? 2 ** -24 : 1e-37);
            expect(Math.abs(value - wanted[i]), `${value} at ${x[i]}, not ${wanted[i]}`).toBeLessThanOrEqual(tolerance);
          });
        };
        close(ops.softplus(from(points, dtype)), softplus);
        close(ops.mish(from(points, dtype)), (v) => v * Math.tanh(softplus(v)));
        const big = dtype === 'f16' ? 60000 : 1e30;
        const held = flat(from([big], dtype))[0];
        expect(flat(ops.softplus(from([INF, big, -big, -INF], dtype)))).toEqual([INF, held, 0, 0]);
        expect(flat(ops.mish(from([INF, big, -big], dtype)))).toEqual([INF, held, -0]);
        expect(slope(ops.softplus, [INF, big, 40, 0, -big, -INF], dtype)).toEqual([1, 1, 1, 0.5, 0, 0]);
        expect(slope(ops.mish, [big, -big], dtype)).toEqual([1, 0]);
      });

      check(`the others in ${dtype}`, () => {
        const big = dtype === 'f16' ? 60000 : 1e30;
        const x = from([INF, big, -big], dtype);
        const [, held] = flat(x);
        for (const name of ['gelu', 'gelu_new', 'silu', 'swish', 'hard_swish', 'relu', 'mish'] as const) {
          expect(flat(activate(x, name)).map(Math.abs), name).toEqual([INF, held, 0]);
        }
        for (const name of ['sigmoid', 'hard_sigmoid'] as const) expect(flat(activate(x, name))).toEqual([1, 1, 0]);
        expect(flat(activate(x, 'relu6'))).toEqual([6, 6, 0]);
        expect(flat(activate(x, { elu: 3 }))).toEqual([INF, held, -3]);
        expect(flat(selu(from([-0, -INF], dtype), 1, 2))).toEqual([-0, -2]);
        expect(flat(ops.leakyRelu(from([INF, -INF, -0, -4], dtype), 0.25))).toEqual([INF, -INF, -0, -1]);
        expect(flat(ops.hardSigmoid(from([-3, 3, 0], dtype)))).toEqual([0, 1, 0.5]);
        const row = (values: number[]) => from(values, dtype).unsqueeze(0);
        for (const softmax of [ops.softmax, logSoftmax]) {
          expect(flat(softmax(row([-INF, -INF]), 1))).toEqual([Number.NaN, Number.NaN]);
          expect(flat(softmax(row([-INF, -INF]).t().contiguous(), 0))).toEqual([Number.NaN, Number.NaN]);
        }
        expect(flat(logSoftmax(row([-INF, big]), 1))).toEqual([-INF, 0]);
        expect(flat(ops.softmax(row([-INF, big]).t(), 0))).toEqual([0, 1]);
      });
    }

    check('slopes at 0', () => {
      expect(slope((x) => ops.leakyRelu(x, 0.25), [0, 2, -2])).toEqual([0.25, 1, 0.25]);
    });
  });

  describe(`layers on nothing on ${name}`, () => {
    const empty = (...shape: number[]) => Tensor.zeros(shape, 'f32', device());
    const one = (size: number) => Tensor.ones([size], 'f32', device());

    check('norms give an empty batch back', () => {
      using group = new GroupNorm(one(4), one(4), 4, 2, 1e-5);
      for (const shape of [
        [0, 4, 3],
        [2, 4, 0],
        [0, 4, 2, 5],
      ]) {
        expect(group.forward(empty(...shape)).shape).toEqual(shape);
      }
      using batch = new BatchNorm(4, empty(4), one(4), { weight: one(4), bias: empty(4) });
      for (const shape of [
        [0, 4],
        [0, 4, 2],
        [2, 4, 0],
      ]) {
        expect(batch.forward(empty(...shape)).shape).toEqual(shape);
        expect(batch.forwardTrain(empty(...shape)).shape).toEqual(shape);
      }
      expect([flat(batch.runningMean), flat(batch.runningVar)]).toEqual([
        [0, 0, 0, 0],
        [1, 1, 1, 1],
      ]);
      using layer = new LayerNorm(one(4), one(4), 1e-5);
      using rms = new RmsNorm(one(4), 1e-5);
      for (const norm of [layer, rms]) expect(norm.forward(empty(0, 3, 4)).shape).toEqual([0, 3, 4]);
    });

    check('softmax over nothing, and losses of nothing', () => {
      for (const [shape, dim] of [
        [[0, 3], 0],
        [[0, 3], 1],
        [[3, 0, 2], 1],
        [[3, 0], 1],
      ] as const) {
        expect(ops.softmax(empty(...shape), dim).shape).toEqual(shape);
        expect(logSoftmax(empty(...shape), dim).shape).toEqual(shape);
      }
      const none = Tensor.zeros([0], 'u32', device());
      expect(loss.crossEntropy(empty(0, 3), none).toScalarSync()).toBeNaN();
      expect(loss.mse(empty(0), empty(0)).toScalarSync()).toBeNaN();
    });
  });
}
