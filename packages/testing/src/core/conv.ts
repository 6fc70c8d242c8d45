/**
 * candle's conv_tests of results (gradients are in grad.ts) on one device, with PyTorch's values; and the definition written
 * out for every combination of options.
 */

import { type ConvTransposeOptions, type Device, type DType, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame } from './close';
import * as values from './conv-values';
import { makers } from './makers';

/** Dtypes with convolution kernels on every device. */
const DTYPES: readonly DType[] = ['f32', 'f64', 'f16', 'bf16', 'u8', 'u32'];

type Image = number[][][][];

const zeros = (b: number, c: number, h: number, w: number): Image =>
  Array.from({ length: b }, () => Array.from({ length: c }, () => Array.from({ length: h }, () => Array(w).fill(0))));

type Axis = Required<Omit<ConvTransposeOptions, 'groups'>>;
const PLAIN: Axis = { padding: 0, stride: 1, dilation: 1, outputPadding: 0 };

/** The definition of both directions in one group: every product of an input, a tap, and where it goes. */
function definition(x: Image, kernel: Image, down: Axis, across: Axis, transposed: boolean): Image {
  const [cOut, cIn] = transposed ? [kernel[0].length, kernel.length] : [kernel.length, kernel[0].length];
  const [kH, kW] = [kernel[0][0].length, kernel[0][0][0].length];
  const size = (n: number, k: number, { padding, stride, dilation, outputPadding }: Axis) => {
    const reach = dilation * (k - 1) + 1;
    return transposed
      ? (n - 1) * stride - 2 * padding + reach + outputPadding
      : Math.floor((n + 2 * padding - reach) / stride) + 1;
  };
  const out = zeros(x.length, cOut, size(x[0][0].length, kH, down), size(x[0][0][0].length, kW, across));
  const [near, far] = transposed ? [x, out] : [out, x];
  for (let b = 0; b < x.length; b++)
    for (let o = 0; o < cOut; o++)
      for (let c = 0; c < cIn; c++)
        for (let tap = 0; tap < kH * kW; tap++)
          near[b][0].forEach((row, y) => {
            row.forEach((_, column) => {
              const [i, j] = [Math.floor(tap / kW), tap % kW];
              const h = y * down.stride + i * down.dilation - down.padding;
              const w = column * across.stride + j * across.dilation - across.padding;
              if (far[b][0][h]?.[w] === undefined) return;
              if (transposed) out[b][o][h][w] += x[b][c][y][column] * kernel[c][o][i][j];
              else out[b][o][y][column] += x[b][c][h][w] * kernel[o][c][i][j];
            });
          });
  return out;
}

export function convSuite(name: string, device: () => Device): void {
  const { shaped: from, ones, zeros } = makers(device);
  /** Small whole numbers in an order without symmetry, so that every dtype is exact. */
  const counted = (shape: number[], dtype: DType, top = 5) => {
    const count = shape.reduce((a, b) => a * b, 1);
    return from(
      Array.from({ length: count }, (_, i) => (i * i * 7 + i * 3) % top),
      shape,
      dtype,
    );
  };

  describe(`convolutions on ${name}`, () => {
    // Inputs of f16 and bf16 are rounded before the products of up to 36 pairs, each about 1, are summed.
    const FLOATS = [
      ['f32', 6e-5],
      ['f64', 6e-5],
      ['f16', 2e-2],
      ['bf16', 1.5e-1],
    ] as const;

    test.each(FLOATS)('conv_tests::conv1d in %s, with padding, in a batch, and transposed', (dtype, tolerance) => {
      const t = from(values.IMAGE1D, [1, 4, 5], dtype);
      const w = from(values.KERNEL1D, [2, 4, 3], dtype);
      const close = (result: Tensor, shape: number[], expected: readonly number[]) =>
        expectFlat(result, shape, expected, tolerance);
      close(t.conv1d(w), [1, 2, 3], values.CONV1D);
      close(t.conv1d(w, { padding: 1 }), [1, 2, 5], values.CONV1D_PADDED);
      const batch = Tensor.cat([t.zerosLike(), t, t.zerosLike()], 0).conv1d(w, { padding: 1 });
      close(batch, [3, 2, 5], [...Array(10).fill(0), ...values.CONV1D_PADDED, ...Array(10).fill(0)]);
      const turned = w.transpose(0, 1);
      for (const kernel of [turned, turned.contiguous()]) {
        close(t.convTranspose1d(kernel), [1, 2, 7], values.TRANSPOSE1D);
        close(t.convTranspose1d(kernel, { groups: 2 }), [1, 4, 7], values.TRANSPOSE1D_GROUPS);
        const two = Tensor.cat([t, t], 0).convTranspose1d(kernel);
        close(two, [2, 2, 7], [...values.TRANSPOSE1D, ...values.TRANSPOSE1D]);
      }
    });

    test.each(FLOATS)('conv_tests::conv1d_small in %s', (dtype) => {
      const t = from([0.4056, -0.8689, -0.0773, -1.563], [1, 1, 4], dtype);
      const w = from([1, 0, 0], [1, 1, 3], dtype);
      // One tap: the elements themselves.
      expectSame(t.conv1d(w), t.narrow(2, 0, 2));
      expectSame(t.conv1d(w, { padding: 1 }), t.narrow(2, 0, 3).padWithZeros(2, 1, 0));
      expectFlat(t.conv1d(w), [1, 1, 2], [0.4056, -0.8689], 4e-3);
    });

    test.each(FLOATS)('conv_tests::conv2d in %s, dilated, in a batch, and transposed', (dtype, tolerance) => {
      const t = from(values.IMAGE2D, [1, 4, 5, 5], dtype);
      const w = from(values.KERNEL2D, [2, 4, 3, 3], dtype);
      const close = (result: Tensor, shape: number[], expected: readonly number[]) =>
        expectFlat(result, shape, expected, tolerance);
      close(t.conv2d(w), [1, 2, 3, 3], values.CONV2D);
      const batch = Tensor.cat([t.zerosLike(), t, t.zerosLike()], 0).conv2d(w);
      close(batch, [3, 2, 3, 3], [...Array(18).fill(0), ...values.CONV2D, ...Array(18).fill(0)]);
      close(t.convTranspose2d(w.transpose(0, 1)), [1, 2, 7, 7], values.TRANSPOSE2D);
      close(t.conv2d(w, { dilation: 2 }), [1, 2, 1, 1], values.CONV2D_DILATED);
      const dilated = t.convTranspose2d(w.transpose(0, 1), { dilation: 2 });
      close(dilated, [1, 2, 9, 9], values.TRANSPOSE2D_DILATED);
      // The kernel as a view, and as its copy.
      const kernel = w.transpose(2, 3).contiguous().transpose(2, 3);
      expect(kernel.isContiguous()).toBe(false);
      close(t.conv2d(kernel), [1, 2, 3, 3], values.CONV2D);
    });

    test.each(FLOATS)('conv_tests::conv2d_small in %s: a kernel of one element', (dtype, tolerance) => {
      const t = from(values.SMALL, [1, 2, 3, 3], dtype);
      const w = from([-0.9259, 1.3017], [1, 2, 1, 1], dtype);
      expectFlat(t.conv2d(w), [1, 1, 3, 3], values.SMALL_CONV, tolerance);
      const padded = Array(49).fill(0);
      values.SMALL_CONV.forEach((value, i) => {
        padded[(2 + Math.floor(i / 3)) * 7 + 2 + (i % 3)] = value;
      });
      expectFlat(t.conv2d(w, { padding: 2 }), [1, 1, 7, 7], padded, tolerance);
      expectFlat(t.convTranspose2d(w.transpose(0, 1)), [1, 1, 3, 3], values.SMALL_CONV, tolerance);
      expectFlat(t.transpose(0, 1).convTranspose2d(w), [2, 2, 3, 3], values.SMALL_TRANSPOSE, tolerance);
    });

    test.each(FLOATS)('conv_tests::conv2d_smaller in %s: a window of the whole image', (dtype, tolerance) => {
      const t = from(values.SMALL.slice(0, 9), [1, 1, 3, 3], dtype);
      expectFlat(t.conv2d(t.onesLike()), [1, 1, 1, 1], [-0.6197], tolerance);
    });

    test.each(FLOATS)('conv_tests::conv2d_non_square in %s', (dtype, tolerance) => {
      const w = from([-1.1351, 1.3841], [1, 2, 1, 1], dtype);
      expectFlat(from(values.OBLONG, [1, 2, 4, 2], dtype).conv2d(w), [1, 1, 4, 2], values.OBLONG_CONV, tolerance);
    });

    test.each(FLOATS)(
      'conv_tests::conv2d_c_eq_h_eq_w in %s: strides of NCHW that are those of NHWC',
      (dtype, tolerance) => {
        const t = from(values.CUBE, [1, 4, 4, 4], dtype);
        const result = t.conv2d(ones([2, 4, 3, 3], dtype), { padding: 1 });
        expectSame(result.narrow(1, 0, 1), result.narrow(1, 1, 1));
        // Each is the sum of its neighbourhood over all channels; the corner's is 1.431.
        const sums = Array.from({ length: 16 }, (_, i) => {
          let sum = 0;
          values.CUBE.forEach((value, j) => {
            const [y, x] = [Math.floor(j / 4) % 4, j % 4];
            if (Math.abs(y - Math.floor(i / 4)) <= 1 && Math.abs(x - (i % 4)) <= 1) sum += value;
          });
          return sum;
        });
        expect(sums[0]).toBeCloseTo(1.431, 4);
        expectFlat(result, [1, 2, 4, 4], [...sums, ...sums], tolerance);
      },
    );

    const options: Axis[] = [
      PLAIN,
      { padding: 1, stride: 2, dilation: 1, outputPadding: 1 },
      { padding: 0, stride: 3, dilation: 1, outputPadding: 0 },
      { padding: 2, stride: 2, dilation: 2, outputPadding: 1 },
      { padding: 1, stride: 1, dilation: 3, outputPadding: 2 },
    ];

    test.each(DTYPES)('the definition, with every option, in %s', (dtype) => {
      for (const option of options) {
        for (const transposed of [false, true]) {
          const label = `${JSON.stringify(option)}, transposed ${transposed}`;
          const x = counted([2, 3, 7, 5], dtype);
          const kernel = counted(transposed ? [3, 2, 3, 2] : [2, 3, 3, 2], dtype, 4);
          const two = transposed ? x.convTranspose2d(kernel, option) : x.conv2d(kernel, option);
          expect(two.dtype).toBe(dtype);
          const expected = definition(x.toVecSync(), kernel.toVecSync(), option, option, transposed);
          expect(two.toVecSync(), `2-D ${label}`).toEqual(expected);

          const [line, taps] = [x.getOnDim(3, 1), kernel.getOnDim(3, 1)];
          const one = transposed ? line.convTranspose1d(taps, option) : line.conv1d(taps, option);
          const [image, column] = [line.unsqueeze(3).toVecSync<Image>(), taps.unsqueeze(3).toVecSync<Image>()];
          const flat = definition(image, column, option, PLAIN, transposed);
          expect(one.unsqueeze(3).toVecSync(), `1-D ${label}`).toEqual(flat);
        }
      }
    });

    test('views of any strides as input and kernel (candle multiplied the wrong bytes)', () => {
      for (const dtype of ['f32', 'u32'] as const) {
        const wide = counted([2, 7, 4, 6], dtype);
        const x = wide.transpose(1, 3).narrow(2, 1, 3).narrow(1, 2, 3);
        const base = counted([3, 4, 3, 2], dtype, 4);
        const kernel = base.permute([3, 0, 2, 1]).narrow(3, 1, 2);
        expect(kernel.isContiguous()).toBe(false);
        expectSame(x.conv2d(kernel), x.contiguous().conv2d(kernel.contiguous()));
        expectSame(
          x.convTranspose2d(kernel.transpose(0, 1)),
          x.contiguous().convTranspose2d(kernel.transpose(0, 1).contiguous()),
        );
        const [line, taps] = [x.getOnDim(2, 1), kernel.getOnDim(2, 2)];
        expectSame(line.conv1d(taps), line.contiguous().conv1d(taps.contiguous()));
        expectSame(
          line.convTranspose1d(taps.transpose(0, 1)),
          line.contiguous().convTranspose1d(taps.transpose(0, 1).contiguous()),
        );
        const expected = definition(x.toVecSync(), kernel.toVecSync(), PLAIN, PLAIN, false);
        expect(x.conv2d(kernel).toVecSync()).toEqual(expected);
      }
    });

    test('groups see their own channels only', () => {
      const x = counted([2, 4, 5, 4], 'f32');
      const kernel = counted([6, 2, 2, 3], 'f32', 4);
      const halves = [0, 1].map((g) => x.narrow(1, 2 * g, 2).conv2d(kernel.narrow(0, 3 * g, 3), { padding: 1 }));
      expect(x.conv2d(kernel, { groups: 2, padding: 1 }).toVecSync()).toEqual(Tensor.cat(halves, 1).toVecSync());
      const back = counted([4, 3, 2, 3], 'f32', 4);
      const parts = [0, 1].map((g) => x.narrow(1, 2 * g, 2).convTranspose2d(back.narrow(0, 2 * g, 2), { stride: 2 }));
      expect(x.convTranspose2d(back, { groups: 2, stride: 2 }).toVecSync()).toEqual(Tensor.cat(parts, 1).toVecSync());
      const deep = counted([4, 1, 3], 'f32', 4);
      const lines = x.getOnDim(2, 0);
      const each = [0, 1, 2, 3].map((c) => lines.narrow(1, c, 1).conv1d(deep.narrow(0, c, 1)));
      expect(lines.conv1d(deep, { groups: 4 }).toVecSync()).toEqual(Tensor.cat(each, 1).toVecSync());
    });

    test('integers wrap', () => {
      const x = from([200, 100, 50], [1, 1, 3], 'u8');
      expect(x.conv1d(from([2, 1], [1, 1, 2], 'u8')).toVecSync()).toEqual([[[500 - 256, 250]]]);
    });

    test('operands without elements', () => {
      expect(zeros([0, 4, 5]).conv1d(ones([2, 4, 3])).shape).toEqual([0, 2, 3]);
      expectFlat(zeros([1, 0, 5]).conv1d(ones([2, 0, 3])), [1, 2, 3], Array(6).fill(0));
    });

    test('operands that do not fit are refused, with both shapes', () => {
      const x = ones([1, 4, 5]);
      const kernel = ones;
      const refused = (run: () => unknown, code: string, message: RegExp) => {
        expect(run).toThrow(expect.objectContaining({ code }));
        expect(run).toThrow(message);
      };
      refused(() => x.conv1d(kernel([2, 3, 3])), 'SHAPE_MISMATCH', /\[1, 4, 5\] and \[2, 3, 3\]/);
      refused(() => x.conv1d(kernel([3, 2, 3]), { groups: 2 }), 'SHAPE_MISMATCH', /4 input channels in 2 groups/);
      refused(() => x.conv1d(kernel([2, 4, 6])), 'SHAPE_MISMATCH', /\[1, 4, 5\] and kernel \[2, 4, 6\]/);
      refused(() => x.conv1d(kernel([2, 4, 0])), 'SHAPE_MISMATCH', /with taps/);
      refused(() => x.conv1d(kernel([2, 4, 3, 3])), 'SHAPE_MISMATCH', /\[cOut, cIn \/ groups, k\]/);
      refused(() => x.conv2d(kernel([2, 4, 3, 3])), 'SHAPE_MISMATCH', /\[b, cIn, h, w\]/);
      refused(() => x.convTranspose1d(kernel([2, 4, 3])), 'SHAPE_MISMATCH', /\[cIn, cOut \/ groups, k\]/);
      refused(() => x.convTranspose1d(kernel([4, 2, 1]), { padding: 3 }), 'SHAPE_MISMATCH', /output of size \[-1\]/);
      refused(() => x.conv1d(kernel([2, 4, 3], 'f16')), 'DTYPE_MISMATCH', /f32 .* and f16/);
      refused(() => x.conv1d(kernel([2, 4, 3]), { stride: 0 }), 'INVALID_ARGUMENT', /stride is 0/);
      refused(() => x.conv1d(kernel([2, 4, 3]), { padding: -1 }), 'INVALID_ARGUMENT', /padding is -1/);
      refused(() => x.conv1d(kernel([2, 4, 3]), { dilation: 1.5 }), 'INVALID_ARGUMENT', /dilation is 1.5/);
      refused(() => x.conv1d(kernel([2, 4, 3]), { padding: 2 ** 45 }), 'OUT_OF_MEMORY', /elements|bytes/);
    });
  });
}
