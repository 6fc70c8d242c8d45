/** Functions on tensors on one device: candle-nn's tests/ops.rs, and what it leaves out. */
import { type Device, Tensor } from '@x/core';
import {
  Dropout,
  dropout,
  gumbelSoftmax,
  Identity,
  ops,
  rope,
  ropeI,
  ropeISlow,
  ropeSlow,
  ropeThd,
  ropeThdSlow,
  selu,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { expectClose, maxDifference, sumOfDifferences } from './close';
import { tensorMakers, values } from './helpers';

export function opsSuite(name: string, device: () => Device): void {
  const { from, rand } = tensorMakers(device);
  const data = [
    [
      [3, 1, 4],
      [1, 5, 9],
    ],
    [
      [2, 1, 7],
      [8, 2, 8],
    ],
  ];
  describe(`ops on ${name}`, () => {
    check('ops::softmax', () => {
      const logs = from(data).log();
      expectClose(ops.softmax(logs, 0), [
        [
          [0.6, 0.5, 0.3636],
          [0.1111, 0.7143, 0.5294],
        ],
        [
          [0.4, 0.5, 0.6364],
          [0.8889, 0.2857, 0.4706],
        ],
      ]);
      expectClose(ops.softmax(logs, 1), [
        [
          [0.75, 0.1667, 0.3077],
          [0.25, 0.8333, 0.6923],
        ],
        [
          [0.2, 0.3333, 0.4667],
          [0.8, 0.6667, 0.5333],
        ],
      ]);
      for (const last of [ops.softmax(logs, 2), ops.softmaxLastDim(logs)]) {
        expectClose(last, [
          [
            [0.375, 0.125, 0.5],
            [0.0667, 0.3333, 0.6],
          ],
          [
            [0.2, 0.1, 0.7],
            [0.4444, 0.1111, 0.4444],
          ],
        ]);
      }
    });

    check('ops::softmax_numerical_stability', () => {
      expect(ops.softmax(from([1234, 0]), 0).toVecSync()).toEqual([1, 0]);
      expect(ops.softmax(from([1234, 0], [2, 1]), 0).toVecSync()).toEqual([[1], [0]]);
    });

    check('ops::rms_norm', () => {
      const alpha = from([1, 2, 3]);
      const expected = [
        [
          [1.019, 0.6794, 4.0762],
          [0.1674, 1.6744, 4.521],
        ],
        [
          [0.4714, 0.4714, 4.9497],
          [1.206, 0.603, 3.6181],
        ],
      ];
      const fused = ops.rmsNorm(from(data), alpha, 1e-5);
      const slow = ops.rmsNormSlow(from(data), alpha, 1e-5);
      expectClose(fused, expected);
      expectClose(slow, expected);
      expect(sumOfDifferences(fused, slow)).toBeLessThan(1e-5);
    });

    check('ops::rms_norml', () => {
      const xs = rand([24, 70, 64], 1);
      const alpha = Tensor.ones([64], 'f32', device());
      expect(maxDifference(ops.rmsNorm(xs, alpha, 1e-5), ops.rmsNormSlow(xs, alpha, 1e-5))).toBeLessThan(1e-5);
    });

    check('ops::rms_norm_large_magnitude', () => {
      const [rows, hidden] = [4, 6912];
      const large = Float32Array.from(
        { length: rows * hidden },
        (_, i) => (i % 2 === 0 ? 1 : -1) * Math.abs(Math.sin(i * 0.17)) * 7e9,
      );
      const xs = from(large, [rows, hidden]);
      const alpha = Tensor.ones([hidden], 'f32', device());
      const [fused, slow] = [ops.rmsNorm(xs, alpha, 1e-5), ops.rmsNormSlow(xs, alpha, 1e-5)];
      for (const result of [fused, slow]) {
        expect(result.toArraySync<Float32Array>().findIndex((value) => !Number.isFinite(value))).toBe(-1);
      }
      expect(maxDifference(fused, slow)).toBeLessThan(5e-3);
    });

    check('ops::layer_norm', () => {
      const [alpha, beta] = [from([1, 2, 3]), from([0.5, 0, -0.2])];
      const expected = [
        [
          [0.7673, -2.6726, 3.0071],
          [-0.7247, 0, 3.4742],
        ],
        [
          [-0.008, -1.778, 3.991],
          [1.2071, -2.8284, 1.9213],
        ],
      ];
      const fused = ops.layerNorm(from(data), alpha, beta, 1e-5);
      const slow = ops.layerNormSlow(from(data), alpha, beta, 1e-5);
      expectClose(fused, expected);
      expectClose(slow, expected);
      expect(sumOfDifferences(fused, slow)).toBeLessThan(1e-5);
    });

    check('ops::layer_norml', () => {
      const xs = rand([24, 70, 64], 2);
      const [alpha, beta] = [Tensor.ones([64], 'f32', device()), Tensor.zeros([64], 'f32', device())];
      const [fused, slow] = [ops.layerNorm(xs, alpha, beta, 1e-5), ops.layerNormSlow(xs, alpha, beta, 1e-5)];
      expect(maxDifference(fused, slow)).toBeLessThan(1e-5);
    });

    check('ops::sigmoid', () => {
      const xs = from(data);
      const expected = xs.neg().exp().add(1).recip();
      expect(maxDifference(ops.sigmoid(xs), expected)).toBeLessThan(1.2e-7);
    });

    const ropes = { ropei: [ropeI, ropeISlow], rope: [rope, ropeSlow], rope_thd: [ropeThd, ropeThdSlow] } as const;
    for (const [title, [fast, slow]] of Object.entries(ropes)) {
      check(`ops::${title}`, () => {
        const [b, heads, seq, d] = [2, 5, 10, 16];
        const thd = title === 'rope_thd';
        const src = rand(thd ? [b, seq, heads, d] : [b, heads, seq, d], 3);
        const angles = [4, 5, 6, 7].map((seed) => rand([seq, d / 2], seed));
        const [cos, sin, cos2, sin2] = angles;
        expect(sumOfDifferences(fast(src, cos, sin), slow(src, cos, sin))).toBeLessThan(1e-4);
        if (thd) {
          const heads = ropeSlow(src.transpose(1, 2), cos, sin).transpose(1, 2);
          expect(sumOfDifferences(fast(src, cos, sin), heads)).toBeLessThan(1e-4);
        }
        // A table for each batch entry.
        const one = fast(src.narrow(0, 0, 1), cos, sin);
        const two = fast(src.narrow(0, 1, 1), cos2, sin2);
        const tables = [Tensor.stack([cos, cos2], 0), Tensor.stack([sin, sin2], 0)] as const;
        expect(sumOfDifferences(fast(src, ...tables), Tensor.cat([one, two], 0))).toBe(0);
        expect(sumOfDifferences(slow(src, ...tables), Tensor.cat([one, two], 0))).toBeLessThan(1e-4);
        // Tables longer than the sequence.
        const short = src.narrow(thd ? 1 : 2, 0, 4);
        const first = fast(src, cos, sin).narrow(thd ? 1 : 2, 0, 4);
        expect(sumOfDifferences(fast(short, cos, sin), first)).toBe(0);
        for (const dtype of ['f64', 'f16', 'bf16'] as const) {
          const [x, c, s] = [src, cos, sin].map((tensor) => tensor.toDtype(dtype));
          const tolerance = { f64: 1e-6, f16: 2e-3, bf16: 2e-2 }[dtype];
          expect(maxDifference(fast(x, c, s), fast(src, cos, sin))).toBeLessThan(tolerance);
        }
      });
    }

    check('activation functions that have a closed form', () => {
      const x = values(16, 8).map((v) => v * 6);
      const xs = from(x);
      const expectMap = (actual: Tensor, fn: (v: number) => number) => expectClose(actual, Array.from(x, fn), 1e-5);
      expectMap(ops.hardSigmoid(xs), (v) => Math.min(1, Math.max(0, (v + 3) / 6)));
      expectMap(ops.mish(xs), (v) => v * Math.tanh(Math.log1p(Math.exp(v))));
      expectMap(ops.softplus(xs), (v) => Math.log1p(Math.exp(v)));
      expectMap(ops.leakyRelu(xs, 0.2), (v) => (v > 0 ? v : 0.2 * v));
      expectMap(ops.selu(xs, 1.5, 0.5), (v) => 0.5 * (v > 0 ? v : 1.5 * Math.expm1(v)));
      // PyTorch: selu(-1) and selu(2).
      expectClose(selu(from([-1, 2])), [-1.1113307, 2.101402], 1e-6);
      expectClose(ops.mish(from([60000, -60000, 100])), [60000, 0, 100], 1e-6);
      expectClose(ops.mish(from([20]).toDtype('f16')), [20], 1e-6);
    });

    check('dropout zeroes about as many as asked for, scales the rest, and keeps all in evaluation', () => {
      device().setSeed(7);
      const xs = from(new Array(4000).fill(2));
      const dropped = dropout(xs, 0.25).toArraySync<Float32Array>();
      const zeros = dropped.filter((value) => value === 0).length;
      expect(Math.abs(zeros - 1000)).toBeLessThan(120);
      expect(new Set(dropped)).toEqual(new Set([0, Math.fround(2 / 0.75)]));
      expect(new Dropout(0.5).forwardT(xs, false).toVecSync()).toEqual(xs.toVecSync());
      expect(new Dropout(0.5).forwardT(xs, true).toVecSync()).not.toEqual(xs.toVecSync());
      expect(dropout(xs, 0).toVecSync()).toEqual(xs.toVecSync());
      expect(() => dropout(xs, 1)).toThrow(/probability 1/);
      const same = new Identity().forward(xs);
      same.dispose();
      expect(xs.isDisposed).toBe(false);
    });

    check('pixels into channels and back, and replicated borders', () => {
      const xs = from(
        Array.from({ length: 16 }, (_, i) => i),
        [1, 4, 2, 2],
      );
      const shuffled = ops.pixelShuffle(xs, 2);
      expect(shuffled.toVecSync()).toEqual([
        [
          [
            [0, 4, 1, 5],
            [8, 12, 9, 13],
            [2, 6, 3, 7],
            [10, 14, 11, 15],
          ],
        ],
      ]);
      expect(ops.pixelUnshuffle(shuffled, 2).toVecSync()).toEqual(xs.toVecSync());
      expect(() => ops.pixelShuffle(xs, 3)).toThrow(/multiple of 9/);
      expect(() => ops.pixelUnshuffle(xs, 3)).toThrow(/multiples of 3/);
      expect(ops.replicationPad2d(xs.narrow(1, 0, 1), 2).toVecSync()).toEqual([
        [
          [
            [0, 0, 0, 1, 1, 1],
            [0, 0, 0, 1, 1, 1],
            [0, 0, 0, 1, 1, 1],
            [2, 2, 2, 3, 3, 3],
            [2, 2, 2, 3, 3, 3],
            [2, 2, 2, 3, 3, 3],
          ],
        ],
      ]);
      expect(ops.replicationPad2d(xs, 0).toVecSync()).toEqual(xs.toVecSync());
    });

    check('gumbelSoftmax draws as often as the probabilities say', () => {
      device().setSeed(11);
      const probabilities = [0.1, 0.6, 0.3];
      const rows = 3000;
      const logits = from(probabilities.map(Math.log)).broadcastAs([rows, 3]).contiguous();
      for (const temperature of [1, 0.5]) {
        const drawn = gumbelSoftmax(logits, temperature, -1);
        expect([drawn.dtype, drawn.shape]).toEqual(['u32', [rows]]);
        const counts = [0, 0, 0];
        for (const id of drawn.toArraySync<Uint32Array>()) counts[id]++;
        const weights = probabilities.map((p) => p ** (1 / temperature));
        const total = weights.reduce((a, b) => a + b, 0);
        weights.forEach((weight, i) => {
          expect(Math.abs(counts[i] / rows - weight / total)).toBeLessThan(0.04);
        });
      }
      expect(gumbelSoftmax(logits.narrow(0, 0, 2), 0, -1).toVecSync()).toEqual([1, 1]);
    });
  });
}
