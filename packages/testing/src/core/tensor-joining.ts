/**
 * candle's tensor_tests about putting tensors together (cat, slice_set, slice_scatter, pad_with_same, flips) on one device,
 * with stack, repeat, roll and grids.
 */

import { type Device, DTYPES, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame, numbers } from './close';
import { makers } from './makers';

export function tensorJoiningSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, ones, counted, randn } = makers(device);

  describe(`joining on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::cat of vectors and matrices in %s', (dtype) => {
      const t1 = from([3, 1, 4], dtype);
      const t2 = from([1, 5, 9, 2], dtype);
      const t3 = from([6, 5, 3, 5, 8, 9], dtype);
      expectFlat(Tensor.cat([t1], 0), [3], [3, 1, 4]);
      expectFlat(Tensor.cat([t1, t2], 0), [7], [3, 1, 4, 1, 5, 9, 2]);
      expectFlat(Tensor.cat([t1, t2, t3], 0), [13], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]);

      const upper = [3, 1, 4, 1, 5, 2, 7, 1, 8, 2];
      const lower = [5, 5, 5, 5, 5, 2, 7, 1, 8, 2];
      const [a, b] = [shaped(upper, [2, 5], dtype), shaped(lower, [2, 5], dtype)];
      expectFlat(Tensor.cat([a, b], 0), [4, 5], [...upper, ...lower]);
      // PyTorch: torch.cat([t1.t(), t2.t()], dim=1).t()
      expectFlat(Tensor.cat([a.t(), b.t()], 1).t(), [4, 5], [...upper, ...lower]);
      const beside = [3, 1, 4, 1, 5, 5, 5, 5, 5, 5, 2, 7, 1, 8, 2, 2, 7, 1, 8, 2];
      expectFlat(Tensor.cat([a, b], 1), [2, 10], beside);
    });

    test('tensor_tests::cat of three dimensions, contiguous or not', () => {
      const parts = [counted([2, 6, 4], 'i64'), counted([2, 3, 4], 'i64', 100), counted([2, 4, 4], 'i64', 10000)];
      const joined = Tensor.cat(parts, 1);
      const turned = Tensor.cat(
        parts.map((part) => part.t().contiguous().t()),
        1,
      );
      expect(joined.shape).toEqual([2, 13, 4]);
      expect(joined.eq(turned).toDtype('f32').sumAll().toScalarSync()).toBe(104);
      const at: [number, number, number, bigint][] = [
        [0, 0, 0, 0n],
        [0, 4, 0, 16n],
        [0, 5, 0, 20n],
        [1, 5, 0, 44n],
        [0, 6, 0, 100n],
        [1, 6, 0, 112n],
        [0, 6, 1, 101n],
        [0, 7, 1, 105n],
        [0, 12, 1, 10013n],
        [1, 12, 3, 10031n],
      ];
      for (const [i, j, k, value] of at) expect(joined.i(i, j, k).toScalarSync<bigint>()).toBe(value);
    });

    test.each(DTYPES)('tensor_tests::cat of parts of a larger tensor in %s', (dtype) => {
      // 90 elements, that f8e4m3 does not tell apart above 16; equal bits are what counts.
      const base = counted([3, 6, 5], 'f32').toDtype(dtype);
      const [head, tail] = [base.narrow(1, 0, 4), base.narrow(1, 2, 4)];
      expectSame(Tensor.cat([head, tail], 1), Tensor.cat([head.contiguous(), tail.contiguous()], 1));
      expectSame(Tensor.cat([head, tail], 1).narrow(1, 0, 4), head);
      expectSame(Tensor.cat([head, tail], 2).narrow(2, 5, 5), tail);
      expectSame(Tensor.cat([head, tail], 0).narrow(0, 3, 3), tail);
    });

    test.each(DTYPES)('stack and repeat in %s', (dtype) => {
      const t = counted([2, 2], dtype);
      const u = t.t();
      expectFlat(Tensor.cat([t, u, t], 1), [2, 6], [0, 1, 0, 2, 0, 1, 2, 3, 1, 3, 2, 3]);
      expectFlat(Tensor.stack([t, u], 0), [2, 2, 2], [0, 1, 2, 3, 0, 2, 1, 3]);
      expectFlat(Tensor.stack([t, u], -1), [2, 2, 2], [0, 0, 1, 2, 2, 1, 3, 3]);
      const rows = [0, 1, 0, 1, 2, 3, 2, 3];
      expectFlat(t.repeat([2, 1, 2]), [2, 2, 4], [...rows, ...rows]);
    });

    test('tensor_tests::slice_set', () => {
      const cache = zeros([2, 4, 7, 3]);
      const part = randn([2, 4, 4, 3]);
      for (const offset of [0, 1]) {
        cache.sliceSet(part, 2, offset);
        expectSame(cache.narrow(2, offset, 4), part);
      }
      cache.sliceSet(ones([2, 4, 1, 3]), 2, 6);
      expect(numbers(cache.narrow(2, 5, 1).abs().sumAll())).toEqual([0]);
      expect(numbers(cache.narrow(2, 6, 1).sub(1).abs().sumAll())).toEqual([0]);
      expect(() => cache.sliceSet(cache, 0, 0)).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
      expectSame(cache.narrow(2, 1, 4), part);
    });

    test.each(DTYPES)('tensor_tests::slice_set along any dimension in %s', (dtype) => {
      const cache = zeros([2, 5, 2], dtype);
      cache.sliceSet(counted([2, 2, 2], dtype), 1, 1);
      cache.sliceSet(counted([2, 2, 1], dtype).transpose(1, 2).add(10), 1, 4);
      expectFlat(cache, [2, 5, 2], [0, 0, 0, 1, 2, 3, 0, 0, 10, 11, 0, 0, 4, 5, 6, 7, 0, 0, 12, 13]);
      const rows = zeros([3, 2], dtype);
      rows.sliceSet(counted([1, 2], dtype).add(1), 0, 2);
      rows.sliceSet(counted([3, 1], dtype), 1, 1);
      expectFlat(rows, [3, 2], [0, 0, 0, 1, 1, 2]);
    });

    test('tensor_tests::slice_scatter leaves its input alone', () => {
      const t = counted([4, 3]);
      const src = counted([2, 3], 'f32', 100);
      const [before, written] = [numbers(t), numbers(src)];
      for (const start of [0, 1, 2]) {
        const expected = [...before.slice(0, start * 3), ...written, ...before.slice(start * 3 + 6)];
        expectFlat(t.sliceScatter(src, 0, start), [4, 3], expected);
      }
      expectFlat(t, [4, 3], before);
      expectFlat(zeros([3, 2]).sliceScatter(counted([3, 1]), 1, 1), [3, 2], [0, 0, 0, 1, 0, 2]);
    });
  });

  describe(`padding, flips and grids on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::pad_with_same in %s', (dtype) => {
      const t = counted([2, 2], dtype, 1);
      expectFlat(t.padWithSame(0, 1, 2), [5, 2], [1, 2, 1, 2, 3, 4, 3, 4, 3, 4]);
      expectFlat(t.padWithSame(1, 1, 2), [2, 5], [1, 1, 2, 2, 2, 3, 3, 4, 4, 4]);
      expectFlat(t.t().padWithSame(0, 1, 0), [3, 2], [1, 3, 1, 3, 2, 4]);
    });

    test.each(DTYPES)('padding with zeros, roll in %s', (dtype) => {
      expectFlat(counted([2, 2], dtype).padWithZeros(1, 1, 2), [2, 5], [0, 0, 1, 0, 0, 0, 2, 3, 0, 0]);
      expectFlat(counted([5], dtype).roll(2, 0), [5], [3, 4, 0, 1, 2]);
      expectFlat(counted([5], dtype).roll(-1, 0), [5], [1, 2, 3, 4, 0]);
    });

    test.each(DTYPES)('tensor_tests::test_flip_1d in %s', (dtype) => {
      expectFlat(counted([5], dtype).flip([0]), [5], [4, 3, 2, 1, 0]);
    });

    test.each(DTYPES)('tensor_tests::test_flip_2d in %s', (dtype) => {
      const t = counted([2, 3], dtype);
      expectFlat(t.flip([0, 1]), [2, 3], [5, 4, 3, 2, 1, 0]);
      expectFlat(t.t().flip([0]), [3, 2], [2, 5, 1, 4, 0, 3]);
    });

    test.each(DTYPES)('tensor_tests::test_flip_3d_channels in %s', (dtype) => {
      expectFlat(counted([2, 2, 3], dtype).flip([2]), [2, 2, 3], [2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9]);
    });

    test('flips of views, of nothing, and of many elements', () => {
      const t = counted([2, 3, 4], 'f32');
      expectFlat(t.transpose(0, 2).flip([0, 2]).i(0), [3, 2], [15, 3, 19, 7, 23, 11]);
      expectFlat(t.i(1).narrow(1, 1, 2).flip([-1]), [3, 2], [14, 13, 18, 17, 22, 21]);
      expectFlat(from([1, 2]).reshape([2, 1]).broadcastAs([2, 3]).flip([0, 1]), [2, 3], [2, 2, 2, 1, 1, 1]);
      expectSame(t.flip([]), t);
      expect(zeros([0, 3]).flip([0, 1]).shape).toEqual([0, 3]);
      const size = [300, 401];
      const back = counted(size, 'f32').flip([0, 1]);
      expectFlat(
        back,
        size,
        Array.from({ length: 300 * 401 }, (_, i) => 300 * 401 - 1 - i),
      );
      expectFlat(counted(size, 'f32').flip([1]).narrow(0, 299, 1).narrow(1, 0, 2), [1, 2], [120299, 120298]);
    });

    test('meshgrid', () => {
      const [x, y] = [from([1, 2, 3]), from([4, 5])];
      const [across, down] = Tensor.meshgrid([x, y], false);
      expectFlat(across, [3, 2], [1, 1, 2, 2, 3, 3]);
      expectFlat(down, [3, 2], [4, 5, 4, 5, 4, 5]);
      const [xs, ys] = Tensor.meshgrid([x, y], true);
      expectFlat(xs, [2, 3], [1, 2, 3, 1, 2, 3]);
      expectFlat(ys, [2, 3], [4, 4, 4, 5, 5, 5]);
      expect(() => Tensor.meshgrid([x], false)).toThrow(/two or more of rank 1/);
      expect(() => Tensor.meshgrid([x, x.unsqueeze(0)], false)).toThrow(/ranks \[1, 2\]/);
    });
  });
}
