/**
 * candle's tensor_tests about making tensors (zeros, ones, full, const_set, arange, tensor_2d, tensor_new, shapes of given
 * data, triangles, random numbers) on one device, over every dtype where candle takes a few.
 */

import { type Device, DTYPES, isFloat, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, numbers } from './close';
import { makers } from './makers';

export function tensorCreationSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, ones } = makers(device);
  const code = (expected: string) => expect.objectContaining({ code: expected });

  describe(`making tensors on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::zeros in %s', (dtype) => {
      const t = zeros([5, 2], dtype);
      expect([t.dim(0), t.dim(1), t.dtype, t.isContiguous()]).toEqual([5, 2, dtype, true]);
      expectFlat(t, [5, 2], Array(10).fill(0));
      expectFlat(ones([3], dtype).zerosLike(), [3], [0, 0, 0]);
    });

    test.each(DTYPES)('tensor_tests::ones in %s', (dtype) => {
      expectFlat(ones([2, 3], dtype), [2, 3], Array(6).fill(1));
      expectFlat(Tensor.ones([3], { dtype, device: device() }), [3], [1, 1, 1]);
      expectFlat(zeros([2], dtype).onesLike(), [2], [1, 1]);
    });

    test.each(DTYPES)('tensor_tests::full: constSet writes tensors and views of %s', (dtype) => {
      // 40 and 112 are exact in every dtype.
      const t = zeros([3, 4], dtype);
      t.constSet(40);
      expectFlat(t, [3, 4], Array(12).fill(40));
      t.i(':', 2).constSet(112);
      expectFlat(t, [3, 4], [40, 40, 112, 40, 40, 40, 112, 40, 40, 40, 112, 40]);
      t.i(2, ':').constSet(1);
      expectFlat(t, [3, 4], [40, 40, 112, 40, 40, 40, 112, 40, 1, 1, 1, 1]);
      t.t().narrow(0, 1, 2).narrow(1, 0, 2).zeroSet();
      expectFlat(t, [3, 4], [40, 0, 0, 40, 40, 0, 0, 40, 1, 1, 1, 1]);
    });

    test.each(DTYPES)('tensor_tests::const_set: Tensor.full of %s', (dtype) => {
      expectFlat(Tensor.full(40, [2, 3], dtype, device()), [2, 3], Array(6).fill(40));
      expectFlat(Tensor.full(40, [], dtype, device()), [], [40]);
    });

    test('tensor_tests::const_set keeps wide integers exact', () => {
      expectFlat(Tensor.full(4294967295, [2], 'u32', device()), [2], [4294967295, 4294967295]);
      expectFlat(Tensor.full(42, [2, 3], 'u32', device()), [2, 3], Array(6).fill(42));
      const big = 2n ** 62n + 1n;
      expect(Tensor.full(big, [2], 'i64', device()).toVecSync()).toEqual([big, big]);
    });

    test.each(DTYPES)('tensor_tests::arange in %s', (dtype) => {
      const step = (start: number, end: number, by: number) => Tensor.arangeStep(start, end, by, dtype, device());
      expectFlat(Tensor.arange(0, 5, dtype, device()), [5], [0, 1, 2, 3, 4]);
      expectFlat(Tensor.arange(1, 5, dtype, device()), [4], [1, 2, 3, 4]);
      expectFlat(step(0, 5, 2), [3], [0, 2, 4]);
      expectFlat(step(0, 5, 3), [2], [0, 3]);
      expectFlat(step(5, 0, -1), [5], [5, 4, 3, 2, 1]);
      expectFlat(step(5, 5, 1), [0], []);
    });

    test('tensor_tests::tensor_2d', () => {
      const data = [
        [3, 1, 4, 1, 5],
        [2, 1, 7, 8, 2],
      ];
      const t = from(data);
      expect([t.rank, t.shape, t.dims, t.elemCount]).toEqual([2, [2, 5], [2, 5], 10]);
      expect(t.toVecSync()).toEqual(data);
    });

    test('tensor_tests::tensor_new from vectors nested once, twice and three times', () => {
      expectFlat(from([1, 2, 3]), [3], [1, 2, 3]);
      const rows = [
        [1, 2, 3],
        [4, 5, 6],
      ];
      expectFlat(from(rows), [2, 3], [1, 2, 3, 4, 5, 6]);
      const other = [
        [3, 1, 4],
        [1, 5, 9],
      ];
      const t = from([rows, other]);
      expectFlat(t, [2, 2, 3], [1, 2, 3, 4, 5, 6, 3, 1, 4, 1, 5, 9]);
      expect(t.toVecSync()).toEqual([rows, other]);
    });

    test('tensor_tests::tensor_from_data_validates_concrete_shape', () => {
      const list = [1, 2, 3, 4];
      for (const data of [list, Float32Array.from(list)]) {
        const of = (shape: number[]) => Tensor.from(data, { shape, device: device() });
        expect(() => of([2, 2, 2])).toThrow(code('SHAPE_MISMATCH'));
        expect(() => of([2, 1])).toThrow(/\[2, 1\] needs 2 elements and the data have 4/);
        expectFlat(of([2, 2]), [2, 2], list);
        expectFlat(of([-1, 2]), [2, 2], list);
        expect(() => of([-1, 3])).toThrow(code('SHAPE_MISMATCH'));
        expect(() => of([-1, -1])).toThrow(code('INVALID_SHAPE'));
        expect(() => of([-2, 2])).toThrow(code('INVALID_SHAPE'));
      }
      expect(Tensor.fromArray([], [0, 3], 'f32', device()).shape).toEqual([0, 3]);
    });

    test.each(DTYPES)('tensor_tests::tril_triu_eye in %s', (dtype) => {
      expectFlat(Tensor.tril2(4, dtype, device()), [4, 4], [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]);
      expectFlat(Tensor.triu2(4, dtype, device()), [4, 4], [1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1]);
      expectFlat(Tensor.eye(4, dtype, device()), [4, 4], [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    });

    test('from infers shape and dtype', () => {
      const options = { device: device() };
      expect(from([[1], [3], [5]]).shape).toEqual([3, 1]);
      expect(Tensor.from([1n], options).dtype).toBe('i64');
      expect(Tensor.from([true, false], options).dtype).toBe('u8');
      expect(Tensor.from(new Float64Array(4), { ...options, shape: [2, 2] }).dtype).toBe('f64');
      expect(Tensor.from(7, options).shape).toEqual([]);
      expect(Tensor.from([[], []], options).shape).toEqual([2, 0]);
      expectFlat(Tensor.fromArray([1, 2, 3, 4], [2, 2], 'i16', device()), [2, 2], [1, 2, 3, 4]);
      expectFlat(Tensor.fromBytes(Uint16Array.of(0x3c00, 0xc000), [2], 'f16', device()), [2], [1, -2]);
      expectFlat(shaped([1, 2], [2, 1], 'bf16'), [2, 1], [1, 2]);
    });
  });

  describe(`random tensors on ${name}`, () => {
    test.each(DTYPES.filter(isFloat))('tensor_tests::randn in %s: every call gives new numbers', (dtype) => {
      const kinds = [
        (shape: number[]) => Tensor.randn(0, 1, shape, dtype, device()),
        (shape: number[]) => Tensor.rand(0, 1, shape, dtype, device()),
      ];
      for (const make of kinds) {
        const [first, second] = [make([5, 3]), make([5, 3])];
        expect(first.shape).toEqual([5, 3]);
        expect(first.dtype).toBe(dtype);
        expect(numbers(first)).not.toEqual(numbers(second));
        // candle once had an element that was the same in every tensor of an even size.
        const pairs = Array.from({ length: 100 }, () => numbers(make([2])));
        for (const i of [0, 1]) expect(new Set(pairs.map((pair) => pair[i])).size).toBeGreaterThan(1);
      }
    });

    test('tensor_tests::randn_hasneg', () => {
      const values = numbers(Tensor.randn(0, 1, [200], 'f32', device()));
      expect(values.some((value) => value < 0)).toBe(true);
      expect(values.some((value) => value > 0)).toBe(true);
    });

    test('random numbers are the seed’s', () => {
      device().setSeed(42);
      const first = Tensor.rand(0, 1, [1000], 'f32', device()).toArraySync<Float32Array>();
      const normal = Tensor.randn(2, 3, [20001], 'f32', device()).toArraySync<Float32Array>();
      device().setSeed(42);
      expect(Tensor.rand(0, 1, [1000], 'f32', device()).toArraySync()).toEqual(first);
      expect(Math.min(...first)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...first)).toBeLessThan(1);
      const mean = normal.reduce((a, b) => a + b, 0) / normal.length;
      const variance = normal.reduce((a, b) => a + (b - mean) ** 2, 0) / normal.length;
      expect(mean).toBeCloseTo(2, 1);
      expect(Math.sqrt(variance)).toBeCloseTo(3, 1);
      expect(Array.from(first.subarray(0, 5))).toEqual(UNIFORM_42);
    });
  });
}

/** The stream of seed 42, call 0, as philox.ts defines it: see philox.test.ts for the words behind it. */
const UNIFORM_42 = [
  0.6129598617553711, 0.4685865044593811, 0.07323169708251953, 0.3408614993095398, 0.9877186417579651,
];
