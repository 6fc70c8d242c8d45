/** Elementwise arithmetic, comparisons and casts on one device. Float values are those of candle's tensor_tests.rs. */
import { describe, expect, test } from 'vitest';
import { type Device, DTYPES, type DType, isFloat, Tensor } from '../../src';
import { expectClose } from './close';

export function elementwiseSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype?: DType) =>
    Tensor.from(data, { dtype, device: device() });
  const ints: DType[] = ['u8', 'u32', 'i16', 'i32', 'i64'];
  const floats = DTYPES.filter(isFloat);

  describe(`elementwise on ${name}`, () => {
    const rows = [
      [-3, 1, 4, -0.1, 0.5],
      [2.7, -1.8, -0.28, 1.8, 2.8],
    ];

    test('unary functions', () => {
      const t = from(rows);
      expectClose(t.gelu(), [
        [-0.0036, 0.8412, 3.9999, -0.046, 0.3457],
        [2.6911, -0.0647, -0.1091, 1.7353, 2.7933],
      ]);
      expectClose(t.geluErf(), [
        [-0.004, 0.8413, 3.9999, -0.046, 0.3457],
        [2.6906, -0.0647, -0.1091, 1.7353, 2.7928],
      ]);
      expectClose(t.erf(), [
        [-1, 0.8427, 1, -0.1125, 0.5205],
        [0.9999, -0.9891, -0.3079, 0.9891, 0.9999],
      ]);
      expectClose(t.silu(), [
        [-0.1423, 0.7311, 3.9281, -0.0475, 0.3112],
        [2.53, -0.2553, -0.1205, 1.5447, 2.6395],
      ]);
      expectClose(t.ceil(), [
        [-3, 1, 4, 0, 1],
        [3, -1, 0, 2, 3],
      ]);
      expectClose(t.floor(), [
        [-3, 1, 4, -1, 0],
        [2, -2, -1, 1, 2],
      ]);
      expectClose(t.round(), [
        [-3, 1, 4, 0, 1],
        [3, -2, 0, 2, 3],
      ]);
      expectClose(t.relu(), [
        [0, 1, 4, 0, 0.5],
        [2.7, 0, 0, 1.8, 2.8],
      ]);
      const x = from([0, 0.5, 1, -1]);
      expectClose(x.exp(), [1, 1.6487, Math.E, 0.3679]);
      expectClose(x.sin(), [0, 0.4794, 0.8415, -0.8415]);
      expectClose(x.cos(), [1, 0.8776, 0.5403, 0.5403]);
      expectClose(x.tanh(), [0, 0.4621, 0.7616, -0.7616]);
      expectClose(x.sigmoid(), [0.5, 0.6225, 0.7311, 0.2689]);
      expectClose(x.sqr(), [0, 0.25, 1, 1]);
      expectClose(x.neg(), [0, -0.5, -1, 1]);
      expectClose(x.abs(), [0, 0.5, 1, 1]);
      expectClose(from([1, 4, 0.25]).log(), [0, 1.3863, -1.3863]);
      expectClose(from([1, 4, 0.25]).sqrt(), [1, 2, 0.5]);
      expectClose(from([1, 4, -0.25]).recip(), [1, 0.25, -4]);
      expectClose(from([-1.01, -0.9, -0.1, 0, 0.1, 1.1]).sign(), [-1, -1, -1, 0, 1, 1]);
    });

    test('round goes away from zero on halves', () => {
      expectClose(from([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).round(), [1, 2, 3, -1, -2, -3]);
      expectClose(from([2997.9246, 314.15926]).roundTo(2), [2997.92, 314.16]);
      expectClose(from([2997.9246, 314.15926]).roundTo(-2), [3000, 300]);
    });

    test('elu, powf, pow, affine, clamp', () => {
      const t = from([-1, 0, -2, 3]);
      expectClose(t.elu(2), [-1.2642, 0, -1.7293, 3]);
      expectClose(t.reshape([2, 2]).t().elu(2).flattenAll(), [-1.2642, -1.7293, 0, 3]);
      expectClose(from([1, 2, 3]).powf(2.5), [1, 5.6569, 15.5885]);
      expectClose(from([1, 2, 3]).pow(from([2, 3, 2])), [1, 8, 9], 1e-4);
      expectClose(t.affine(2, 0.5), [-1.5, 0.5, -3.5, 6.5]);
      expectClose(
        from([
          [3, 1, 4, 1, 5],
          [2, 1, 7, 8, 2],
        ]).clamp(1.5, 6.2),
        [
          [3, 1.5, 4, 1.5, 5],
          [2, 1.5, 6.2, 6.2, 2],
        ],
      );
    });

    test('binary ops', () => {
      const a = from([
        [3, 1, 4, 1, 5],
        [2, 1, 7, 8, 2],
      ]);
      const b = from([
        [5, 5, 5, 5, 5],
        [2, 1, 7, 8, 2],
      ]);
      expectClose(a.add(a.mul(a).div(a.add(b))), [
        [4.125, 1.1666666, 5.7777777, 1.1666666, 7.5],
        [3, 1.5, 10.5, 12, 3],
      ]);
      expectClose(a.minimum(b.mul(0.5)), [
        [2.5, 1, 2.5, 1, 2.5],
        [1, 0.5, 3.5, 4, 1],
      ]);
      expectClose(a.maximum(b.mul(0.5)), [
        [3, 2.5, 4, 2.5, 5],
        [2, 1, 7, 8, 2],
      ]);
      expectClose(a.sub(a), [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
      ]);
    });

    test('operands of any strides', () => {
      const base = Tensor.arange(1, 91, 'f32', device()).reshape([3, 6, 5]);
      const part = base.narrow(1, 0, 4);
      const scale = Tensor.arange(1, 61, 'f32', device()).reshape([3, 4, 5]);
      expect(part.add(scale).toVecSync()).toEqual(part.copy().add(scale).toVecSync());
      expect(scale.mul(part).toVecSync()).toEqual(scale.mul(part.copy()).toVecSync());
      const swapped = from([
        [1, 2, 3],
        [4, 5, 6],
      ]).t();
      expectClose(swapped.add(swapped), [
        [2, 8],
        [4, 10],
        [6, 12],
      ]);
      expectClose(swapped.neg(), [
        [-1, -4],
        [-2, -5],
        [-3, -6],
      ]);
    });

    test('broadcast forms', () => {
      const column = from([[1], [2]]);
      const row = from([10, 20, 30]);
      expectClose(column.broadcastAdd(row), [
        [11, 21, 31],
        [12, 22, 32],
      ]);
      expectClose(column.broadcastSub(row), [
        [-9, -19, -29],
        [-8, -18, -28],
      ]);
      expectClose(column.broadcastMul(row), [
        [10, 20, 30],
        [20, 40, 60],
      ]);
      expectClose(row.broadcastDiv(column), [
        [10, 20, 30],
        [5, 10, 15],
      ]);
      expectClose(column.broadcastMaximum(from([1.5])), [[1.5], [2]]);
      expectClose(column.broadcastMinimum(from([1.5])), [[1], [1.5]]);
      expect(column.broadcastLt(from([1, 2, 3])).toVecSync()).toEqual([
        [0, 1, 1],
        [0, 0, 1],
      ]);
    });

    test('comparisons give u8', () => {
      const a = from([
        [0, 1],
        [2, 3],
        [4, 5],
      ]);
      const b = from([
        [1, 0],
        [3, 3],
        [4, 7],
      ]);
      const expected = {
        eq: [
          [0, 0],
          [0, 1],
          [1, 0],
        ],
        ne: [
          [1, 1],
          [1, 0],
          [0, 1],
        ],
        le: [
          [1, 0],
          [1, 1],
          [1, 1],
        ],
        lt: [
          [1, 0],
          [1, 0],
          [0, 1],
        ],
        gt: [
          [0, 1],
          [0, 0],
          [0, 0],
        ],
        ge: [
          [0, 1],
          [0, 1],
          [1, 0],
        ],
      };
      for (const [op, values] of Object.entries(expected)) {
        const result = a[op as keyof typeof expected](b);
        expect(result.dtype).toBe('u8');
        expect(result.toVecSync(), op).toEqual(values);
      }
      expect(a.gt(2).toVecSync()).toEqual([
        [0, 0],
        [0, 1],
        [1, 1],
      ]);
      expect(
        from([Number.NaN, 1])
          .eq(from([Number.NaN, 1]))
          .toVecSync(),
      ).toEqual([0, 1]);
    });

    test('whereCond, also with strided and broadcast operands', () => {
      const ids = from(
        [
          [0, 1, 0, 1, 0],
          [1, 1, 1, 0, 0],
        ],
        'u8',
      );
      const a = from([
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
      ]);
      const b = from([
        [10, 11, 12, 13, 14],
        [15, 16, 17, 18, 19],
      ]);
      const expected = [
        [10, 1, 12, 3, 14],
        [5, 6, 7, 18, 19],
      ];
      for (const dtype of ints) expect(ids.toDtype(dtype).whereCond(a, b).toVecSync()).toEqual(expected);
      expect(ids.whereCond(a.toDtype('i64'), b.toDtype('i64')).toDtype('f32').toVecSync()).toEqual(expected);
      const fill = from(7).broadcastAs([2, 5]);
      expect(ids.whereCond(fill, b).toVecSync()).toEqual([
        [10, 7, 12, 7, 14],
        [7, 7, 7, 18, 19],
      ]);
      const mask = from([[1], [0]], 'u8').broadcastAs([2, 5]);
      expect(mask.whereCond(a, b).toVecSync()).toEqual([
        [0, 1, 2, 3, 4],
        [15, 16, 17, 18, 19],
      ]);
    });

    test.each(floats)('arithmetic in %s', (dtype) => {
      const a = from([1, -2, 0.5, 8], dtype);
      const b = from([2, 4, -0.5, 2], dtype);
      expect(a.add(b).toVecSync()).toEqual([3, 2, 0, 10]);
      expect(a.sub(b).toVecSync()).toEqual([-1, -6, 1, 6]);
      expect(a.mul(b).toVecSync()).toEqual([2, -8, -0.25, 16]);
      expect(a.div(b).toVecSync()).toEqual([0.5, -0.5, -1, 4]);
      expect(a.affine(2, 1).toVecSync()).toEqual([3, -3, 2, dtype === 'f8e4m3' ? 16 : 17]);
      expect(a.add(b).dtype).toBe(dtype);
    });

    test.each(ints)('integers in %s are exact', (dtype) => {
      const a = from([7, 20, 100], dtype);
      const b = from([2, 0, 9], dtype);
      const values = (t: Tensor) => (t.toVecSync() as (number | bigint)[]).map(Number);
      expect(values(a.add(b))).toEqual([9, 20, 109]);
      expect(values(a.sub(1))).toEqual([6, 19, 99]);
      expect(values(a.mul(2))).toEqual([14, 40, 200]);
      expect(values(a.div(b)), 'by zero gives 0').toEqual([3, 0, 11]);
      expect(values(a.div(2))).toEqual([3, 10, 50]);
      expect(values(a.maximum(b))).toEqual([7, 20, 100]);
      expect(values(a.minimum(15))).toEqual([7, 15, 15]);
      expect(values(a.affine(2, 3))).toEqual([17, 43, 203]);
      expect(a.le(20).toVecSync()).toEqual([1, 1, 0]);
    });

    test('integers wrap like two’s complement', () => {
      expect(from([250], 'u8').add(10).toVecSync()).toEqual([4]);
      expect(from([2], 'u8').sub(3).toVecSync()).toEqual([255]);
      expect(from([32767], 'i16').add(1).toVecSync()).toEqual([-32768]);
      expect(
        from([2 ** 31 - 1], 'i32')
          .add(1)
          .toVecSync(),
      ).toEqual([-(2 ** 31)]);
      expect(from([4000000000], 'u32').mul(3).toVecSync()).toEqual([3410065408]);
      expect(from([123456789], 'i32').mul(987654321).toVecSync()).toEqual([-67153019]);
      expect(
        from([2n ** 63n - 1n])
          .add(1)
          .toVecSync(),
      ).toEqual([-(2n ** 63n)]);
      expect(
        from([3000000007n])
          .mul(from([9000000011n]))
          .toVecSync(),
      ).toEqual([8553256022290448461n]);
      expect(from([-7, 7], 'i32').div(2).toVecSync()).toEqual([-3, 3]);
    });

    test('NaN reaches maximum and minimum', () => {
      const a = from([Number.NaN, 1, 2]);
      const b = from([1, Number.NaN, 1]);
      expect(a.maximum(b).toVecSync()).toEqual([Number.NaN, Number.NaN, 2]);
      expect(a.minimum(b).toVecSync()).toEqual([Number.NaN, Number.NaN, 1]);
    });

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
      expect(
        from([-1n, 2n ** 32n + 5n])
          .toDtype('u32')
          .toVecSync(),
      ).toEqual([4294967295, 5]);
      expect(from([-1], 'i32').toDtype('i64').toVecSync()).toEqual([-1n]);
      expect(from([65519, 65520, 1e-8], 'f64').toDtype('f16').toVecSync()).toEqual([65504, Infinity, 0]);
      expect(from([500, -500, 0.3], 'f32').toDtype('f8e4m3').toVecSync()).toEqual([448, -448, 0.3125]);
      // Halfway between two f16 only after rounding to f32: must round once.
      expect(
        from([1 + 2 ** -11 + 2 ** -40], 'f64')
          .toDtype('f16')
          .toVecSync(),
      ).toEqual([1 + 2 ** -10]);
      expect(
        from([2n ** 60n + 2n ** 36n + 1n])
          .toDtype('f32')
          .toVecSync(),
      ).toEqual([2 ** 60 + 2 ** 37]);
    });

    test.each(DTYPES)('casts from %s to every dtype keep small numbers', (dtype) => {
      const t = from([0, 1, 2, 7], dtype);
      for (const to of DTYPES) {
        const cast = t.toDtype(to);
        expect(cast.dtype).toBe(to);
        expect((cast.toVecSync() as number[]).map(Number)).toEqual([0, 1, 2, 7]);
      }
    });
  });
}
