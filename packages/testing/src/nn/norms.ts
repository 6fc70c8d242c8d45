/** Batch, group and layer norm on one device: candle-nn's tests of those names, and what they leave out. */
import { type Device, memoryStats, scope, Tensor } from '@x/core';
import {
  BatchNorm,
  batchNorm,
  Conv2d,
  GroupNorm,
  groupNorm,
  LayerNorm,
  layerNorm,
  layerNormNoBias,
  rmsNorm,
  VarBuilder,
  VarMap,
} from '@x/nn';
import { describe, expect, test } from 'vitest';
import { testSettings } from '../settings';
import { INPUT, OUTPUT } from './batch-norm-values';
import { expectClose } from './close';
import { tensorMakers } from './helpers';

export function normsSuite(name: string, device: () => Device): void {
  const { from, rand } = tensorMakers(device);
  const zeros = (n: number) => Tensor.zeros([n], 'f32', device());
  const ones = (n: number) => Tensor.ones([n], 'f32', device());

  describe(`norms on ${name}`, () => {
    test('batch_norm::batch_norm_test', () => {
      scope(() => {
        using bn = BatchNorm.newNoBias(5, zeros(5), ones(5), 1e-8);
        const input = from(INPUT, [2, 5, 3, 4]);
        const output = bn.forwardTrain(input);
        expect(output.shape).toEqual([2, 5, 3, 4]);
        expectClose(output.flattenAll(), OUTPUT, 1e-4);
        expectClose(bn.runningMean, [-0.0133, 0.0197, -0.0153, -0.0073, -0.002]);
        expectClose(bn.runningVar, [0.9972, 0.9842, 0.9956, 0.9866, 0.9898]);

        using affine = new BatchNorm(5, zeros(5), ones(5), {
          weight: from([0.5]).broadcastAs([5]),
          bias: from([-1.5]).broadcastAs([5]),
          eps: 1e-8,
        });
        const difference = affine.forwardTrain(input).sub(output.mul(0.5)).add(1.5);
        expect(difference.sqr().sumAll().toScalarSync()).toBeLessThan(5e-5);
      });
    });

    test('batch_norm::train_batch_norm: the running values are the variables of the map', () => {
      scope(() => {
        using map = new VarMap();
        using bn = batchNorm(1, {}, VarBuilder.fromVarMap(map, { device: device() }));
        const original = bn.runningMean.detach().copy();
        const inMap = map.data.get('running_mean')!;
        expect(bn.runningMean.toVecSync()).toEqual(inMap.toVecSync());
        bn.forwardTrain(original.onesLike().add(original).reshape([1, 1]));
        expect(bn.runningMean.toVecSync()).not.toEqual(original.toVecSync());
        expect(bn.runningMean.toVecSync()).toEqual(inMap.toVecSync());
        expectClose(inMap, [0.1]);
        expect([...map.data.keys()]).toEqual(['running_mean', 'running_var', 'weight', 'bias']);
      });
    });

    test('batch norm evaluates with the running values, alone and within a convolution', () => {
      scope(() => {
        const make = () =>
          new BatchNorm(3, rand([3], 1), rand([3], 2).abs(), { weight: rand([3], 3), bias: rand([3], 4), eps: 0.1 });
        using bn = make();
        const xs = rand([2, 3, 4, 5], 5);
        const column = (tensor: Tensor) => tensor.reshape([1, 3, 1, 1]);
        const scale = bn.weight!.div(bn.runningVar.add(0.1).sqrt());
        const expected = xs
          .broadcastSub(column(bn.runningMean))
          .broadcastMul(column(scale))
          .broadcastAdd(column(bn.bias!));
        expectClose(bn.forwardT(xs, false), expected.toVecSync(), 1e-5);
        for (const bias of [undefined, rand([3], 6)]) {
          using conv = new Conv2d(rand([3, 3, 2, 2], 7), bias, { padding: 1 });
          using both = conv.absorbBn(bn);
          expectClose(both.forward(xs), bn.forward(conv.forward(xs)).toVecSync(), 1e-5);
        }
        expect(() => new BatchNorm(2, zeros(3), ones(3))).toThrow(/running mean.*give \[2\]/);
        expect(() => new BatchNorm(3, zeros(3), ones(3), { momentum: 2 })).toThrow(/momentum 2/);
        expect(() => bn.forward(rand([2, 4], 1))).toThrow(/3 features/);
        using every = new BatchNorm(3, rand([3, 2], 1).getOnDim(1, 0), ones(3));
        expect(every.forwardT(xs, false).shape).toEqual(xs.shape);
        expect(() => every.forwardT(xs, true)).toThrow(/BatchNorm: .*running mean.*give a contiguous one/);
      });
    });

    test('group_norm::group_norm', () => {
      scope(() => {
        using two = new GroupNorm(ones(6), zeros(6), 6, 2, 1e-5);
        using three = new GroupNorm(ones(6), zeros(6), 6, 3, 1e-5);
        const input = from([
          [
            [-0.3034, 0.2726, -0.9659],
            [-1.1845, -1.3236, 0.0172],
            [1.9507, 1.2554, -0.8625],
            [1.0682, 0.3604, 0.3985],
            [-0.4957, -0.4461, -0.9721],
            [1.5157, -0.1546, -0.5596],
          ],
          [
            [-1.6698, -0.404, -0.7927],
            [0.3736, -0.0975, -0.1351],
            [-0.9461, 0.5461, -0.6334],
            [-1.0919, -0.1158, 0.1213],
            [-0.9535, 0.1281, 0.4372],
            [-0.2845, 0.3488, 0.5641],
          ],
        ]);
        expectClose(two.forward(input), [
          [
            [-0.1653, 0.3748, -0.7866],
            [-0.9916, -1.122, 0.1353],
            [1.9485, 1.2965, -0.6896],
            [1.2769, 0.3628, 0.412],
            [-0.7427, -0.6786, -1.3578],
            [1.8547, -0.3022, -0.8252],
          ],
          [
            [-1.9342, 0.0211, -0.5793],
            [1.2223, 0.4945, 0.4365],
            [-0.8163, 1.4887, -0.3333],
            [-1.796, -0.0392, 0.3875],
            [-1.5469, 0.3998, 0.9561],
            [-0.3428, 0.797, 1.1845],
          ],
        ]);
        expectClose(three.forward(input), [
          [
            [0.456, 1.4014, -0.6313],
            [-0.9901, -1.2184, 0.9822],
            [1.4254, 0.636, -1.7682],
            [0.4235, -0.38, -0.3367],
            [-0.389, -0.3268, -0.9862],
            [2.1325, 0.0386, -0.4691],
          ],
          [
            [-1.8797, 0.0777, -0.5234],
            [1.2802, 0.5517, 0.4935],
            [-1.0102, 1.5327, -0.4773],
            [-1.2587, 0.4047, 0.8088],
            [-1.9074, 0.1691, 0.7625],
            [-0.623, 0.5928, 1.0061],
          ],
        ]);
        using loaded = groupNorm(2, 6, 1e-5, VarBuilder.zeros({ device: device() }));
        expectClose(loaded.forward(input).abs().maxAll(), 0, 0);
        expect(() => new GroupNorm(ones(6), zeros(6), 6, 4, 1e-5)).toThrow(/6 channels in 4 groups/);
        expect(() => two.forward(input.narrow(1, 0, 5))).toThrow(/6 channels/);
      });
    });

    test('layer_norm::layer_norm', () => {
      scope(() => {
        const make = (n: number) => new LayerNorm(from(new Array(n).fill(3)), from(new Array(n).fill(0.5)), 1e-8);
        using one = make(1);
        using two = make(2);
        using three = make(3);
        expect([one.eps, one.removeMean]).toEqual([1e-8, true]);
        expectClose(one.forward(from([[[2]]])).flattenAll(), [0.5], 0);
        expectClose(two.forward(from([[[4, 0]]])), [[[3.5, -2.5]]], 1e-6);
        const rows = from([
          [
            [1, 2, 3],
            [4, 5, 6],
            [9, 8, 7],
          ],
        ]);
        const result = three.forward(rows);
        expectClose(result, [
          [
            [-3.1742, 0.5, 4.1742],
            [-3.1742, 0.5, 4.1742],
            [4.1742, 0.5, -3.1742],
          ],
        ]);
        const mean = result.sumKeepdim(2).div(3);
        expectClose(mean, [[[0.5], [0.5], [0.5]]]);
        const std = result.broadcastSub(mean).sqr().sumKeepdim(2).sqrt().div(3);
        expectClose(std, [[[1.7321], [1.7321], [1.7321]]]);
        using rms = LayerNorm.rmsNorm(from([1]), 1e-5);
        expect([rms.eps, rms.removeMean]).toEqual([1e-5, false]);
      });
    });

    test('layer norm without a bias or a mean, in every float dtype, and its builders', () => {
      const before = memoryStats().liveTensors;
      scope(() => {
        const xs = rand([2, 3, 8], 11);
        const weight = rand([8], 12);
        using unbiased = LayerNorm.newNoBias(weight.copy(), 1e-5);
        using biased = new LayerNorm(weight.copy(), zeros(8), 1e-5);
        expectClose(unbiased.forward(xs), biased.forward(xs).toVecSync(), 1e-5);
        using moved = new LayerNorm(weight.copy(), rand([8], 13), 1e-5, false);
        using rms = LayerNorm.rmsNorm(weight.copy(), 1e-5);
        expectClose(moved.forward(xs), rms.forward(xs).broadcastAdd(moved.bias!).toVecSync(), 1e-5);
        for (const dtype of ['f16', 'bf16', 'f64'] as const) {
          using narrow = LayerNorm.newNoBias(weight.toDtype(dtype), 1e-5);
          const tolerance = { f16: 4e-3, bf16: 3e-2, f64: 1e-5 }[dtype];
          const result = narrow.forward(xs.toDtype(dtype));
          expect(result.dtype).toBe(dtype);
          expectClose(result, unbiased.forward(xs).toVecSync(), tolerance);
        }
        using map = new VarMap();
        const vb = VarBuilder.fromVarMap(map, { device: device() });
        using a = layerNorm(8, 1e-5, vb.pp('a'));
        using b = layerNormNoBias(8, 1e-5, vb.pp('b'));
        using c = rmsNorm(8, 1e-5, vb.pp('c'));
        expect([...map.data.keys()]).toEqual(['a.weight', 'a.bias', 'b.weight', 'c.weight']);
        expectClose(a.forward(xs), b.forward(xs).toVecSync(), 1e-5);
        expectClose(c.forward(xs).sqr().meanKeepdim(-1), xs.meanKeepdim(-1).onesLike().toVecSync(), 1e-2);
      });
      expect(memoryStats().liveTensors).toBe(before);
    });

    test('statistics of many elements are exact', () => {
      const size = Math.max(64, Math.round(300_000 * testSettings.scale));
      const far = (t: Tensor, value: number) => t.sub(value).abs().maxAll().toScalarSync() as number;
      scope(() => {
        const tenths = Tensor.full(0.1, [2, 2, size], 'f32', device());
        const pairs = from([2, 4])
          .broadcastAs([2, 2, (size / 2) | 0, 2])
          .flatten(2, 3);
        using bn = new BatchNorm(2, zeros(2), ones(2), { eps: 0, momentum: 1 });
        const normed = bn.forwardTrain(pairs);
        expect(far(normed.abs(), 1)).toBeLessThan(2e-7);
        expect(far(bn.runningMean, 3)).toBe(0);
        bn.forwardTrain(tenths.affine(1, 0));
        expect(far(bn.runningMean, Math.fround(0.1))).toBeLessThan(2e-8);
        using gn = new GroupNorm(ones(2), zeros(2), 2, 1, 0);
        expect(far(gn.forward(pairs).abs(), 1)).toBeLessThan(2e-7);
      });
    });
  });
}
