/** Resizing on one device. Values of candle's tests (PyTorch's `interpolate`). */
import { describe, expect, test } from 'vitest';
import { type Device, type DType, Tensor } from '../../src';
import { expectClose } from './close';

const DTYPES: readonly DType[] = ['f32', 'f64', 'f16', 'bf16', 'u8', 'u32'];

export function upsampleSuite(name: string, device: () => Device): void {
  const counted = (shape: number[], dtype: DType = 'f32') =>
    Tensor.arange(
      0,
      shape.reduce((a, b) => a * b, 1),
      dtype,
      device(),
    ).reshape(shape);
  const image = (data: readonly number[], shape: number[]) => Tensor.from(data, { shape, device: device() });

  describe(`resizing on ${name}`, () => {
    test.each(DTYPES)('nearest in %s', (dtype) => {
      const t = counted([1, 1, 2, 3], dtype);
      expect(t.upsampleNearest2d(4, 6).get(0).get(0).toVecSync()).toEqual([
        [0, 0, 1, 1, 2, 2],
        [0, 0, 1, 1, 2, 2],
        [3, 3, 4, 4, 5, 5],
        [3, 3, 4, 4, 5, 5],
      ]);
      expect(t.interpolate2d(1, 2).toVecSync()).toEqual([[[[0, 1]]]]);
      const line = counted([2, 2, 3], dtype);
      expect(line.upsampleNearest1d(5).toVecSync()).toEqual([
        [
          [0, 0, 1, 1, 2],
          [3, 3, 4, 4, 5],
        ],
        [
          [6, 6, 7, 7, 8],
          [9, 9, 10, 10, 11],
        ],
      ]);
      expect(line.transpose(1, 2).interpolate1d(3).get(0).toVecSync()).toEqual([
        [0, 0, 3],
        [1, 1, 4],
        [2, 2, 5],
      ]);
    });

    test('bilinear, twice the size', () => {
      const rows = [0, 1, 3, 5, 7, 9, 11, 12];
      const columns = [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3];
      const expected = [[rows.map((row) => columns.map((column) => row + column))]];
      const t = counted([1, 1, 4, 4]);
      expectClose(t.upsampleBilinear2d(8, 8, false), expected);
      expectClose(t.upsampleBilinear2dWithScale(2, 2, false), expected);
      expectClose(
        counted([1, 1, 4, 6]).upsampleBilinear2d(8, 12, false).get(0).get(0).get(1),
        [1.5, 1.75, 2.25, 2.75, 3.25, 3.75, 4.25, 4.75, 5.25, 5.75, 6.25, 6.5],
      );
    });

    test('bilinear, half the size, several channels, tiny images', () => {
      expectClose(counted([1, 1, 8, 8]).upsampleBilinear2d(4, 4, false), [
        [
          [
            [4.5, 6.5, 8.5, 10.5],
            [20.5, 22.5, 24.5, 26.5],
            [36.5, 38.5, 40.5, 42.5],
            [52.5, 54.5, 56.5, 58.5],
          ],
        ],
      ]);
      const t = image(
        [
          1.9269, 1.4873, 0.9007, -2.1055, 0.6784, -1.2345, -0.0431, -1.6047, -0.7521, 1.6487, -0.3925, -1.4036,
          -0.7279, -0.5594, -0.7688, 0.7624, 1.6423, -0.1596, -0.4974, 0.4396, -0.7581, 1.0783, 0.8008, 1.6806, 1.2791,
          1.2964, 0.6105, 1.3347, -0.2316, 0.0418, -0.2516, 0.8599,
        ],
        [1, 2, 4, 4],
      );
      const first = t.upsampleBilinear2d(8, 8, false).narrow(2, 0, 1).squeeze(2);
      expectClose(
        first,
        [
          [
            [1.9269, 1.817, 1.5972, 1.3406, 1.0474, 0.1492, -1.354, -2.1055],
            [1.6423, 1.1918, 0.2909, -0.244, -0.4129, -0.2632, 0.2053, 0.4396],
          ],
        ],
        1e-4,
      );
      expect(image([5], [1, 1, 1, 1]).upsampleBilinear2d(3, 3, false).flattenAll().toVecSync()).toEqual(
        Array(9).fill(5),
      );
      expectClose(
        image([2, 8], [1, 1, 1, 2]).upsampleBilinear2d(3, 6, false).get(0).get(0),
        Array(3).fill([2, 2, 4, 6, 8, 8]),
      );
    });

    test('bilinear with aligned corners', () => {
      const t = image([1, 2, 3, 4], [1, 1, 2, 2]);
      expectClose(
        t.upsampleBilinear2d(4, 4, true).flattenAll(),
        [1, 1.3333, 1.6667, 2, 1.6667, 2, 2.3333, 2.6667, 2.3333, 2.6667, 3, 3.3333, 3, 3.3333, 3.6667, 4],
      );
      expect(t.upsampleBilinear2d(1, 1, true).toVecSync()).toEqual([[[[1]]]]);
      const wide = counted([1, 1, 4, 4]);
      const apart = wide
        .upsampleBilinear2d(8, 8, false)
        .sub(wide.upsampleBilinear2d(8, 8, true))
        .abs()
        .sumAll();
      expect(apart.toScalarSync()).toBeGreaterThan(0.1);
    });

    test('sizes, and scales that are no ratio of sizes', () => {
      const t = counted([1, 1, 4, 4]);
      expect(counted([4, 3, 4, 4]).upsampleBilinear2d(6, 12, false).shape).toEqual([4, 3, 6, 12]);
      expect(t.upsampleBilinear2dWithScale(2, 3, false).shape).toEqual([1, 1, 8, 12]);
      expect(t.upsampleBilinear2dWithScale(1.5, 1.5, false).shape).toEqual([1, 1, 6, 6]);
      expect(counted([1, 1, 2, 2]).upsampleBilinear2dWithScale(5, 5, true).shape).toEqual([1, 1, 10, 10]);
      expect(t.upsampleBilinear2d(1, 1, false).toVecSync()).toEqual([[[[7.5]]]]);
      expect(t.upsampleBilinear2d(4, 4, false).toVecSync()).toEqual(t.toVecSync());
      // 1.3 gives 5 of 4, at positions divided by 1.3 and not by 5 / 4.
      const positions = [0, 1, 2, 3, 4].map((i) => Math.max(0, (i + 0.5) / 1.3 - 0.5));
      expectClose(t.narrow(2, 0, 1).upsampleBilinear2dWithScale(1, 1.3, false), [
        [[positions.map((p) => Math.min(3, p))]],
      ]);
    });

    test.each(DTYPES)('bilinear of a view in %s', (dtype) => {
      const t = counted([1, 4, 3, 2], dtype).transpose(1, 3).narrow(3, 1, 3);
      const result = t.upsampleBilinear2d(5, 4, false);
      expect(result.dtype).toBe(dtype);
      expect(result.toVecSync()).toEqual(t.contiguous().upsampleBilinear2d(5, 4, false).toVecSync());
      expect(result.flattenAll().toVecSync<number[]>()[0]).toBe(6);
    });

    test('a large image stays within the range of its elements', () => {
      const t = Tensor.rand(-1, 1, [1, 1, 64, 64], 'f32', device());
      const large = t.upsampleBilinear2d(128, 128, false);
      expect(large.shape).toEqual([1, 1, 128, 128]);
      expect(large.maxAll().toScalarSync()).toBeLessThanOrEqual(t.maxAll().toScalarSync());
      expect(large.minAll().toScalarSync()).toBeGreaterThanOrEqual(t.minAll().toScalarSync());
    });

    test('targets that are no size are refused', () => {
      const t = counted([1, 1, 2, 2]);
      const code = (expected: string) => expect.objectContaining({ code: expected });
      expect(() => t.interpolate2d(0, 4)).toThrow(code('INVALID_SHAPE'));
      expect(() => t.interpolate1d(4)).toThrow(/\[1, 1, 2, 2\] is not \[b, c, l\]/);
      expect(() => t.upsampleBilinear2d(2.5, 4, false)).toThrow(/\[2.5, 4\]/);
      expect(() => t.upsampleBilinear2dWithScale(0, 1, false)).toThrow(code('INVALID_ARGUMENT'));
      expect(() => Tensor.zeros([1, 1, 0, 2], 'f32', device()).interpolate2d(2, 2)).toThrow(/no elements to resize/);
      expect(Tensor.zeros([0, 1, 2, 2], 'f32', device()).interpolate2d(4, 4).shape).toEqual([0, 1, 4, 4]);
    });
  });
}
