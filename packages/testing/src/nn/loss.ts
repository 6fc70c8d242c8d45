/** Losses and encodings on one device: candle-nn's tests/loss.rs and tests/one_hot.rs, and what they leave out. */
import { type Device, scope, Tensor, Var } from '@x/core';
import { logSoftmax, loss, oneHot } from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { expectClose } from './close';

const LOGITS = [
  [2.3611, -0.8813, -0.5006, -0.2178],
  [0.0419, 0.0763, -1.0457, -1.6692],
  [-1.0494, 0.8111, 1.5723, 1.2315],
  [1.3081, 0.6641, 1.1802, -0.2547],
  [0.5292, 0.7636, 0.3692, -0.8318],
];
const TARGETS = [
  [0, 1, 0, 0],
  [0, 1, 0, 0],
  [0, 0, 0, 1],
  [1, 0, 0, 0],
  [0, 0, 1, 0],
];

export function lossSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype: 'f32' | 'u32' | 'i64' | 'u8' | 'f64' = 'f32') =>
    Tensor.from(data, { device: device(), dtype });
  /** GPUs look at ids only when asked to. */
  const reportsIds = () => ['js', 'cpu'].includes(device().kind) || Number(process.env.X_DEBUG) >= 1;
  describe(`losses on ${name}`, () => {
    check('loss::nll_and_cross_entropy', () => {
      const input = from([
        [1.105, 0.3013, -1.5394, -2.1528, -0.8634],
        [1.073, -0.9419, -0.167, -0.6582, 0.5061],
        [0.8318, 1.1154, -0.361, 0.5351, 1.083],
      ]);
      for (const dtype of ['u32', 'i64', 'u8'] as const) {
        const target = from([1, 0, 4], dtype);
        expectClose(loss.nll(logSoftmax(input, 1), target), 1.1312);
        expectClose(loss.crossEntropy(input, target), 1.1312);
      }
      expect(() => loss.nll(input, from([1, 0], 'u32'))).toThrow(/\[n, classes\]/);
    });

    check('labels: the largest of a dtype is one like any other, and those beyond the classes are errors', () => {
      const logits = scope(() => Var.fromTensor(Tensor.zeros([2, 256], 'f32', device())));
      const mean = loss.crossEntropy(logits, from([255, 7], 'u8'));
      expectClose(mean, Math.log(256), 1e-5);
      const gradient = mean.backward().get(logits)!;
      expectClose(gradient.narrow(1, 255, 1).flattenAll(), [1 / 512 - 1 / 2, 1 / 512], 1e-6);
      if (!reportsIds()) return;
      const few = Tensor.zeros([2, 3], 'f32', device());
      for (const [dtype, label] of [
        ['u8', 255],
        ['u32', 4294967295],
        ['i64', -100],
      ] as const) {
        const target = from(dtype === 'i64' ? [0n, BigInt(label)] : [0, label], dtype);
        for (const make of [loss.nll, loss.crossEntropy]) {
          expect(() => make(few, target).toScalarSync()).toThrow(
            expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE', message: expect.stringContaining(`id ${label} `) }),
          );
        }
      }
      expectClose(loss.crossEntropy(few, from([0, 2], 'u8')), Math.log(3), 1e-5);
    });

    check('loss::binary_cross_entropy_with_logit', () => {
      const [inp, target] = [from(LOGITS), from(TARGETS)];
      expectClose(loss.binaryCrossEntropyWithLogit(inp, target), 0.8224);
      // Where candle's logarithm of a sigmoid is -Infinity.
      expectClose(loss.binaryCrossEntropyWithLogit(from([200, -200, 200]), from([1, 0, 0])), 200 / 3, 1e-4);
    });

    check('the gradient of the binary cross-entropy is sigmoid(x) - target, at 0 and far out too', () => {
      const x = scope(() => Var.from([0, 0, 200, -200, 1], { device: device() }));
      const grads = loss.binaryCrossEntropyWithLogit(x, from([0, 1, 1, 0, 0])).backward();
      expectClose(
        grads.get(x)!,
        [0.5, -0.5, 0, 0, 1 / (1 + Math.exp(-1))].map((g) => g / 5),
        1e-6,
      );
    });

    check('loss::huber_loss', () => {
      const [inp, target] = [from(LOGITS), from(TARGETS)];
      expectClose(loss.huber(inp, target, 1), 0.4734);
      expectClose(loss.huber(inp, target, 0.88), 0.4483);
      expect(() => loss.huber(inp, from([1]), 1)).toThrow(/one shape/);
    });

    check('mse is the mean of squares', () => {
      expectClose(loss.mse(from([1, 2, 5]), from([0, 2, 3])), 5 / 3);
    });
  });

  describe(`one-hot on ${name}`, () => {
    const pairs = [
      [0, 2],
      [1, -1],
    ];

    check('one_hot::test_i64_one_hot', () => {
      const result = oneHot(from(pairs, 'i64'), 4);
      expect([result.dtype, result.shape]).toEqual(['f32', [2, 2, 4]]);
      expect(result.toVecSync()).toEqual([
        [
          [1, 0, 0, 0],
          [0, 0, 1, 0],
        ],
        [
          [0, 1, 0, 0],
          [0, 0, 0, 0],
        ],
      ]);
    });

    check('one_hot::test_rank_3_one_hot', () => {
      const ids = [
        [
          [0, 1],
          [2, 3],
        ],
        [
          [3, 1],
          [1, -1],
        ],
      ];
      const result = oneHot(from(ids, 'i64'), 4, 1, 0);
      expect(result.shape).toEqual([2, 2, 2, 4]);
      expect(result.toVecSync()).toEqual(
        ids.map((block) => block.map((row) => row.map((id) => [0, 1, 2, 3].map((i) => (i === id ? 1 : 0))))),
      );
    });

    check('one_hot::test_u8_one_cold', () => {
      const result = oneHot(from(pairs, 'i64'), 4, 0, 1, 'u8');
      expect([result.dtype, result.shape]).toEqual(['u8', [2, 2, 4]]);
      expect(result.toVecSync()).toEqual([
        [
          [0, 1, 1, 1],
          [1, 1, 0, 1],
        ],
        [
          [1, 0, 1, 1],
          [1, 1, 1, 1],
        ],
      ]);
    });

    check('one_hot::test_iter: rows lie one after the other, in the order of the ids', () => {
      const ids = from(pairs, 'i64');
      const flat = oneHot(ids, 4, 5, -5).toArraySync<Float32Array>();
      const found = ids.toVecSync<bigint[][]>();
      found.forEach((row, i) => {
        row.forEach((id, j) => {
          const start = (i * row.length + j) * 4;
          expect(Array.from(flat.subarray(start, start + 4), (v) => v > 0)).toEqual(
            [0, 1, 2, 3].map((k) => k === Number(id)),
          );
        });
      });
    });

    check('ids of other dtypes, a depth beyond them, and values between', () => {
      const wide = oneHot(from([200, 3], 'u8'), 300, 0.75, 0.25, 'f64');
      expect(wide.shape).toEqual([2, 300]);
      expect(wide.argmax(-1).toVecSync()).toEqual([200, 3]);
      expect(wide.sum(-1).toVecSync()).toEqual([75.5, 75.5]);
      expect(oneHot(from([1], 'u32'), 2).toVecSync()).toEqual([[0, 1]]);
      expect(() => oneHot(from([1]), 2)).toThrow(expect.objectContaining({ code: 'DTYPE_MISMATCH' }));
      const outside = () => oneHot(from([4, -2], 'i64'), 4);
      if (reportsIds()) expect(() => outside().toArraySync()).toThrow(/^oneHot: id (4|-2) at .* is outside -1\.\.3/);
      else expect(outside().sumAll().toScalarSync()).toBe(0);
    });
  });
}
