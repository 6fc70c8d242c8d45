/**
 * candle's tensor_tests about arithmetic (add_mul, unary_op, binary_op, broadcasting, clamp, pow, i64_abs) on one device.
 * Float values are candle's, which are PyTorch's, to four decimals.
 */

import { type Device, DTYPES, type DType, isFloat, isInt } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame, numbers } from './close';
import { makers } from './makers';

const DECIMALS = 6e-5;

export function tensorElementwiseSuite(name: string, device: () => Device): void {
  const { from, shaped, counted } = makers(device);
  const ints = DTYPES.filter(isInt);
  const floats = DTYPES.filter(isFloat);
  const signed = DTYPES.filter((dtype) => dtype !== 'u8' && dtype !== 'u32');

  describe(`unary functions on ${name}`, () => {
    const sample = [-3, 1, 4, -0.1, 0.5, 2.7, -1.8, -0.28, 1.8, 2.8];
    const close = (t: ReturnType<typeof from>, expected: readonly number[]) =>
      expectFlat(t, t.shape, expected, DECIMALS);

    test('tensor_tests::unary_op', () => {
      const t = shaped(sample, [2, 5]);
      close(t.gelu(), [-0.0036, 0.8412, 3.9999, -0.046, 0.3457, 2.6911, -0.0647, -0.1091, 1.7353, 2.7933]);
      close(t.geluErf(), [-0.004, 0.8413, 3.9999, -0.046, 0.3457, 2.6906, -0.0647, -0.1091, 1.7353, 2.7928]);
      close(t.erf(), [-1, 0.8427, 1, -0.1125, 0.5205, 0.9999, -0.9891, -0.3079, 0.9891, 0.9999]);
      close(t.silu(), [-0.1423, 0.7311, 3.9281, -0.0475, 0.3112, 2.53, -0.2553, -0.1205, 1.5447, 2.6395]);
      expectFlat(t.ceil(), [2, 5], [-3, 1, 4, 0, 1, 3, -1, 0, 2, 3]);
      expectFlat(t.floor(), [2, 5], [-3, 1, 4, -1, 0, 2, -2, -1, 1, 2]);
      expectFlat(t.round(), [2, 5], [-3, 1, 4, 0, 1, 3, -2, 0, 2, 3]);
      expectFlat(t.relu(), [2, 5], Array.from(Float32Array.from(sample, (x) => Math.max(x, 0))));
      const large = from([2997.9246, 314.15926]);
      close(large.roundTo(2), [2997.92, 314.16]);
      close(large.roundTo(-2), [3000, 300]);
      expectFlat(from([-1.01, -0.9, -0.1, 0, -0, 0.1, 0.9, 1, 1.1]).sign(), [9], [-1, -1, -1, 0, 0, 1, 1, 1, 1]);
      const x = from([-1, 0, -2, 3]);
      close(x.elu(2), [-1.2642, 0, -1.7293, 3]);
      close(x.reshape([2, 2]).t().elu(2).flattenAll(), [-1.2642, -1.7293, 0, 3]);
    });

    // The distance of a result from the f32 one: rounding of the input and of the output, 2^-11, 2^-8 or 2^-4 of the
    // value each. candle checks gelu of f16 within 5e-3.
    test.each([
      ['f64', 1e-5],
      ['f16', 5e-3],
      ['bf16', 4e-2],
      ['f8e4m3', 0.5],
    ] as const)('tensor_tests::unary_op in %s, beside f32', (dtype, tolerance) => {
      const t = shaped(sample, [2, 5]);
      const ops = ['gelu', 'geluErf', 'erf', 'silu', 'relu', 'sigmoid', 'tanh', 'sin', 'cos', 'abs', 'neg'] as const;
      for (const op of ops) {
        const result = t.toDtype(dtype)[op]();
        expect(result.dtype).toBe(dtype);
        const apart = t[op]().sub(result.toDtype('f32')).abs().maxAll().toScalarSync();
        expect(apart, op).toBeLessThan(tolerance);
      }
      expectFlat(from([-1.25, -0.5, 0, 0.5, 1.25], dtype).sign(), [5], [-1, -1, 0, 1, 1]);
      expectFlat(from([-1.25, -0.25, 0, 0.25, 1.25], dtype).floor(), [5], [-2, -1, 0, 0, 1]);
      expectFlat(from([-1.25, -0.25, 0, 0.25, 1.25], dtype).ceil(), [5], [-1, 0, 0, 1, 2]);
    });

    test('exp, log, sin, cos, tanh, sigmoid, sqr, sqrt, recip, powf', () => {
      const x = from([0, 0.5, 1, -1]);
      close(x.exp(), [1, 1.6487, Math.E, 0.3679]);
      close(x.sin(), [0, 0.4794, 0.8415, -0.8415]);
      close(x.cos(), [1, 0.8776, 0.5403, 0.5403]);
      close(x.tanh(), [0, 0.4621, 0.7616, -0.7616]);
      close(x.sigmoid(), [0.5, 0.6225, 0.7311, 0.2689]);
      expectFlat(x.sqr(), [4], [0, 0.25, 1, 1]);
      expectFlat(x.neg(), [4], [0, -0.5, -1, 1]);
      expectFlat(x.abs(), [4], [0, 0.5, 1, 1]);
      close(from([1, 4, 0.25]).log(), [0, 1.3863, -1.3863]);
      expectFlat(from([1, 4, 0.25]).sqrt(), [3], [1, 2, 0.5]);
      expectFlat(from([1, 4, -0.25]).recip(), [3], [1, 0.25, -4]);
      close(from([1, 2, 3]).powf(2.5), [1, 5.6569, 15.5885]);
    });

    test('round goes away from zero on halves', () => {
      expectFlat(from([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).round(), [6], [1, 2, 3, -1, -2, -3]);
    });

    test('integers become 16-bit floats by way of f32', () => {
      // Beside a tie of bf16, on which the f32 falls.
      expectFlat(from([23265279], 'u32').toDtype('bf16'), [1], [23330816]);
      expectFlat(from([-23265279], 'i32').toDtype('bf16'), [1], [-23330816]);
      expectFlat(from([-11509170175n], 'i64').toDtype('bf16'), [1], [-11542724608]);
      expectFlat(from([23265279], 'f64').toDtype('bf16'), [1], [23199744]);
    });

    test.each(signed)('tensor_tests::i64_abs, and of %s', (dtype) => {
      const t = from([-42, 1337], dtype);
      const [low, high] = numbers(t);
      expectFlat(t.abs(), [2], [-low, high]);
      expect(t.abs().dtype).toBe(dtype);
      expectFlat(shaped([-1, -2, 3, -4], [2, 2], dtype).t().abs(), [2, 2], [1, 3, 2, 4]);
    });

    test.each(ints)('integers of %s: what leaves them whole', (dtype) => {
      const plain = dtype === 'u8' || dtype === 'u32';
      const t = from(plain ? [5, 0, 7] : [-5, 0, 7], dtype);
      const x = numbers(t);
      expectFlat(t.abs(), [3], [5, 0, 7]);
      expectFlat(t.sqr(), [3], [25, 0, 49]);
      expectFlat(t.relu(), [3], plain ? x : [0, 0, 7]);
      expectFlat(t.sign(), [3], plain ? [1, 0, 1] : [-1, 0, 1]);
      for (const op of ['floor', 'ceil', 'round'] as const) expectFlat(t[op](), [3], x);
      expectFlat(t.neg().add(t), [3], [0, 0, 0]);
      expectFlat(t.neg().neg(), [3], x);
      expect(() => t.exp()).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }));
      // Longer than what one thread takes at once, in order and as a view.
      const wrap = (value: number) => (dtype === 'u8' ? value & 255 : dtype === 'u32' ? value >>> 0 : value);
      const many = Array.from({ length: 17 * 59 }, (_, i) => ((i * 37) % 120) - (plain ? 0 : 60));
      const long = from(many, dtype);
      const turned = long.reshape([17, 59]).t().contiguous().t();
      const expected = {
        abs: many.map(Math.abs),
        neg: many.map((value) => wrap(-value)),
        sqr: many.map((value) => wrap(value * value)),
        relu: many.map((value) => Math.max(value, 0)),
        sign: many.map(Math.sign),
        round: many,
      };
      for (const [key, values] of Object.entries(expected)) {
        const op = key as keyof typeof expected;
        expectFlat(long[op](), [17 * 59], values);
        expectFlat(turned[op](), [17, 59], values);
      }
    });

    test('integers wrap where their negative or square does not fit', () => {
      const low = from([-(2n ** 63n), 2n ** 33n]);
      expect(low.neg().toVecSync()).toEqual([-(2n ** 63n), -(2n ** 33n)]);
      expect(low.abs().toVecSync()).toEqual([-(2n ** 63n), 2n ** 33n]);
      expect(low.sqr().toVecSync()).toEqual([0n, 0n]);
      expectFlat(from([-(2 ** 31), 65536], 'i32').abs(), [2], [-(2 ** 31), 65536]);
      expectFlat(from([-(2 ** 31), 65536], 'i32').sqr(), [2], [0, 0]);
      expectFlat(from([-32768, 300], 'i16').abs(), [2], [-32768, 300]);
      expectFlat(from([-32768, 300], 'i16').sqr(), [2], [0, 90000 - 65536]);
      expectFlat(from([1, 20], 'u8').neg(), [2], [255, 236]);
      expectFlat(from([1, 20], 'u8').sqr(), [2], [1, 400 - 256]);
      expectFlat(from([1, 65537], 'u32').neg(), [2], [2 ** 32 - 1, 2 ** 32 - 65537]);
      expectFlat(from([4294967295, 65537], 'u32').sqr(), [2], [1, 131073]);
    });
  });

  describe(`arithmetic on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::add_mul in %s', (dtype) => {
      const t = from([3, 1, 4], dtype);
      expectFlat(t, [3], [3, 1, 4]);
      const twice = t.add(t);
      expectFlat(twice, [3], [6, 2, 8]);
      expectFlat(twice.mul(twice), [3], [36, 4, 64]);
      expect(twice.mul(twice).dtype).toBe(dtype);
    });

    test('tensor_tests::binary_op', () => {
      const left = shaped([3, 1, 4, 1, 5, 2, 1, 7, 8, 2], [2, 5]);
      const right = shaped([5, 5, 5, 5, 5, 2, 1, 7, 8, 2], [2, 5]);
      const mixed = left.add(left.mul(left).div(left.add(right)));
      expectFlat(mixed, [2, 5], [4.125, 1.1666666, 5.7777777, 1.1666666, 7.5, 3, 1.5, 10.5, 12, 3], 1e-6);
      expectFlat(mixed.sub(mixed), [2, 5], Array(10).fill(0));
      expectFlat(left.minimum(right.mul(0.5)), [2, 5], [2.5, 1, 2.5, 1, 2.5, 1, 0.5, 3.5, 4, 1]);
      expectFlat(left.maximum(right.mul(0.5)), [2, 5], [3, 2.5, 4, 2.5, 5, 2, 1, 7, 8, 2]);
    });

    test.each(DTYPES)('tensor_tests::binary_op of views in %s', (dtype) => {
      const base = counted([3, 6, 5], 'f32', 1).toDtype(dtype);
      const part = base.narrow(1, 0, 4);
      const scale = counted([3, 4, 5], 'f32', 1).toDtype(dtype);
      for (const op of ['add', 'mul', 'maximum'] as const) {
        expectSame(part[op](scale), part.contiguous()[op](scale));
        expectSame(scale[op](part), scale[op](part.contiguous()));
        expectSame(part[op](part), part.contiguous()[op](part.contiguous()));
      }
      const turned = shaped([1, 2, 3, 4, 5, 6], [2, 3], dtype).t();
      expectFlat(turned.add(turned), [3, 2], [2, 8, 4, 10, 6, 12]);
    });

    test('tensor_tests::broadcasting', () => {
      const t1 = counted([4, 2, 3]);
      const t2 = from([100, 200]);
      const plane = numbers(t1);
      const turned = numbers(t1.t());
      const row = (i: number) => 100 * (1 + (Math.floor(i / 3) % 2));
      const column = (i: number) => 100 * (1 + (i % 2));
      const standing = t2.reshape([2, 1]);
      expectFlat(
        t1.broadcastAdd(standing),
        [4, 2, 3],
        plane.map((x, i) => x + row(i)),
      );
      expectFlat(
        t1.t().broadcastAdd(t2),
        [4, 3, 2],
        turned.map((x, i) => x + column(i)),
      );
      expectFlat(
        t1.broadcastSub(standing),
        [4, 2, 3],
        plane.map((x, i) => x - row(i)),
      );
      expectFlat(
        t1.t().broadcastSub(t2),
        [4, 3, 2],
        turned.map((x, i) => x - column(i)),
      );
      expectFlat(
        standing.broadcastSub(t1),
        [4, 2, 3],
        plane.map((x, i) => row(i) - x),
      );
      // A part of it, whose layout begins further on.
      const late = t1.i([2]);
      expectFlat(late.broadcastAdd(standing), [2, 2, 3], [112, 113, 114, 215, 216, 217, 118, 119, 120, 221, 222, 223]);
      expectFlat(late.t().broadcastAdd(t2), [2, 3, 2], [112, 215, 113, 216, 114, 217, 118, 221, 119, 222, 120, 223]);
      expectFlat(
        late.broadcastSub(standing),
        [2, 2, 3],
        [-88, -87, -86, -185, -184, -183, -82, -81, -80, -179, -178, -177],
      );
      expectFlat(
        late.t().broadcastSub(t2),
        [2, 3, 2],
        [-88, -185, -87, -184, -86, -183, -82, -179, -81, -178, -80, -177],
      );
      const inverse = from(1).broadcastDiv(t2);
      const products = [1200, 1300, 1400, 3000, 3200, 3400, 1800, 1900, 2000, 4200, 4400, 4600];
      expectFlat(late.broadcastMul(standing), [2, 2, 3], products);
      expectFlat(late.broadcastDiv(inverse.reshape([2, 1])), [2, 2, 3], products);
      const across = [1200, 3000, 1300, 3200, 1400, 3400, 1800, 4200, 1900, 4400, 2000, 4600];
      expectFlat(late.t().broadcastMul(t2), [2, 3, 2], across);
      expectFlat(late.t().broadcastDiv(inverse), [2, 3, 2], across);
    });

    test.each(DTYPES)('tensor_tests::broadcasting of a column and a row in %s', (dtype) => {
      const column = shaped([1, 2], [2, 1], dtype);
      const row = from([10, 20, 30], dtype).div(10);
      expectFlat(column.broadcastAdd(row), [2, 3], [2, 3, 4, 3, 4, 5]);
      expectFlat(row.broadcastMul(column), [2, 3], [1, 2, 3, 2, 4, 6]);
      expectFlat(row.broadcastAdd(column).broadcastSub(column), [2, 3], [1, 2, 3, 1, 2, 3]);
      expectFlat(row.broadcastMul(column).broadcastDiv(column), [2, 3], [1, 2, 3, 1, 2, 3]);
      expectFlat(column.broadcastMaximum(row), [2, 3], [1, 2, 3, 2, 2, 3]);
      expectFlat(column.broadcastMinimum(row), [2, 3], [1, 1, 1, 1, 2, 2]);
    });

    test.each(DTYPES)('arithmetic stretches its operands as candle names do, in %s', (dtype) => {
      const column = shaped([1, 2], [2, 1], dtype);
      const row = from([10, 20, 30], dtype).div(10);
      expectFlat(column.add(row), [2, 3], [2, 3, 4, 3, 4, 5]);
      expectFlat(row.add(column).sub(column), [2, 3], [1, 2, 3, 1, 2, 3]);
      expectFlat(row.mul(column).div(column), [2, 3], [1, 2, 3, 1, 2, 3]);
      expectFlat(column.maximum(row), [2, 3], [1, 2, 3, 2, 2, 3]);
      expectFlat(column.minimum(row), [2, 3], [1, 1, 1, 1, 2, 2]);
      expect(column.add(row.narrow(0, 0, 0)).shape).toEqual([2, 0]);
      expect(column.narrow(0, 0, 0).mul(row).shape).toEqual([0, 3]);
      expect(() => row.add(from([1, 2], dtype))).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
    });

    test('tensor_tests::clamp', () => {
      const t = shaped([3, 1, 4, 1, 5, 2, 1, 7, 8, 2], [2, 5]);
      const top = Math.fround(6.2);
      expectFlat(t.clamp(1.5, 6.2), [2, 5], [3, 1.5, 4, 1.5, 5, 2, 1.5, top, top, 2]);
      expectFlat(t.clamp(t.affine(0, 2), t.affine(0, 4)), [2, 5], [3, 2, 4, 2, 4, 2, 2, 4, 4, 2]);
    });

    test.each(DTYPES)('tensor_tests::clamp in %s', (dtype) => {
      expectFlat(from([3, 1, 4, 0, 5], dtype).clamp(1, 4), [5], [3, 1, 4, 1, 4]);
    });

    test('tensor_tests::pow', () => {
      const t = counted([2, 3], 'f32', 1);
      expectFlat(t.pow(t.sub(2)), [2, 3], [1, 1, 3, 16, 125, 1296], 5e-4);
      expectFlat(t.broadcastPow(from([2])), [2, 3], [1, 4, 9, 16, 25, 36], 5e-4);
      expectFlat(t.pow(2), [2, 3], [1, 4, 9, 16, 25, 36], 5e-4);
      expectFlat(t.toDtype('f64').pow(t.sub(2).toDtype('f64')), [2, 3], [1, 1, 3, 16, 125, 1296], 1e-12);
    });

    test.each(floats)('arithmetic in %s', (dtype) => {
      const a = from([1, -2, 0.5, 8], dtype);
      const b = from([2, 4, -0.5, 2], dtype);
      expectFlat(a.add(b), [4], [3, 2, 0, 10]);
      expectFlat(a.sub(b), [4], [-1, -6, 1, 6]);
      expectFlat(a.mul(b), [4], [2, -8, -0.25, 16]);
      expectFlat(a.div(b), [4], [0.5, -0.5, -1, 4]);
      expectFlat(a.affine(2, 1), [4], [3, -3, 2, dtype === 'f8e4m3' ? 16 : 17]);
      expect(a.add(b).dtype).toBe(dtype);
    });

    test.each(ints)('integers in %s are exact', (dtype: DType) => {
      const a = from([7, 20, 100], dtype);
      const b = from([2, 0, 9], dtype);
      expectFlat(a.add(b), [3], [9, 20, 109]);
      expectFlat(a.sub(1), [3], [6, 19, 99]);
      expectFlat(a.mul(2), [3], [14, 40, 200]);
      expect(numbers(a.div(b)), 'by zero gives 0').toEqual([3, 0, 11]);
      expectFlat(a.div(2), [3], [3, 10, 50]);
      expectFlat(a.maximum(b), [3], [7, 20, 100]);
      expectFlat(a.minimum(15), [3], [7, 15, 15]);
      expectFlat(a.affine(2, 3), [3], [17, 43, 203]);
      expectFlat(a.le(20), [3], [1, 1, 0]);
    });

    test('integers wrap like two’s complement', () => {
      expect(from([250], 'u8').add(10).toVecSync()).toEqual([4]);
      expect(from([2], 'u8').sub(3).toVecSync()).toEqual([255]);
      expect(from([32767], 'i16').add(1).toVecSync()).toEqual([-32768]);
      const top = from([2 ** 31 - 1], 'i32');
      expect(top.add(1).toVecSync()).toEqual([-(2 ** 31)]);
      expect(from([4000000000], 'u32').mul(3).toVecSync()).toEqual([3410065408]);
      expect(from([123456789], 'i32').mul(987654321).toVecSync()).toEqual([-67153019]);
      const wide = from([2n ** 63n - 1n]);
      expect(wide.add(1).toVecSync()).toEqual([-(2n ** 63n)]);
      const factor = from([9000000011n]);
      expect(from([3000000007n]).mul(factor).toVecSync()).toEqual([8553256022290448461n]);
      expect(from([-7, 7], 'i32').div(2).toVecSync()).toEqual([-3, 3]);
    });

    test('NaN reaches maximum and minimum', () => {
      const a = from([Number.NaN, 1, 2]);
      const b = from([1, Number.NaN, 1]);
      expectFlat(a.maximum(b), [3], [Number.NaN, Number.NaN, 2]);
      expectFlat(a.minimum(b), [3], [Number.NaN, Number.NaN, 1]);
    });
  });
}
