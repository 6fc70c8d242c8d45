/** candle's pool_tests on one device (avg_pool2d, max_pool2d, upsample_nearest2d), with nearest resizing of lines. */

import { type Device, type DType, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat } from './close';
import { makers } from './makers';

const DTYPES: readonly DType[] = ['f32', 'f64', 'f16', 'bf16', 'u8', 'u32'];

export function poolSuite(name: string, device: () => Device): void {
  const { shaped: image, counted } = makers(device);

  describe(`pooling on ${name}`, () => {
    const steps = [1, 2, 1, 3, 0, 0, 1, 1, 1, 1, 1, 1, 5, 1, 1, 1];

    test.each(DTYPES)('pool_tests::avg_pool2d in %s', (dtype) => {
      const whole = dtype === 'u8' || dtype === 'u32';
      const held = (list: number[]) => (whole ? list.map(Math.floor) : list);
      const t = image([1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 4, 4], dtype);
      expectFlat(t.avgPool2d(2), [1, 1, 2, 2], held([0.5, 1, 1, 1]));
      const uneven = image([1, 1, 1, 1, 0, 0, 4, 8, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 4, 4], dtype);
      expectFlat(uneven.avgPool2d(2), [1, 1, 2, 2], held([0.5, 3.5, 1, 1]));
      expectFlat(image(steps, [1, 1, 2, 8], dtype).avgPool2d(2), [1, 1, 1, 4], held([1.25, 1.5, 1.5, 1]));
    });

    test.each([
      ['f32', 6e-5],
      ['f64', 6e-5],
      ['f16', 1e-3],
      ['bf16', 1e-2],
    ] as const)('pool_tests::avg_pool2d_pytorch in %s', (dtype, tolerance) => {
      const t = image(PYTORCH, [1, 2, 4, 4], dtype);
      const quarters = [-1.1926, -0.0395, 0.2688, 0.1871, 0.1835, -0.1606, 0.6249, 0.3217];
      expectFlat(t.avgPool2d(2), [1, 2, 2, 2], quarters, tolerance);
      expectFlat(t.avgPool2d(3), [1, 2, 1, 1], [0.085, 0.0078], tolerance);
      const wide = [0.7745, 0.0276, -1.6983, 0.12, 0.3542, 0.1625, 0.4542, -0.0014];
      expectFlat(t.reshape([1, 1, 4, 8]).avgPool2d(2), [1, 1, 2, 4], wide, tolerance);
    });

    test.each(DTYPES)('pool_tests::max_pool2d in %s', (dtype) => {
      const t = image(steps, [1, 1, 4, 4], dtype);
      expectFlat(t.maxPool2d(2), [1, 1, 2, 2], [2, 3, 5, 1]);
      expectFlat(t.reshape([1, 1, 2, 8]).maxPool2d(2), [1, 1, 1, 4], [2, 3, 5, 1]);
    });

    test('a window and a stride for each axis, on views', () => {
      const t = Tensor.arange(0, 60, 'f32', device()).reshape([1, 2, 5, 6]);
      expect(t.maxPool2d([2, 3], [1, 2]).shape).toEqual([1, 2, 4, 2]);
      expect(t.maxPool2d([2, 3], [1, 2]).i(0, 1, [2, 4]).toVecSync()).toEqual([
        [30 + 20, 30 + 22],
        [30 + 26, 30 + 28],
      ]);
      expect(t.avgPool2d([1, 3], [2, 3]).get(0).get(0).toVecSync()).toEqual([
        [1, 4],
        [13, 16],
        [25, 28],
      ]);
      const turned = t.transpose(2, 3).narrow(2, 1, 4);
      expect(turned.avgPool2d([2, 3]).toVecSync()).toEqual(turned.contiguous().avgPool2d([2, 3]).toVecSync());
      expect(turned.maxPool2d([3, 2], 1).toVecSync()).toEqual(turned.contiguous().maxPool2d([3, 2], 1).toVecSync());
    });

    test('sums of integers do not overflow, NaN wins, -Infinity alone stays', () => {
      expect(Tensor.full(200, [1, 1, 4, 4], 'u8', device()).avgPool2d(4).toVecSync()).toEqual([[[[200]]]]);
      const t = image([-Infinity, -Infinity, 1, Number.NaN], [1, 1, 1, 4]);
      expect(t.maxPool2d([1, 2]).toVecSync()).toEqual([[[[-Infinity, Number.NaN]]]]);
    });

    test.each(DTYPES)('pool_tests::upsample_nearest2d in %s, and of lines', (dtype) => {
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

    test('windows that do not fit are refused', () => {
      const t = Tensor.ones([1, 2, 3, 4], 'f32', device());
      const code = (expected: string) => expect.objectContaining({ code: expected });
      expect(() => t.maxPool2d(4)).toThrow(code('SHAPE_MISMATCH'));
      expect(() => t.maxPool2d(4)).toThrow(/\[4, 4\] does not fit into \[1, 2, 3, 4\]/);
      expect(() => t.avgPool2d(2, 0)).toThrow(code('INVALID_ARGUMENT'));
      expect(() => t.get(0).avgPool2d(2)).toThrow(code('INVALID_SHAPE'));
      expect(Tensor.zeros([0, 2, 4, 4], 'f32', device()).avgPool2d(2).shape).toEqual([0, 2, 2, 2]);
    });
  });
}

/** [1, 2, 4, 4] */
const PYTORCH = [
  0.4056, -0.8689, -0.0773, -1.563, -2.8012, -1.5059, 0.3972, 1.0852, 0.4997, 3.0616, 1.6541, 0.0964, -0.8338, -1.6523,
  -0.8323, -0.1699, 0.0823, 0.3526, 0.6843, 0.2395, 1.2279, -0.9287, -1.703, 0.137, 0.6047, 0.377, -0.6266, 0.3529,
  2.2013, -0.6836, 0.2477, 1.3127,
];
