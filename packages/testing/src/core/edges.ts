/** What happens at edges: sums beyond a narrow float, slopes where there are several, arguments that have no meaning. */
import { type Device, type DType, Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, numbers } from './close';
import { makers } from './makers';

export function edgesSuite(name: string, device: () => Device): void {
  const { from, shaped, counted } = makers(device);
  const code = (expected: string, message = /./) =>
    expect.objectContaining({ code: expected, message: expect.stringMatching(message) });
  const gradientOf = (x: Var, result: Tensor) => result.backward().get(x)!;
  const variable = (values: Tensor) => Var.fromTensor(values);

  describe(`edges on ${name}`, () => {
    test.each([
      ['f16', 2 ** -8],
      ['bf16', 2 ** -5],
    ] as const)('logSumExp of a row of %s whose sum is beyond 65504', (dtype, tolerance) => {
      const x = variable(Tensor.zeros([2, 70_000], dtype, device()));
      const result = x.logSumExp(1);
      expect(result.dtype).toBe(dtype);
      expectFlat(result, [2], [Math.log(70_000), Math.log(70_000)], tolerance);
      const slopes = numbers(gradientOf(x, result));
      for (const slope of [slopes[0], slopes[139_999]]) expect(Math.abs(slope * 70_000 - 1)).toBeLessThan(0.01);
    });

    test.each(['f64', 'f32', 'f16', 'bf16'] as const)('the norm of zeros in %s has a gradient of 0', (dtype) => {
      const x = variable(shaped([0, 0, 0], [3], dtype));
      expectFlat(gradientOf(x, x.norm()), [3], [0, 0, 0]);
      const y = variable(shaped([3, 0, -4], [3], dtype));
      expectFlat(gradientOf(y, y.norm()), [3], [0.6, 0, -0.8], dtype === 'bf16' ? 4e-3 : 5e-4);
    });

    test('the gradient of a norm has a gradient', () => {
      const x = variable(shaped([3, 4], [2], 'f64'));
      const slope = x.norm().backward({ createGraph: true }).get(x)!;
      // d²|x| / dx dx, the first row: (1 - 0.6², -0.6 * 0.8) / 5.
      expectFlat(gradientOf(x, slope.narrow(0, 0, 1)), [2], [0.128, -0.096], 1e-12);
    });

    test.each(['max', 'min'] as const)(
      'elements that are %s over several dimensions share the gradient evenly',
      (op) => {
        const sign = op === 'max' ? 1 : -1;
        const data = [5, 1, 5, 2, 5, 0, 3, 3, 1, 2, 3, 0].map((value) => sign * value);
        const x = variable(shaped(data, [2, 2, 3]));
        const third = 1 / 3;
        const shared = [third, 0, third, 0, third, 0, third, third, 0, 0, third, 0];
        expectFlat(gradientOf(x, x[op]([1, 2])), [2, 2, 3], shared, 1e-6);
        expectFlat(gradientOf(x, x[`${op}Keepdim`]([2, 1])), [2, 2, 3], shared, 1e-6);
        const all = [third, 0, third, 0, third, 0, 0, 0, 0, 0, 0, 0];
        expectFlat(gradientOf(x, x[op]([0, 1, 2])), [2, 2, 3], all, 1e-6);
        expectFlat(gradientOf(x, x[`${op}All`]()), [2, 2, 3], all, 1e-6);
        expectFlat(gradientOf(x, x[op]([])), [2, 2, 3], new Array(12).fill(1));
        expect(() => Tensor.zeros([2, 0, 0], 'f32', device())[op]([0, 1])).toThrow(
          code('INVALID_SHAPE', /dimension 1/),
        );
      },
    );

    test('slopes at kinks, as docs/api-parity.md has them', () => {
      const slopes = (values: readonly number[], shape: readonly number[], f: (x: Tensor) => Tensor) => {
        const x = variable(shaped(values, shape));
        return numbers(gradientOf(x, f(x)));
      };
      expect(slopes([0, 6, 7], [3], (x) => x.clamp(0, 6))).toEqual([0.5, 0.5, 0]);
      expect(slopes([2, 1, 2, 2], [1, 1, 2, 2], (x) => x.maxPool2d(2))).toEqual(
        [1, 0, 1, 1].map((v) => Math.fround(v / 3)),
      );
      expect(slopes([2, 2], [2], (x) => x.max(0))).toEqual([0.5, 0.5]);
      for (const op of ['floor', 'ceil', 'round', 'sign'] as const) {
        expect(() => slopes([1.5], [1], (x) => x[op]())).toThrow(code('NO_GRADIENT'));
        expect(slopes([1.5], [1], (x) => x.add(x[op]()))).toEqual([1]);
      }
    });

    test('the scalar product of u8 is exact in u32', () => {
      const result = from([200, 100, 255], 'u8').dot(from([2, 3, 255], 'u8'));
      expect([result.dtype, result.toScalarSync()]).toEqual(['u32', 65_725]);
      expect(from([2, 3], 'i16').dot(from([4, 5], 'i16')).dtype).toBe('i16');
      expect(() => from([2], 'u8').dot(from([2], 'i16'))).toThrow(code('DTYPE_MISMATCH'));
    });

    test('a dimension is turned round once', () => {
      const t = counted([2, 3]);
      expect(() => t.flip([1, 1])).toThrow(code('INVALID_SHAPE', /^flip: .* twice/));
      expect(() => t.flip([1, -1])).toThrow(code('INVALID_SHAPE', /^flip: .* twice/));
      expect(() => t.flip([2])).toThrow(code('DIM_OUT_OF_RANGE'));
      expectFlat(t.flip([-1, 0]), [2, 3], [5, 4, 3, 2, 1, 0]);
    });

    test('images too large for any memory', () => {
      const t = counted([1, 1, 2, 2]);
      for (const [height, width] of [
        [2 ** 40, 2],
        [2, 2 ** 40],
      ]) {
        expect(() => t.interpolate2d(height, width)).toThrow(code('OUT_OF_MEMORY'));
        expect(() => t.upsampleBilinear2d(height, width, true)).toThrow(code('OUT_OF_MEMORY'));
      }
    });

    test('ranges of i64 are exact beyond 2^53', () => {
      const make = (start: number, end: number, step = 1) =>
        Tensor.arangeStep(start, end, step, 'i64', device()).toVecSync<bigint[]>();
      const big = 2n ** 53n;
      expect(make(2 ** 53 - 2, 2 ** 53 + 2)).toEqual([big - 2n, big - 1n, big, big + 1n]);
      expect(make(-(2 ** 53) + 1, -(2 ** 53) - 4, -2)).toEqual([1n - big, -big - 1n, -big - 3n]);
      expect(make(-1, 2 ** 60, 2 ** 59)).toEqual([-1n, 2n ** 59n - 1n, 2n ** 60n - 1n]);
      expect(make(2 ** 53, 2 ** 53, 1)).toEqual([]);
      expect(() => make(2 ** 62, 2 ** 64, 2 ** 62)).toThrow(code('DTYPE_MISMATCH'));
    });

    test('random numbers between bounds in order, and with a deviation from 0', () => {
      const shape = [4];
      const random = [
        [() => Tensor.rand(3, 2, shape, 'f32', device()), /^rand: lo is 3 and up is 2/],
        [() => Tensor.rand(3, 2, [0], 'f32', device()), /^rand: lo is 3 and up is 2/],
        [() => Tensor.zeros(shape, 'f32', device()).randLike(1, 0.5), /lo is 1 and up is 0.5/],
        [() => Tensor.randn(0, -1, shape, 'f32', device()), /^randn: std is -1/],
        [() => Var.randn(0, -1, shape, 'f32', device()), /^randn: std is -1/],
      ] as const;
      for (const [make, message] of random) expect(make).toThrow(code('INVALID_ARGUMENT', message));
      expectFlat(Tensor.rand(2, 2, shape, 'f32', device()), shape, [2, 2, 2, 2]);
      expectFlat(Tensor.randn(5, 0, shape, 'f32', device()), shape, [5, 5, 5, 5]);
    });

    const near = (dtype: DType, op: 'gelu' | 'geluErf', values: Record<string, number>, relative: number) => {
      const points = Object.keys(values).map(Number);
      const actual = numbers(from(points, dtype)[op]());
      Object.values(values).forEach((expected, i) => {
        const off = Math.abs(actual[i] - expected) / Math.abs(expected);
        expect(off, `${op}(${points[i]}) is ${actual[i]}, not ${expected}`).toBeLessThan(relative);
      });
    };
    test('the tails of gelu keep their digits', () => {
      near('f64', 'geluErf', GELU_ERF, 2e-15);
      near('f64', 'gelu', GELU, 1e-11);
      near('f32', 'gelu', GELU, 3e-6);
    });
  });
}

/** mpmath: x Φ(x), and x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2. */
const GELU_ERF = {
  '-0.5': -0.15426876936299344,
  '-1': -0.15865525393145705,
  '-2.5': -0.015524163314440337,
  '-3.7': -0.00039885901386633657,
  '-6.3': -9.37583779710257e-10,
  '-10.1': -2.789730566482162e-23,
  '-20.7': -3.5849333895708573e-94,
  '-37.3': -3.060649577159178e-303,
};
const GELU = {
  '-2': -0.0454023059122,
  '-3': -0.00363739208177,
  '-3.25': -0.00156862714475,
  '-3.5': -0.000616197655374,
  '-4': -7.02459481924e-5,
  '-5': -2.29179619663e-7,
};
