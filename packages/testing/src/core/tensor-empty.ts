/** candle's tensor_tests about tensors without elements (zero_dim, repeat_with_zero_factor, meshgrid_with_empty_axis). */

import { type Device, DTYPES, isFloat, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat } from './close';
import { makers } from './makers';

export function tensorEmptySuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, counted } = makers(device);

  describe(`empty tensors on ${name}`, () => {
    test.each(DTYPES.filter(isFloat))('tensor_tests::zero_dim in %s', (dtype) => {
      const t = zeros([4, 0, 1], dtype);
      const full = zeros([4, 3, 1], dtype);
      expectFlat(t, [4, 0, 1], []);
      expectFlat(Tensor.cat([t, full], 1), [4, 3, 1], Array(12).fill(0));
      expectFlat(Tensor.cat([t, t], 1), [4, 0, 1], []);
      expectFlat(t.sqrt(), [4, 0, 1], []);
      expectFlat(t.add(1), [4, 0, 1], []);
      expectFlat(full.matmul(t.t()), [4, 3, 0], []);
      expectFlat(t.matmul(full.t()), [4, 0, 3], []);
      expectFlat(t.t().matmul(t), [4, 1, 1], [0, 0, 0, 0]);
    });

    test.each(DTYPES)('tensor_tests::repeat_with_zero_factor in %s', (dtype) => {
      const t = shaped([1, 2, 3, 4], [2, 2], dtype);
      for (const [counts, shape] of [
        [
          [0, 2],
          [0, 4],
        ],
        [
          [2, 0],
          [4, 0],
        ],
      ]) {
        const repeated = t.repeat(counts);
        expectFlat(repeated, shape, []);
        expect([repeated.elemCount, repeated.dtype]).toEqual([0, dtype]);
      }
    });

    test.each(DTYPES)('tensor_tests::meshgrid_with_empty_axis in %s', (dtype) => {
      const empty = Tensor.fromArray([], [0], dtype, device());
      const grids = Tensor.meshgrid([empty, from([10, 20, 30], dtype)], false);
      expect(grids).toHaveLength(2);
      for (const grid of grids) expectFlat(grid, [0, 3], []);
    });

    test('every family answers', () => {
      const e = zeros([0, 3]);
      const ids = zeros([0], 'u32');
      expect(e.toVecSync()).toEqual([]);
      expect(e.exp().add(e).mul(2).shape).toEqual([0, 3]);
      expect(e.eq(e).whereCond(e, e).shape).toEqual([0, 3]);
      expectFlat(e.sum(0), [3], [0, 0, 0]);
      expect(e.sumAll().toScalarSync()).toBe(0);
      expect(e.max(1).shape).toEqual([0]);
      expectFlat(e.t().matmul(e), [3, 3], Array(9).fill(0));
      expect(e.matmul(e.t()).shape).toEqual([0, 0]);
      expectFlat(Tensor.cat([e, counted([1, 3])], 0), [1, 3], [0, 1, 2]);
      expect(counted([2, 3]).indexSelect(ids, 0).shape).toEqual([0, 3]);
      expect(e.indexSelect(ids, 0).shape).toEqual([0, 3]);
      expect(e.softmaxLastDim().shape).toEqual([0, 3]);
      expect(e.t().contiguous().reshape([3, 0]).toDtype('f16').toVecSync()).toEqual([[], [], []]);
      expect(e.cumsum(0).shape).toEqual([0, 3]);
      expect(Tensor.rand(0, 1, [0], 'f32', device()).shape).toEqual([0]);
      expectFlat(e.padWithZeros(0, 1, 0), [1, 3], [0, 0, 0]);
      e.constSet(1);
      counted([2, 3]).sliceSet(e, 0, 1);
    });
  });
}
