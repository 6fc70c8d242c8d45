/** Products with the weights of experts on one device; candle has no tests of its own for them. */
import { type Device, Tensor, Var } from '@x/core';
import { moeGemm, moeGemmGguf, sortByExpert } from '@x/nn';
import { QTensor } from '@x/quantized';
import { describe, expect } from 'vitest';
import { check } from './check';
import { expectClose } from './close';
import { values } from './helpers';

export function moeSuite(name: string, device: () => Device): void {
  const [tokens, experts, topk, n, k] = [5, 4, 2, 3, 64];
  /** Experts of each token; expert 1 gets none. */
  const chosen = [3, 0, 2, 3, 0, 2, 3, 2, 0, 3];
  const make = (shape: number[], seed: number) =>
    Tensor.from(
      values(
        shape.reduce((a, b) => a * b, 1),
        seed,
      ),
      { shape, device: device() },
    );
  /** Row by row, in numbers. */
  const expected = (input: Tensor, weights: Tensor, scales?: Float32Array) => {
    const [x, w] = [input, weights].map((tensor) => tensor.toArraySync<Float32Array>());
    return chosen.map((expert, pair) =>
      Array.from({ length: n }, (_, o) => {
        const row = scales ? pair : Math.floor(pair / topk);
        let sum = 0;
        for (let i = 0; i < k; i++) sum += x[row * k + i] * w[(expert * n + o) * k + i];
        return sum * (scales?.[pair] ?? 1);
      }),
    );
  };

  describe(`mixture of experts on ${name}`, () => {
    check('pairs are sorted by expert, then by number', () => {
      const { sortedTokenIds, expertIds } = sortByExpert(chosen);
      expect(Array.from(expertIds)).toEqual([0, 0, 0, 2, 2, 2, 3, 3, 3, 3]);
      expect(Array.from(sortedTokenIds)).toEqual([1, 4, 8, 2, 5, 7, 0, 3, 6, 9]);
    });

    check('each pair has the product with its expert, in the order of the pairs', () => {
      const weights = make([experts, n, k], 1);
      const input = make([tokens, k], 2);
      const sorted = sortByExpert(chosen);
      expectClose(moeGemm(input, weights, undefined, sorted, topk), expected(input, weights), 1e-5);
      const scales = values(10, 3);
      const rows = make([tokens * topk, k], 4);
      const scaled = moeGemm(
        rows,
        weights,
        Tensor.from(scales, { shape: [tokens, topk], device: device() }),
        sorted,
        topk,
      );
      expectClose(scaled, expected(rows, weights, scales), 1e-5);
      expect(moeGemm(input.toDtype('f16'), weights.toDtype('f16'), undefined, sorted, topk).dtype).toBe('f16');
      expect(() => moeGemm(rows, weights, undefined, sorted, topk)).toThrow(/one of each a pair/);
      const outside = sortByExpert(chosen.map((expert) => expert + 1));
      expect(() => moeGemm(input, weights, undefined, outside, topk)).toThrow(/expert 4 of 4/);
      const trained = Var.fromTensor(weights);
      const grad = moeGemm(input, trained, undefined, sorted, topk).sumAll().backward().get(trained)!;
      expect(grad.narrow(0, 1, 1).abs().maxAll().toScalarSync()).toBe(0);
      expect(grad.narrow(0, 3, 1).abs().maxAll().toScalarSync()).toBeGreaterThan(0.1);
    });

    check('experts in blocks', () => {
      const input = make([tokens, k], 6);
      for (const type of ['q8_0', 'f16'] as const) {
        using blocks = QTensor.quantizeSync(make([experts, n, k], 5), type);
        const weights = blocks.dequantize();
        const result = moeGemmGguf(input, blocks, undefined, sortByExpert(chosen), topk);
        // Kernels round activations to 8 bits: 1 / 254 of the largest of a block, on 64 products below 1.
        expectClose(result, expected(input, weights), 0.06);
      }
    });
  });
}
