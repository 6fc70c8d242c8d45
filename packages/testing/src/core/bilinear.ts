/** candle's bilinear_tests on one device: PyTorch's numbers of `interpolate(mode='bilinear')`. */

import { type Device, type DType, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame, numbers } from './close';
import { makers } from './makers';

const DTYPES: readonly DType[] = ['f32', 'f64', 'f16', 'bf16', 'u8', 'u32'];
/** With a rounding of the result: half a unit of a value of 16 in each. */
const FLOATS = [
  ['f32', 1e-6],
  ['f64', 1e-6],
  ['f16', 8e-3],
  ['bf16', 6e-2],
] as const;

export function bilinearSuite(name: string, device: () => Device): void {
  const { counted, shaped, zeros } = makers(device);
  /** Rows plus columns: how a linear ramp is resized. */
  const ramp = (rows: number[], columns: number[]) => rows.flatMap((row) => columns.map((column) => row + column));

  describe(`bilinear on ${name}`, () => {
    const rows = [0, 1, 3, 5, 7, 9, 11, 12];
    const columns = [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3];

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_2x_upscale in %s', (dtype, tolerance) => {
      const large = counted([1, 1, 4, 4], dtype).upsampleBilinear2d(8, 8, false);
      expect(large.dtype).toBe(dtype);
      expectFlat(large, [1, 1, 8, 8], ramp(rows, columns), tolerance);
    });

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_downscale in %s', (dtype, tolerance) => {
      const small = counted([1, 1, 8, 8], dtype).upsampleBilinear2d(4, 4, false);
      expectFlat(small, [1, 1, 4, 4], ramp([0, 16, 32, 48], [4.5, 6.5, 8.5, 10.5]), tolerance);
    });

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_multi_channel in %s', (dtype, tolerance) => {
      const large = shaped(PYTORCH, [1, 2, 4, 4], dtype).upsampleBilinear2d(8, 8, false);
      expect(large.shape).toEqual([1, 2, 8, 8]);
      expect(numbers(large).every(Number.isFinite)).toBe(true);
      const first = [1.9269, 1.817, 1.5972, 1.3406, 1.0474, 0.1492, -1.354, -2.1055];
      const second = [1.6423, 1.1918, 0.2909, -0.244, -0.4129, -0.2632, 0.2053, 0.4396];
      expectFlat(large.narrow(2, 0, 1), [1, 2, 1, 8], [...first, ...second], Math.max(1e-4, tolerance / 4));
    });

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_align_corners_true in %s', (dtype, tolerance) => {
      const t = shaped([1, 2, 3, 4], [1, 1, 2, 2], dtype);
      const large = t.upsampleBilinear2d(4, 4, true);
      const expected = ramp([0, 2 / 3, 4 / 3, 2], [1, 4 / 3, 5 / 3, 2]);
      expectFlat(large, [1, 1, 4, 4], expected, Math.max(2e-6, tolerance));
      const values = numbers(large);
      expect([values[0], values[3], values[12], values[15]]).toEqual([1, 2, 3, 4]);
      expectFlat(t.upsampleBilinear2d(1, 1, true), [1, 1, 1, 1], [1]);
    });

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_scale_factor in %s', (dtype) => {
      const t = counted([1, 1, 4, 4], dtype);
      expectSame(t.upsampleBilinear2dWithScale(2, 2, false), t.upsampleBilinear2d(8, 8, false));
      expectSame(t.upsampleBilinear2dWithScale(1.5, 0.5, false), t.upsampleBilinear2d(6, 2, false));
    });

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_non_square_exact in %s', (dtype, tolerance) => {
      const large = counted([1, 1, 4, 6], dtype).upsampleBilinear2d(8, 12, false);
      const wider = [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.25, 4.75, 5];
      const taller = [0, 1.5, 4.5, 7.5, 10.5, 13.5, 16.5, 18];
      expectFlat(large, [1, 1, 8, 12], ramp(taller, wider), tolerance);
    });

    test.each(DTYPES)('bilinear_tests::bilinear_pytorch_tiny_1x1_to_3x3 in %s', (dtype) => {
      const large = shaped([5], [1, 1, 1, 1], dtype).upsampleBilinear2d(3, 3, false);
      expectFlat(large, [1, 1, 3, 3], Array(9).fill(5));
    });

    test.each(FLOATS)('bilinear_tests::bilinear_pytorch_tiny_1x2_to_3x6 in %s', (dtype, tolerance) => {
      const large = shaped([2, 8], [1, 1, 1, 2], dtype).upsampleBilinear2d(3, 6, false);
      expectFlat(large, [1, 1, 3, 6], ramp([0, 0, 0], [2, 2, 4, 6, 8, 8]), tolerance);
    });

    test('bilinear_tests::bilinear_pytorch_large_64x64_to_128x128', () => {
      const t = Tensor.randn(0, 1, [1, 1, 64, 64], 'f32', device());
      const large = t.upsampleBilinear2d(128, 128, false);
      expect([large.shape, large.dtype]).toEqual([[1, 1, 128, 128], 'f32']);
      const [given, made] = [numbers(t), numbers(large)];
      expect(made.every(Number.isFinite)).toBe(true);
      expect(made.every((value) => value > -10 && value < 10)).toBe(true);
      // Between the extremes of its input: a weighted mean, rounded.
      expect(Math.max(...made)).toBeLessThanOrEqual(Math.max(...given) + 1e-6);
      expect(Math.min(...made)).toBeGreaterThanOrEqual(Math.min(...given) - 1e-6);
      // Twice the size: each element is a quarter and three quarters of its neighbours, along both dimensions.
      for (const [y, x] of [
        [1, 1],
        [64, 63],
        [125, 126],
        [40, 101],
      ]) {
        const near = (i: number) => (i % 2 === 1 ? [(i - 1) / 2, (i + 1) / 2] : [i / 2, i / 2 - 1]);
        const [[y0, y1], [x0, x1]] = [near(y), near(x)];
        const at = (i: number, j: number) => given[i * 64 + j];
        const expected = (9 * at(y0, x0) + 3 * at(y0, x1) + 3 * at(y1, x0) + at(y1, x1)) / 16;
        expect(Math.abs(made[y * 128 + x] - expected), `element ${y}, ${x}`).toBeLessThan(1e-5);
      }
    });

    test('bilinear_tests::bilinear_output_dimensions', () => {
      const t = counted([1, 1, 4, 4]);
      expect(counted([1, 1, 4, 8]).upsampleBilinear2d(6, 12, false).shape).toEqual([1, 1, 6, 12]);
      expect(counted([4, 3, 4, 4]).upsampleBilinear2d(8, 8, false).shape).toEqual([4, 3, 8, 8]);
      expect(t.upsampleBilinear2dWithScale(2, 3, false).shape).toEqual([1, 1, 8, 12]);
      expect(t.upsampleBilinear2dWithScale(1.5, 1.5, false).shape).toEqual([1, 1, 6, 6]);
      expectFlat(t.upsampleBilinear2d(1, 1, false), [1, 1, 1, 1], [7.5]);
      expect(counted([1, 1, 2, 2]).upsampleBilinear2dWithScale(5, 5, false).shape).toEqual([1, 1, 10, 10]);
    });

    test.each(DTYPES)('bilinear_tests::bilinear_identity in %s', (dtype) => {
      const t = counted([1, 1, 4, 4], dtype);
      expectSame(t.upsampleBilinear2d(4, 4, false), t);
      expectSame(t.upsampleBilinear2d(4, 4, true), t);
    });

    test('bilinear_tests::bilinear_align_corners_difference', () => {
      const t = counted([1, 1, 4, 4]);
      const apart = t.upsampleBilinear2d(8, 8, false).sub(t.upsampleBilinear2d(8, 8, true));
      expect(apart.abs().sumAll().toScalarSync()).toBeGreaterThan(0.1);
    });

    test('scales that are no ratio of sizes', () => {
      // 1.3 gives 5 of 4, at positions divided by 1.3 and not by 5 / 4.
      const positions = [0, 1, 2, 3, 4].map((i) => Math.max(0, (i + 0.5) / 1.3 - 0.5));
      const line = counted([1, 1, 4, 4]).narrow(2, 0, 1);
      const expected = positions.map((p) => Math.min(3, p));
      expectFlat(line.upsampleBilinear2dWithScale(1, 1.3, false), [1, 1, 1, 5], expected, 6e-5);
    });

    test.each(DTYPES)('a view in %s', (dtype) => {
      const t = counted([1, 4, 3, 2], dtype).transpose(1, 3).narrow(3, 1, 3);
      const result = t.upsampleBilinear2d(5, 4, false);
      expect(result.dtype).toBe(dtype);
      expectSame(result, t.contiguous().upsampleBilinear2d(5, 4, false));
      expect(numbers(result)[0]).toBe(6);
    });

    test('targets that are no size are refused', () => {
      const t = counted([1, 1, 2, 2]);
      const code = (expected: string) => expect.objectContaining({ code: expected });
      expect(() => t.interpolate2d(0, 4)).toThrow(code('INVALID_SHAPE'));
      expect(() => t.interpolate1d(4)).toThrow(/\[1, 1, 2, 2\] is not \[b, c, l\]/);
      expect(() => t.upsampleBilinear2d(2.5, 4, false)).toThrow(/height is 2.5/);
      expect(() => t.upsampleBilinear2dWithScale(0, 1, false)).toThrow(code('INVALID_ARGUMENT'));
      expect(() => zeros([1, 1, 0, 2]).interpolate2d(2, 2)).toThrow(/no elements to resize/);
      expect(zeros([0, 1, 2, 2]).interpolate2d(4, 4).shape).toEqual([0, 1, 4, 4]);
    });
  });
}

/** [1, 2, 4, 4]: torch.manual_seed(42), torch.randn. */
const PYTORCH = [
  1.9269, 1.4873, 0.9007, -2.1055, 0.6784, -1.2345, -0.0431, -1.6047, -0.7521, 1.6487, -0.3925, -1.4036, -0.7279,
  -0.5594, -0.7688, 0.7624, 1.6423, -0.1596, -0.4974, 0.4396, -0.7581, 1.0783, 0.8008, 1.6806, 1.2791, 1.2964, 0.6105,
  1.3347, -0.2316, 0.0418, -0.2516, 0.8599,
];
