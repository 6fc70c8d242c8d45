/**
 * How exact long sums are on one device: of f32 within 2e-7 of the exact value, whatever the length, the strides and the
 * reduced dims, which leaves room for rounding the sum, the reciprocal of the count and their product, and for nothing
 * else. Equal values are the hard case, for every addition then rounds to the same side.
 */

import { type Device, Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { random } from '../random';
import { testSettings } from '../settings';
import { makers } from './makers';

/** Sizes are a few times smaller with X_TEST_SCALE=0.2, for devices that a program computes. */
const many = (count: number) => Math.max(50, Math.round(count * testSettings.scale));
const TENTH = Math.fround(0.1);

export function tensorSumsSuite(name: string, device: () => Device): void {
  const { from } = makers(device);
  const full = (value: number, shape: number[]) => Tensor.full(value, shape, 'f32', device());

  /** Every element of `actual` within 2e-7 of `expected`. */
  function expectExact(actual: Tensor, expected: number | ArrayLike<number>): void {
    const values = actual.flattenAll().toDtype('f64').toVecSync() as number[];
    let worst = 0;
    values.forEach((value, i) => {
      const wanted = typeof expected === 'number' ? expected : expected[i];
      const error = Math.abs(value / wanted - 1);
      worst = Math.max(error, worst);
    });
    expect(worst).toBeLessThanOrEqual(2e-7);
  }

  /** Values of [0.5, 1.5) whose exact sums are `sums(...)`. */
  function scattered(count: number): Float32Array {
    const next = random(12345);
    return new Float32Array(count).map(() => 0.5 + next());
  }

  describe(`long sums on ${name}`, () => {
    const side = many(1000);
    const views: Record<string, () => [Tensor, number | number[]]> = {
      'all of a vector': () => [full(0.1, [many(1_000_003)]), [0]],
      'all of a transposed matrix': () => [full(0.1, [side, side + 24]).t(), [0, 1]],
      'rows of a transposed matrix': () => [full(0.1, [many(300_001), 3]).t(), 1],
      'columns of a matrix': () => [full(0.1, [many(300_001), 3]), 0],
      'columns, 16 bytes at a time': () => [full(0.1, [many(100_003), 8]), 0],
      'the middle of three dims': () => [full(0.1, [2, many(100_001), 5]), 1],
      'dims around another': () => [full(0.1, [2, 3, many(400), 401]), [0, 2, 3]],
      'every second dim of five': () => [full(0.1, [7, 3, many(90), 5, 91]), [0, 2, 4]],
      'a narrowed matrix': () => [full(0.1, [side, side]).narrow(1, 3, side - 7), [0, 1]],
      'rows of a narrowed matrix': () => [full(0.1, [3, many(200_000)]).narrow(1, 1, many(200_000) - 3), 1],
      'a broadcast number': () => [full(0.1, [1, 1]).broadcastAs([side, side + 1]), [0, 1]],
      'a broadcast row': () => [full(0.1, [1, 9]).broadcastAs([many(100_000), 9]), [0, 1]],
      'many short rows': () => [full(0.1, [many(2000), 101]), 1],
    };
    test.each(Object.entries(views))('of equal values: %s', (_, make) => {
      const [t, dims] = make();
      const mean = t.mean(dims);
      expectExact(mean, TENTH);
      expectExact(t.sum(dims), (TENTH * t.elemCount) / mean.elemCount);
      expectExact(t.sqr().sum(dims), (Math.fround(TENTH * TENTH) * t.elemCount) / mean.elemCount);
    });

    test('of scattered values: all, rows and columns, permuted', () => {
      const [a, b, c] = [many(300), 67, 33];
      const data = scattered(a * b * c);
      const t = from(data).reshape([a, b, c]);
      const sums = (size: number, group: (i: number) => number) => {
        const out = new Float64Array(size);
        data.forEach((value, i) => {
          out[group(i)] += value;
        });
        return out;
      };
      const all = sums(1, () => 0);
      expectExact(t.sumAll(), all);
      expectExact(t.permute([2, 0, 1]).sumAll(), all);
      const byB = sums(b, (i) => Math.floor(i / c) % b);
      expectExact(t.sum([0, 2]), byB);
      expectExact(t.permute([2, 1, 0]).sum([0, 2]), byB);
      const byC = sums(c, (i) => i % c);
      expectExact(t.sum([0, 1]), byC);
      expectExact(t.permute([2, 0, 1]).sum([1, 2]), byC);
      const byA = sums(a, (i) => Math.floor(i / (b * c)));
      expectExact(t.sum([1, 2]), byA);
      expectExact(
        t.transpose(1, 2).mean([1, 2]),
        Array.from(byA, (sum) => sum / (b * c)),
      );
    });

    test('what cancels is not lost', () => {
      const count = many(100_000);
      const t = full(0.1, [count]);
      const sum = from(Float32Array.of(1e6, ...(t.toVecSync() as number[]), -1e6))
        .sumAll()
        .toScalarSync() as number;
      expect(Math.abs(sum - count * TENTH)).toBeLessThan(2e-7 * (2e6 + count * TENTH));
    });

    test('infinities and NaN pass through', () => {
      const line = (...ends: number[]) => {
        const data = new Float32Array(many(20_000)).fill(0.1);
        data.set(ends, 100);
        return from(data);
      };
      for (const shape of [[-1], [-1, 4], [-1, 5]]) {
        for (const [ends, sum] of [
          [[Infinity], Infinity],
          [[-Infinity], -Infinity],
          [[Infinity, Infinity], Infinity],
          [[Infinity, -Infinity], Number.NaN],
          [[Number.NaN], Number.NaN],
        ] as const) {
          const t = line(...ends);
          const width = shape[1] ?? 1;
          const columns = t
            .narrow(0, 0, t.elemCount - (t.elemCount % width))
            .reshape([(t.elemCount / width) | 0, width]);
          expect(t.sumAll().toScalarSync()).toBe(sum);
          expect(columns.t().sum([0, 1]).toScalarSync()).toBe(sum);
          const found = columns.sum(0).toVecSync() as number[];
          expect(found.filter((value) => !Number.isFinite(value)).length).toBeGreaterThan(0);
        }
      }
    });

    test('of f16 and bf16', () => {
      for (const dtype of ['f16', 'bf16'] as const) {
        const t = full(1, [many(50_000), 3]).toDtype(dtype);
        expect(t.mean(0).toDtype('f32').toVecSync()).toEqual([1, 1, 1]);
        expect(t.t().mean([0, 1]).toScalarSync()).toBe(1);
        const rows = full(0.1, [2, many(20_000)]).toDtype(dtype);
        const one = rows.get(0).get(0).toScalarSync() as number;
        expect(rows.mean(1).toDtype('f32').toVecSync()).toEqual([one, one]);
      }
    });

    test('norms and the statistics of rows', () => {
      const count = many(400_000);
      expectExact(full(1, [count]).norm(), Math.sqrt(count));
      expectExact(full(1, [count, 2]).t().norm(), Math.sqrt(2 * count));
      const rows = full(1, [2, count]);
      expectExact(rows.rmsNorm(full(1, [count]), 0), 1);
      expectExact(rows.softmaxLastDim(), 1 / count);
      // Two values around a mean of 3 at a distance of 1.
      const twoSided = from(new Float32Array(2 * count).map((_, i) => 2 + 2 * (i % 2))).reshape([2, count]);
      const normed = twoSided
        .narrow(1, 0, count - (count % 2))
        .layerNorm(full(1, [count - (count % 2)]), full(3, [count - (count % 2)]), 0);
      expectExact(normed.get(0).narrow(0, 0, 2), [2, 4]);
      expectExact(full(0.25, [count]).logSumExp(0), 0.25 + Math.log(count));
    });

    test('prefix sums', () => {
      const count = many(200_001);
      const equal = full(0.1, [count]).cumsum(0);
      expectExact(
        equal,
        new Float64Array(count).map((_, i) => (i + 1) * TENTH),
      );
      const data = scattered(3 * many(5000));
      const sums = Float64Array.from(data);
      for (let i = 3; i < sums.length; i++) sums[i] += sums[i - 3];
      const columns = from(data).reshape([data.length / 3, 3]);
      expectExact(columns.cumsum(0), sums);
      expectExact(columns.t().cumsum(1).t(), sums);
    });

    test.each([31, 32, 33, 64, 65, 1024, 1025, 2100])('prefix sums of %i integers wrap', (count) => {
      const sums = Tensor.full(1000, [2, count], 'i16', device()).cumsum(1);
      expect(sums.get(1).toVecSync()).toEqual(Array.from({ length: count }, (_, i) => ((1000 * (i + 1)) << 16) >> 16));
    });

    test('averages of long windows', () => {
      const size = many(500);
      expectExact(full(0.1, [1, 2, size, size + 3]).avgPool2d([size, size + 3]), TENTH);
      expectExact(full(0.1, [1, 1, 70, 131]).avgPool2d([35, 65]), TENTH);
    });

    test('gradients of what was broadcast', () => {
      const rows = many(50_000);
      using bias = Var.fromTensor(full(0, [1, 3]));
      using scalar = Var.fromTensor(full(0, []));
      const out = full(1, [rows, 3]).broadcastAdd(bias.asTensor()).broadcastAdd(scalar.asTensor()).affine(0.1, 0);
      const grads = out.sumAll().backward();
      expectExact(grads.get(bias)!, rows * TENTH);
      expectExact(grads.get(scalar)!, 3 * rows * TENTH);
    });
  });
}
