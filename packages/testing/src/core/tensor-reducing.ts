/**
 * candle's tensor_tests about reductions (sum, min, max, argmin, argmax, var, cumsum, log_sum_exp, tensor_norm) on one
 * device. candle's counts from 200 to 3999 run in the dtypes that hold them, its small cube in all.
 */

import { type Device, DTYPES, type DType, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectClose, expectFlat, numbers } from './close';
import { makers } from './makers';

/** Whole numbers up to 8 million are exact in these. */
const WIDE: readonly DType[] = ['u32', 'i32', 'i64', 'f32', 'f64'];

export function tensorReducingSuite(name: string, device: () => Device): void {
  const { from, shaped, counted, ones } = makers(device);
  const cube = (dtype: DType) => shaped([3, 1, 4, 1, 5, 9, 2, 1, 7, 8, 2, 8], [2, 2, 3], dtype);
  /** The same elements with the first dimension innermost in memory. */
  const turned = (t: Tensor) =>
    t
      .transpose(0, t.rank - 1)
      .contiguous()
      .transpose(0, t.rank - 1);
  const range = (count: number, start: number, step = 1) => Array.from({ length: count }, (_, i) => start + i * step);

  describe(`reductions on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::sum of the cube in %s', (dtype) => {
      const t = cube(dtype);
      expectFlat(t.sumKeepdim(2), [2, 2, 1], [8, 15, 10, 18]);
      expectFlat(t.sumKeepdim(0), [1, 2, 3], [5, 2, 11, 9, 7, dtype === 'f8e4m3' ? 16 : 17]);
      expectFlat(t.t().sumKeepdim(1).t(), [2, 2, 1], [8, 15, 10, 18]);
      // 23, 28, 33 and 51 are no f8e4m3: rounded once, from exact sums.
      const narrow = dtype === 'f8e4m3';
      expectFlat(t.sumKeepdim([2, 1]), [2, 1, 1], narrow ? [24, 28] : [23, 28]);
      expectFlat(t.sumKeepdim([0, 2, 1]), [1, 1, 1], [narrow ? 52 : 51]);
      expectFlat(t.sum([0, 2]), [2], narrow ? [18, 32] : [18, 33]);
      expectFlat(t.sumAll(), [], [narrow ? 52 : 51]);
    });

    test.each(WIDE)('tensor_tests::sum of 4000 elements in %s', (dtype) => {
      const line = counted([4000], dtype);
      expectFlat(line.sumKeepdim(0), [1], [7998000]);
      const pairs = line.reshape([2000, 2]);
      for (const t of [pairs, turned(pairs)]) {
        expectFlat(t.sumKeepdim([0, 1]), [1, 1], [7998000]);
        expectFlat(t.sumKeepdim(0).sumKeepdim(1), [1, 1], [7998000]);
        expectFlat(t.sumKeepdim(1).sumKeepdim(0), [1, 1], [7998000]);
        expectFlat(t.sumKeepdim(0), [1, 2], [3998000, 4000000]);
      }
      const block = line.reshape([200, 5, 4]);
      for (const t of [block, turned(block)]) {
        expectFlat(t.sumKeepdim([0, 1, 2]), [1, 1, 1], [7998000]);
        expectFlat(t.sumKeepdim(0).sumKeepdim(2).sumKeepdim(1), [1, 1, 1], [7998000]);
        expectFlat(t.sumKeepdim(0).sumKeepdim([1, 2]), [1, 1, 1], [7998000]);
        expectFlat(t.sumKeepdim(1).sumKeepdim([0, 2]), [1, 1, 1], [7998000]);
        expectFlat(t.sumKeepdim(0), [1, 5, 4], range(20, 398000, 200));
      }
    });

    // What each finds in the cube along its last and first dimension; in 200..3999 at all, in the columns of [1900, 2],
    // and in those of [190, 5, 4].
    const extremes = {
      min: { last: [1, 1, 1, 2], first: [2, 1, 4, 1, 2, 8], all: 200, pairs: [200, 201], blocks: range(20, 200) },
      max: { last: [4, 9, 7, 8], first: [3, 1, 7, 8, 5, 9], all: 3999, pairs: [3998, 3999], blocks: range(20, 3980) },
    };
    const positions = {
      argmin: { last: [1, 0, 1, 1], first: [1, 0, 0, 0, 1, 1], all: 0, pairs: [0, 0], blocks: Array(20).fill(0) },
      argmax: {
        last: [2, 2, 2, 0],
        first: [0, 0, 1, 1, 0, 0],
        all: 3799,
        pairs: [1899, 1899],
        blocks: Array(20).fill(189),
      },
    };

    for (const op of ['min', 'max'] as const) {
      const { last, first, all, pairs, blocks } = extremes[op];
      const keep = `${op}Keepdim` as const;
      test.each(DTYPES)(`tensor_tests::${op} of the cube in %s`, (dtype) => {
        expectFlat(cube(dtype)[keep](2), [2, 2, 1], last);
        expectFlat(cube(dtype)[keep](0), [1, 2, 3], first);
        expectFlat(cube(dtype)[op](-1), [2, 2], last);
        expect(cube(dtype)[op](0).dtype).toBe(dtype);
      });
      test.each([...WIDE, 'i16'] as const)(`tensor_tests::${op} of 3800 elements in %s`, (dtype) => {
        const line = counted([3800], dtype, 200);
        expectFlat(line[keep](0), [1], [all]);
        const two = line.reshape([1900, 2]);
        for (const t of [two, turned(two)]) {
          expectFlat(t[keep](0)[keep](1), [1, 1], [all]);
          expectFlat(t[keep](1)[keep](0), [1, 1], [all]);
          expectFlat(t[keep](0), [1, 2], pairs);
        }
        const block = line.reshape([190, 5, 4]);
        for (const t of [block, turned(block)]) {
          expectFlat(t[keep](0)[keep](2)[keep](1), [1, 1, 1], [all]);
          expectFlat(t[keep](0), [1, 5, 4], blocks);
          expectFlat(t[keep]([0, 1, 2]), [1, 1, 1], [all]);
        }
      });
    }

    for (const op of ['argmin', 'argmax'] as const) {
      const { last, first, all, pairs, blocks } = positions[op];
      const keep = `${op}Keepdim` as const;
      test.each(DTYPES)(`tensor_tests::${op} of the cube in %s`, (dtype) => {
        expectFlat(cube(dtype)[keep](2), [2, 2, 1], last);
        expectFlat(cube(dtype)[keep](0), [1, 2, 3], first);
        expect(cube(dtype)[op](0).dtype).toBe('u32');
      });
      test.each([...WIDE, 'i16'] as const)(`tensor_tests::${op} of 3800 elements in %s`, (dtype) => {
        const line = counted([3800], dtype, 200);
        expectFlat(line[keep](0), [1], [all]);
        const two = line.reshape([1900, 2]);
        for (const t of [two, turned(two)]) {
          expectFlat(t[keep](0), [1, 2], pairs);
          // Equal positions: the first of them.
          expectFlat(t[keep](0)[keep](1), [1, 1], [0]);
          expectFlat(t[keep](1)[keep](0), [1, 1], [0]);
        }
        const block = line.reshape([190, 5, 4]);
        for (const t of [block, turned(block)]) {
          expectFlat(t[keep](0), [1, 5, 4], blocks);
          expectFlat(t[keep](0)[keep](2)[keep](1), [1, 1, 1], [0]);
        }
      });
    }

    test('min and max over several and all dimensions, of views', () => {
      const t = cube('f32');
      expectFlat(t.max([0, 1]), [3], [8, 5, 9]);
      expectFlat(t.maxKeepdim([1, 2]), [2, 1, 1], [9, 8]);
      expect([t.maxAll().toScalarSync(), t.minAll().toScalarSync()]).toEqual([9, 1]);
      expectFlat(t.transpose(0, 2).argmax(0), [2, 2], [2, 2, 2, 0]);
      expectFlat(t.permute([2, 0, 1]).sum([0]), [2, 2], [8, 15, 10, 18]);
    });

    test('NaN wins and ties go to the first', () => {
      const t = shaped([1, Number.NaN, 3, Number.NaN, 5, 5, 2, 2], [2, 4]);
      expectFlat(t.max(1), [2], [Number.NaN, 5]);
      expectFlat(t.min(1), [2], [Number.NaN, 2]);
      expectFlat(t.argmax(1), [2], [1, 0]);
      expectFlat(t.argmin(1), [2], [1, 2]);
    });

    test('sums are accurate, means of f16 do not overflow, integer sums wrap', () => {
      const many = Tensor.full(0.1, [100000], 'f32', device());
      expect(Math.abs(many.sumAll().toScalarSync() - 10000) / 10000).toBeLessThan(1e-6);
      expect(Tensor.full(60000, [8], 'f16', device()).meanAll().toScalarSync()).toBe(60000);
      expect(Tensor.full(300, [300], 'i16', device()).sumAll().toScalarSync()).toBe(90000 - 65536);
    });

    // PyTorch's example of torch.var.
    test.each([
      ['f32', 1e-4],
      ['f64', 1e-4],
      ['f16', 2e-3],
      ['bf16', 2e-2],
    ] as const)('tensor_tests::var in %s', (dtype, tolerance) => {
      const data = [
        0.2035, 1.2959, 1.8101, -0.4644, 1.5027, -0.327, 0.5905, 0.6538, -1.5745, 1.333, -0.5596, -0.6548, 0.1264,
        -0.508, 1.642, 0.1992,
      ];
      const t = shaped(data, [4, 4], dtype);
      expectFlat(t.varKeepdim(1), [4, 1], [1.0631, 0.559, 1.4893, 0.8258], tolerance);
      expectFlat(t.t().var(0), [4], [1.0631, 0.559, 1.4893, 0.8258], tolerance);
    });

    test('mean', () => {
      expectFlat(cube('f32').mean(2), [2, 2], [2.6667, 5, 3.3333, 6], 6e-5);
      expectFlat(cube('f32').meanKeepdim([0, 1]), [1, 1, 3], [3.5, 2.25, 7]);
    });

    test.each(DTYPES)('tensor_tests::cumsum in %s', (dtype) => {
      const rounded = (values: number[]) => numbers(from(values).toDtype(dtype));
      const line = from([3, 1, 4, 1, 5], dtype);
      expectFlat(line.cumsum(0), [5], [3, 4, 8, 9, 14]);
      expectFlat(line.unsqueeze(1).cumsum(0), [5, 1], [3, 4, 8, 9, 14]);
      expectFlat(line.unsqueeze(1).cumsum(1), [5, 1], [3, 1, 4, 1, 5]);
      const rows = shaped([3, 1, 4, 1, 5, 2, 1, 7, 8, 2], [2, 5], dtype);
      expectFlat(rows.cumsum(1), [2, 5], rounded([3, 4, 8, 9, 14, 2, 3, 10, 18, 20]));
      expectFlat(rows.cumsum(0), [2, 5], [3, 1, 4, 1, 5, 5, 2, 11, 9, 7]);
      expectFlat(rows.t().cumsum(0), [5, 2], rounded([3, 2, 4, 3, 8, 10, 9, 18, 14, 20]));
    });

    test('cumsum of many', () => {
      expect(ones([1000], 'i32').cumsum(0).get(-1).toScalarSync()).toBe(1000);
    });

    test.each([
      [[3, 1100], 1],
      [[700, 3], 0],
      [[2, 40, 70], 1],
    ])('cumsum of %j along %i, in another order too', (shape, dim) => {
      const count = shape.reduce((a, b) => a * b, 1);
      const x = shaped(
        Array.from({ length: count }, (_, i) => Math.sin(i) * 100),
        shape,
        'f32',
      );
      const inner = shape.slice(dim + 1).reduce((a, b) => a * b, 1);
      const sums = [...x.flattenAll().toVecSync<number[]>()];
      for (let i = 0; i < count; i++) if (Math.floor(i / inner) % shape[dim] > 0) sums[i] += sums[i - inner];
      expectFlat(x.cumsum(dim), shape, sums, 1e-3);
      const last = x.rank - 1;
      expectFlat(x.transpose(dim, last).contiguous().transpose(dim, last).cumsum(dim), shape, sums, 1e-3);
    });

    test('cumsum of nothing, one and NaN', () => {
      expectFlat(shaped([], [0, 3], 'f32').cumsum(0), [0, 3], []);
      expectFlat(shaped([], [3, 0], 'f32').cumsum(0), [3, 0], []);
      expectFlat(from([[5], [6]], 'f32').cumsum(1), [2, 1], [5, 6]);
      expectFlat(from([1, Number.NaN, 2], 'f32').cumsum(0), [3], [1, Number.NaN, Number.NaN]);
    });

    test.each(['f64', 'f32'] as const)('tensor_tests::log_sum_exp in %s', (dtype) => {
      const data = [1, 2, 3, 4, 5, 6, -1000, -999, -1001, 1000, 999, 1001];
      const t = shaped(data, [2, 2, 3], dtype);
      expectClose(t.logSumExp(-1), [
        [3.4076, 6.4076],
        [-998.5924, 1001.4076],
      ]);
      expectFlat(t.logSumExp([0, 1]), [3], [1000, 999, 1001]);
      expectFlat(t.logSumExp([]), [2, 2, 3], data, dtype === 'f64' ? 1e-12 : 1e-6);
      expect(from([-Infinity, -Infinity], dtype).logSumExp(0).toScalarSync()).toBe(-Infinity);
    });

    test.each(['f64', 'f32', 'f16', 'bf16'] as const)('tensor_tests::tensor_norm in %s', (dtype) => {
      expectFlat(shaped([3, 4, 0, 0], [2, 2], dtype).norm(), [], [5]);
      expectFlat(shaped([3, -4, 0, 12], [2, 2], dtype).t().norm(), [], [13]);
    });
  });
}
