/**
 * Where floats are easily got wrong, on one device: signed zeros, infinities, divisors beyond the range of a reciprocal,
 * powers, sums of comparisons, and reductions of nothing. Expected values are IEEE 754's and PyTorch's.
 */

import { type Device, DTYPES, isFloat, isInt, Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, numbers } from './close';
import { makers } from './makers';

const FLOATS = DTYPES.filter(isFloat);
/** f8e4m3 has no infinity. */
const WITH_INFINITY = FLOATS.filter((dtype) => dtype !== 'f8e4m3');
const { NaN: NAN, POSITIVE_INFINITY: INF } = Number;

export function numbersSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros } = makers(device);
  /** Exact, with the signs of zeros. */
  const same = (actual: Tensor, expected: readonly number[]) => expect(numbers(actual)).toEqual([...expected]);
  /** The same number as a tensor. */
  const asTensor = (value: number, like: Tensor) => Tensor.full(value, like.shape, like.dtype, device());

  describe(`numbers against floats on ${name}`, () => {
    const operands = [0, -0, 1, -1, 3, -7.5, 448, 2 ** -9, INF, -INF, NAN];
    const scalars = [0, -0, 1, -1, 2, -4, 0.25, 3, 10, 0.1, -49, 1e-40, 1e-8, 65504, 1e38, 2 ** -149, INF, -INF, NAN];

    test.each(FLOATS)('a number is an operand like any other in %s', (dtype) => {
      const x = from(operands, dtype);
      for (const op of ['add', 'sub', 'mul', 'div', 'maximum', 'minimum'] as const) {
        for (const scalar of scalars) {
          const [actual, expected] = [x[op](scalar), x[op](asTensor(scalar, x))].map(numbers);
          expect(actual, `${op} ${scalar}`).toEqual(expected);
        }
      }
    });

    test.each(['f32', 'f64', 'f16', 'bf16'] as const)('quotients are rounded once in %s', (dtype) => {
      const x = Tensor.arange(1, 2000, 'f32', device()).toDtype(dtype);
      for (const divisor of [3, 7, 10, 41, 49, 4096, -1e-3, 1e4]) {
        expect(numbers(x.div(divisor)), String(divisor)).toEqual(numbers(x.div(asTensor(divisor, x))));
      }
      if (dtype === 'f64')
        same(
          x.div(49),
          Array.from({ length: 1999 }, (_, i) => (i + 1) / 49),
        );
    });

    test('tiny and huge divisors', () => {
      same(from([0, -0, 1, -1]).div(1e-40), [0, -0, INF, -INF]);
      same(from([1e-40]).div(1e-40), [1]);
      same(from([0, 3e38]).div(2 ** -149), [0, INF]);
      same(from([3e38]).div(3e38), [1]);
      same(from([0, 1], 'f64').div(5e-324), [0, INF]);
      same(from([1e-320], 'f64').div(1e-320), [1]);
      same(from([2 ** -24], 'f16').div(2 ** -24), [1]);
      same(from([1], 'f16').div(1e-8), [INF]);
    });

    test.each(FLOATS)('the sign of zero stays in %s', (dtype) => {
      const x = from([-0, 0], dtype);
      same(x, [-0, 0]);
      same(Tensor.full(-0, [2], dtype, device()), [-0, -0]);
      same(x.mul(1), [-0, 0]);
      same(x.mul(-3), [0, -0]);
      same(x.mul(-0), [0, -0]);
      same(x.div(5), [-0, 0]);
      same(x.div(-4), [0, -0]);
      same(x.add(-0), [-0, 0]);
      same(x.add(0), [0, 0]);
      same(x.sub(0), [-0, 0]);
      same(x.affine(1, -0), [-0, 0]);
      same(x.neg(), [0, -0]);
      same(x.relu(), [-0, 0]);
      same(shaped([-0, 0, -0, 0], [2, 2], dtype).t().mul(1), [-0, -0, 0, 0]);
      for (const op of ['sin', 'tanh', 'erf', 'sqrt', 'floor', 'ceil', 'round', 'gelu', 'silu'] as const) {
        same(x[op](), [-0, 0]);
      }
      same(x.elu(1.5), [-0, 0]);
      same(x.roundTo(2), [-0, 0]);
      for (const other of DTYPES) same(x.toDtype(other), isInt(other) ? [0, 0] : [-0, 0]);
      const slice = from([1, 1], dtype);
      slice.constSet(-0);
      same(slice, [-0, -0]);
    });

    test.each(FLOATS)('extrema order the zeros and propagate NaN in %s', (dtype) => {
      // More than a wide access holds, and a rest.
      const kinds = [0, -0, -0, 0, NAN, 1, 1, NAN, -0, -1];
      const flat = Array.from({ length: 74 }, (_, i) => kinds[i % kinds.length]);
      const [left, right] = [0, 1].map((side) => flat.filter((_, i) => i % 2 === side));
      const [a, b] = [from(left, dtype), from(right, dtype)];
      const greater = left.map((x, i) => Math.max(x, right[i]));
      const less = left.map((x, i) => Math.min(x, right[i]));
      same(a.maximum(b), greater);
      same(b.minimum(a), less);
      const rows = shaped(flat, [37, 2], dtype);
      for (const [result, expected] of [
        [rows.max(1), greater],
        [rows.min(1), less],
        [rows.t().contiguous().max(0), greater],
        [rows.t().contiguous().min(0), less],
        [rows.narrow(1, 0, 1).broadcastMaximum(rows).narrow(1, 1, 1).squeeze(1), greater],
      ] as const) {
        same(result, expected);
      }
      for (const length of [1, 9, 300, 5000]) {
        const mixed = (zero: number) => Array.from({ length }, (_, i) => (i === length >> 1 ? zero : -zero));
        same(from(mixed(0), dtype).max(0), [0]);
        same(from(mixed(-0), dtype).min(0), [-0]);
      }
      same(shaped([-0, 0, 0, -0, -1, -0, -0, -1], [1, 2, 2, 2], dtype).maxPool2d(2), [0, -0]);
    });

    test.each(DTYPES.filter(isInt))('-0 is the integer 0 in %s', (dtype) => {
      same(Tensor.full(-0, [1], dtype, device()), [0]);
      same(from([5], dtype).mul(-0), [0]);
      same(from([5], dtype).add(-0), [5]);
      same(from([5], dtype).affine(1, -0), [5]);
    });

    test('means are quotients', () => {
      for (const dtype of ['f32', 'f64'] as const) {
        for (const count of [3, 41, 47, 49, 4096]) same(Tensor.ones([count], dtype, device()).meanAll(), [1]);
      }
    });
  });

  describe(`functions at their ends on ${name}`, () => {
    test.each(WITH_INFINITY)('infinities and what would overflow on the way in %s', (dtype) => {
      const big = dtype === 'f16' ? 60000 : 1e30;
      const x = from([INF, big, -big], dtype);
      const [, held] = numbers(x);
      same(x.gelu(), [INF, held, -0]);
      same(x.geluErf(), [INF, held, -0]);
      same(x.silu(), [INF, held, -0]);
      same(x.sigmoid(), [1, 1, 0]);
      same(x.tanh(), [1, 1, -1]);
      same(x.erf(), [1, 1, -1]);
      same(x.elu(2), [INF, held, -2]);
      same(from([-INF], dtype).elu(2), [-2]);
      same(from([-INF], dtype).sigmoid(), [0]);
      same(x.softplus(), [INF, held, 0]);
      same(from([-INF], dtype).softplus(), [0]);
      same(x.mish(), [INF, held, -0]);
      same(from([INF, -INF, -big], dtype).expm1(), [INF, -1, -1]);
      same(from([-INF, -INF], dtype).softmaxLastDim(), [NAN, NAN]);
      same(from([-INF, 0], dtype).softmaxLastDim(), [0, 1]);
      same(from([big, big], dtype).softmaxLastDim(), [0.5, 0.5]);
      same(from([-INF, -INF], dtype).logSumExp(0), [-INF]);
      same(from([INF, 0], dtype).logSumExp(0), [INF]);
    });

    test.each(FLOATS)('NaN and zeros of expm1, softplus and mish in %s', (dtype) => {
      const x = from([NAN, -0, 0], dtype);
      same(x.expm1(), [NAN, -0, 0]);
      same(x.mish(), [NAN, -0, 0]);
      same(x.softplus(), [NAN, ...numbers(from([Math.LN2, Math.LN2], dtype))]);
    });

    test.each(['f32', 'f64', 'f16', 'bf16'] as const)('expm1 and softplus keep small results in %s', (dtype) => {
      const precision = { f64: 4e-16, f32: 5e-7, f16: 1e-3, bf16: 8e-3 }[dtype];
      const close = (actual: Tensor, x: Tensor, f: (v: number) => number) => {
        const got = numbers(actual);
        numbers(x).forEach((value, i) => {
          const wanted = f(value);
          expect(Math.abs(got[i] - wanted), `at ${value}`).toBeLessThanOrEqual(
            precision * Math.abs(wanted) + 6e-8 * +(dtype === 'f16'),
          );
        });
      };
      const small = [
        1e-3, -1e-3, 2e-4, 1.1e-4, 0.9e-4, -0.9e-4, 1e-5, 3e-7, 0.01, -0.01, 0.1, -0.1, 0.5, 1, -1, 5, -5, -20,
      ];
      const x = from(dtype === 'f16' ? small : [...small, 1e-9, -1e-12, 1e-20, 1e-30, 60, -60], dtype);
      close(x.expm1(), x, Math.expm1);
      close(x.softplus(), x, (v) => Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v))));
    });

    test.each(WITH_INFINITY)('slopes of expm1, softplus and mish far out in %s', (dtype) => {
      const slopes = (op: 'expm1' | 'softplus' | 'mish', at: readonly number[]) => {
        const x = Var.fromTensor(from(at, dtype));
        return numbers(x[op]().sumAll().backward().get(x) as Tensor);
      };
      expect(slopes('expm1', [INF, 0, -INF])).toEqual([INF, 1, 0]);
      expect(slopes('softplus', [INF, 400, 0, -INF])).toEqual([1, 1, 0.5, 0]);
      expect(slopes('mish', [INF, 400]).map(Math.abs)).toEqual([1, 1]);
      expect(slopes('mish', [-INF]).map(Math.abs)).toEqual([0]);
    });

    test.each(FLOATS)('slopes of gelu far out in %s', (dtype) => {
      const big = { f64: 1e200, f32: 1e30, bf16: 1e30, f16: 300, f8e4m3: 400 }[dtype as string] as number;
      const x = Var.fromTensor(from([big, -big, 20, -20], dtype));
      expectFlat(x.gelu().sum([]).backward().get(x) as Tensor, [4], [1, 0, 1, 0], 1e-30);
    });

    test('norms of narrow floats do not overflow in between', () => {
      same(from([300, 400], 'f16').norm(), [500]);
    });

    test('roundTo', () => {
      // 10² and 1234 · 10² overflow f8e4m3 and f16.
      same(from([1234, 0.123, -2.345], 'f16').roundTo(2), numbers(from([1234, 0.12, -2.35], 'f16')));
      same(from([1234, 0.123], 'bf16').roundTo(1), numbers(from([1234, 0.1], 'bf16')));
      same(from([3.25, -0.4375], 'f8e4m3').roundTo(1), numbers(from([3.3, -0.4], 'f8e4m3')));
      same(from([60000, 1234], 'f16').roundTo(-3), numbers(from([60000, 1000], 'f16')));
      same(from([0.123], 'f16').roundTo(5), numbers(from([0.123], 'f16')));
      for (const dtype of ['f32', 'f64'] as const) {
        const x = from([1e30, 0.5, 0, -0, INF, -INF, NAN], dtype);
        same(x.roundTo(45), numbers(x));
        same(x.roundTo(15), numbers(x));
        same(x.roundTo(-36), [0, 0, 0, -0, INF, -INF, NAN]);
        expect(numbers(from([1, 0, -1], dtype).roundTo(-400))).toEqual([0, 0, -0]);
      }
      expect(() => from([1], 'i32').roundTo(1)).toThrow(expect.objectContaining({ code: 'DTYPE_MISMATCH' }));
      expect(() => from([1]).roundTo(0.5)).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }));
    });
  });

  describe(`powers on ${name}`, () => {
    const bases = [0, -0, 1, -1, 2, -2, 0.5, -0.5, 3, INF, -INF, NAN];
    const exponents = [0, -0, 1, -1, 2, 3, -3, 0.5, -0.5, INF, -INF, NAN];
    /** C's pow where it is exact, from its definition. */
    const exact = (x: number, y: number) => {
      if (y === 0 || x === 1 || (x === -1 && Math.abs(y) === INF)) return 1;
      return x ** y;
    };

    test.each(WITH_INFINITY)('are those of C in %s', (dtype) => {
      const x = from(bases, dtype).unsqueeze(1);
      const y = from(exponents, dtype);
      const expected = bases.flatMap((a) => exponents.map((b) => exact(a, b)));
      const close = (actual: number[], message: string) =>
        actual.forEach((value, i) => {
          const rounded = numbers(from([expected[i]], dtype))[0];
          const tolerance = Number.isFinite(rounded) ? Math.abs(rounded) * (dtype === 'f64' ? 1e-14 : 1e-6) : 0;
          const at = `${bases[Math.floor(i / exponents.length)]} to the ${exponents[i % exponents.length]} ${message}`;
          if (tolerance > 0) expect(Math.abs(value - rounded), at).toBeLessThanOrEqual(tolerance);
          else expect(value, at).toBe(rounded);
        });
      close(numbers(x.broadcastPow(y)), 'stretched');
      const shape = [bases.length, exponents.length];
      close(numbers(x.broadcastAs(shape).pow(y.broadcastAs(shape))), 'of equal shapes');
      exponents.forEach((exponent, j) => {
        const column = numbers(x.powf(exponent).pow(Tensor.ones(x.shape, dtype, device())));
        const wanted = numbers(x.broadcastPow(from([exponents[j]], dtype)));
        expect(column, `to the number ${exponent}`).toEqual(wanted);
      });
    });

    test('shapes, dtypes and integers', () => {
      same(from([-2, -3, 4], 'f8e4m3').pow(from([3, 2, 0.5], 'f8e4m3')), [-8, 9, 2]);
      same(from([1, 2]).pow(from([2])), [1, 4]);
      expect(() => from([1, 2]).pow(from([1, 2, 3]))).toThrow(/pow.*2 against 3/);
      expect(() => from([1]).pow(from([1], 'f64'))).toThrow(expect.objectContaining({ code: 'DTYPE_MISMATCH' }));
      expect(() => from([2], 'i32').pow(from([2], 'i32'))).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }));
      expect(() => from([2n]).pow(from([2n]))).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }));
      expect(zeros([0, 3]).pow(zeros([0, 3])).shape).toEqual([0, 3]);
    });

    test('slopes are those of PyTorch', () => {
      const x = Var.fromTensor(from([0, 0, 0, -2, -2, 3], 'f64'));
      const y = Var.fromTensor(from([0, 2, 1, 3, 2, 2], 'f64'));
      const grads = x.pow(y).sumAll().backward();
      expectFlat(grads.get(x) as Tensor, [6], [0, 0, 1, 12, -4, 6], 1e-14);
      expectFlat(grads.get(y) as Tensor, [6], [0, 0, 0, NAN, NAN, 9 * Math.log(3)], 1e-14);
      const row = Var.fromTensor(from([1, 2], 'f64'));
      const column = Var.fromTensor(shaped([2, 3], [2, 1], 'f64'));
      const stretched = row.broadcastPow(column).sumAll().backward();
      same(stretched.get(row) as Tensor, [5, 16]);
      expectFlat(stretched.get(column) as Tensor, [2, 1], [4 * Math.LN2, 8 * Math.LN2], 1e-12);
    });
  });

  describe(`sums of comparisons on ${name}`, () => {
    test('count beyond 255, in u32', () => {
      const x = Tensor.ones([1000], 'f32', device());
      for (const sum of [x.gt(0).sumAll(), x.gt(0).sum(0), x.reshape([1, 1000]).gt(0).sumKeepdim(1).squeeze(0)]) {
        expect(sum.dtype).toBe('u32');
        same(sum, [1000]);
      }
      const bytes = Tensor.full(255, [100, 300], 'u8', device());
      same(bytes.sum(1), Array(100).fill(76500));
      same(bytes.t().sum(0), Array(100).fill(76500));
      same(bytes.sum([0, 1]), [7650000]);
      same(bytes.narrow(1, 0, 2).sum([]).flattenAll().narrow(0, 0, 2), [255, 255]);
      expect(bytes.narrow(1, 0, 2).sum([]).dtype).toBe('u32');
      const counted = x.gt(0).cumsum(0);
      expect(counted.dtype).toBe('u32');
      same(counted.narrow(0, 998, 2), [999, 1000]);
      expect(zeros([0, 2], 'u8').sum(0).dtype).toBe('u32');
    });
  });

  describe(`reductions of nothing on ${name}`, () => {
    test.each(FLOATS)('have the values of PyTorch in %s', (dtype) => {
      for (const [shape, dim, count] of [
        [[0], 0, 1],
        [[3, 0], 1, 3],
        [[0, 2], 0, 2],
      ] as const) {
        const e = zeros([...shape], dtype);
        const all = (value: number) => Array(count).fill(value);
        same(e.sum(dim), all(0));
        same(e.mean(dim), all(NAN));
        same(e.var(dim), all(NAN));
        same(e.varKeepdim(dim), all(NAN));
        // f8e4m3 saturates.
        same(e.logSumExp(dim), all(dtype === 'f8e4m3' ? -448 : -INF));
        for (const op of ['max', 'min', 'argmax', 'argmin'] as const) {
          expect(() => e[op](dim), op).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
        }
      }
      const e = zeros([2, 0, 3], dtype);
      same(e.sumAll(), [0]);
      same(e.meanAll(), [NAN]);
      same(e.norm(), [0]);
      expectFlat(e.logSumExp(0), [0, 3], []);
      expectFlat(e.var(0), [0, 3], []);
      expectFlat(e.cumsum(1), [2, 0, 3], []);
      expect(() => e.maxAll()).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
      same(from([5], dtype).var(0), [NAN]);
      for (const ints of [from([5], 'u8'), zeros([0], 'i32')]) {
        expect(() => ints.logSumExp(0)).toThrow(/logSumExp: needs a float dtype/);
      }
    });
  });
}
