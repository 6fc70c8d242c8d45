/** candle's tensor_tests::cmp and ternary_op on one device, in every dtype, and casts. */

import { type Device, DTYPES, isInt, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame, numbers } from './close';
import { makers } from './makers';

export function tensorComparingSuite(name: string, device: () => Device): void {
  const { from, shaped, counted } = makers(device);

  describe(`comparing and choosing on ${name}`, () => {
    test.each(DTYPES)('choosing stretches the condition and both values, in %s', (dtype) => {
      const rows = shaped([1, 0], [2, 1], 'u8');
      expectFlat(rows.whereCond(from([1, 2, 3], dtype), from([0], dtype)), [2, 3], [1, 2, 3, 0, 0, 0]);
      expectFlat(
        from([1, 0, 1], 'u8').whereCond(shaped([4, 5], [2, 1], dtype), from([7], dtype)),
        [2, 3],
        [4, 7, 4, 5, 7, 5],
      );
      expect(() => rows.whereCond(from([1, 2], dtype), from([1, 2, 3], dtype))).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
      );
    });

    test.each(DTYPES)('tensor_tests::cmp in %s gives u8', (dtype) => {
      const a = shaped([0, 1, 2, 3, 4, 5], [3, 2], dtype);
      const b = shaped([1, 0, 3, 3, 4, 7], [3, 2], dtype);
      const expected = {
        eq: [0, 0, 0, 1, 1, 0],
        ne: [1, 1, 1, 0, 0, 1],
        le: [1, 0, 1, 1, 1, 1],
        lt: [1, 0, 1, 0, 0, 1],
        gt: [0, 1, 0, 0, 0, 0],
        ge: [0, 1, 0, 1, 1, 0],
      };
      for (const [key, values] of Object.entries(expected)) {
        const op = key as keyof typeof expected;
        expect(a[op](b).dtype).toBe('u8');
        expectFlat(a[op](b), [3, 2], values);
        expectSame(a.t()[op](b.t()), a[op](b).t());
      }
      expectFlat(a.gt(2), [3, 2], [0, 0, 0, 1, 1, 1]);
      expectFlat(shaped([1, 2], [2, 1], dtype).lt(from([1, 2, 3], dtype)), [2, 3], [0, 1, 1, 0, 0, 1]);
      expectFlat(shaped([1, 2], [2, 1], dtype).broadcastLt(from([1, 2, 3], dtype)), [2, 3], [0, 1, 1, 0, 0, 1]);
    });

    test('NaN equals nothing', () => {
      const t = from([Number.NaN, 1]);
      expectFlat(t.eq(t), [2], [0, 1]);
      expectFlat(t.ne(t), [2], [1, 0]);
      expectFlat(t.le(t), [2], [0, 1]);
    });

    const choice = [0, 1, 0, 1, 0, 1, 1, 1, 0, 0];
    const chosen = [10, 1, 12, 3, 14, 5, 6, 7, 18, 19];

    test.each(DTYPES)('tensor_tests::ternary_op chooses among %s', (dtype) => {
      // f8e4m3 rounds 17 and 19, so what it holds is what must come out.
      const ids = shaped(choice, [2, 5], 'u8');
      const a = counted([2, 5], dtype);
      const b = counted([2, 5], 'f32', 10).toDtype(dtype);
      const held = numbers(shaped(chosen, [2, 5]).toDtype(dtype));
      expectFlat(ids.whereCond(a, b), [2, 5], held);
      const fill = from(7, dtype).broadcastAs([2, 5]);
      expectFlat(fill.eq(ids.whereCond(fill, b)), [2, 5], choice);
    });

    test.each(DTYPES.filter(isInt))('tensor_tests::ternary_op with a condition of %s', (dtype) => {
      const ids = shaped(choice, [2, 5], dtype);
      expectFlat(ids.whereCond(counted([2, 5]), counted([2, 5], 'f32', 10)), [2, 5], chosen);
      expectFlat(ids.mul(3).whereCond(counted([2, 5]), counted([2, 5], 'f32', 10)), [2, 5], chosen);
    });

    test('tensor_tests::ternary_op of views: any strides for each of the three', () => {
      const ids = shaped(choice, [2, 5], 'u8');
      const [a, b] = [counted([2, 5]), counted([2, 5], 'f32', 10)];
      const [fill, other] = [from(7).broadcastAs([2, 5]), from(9).broadcastAs([2, 5])];
      expectFlat(ids.whereCond(fill, b), [2, 5], [10, 7, 12, 7, 14, 7, 7, 7, 18, 19]);
      expectFlat(ids.whereCond(a, fill), [2, 5], [7, 1, 7, 3, 7, 5, 6, 7, 7, 7]);
      expectFlat(ids.whereCond(fill, other), [2, 5], [9, 7, 9, 7, 9, 7, 7, 7, 9, 9]);
      const columns = shaped([0, 1, 1, 0, 1], [1, 5], 'u8').broadcastAs([2, 5]);
      expectFlat(columns.whereCond(a, b), [2, 5], [10, 1, 2, 13, 4, 15, 6, 7, 18, 9]);
      const rows = shaped([1, 0], [2, 1], 'u8').broadcastAs([2, 5]);
      const upper = (yes: number[], no: number[]) => [...yes.slice(0, 5), ...no.slice(5)];
      const [va, vb, vf, vo] = [a, b, fill, other].map(numbers);
      expectFlat(rows.whereCond(a, b), [2, 5], upper(va, vb));
      expectFlat(rows.whereCond(a, fill), [2, 5], upper(va, vf));
      expectFlat(rows.whereCond(fill, b), [2, 5], upper(vf, vb));
      expectFlat(rows.whereCond(fill, other), [2, 5], upper(vf, vo));
      const turned = counted([5, 2]).t();
      const turnedIds = shaped([0, 1, 1, 1, 0, 0, 1, 0, 1, 1], [5, 2], 'u8').t();
      expectFlat(turnedIds.whereCond(turned, b), [2, 5], [10, 2, 12, 6, 8, 1, 3, 17, 18, 9]);
      const narrowed = counted([2, 7]).narrow(1, 1, 5);
      expectFlat(ids.whereCond(fill, narrowed), [2, 5], [1, 7, 3, 7, 5, 7, 7, 7, 11, 12]);
    });
  });

  describe(`casts on ${name}`, () => {
    test('casts follow Rust’s `as`', () => {
      const odd = from([-1.9, 1.9, 300, -300, Number.NaN, Infinity, -Infinity, 1e30]);
      expect(odd.toDtype('u8').toVecSync()).toEqual([0, 1, 255, 0, 0, 255, 0, 255]);
      expect(odd.toDtype('i16').toVecSync()).toEqual([-1, 1, 300, -300, 0, 32767, -32768, 32767]);
      expect(odd.toDtype('u32').toVecSync()).toEqual([0, 1, 300, 0, 0, 4294967295, 0, 4294967295]);
      expect(odd.toDtype('i32').toVecSync()).toEqual([-1, 1, 300, -300, 0, 2147483647, -2147483648, 2147483647]);
      const big = [-1n, 1n, 300n, -300n, 0n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 63n - 1n];
      expect(odd.toDtype('i64').toVecSync()).toEqual(big);
      expect(from([-1, 256, 65535], 'i32').toDtype('u8').toVecSync()).toEqual([255, 0, 255]);
      expect(from([-1, 70000], 'i32').toDtype('i16').toVecSync()).toEqual([-1, 4464]);
      const wide = from([-1n, 2n ** 32n + 5n]);
      expect(wide.toDtype('u32').toVecSync()).toEqual([4294967295, 5]);
      expect(from([-1], 'i32').toDtype('i64').toVecSync()).toEqual([-1n]);
      expect(from([65519, 65520, 1e-8], 'f64').toDtype('f16').toVecSync()).toEqual([65504, Infinity, 0]);
      expect(from([500, -500, 0.3], 'f32').toDtype('f8e4m3').toVecSync()).toEqual([448, -448, 0.3125]);
      // Halfway between two f16 only after rounding to f32: must round once.
      const halfway = from([1 + 2 ** -11 + 2 ** -40], 'f64');
      expect(halfway.toDtype('f16').toVecSync()).toEqual([1 + 2 ** -10]);
      const long = from([2n ** 60n + 2n ** 36n + 1n]);
      expect(long.toDtype('f32').toVecSync()).toEqual([2 ** 60 + 2 ** 37]);
    });

    test.each(DTYPES)('casts from %s to every dtype keep small numbers', (dtype) => {
      const t = from([0, 1, 2, 7], dtype);
      for (const to of DTYPES) {
        const cast = t.toDtype(to);
        expect(cast.dtype).toBe(to);
        expectFlat(cast, [4], [0, 1, 2, 7]);
      }
      expect(t.toDtype(dtype)).toBeInstanceOf(Tensor);
    });
  });
}
