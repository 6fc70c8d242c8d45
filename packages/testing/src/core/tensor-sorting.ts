/** candle's tensor_tests::asort and asort_big on one device, with top-k. Sorting is stable in both directions. */

import { type Device, DTYPES, type DType, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame } from './close';
import { makers } from './makers';

export function tensorSortingSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, counted } = makers(device);

  describe(`sorting on ${name}`, () => {
    test('tensor_tests::asort: positions and values in both directions', () => {
      const t = shaped([3, 1, 4, 1.1, 5, 2.1, 1, 7, 8, 2], [2, 5]);
      const up = [1, 3, 0, 2, 4, 1, 4, 0, 2, 3];
      const down = [4, 2, 0, 3, 1, 3, 2, 0, 4, 1];
      expect(t.argSortLastDim(true).dtype).toBe('u32');
      expectFlat(t.argSortLastDim(true), [2, 5], up);
      expectFlat(t.argSortLastDim(false), [2, 5], down);
      const [rising, risingAt] = t.sortLastDim(true);
      expectFlat(risingAt, [2, 5], up);
      expectFlat(rising, [2, 5], [1, Math.fround(1.1), 3, 4, 5, 1, 2, Math.fround(2.1), 7, 8]);
      const [falling, fallingAt] = t.sortLastDim(false);
      expectFlat(fallingAt, [2, 5], down);
      expectFlat(falling, [2, 5], [5, 4, 3, Math.fround(1.1), 1, 8, 7, Math.fround(2.1), 2, 1]);
    });

    test.each(DTYPES)('tensor_tests::asort of views of %s: an offset, a transposed and a broadcast one', (dtype) => {
      const t = shaped([1, 2, 3, 30, 10, 20], [2, 3], dtype);
      const [up, upAt] = t.narrow(0, 1, 1).sortLastDim(true);
      expectFlat(upAt, [1, 3], [1, 2, 0]);
      expectFlat(up, [1, 3], [10, 20, 30]);
      const [down, downAt] = t.narrow(0, 1, 1).sortLastDim(false);
      expectFlat(downAt, [1, 3], [0, 2, 1]);
      expectFlat(down, [1, 3], [30, 20, 10]);
      const [turned] = t.t().sortLastDim(false);
      expectFlat(turned, [3, 2], [30, 1, 10, 2, 20, 3]);
      expectFlat(t.get(1).broadcastAs([2, 3]).argSortLastDim(true), [2, 3], [1, 2, 0, 1, 2, 0]);
    });

    test('equal elements keep their order in both directions, also 0 and -0', () => {
      const t = from([2, 1, 2, 1, 2]);
      expectFlat(t.argSortLastDim(true), [5], [1, 3, 0, 2, 4]);
      expectFlat(t.argSortLastDim(false), [5], [0, 2, 4, 1, 3]);
      expectFlat(from([0, -0, 0, -1]).argSortLastDim(true), [4], [3, 0, 1, 2]);
      expectFlat(from([0, -0, 0, -1]).argSortLastDim(false), [4], [0, 1, 2, 3]);
    });

    test.each(['f32', 'f64', 'f16', 'bf16'] as const)('NaN is greater than every number in %s', (dtype) => {
      const t = from([Number.NaN, 1, Infinity, Number.NaN, -Infinity], dtype);
      expectFlat(t.argSortLastDim(true), [5], [4, 1, 2, 0, 3]);
      expectFlat(t.argSortLastDim(false), [5], [0, 3, 2, 1, 4]);
    });

    test.each(DTYPES)('every dtype: %s', (dtype) => {
      const signed = dtype !== 'u8' && dtype !== 'u32';
      const data = signed ? [5, -3, 0, 100, -100, 5] : [5, 3, 0, 100, 200, 5];
      const t = from(data, dtype);
      expectFlat(t.argSortLastDim(true), [6], signed ? [4, 1, 2, 0, 5, 3] : [2, 1, 0, 5, 3, 4]);
      expectFlat(t.argSortLastDim(false), [6], signed ? [3, 0, 5, 2, 1, 4] : [4, 3, 0, 5, 1, 2]);
    });

    test('the extremes of wide integers', () => {
      const big = [2n ** 63n - 1n, -(2n ** 63n), 0n, 2n ** 53n + 1n, 2n ** 53n];
      expectFlat(from(big, 'i64').argSortLastDim(true), [5], [1, 2, 4, 3, 0]);
      expectFlat(from([2 ** 32 - 1, 0, 2 ** 31], 'u32').argSortLastDim(false), [3], [0, 2, 1]);
    });

    const holds = (dtype: DType) => !['u8', 'bf16', 'f8e4m3'].includes(dtype);
    test.each(DTYPES.filter(holds))('tensor_tests::asort_big: 2000 columns of %s', (dtype) => {
      const rising = counted([2000], dtype, 1);
      const down = rising.flip([0]);
      const at = counted([2000], 'u32');
      expectSame(down.argSortLastDim(true), at.flip([0]));
      expectSame(down.argSortLastDim(false), at);
      expectSame(down.sortLastDim(true)[0], rising);
    });

    // 4097: one column past a chunk; 152064: a vocabulary, where candle's shared memory ends.
    test.each([4096, 4097, 20000, 152064])('rows of %i columns', (width) => {
      const down = from(new Float32Array(width).map((_, i) => width - i));
      const rising = new Uint32Array(width).map((_, i) => i);
      expectFlat(down.argSortLastDim(true), [width], rising.slice().reverse());
      expectFlat(down.argSortLastDim(false), [width], rising);
      // Few distinct values: stability over chunks.
      const classes = Uint8Array.from(rising, (i) => (i * 7919) % 5);
      const expected = Uint32Array.from([0, 1, 2, 3, 4].flatMap((c) => [...rising.filter((i) => classes[i] === c)]));
      const two = Tensor.stack([from(classes), from(new Uint8Array(width))], 0).argSortLastDim(true);
      expectFlat(two.get(0), [width], expected);
      expectFlat(two.get(1), [width], rising);
    });

    test('topk', () => {
      const t = shaped([3, 9, 4, 9, 1, 2, 8, Number.NaN], [2, 4]);
      const [values, positions] = t.topk(2);
      expectFlat(values, [2, 2], [9, 9, Number.NaN, 8]);
      expectFlat(positions, [2, 2], [1, 3, 3, 2]);
      const [smallest, places] = t.topk(3, false);
      expectFlat(smallest, [2, 3], [3, 4, 9, 1, 2, 8]);
      expectFlat(places, [2, 3], [0, 2, 1, 0, 1, 2]);
      expectFlat(t.t().topk(1)[1], [4, 1], [0, 0, 1, 1]);
      expect(t.topk(0)[0].shape).toEqual([2, 0]);
      expect(zeros([0, 3]).topk(2)[1].shape).toEqual([0, 2]);
      expect(() => from(1).topk(1)).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
      expect(() => t.topk(5)).toThrow(/rows of \[2, 4\] have no 5 elements; use a whole number in 0..4/);
    });

    test.each(DTYPES)('topk of %s', (dtype) => {
      const t = from([5, 3, 0, 100, 120, 5], dtype);
      expectFlat(t.topk(3)[1], [3], [4, 3, 0]);
      expectFlat(t.topk(4, false)[1], [4], [2, 1, 0, 5]);
      expectSame(t.topk(6)[1], t.argSortLastDim(false));
    });

    test('topk of a vocabulary, ties by position', () => {
      const width = 152_064;
      const classes = from(new Float32Array(width).map((_, i) => (i * 7919) % 1000));
      for (const k of [1, 50, 1024]) {
        expectSame(classes.topk(k)[1], classes.argSortLastDim(false).narrow(0, 0, k).contiguous());
      }
      expectSame(zeros([width]).topk(1000)[1], counted([1000], 'u32'));
    });

    test('no rows, no columns, no dimension', () => {
      expect(zeros([0, 3]).argSortLastDim(true).shape).toEqual([0, 3]);
      expect(zeros([3, 0]).sortLastDim(true)[0].shape).toEqual([3, 0]);
      expect(() => from(1).argSortLastDim(true)).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
    });
  });
}
