/**
 * Gradients with candle's numbers: candle's grad_tests and the gradients among its conv_tests. Every operation against
 * central differences is packages/rocm-backend/test/grad.property.test.ts.
 */

import { type Device, type GradStore, type Shape, type Tensor, type TensorData, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame, numbers } from './close';
import * as conv from './conv-grad-values';
import { IMAGE2D, KERNEL2D } from './conv-values';
import { makers } from './makers';

export function gradSuite(name: string, device: () => Device): void {
  const { from, counted, ones } = makers(device);
  const variable = (data: TensorData, shape?: Shape) => Var.from(data, { dtype: 'f32', device: device(), shape });
  const gradOf = (y: Tensor, x: Tensor) => y.backward().get(x)!;

  describe(`gradients on ${name}`, () => {
    test('grad_tests::simple_grad', () => {
      const x = variable([3, 1, 4]);
      const y = x.mul(x).add(x.mul(5)).add(4);
      const grad = gradOf(y, x.asTensor());
      expectFlat(x, [3], [3, 1, 4]);
      expectFlat(y, [3], [28, 10, 40]);
      expectFlat(grad, [3], [11, 7, 13]);
    });

    test('grad_tests::sum_grad', () => {
      const x = variable([3, 1, 4]);
      const y = x.sqr().sumKeepdim(0).mul(2);
      expectFlat(y, [1], [52]);
      expectFlat(gradOf(y, x), [3], [12, 4, 16]);
      const squeezed = x.sqr().sumKeepdim(0).mul(2).squeeze(0);
      expectFlat(squeezed, [], [52]);
      expectFlat(gradOf(squeezed, x), [3], [12, 4, 16]);
    });

    test('stretched operands get the sums over what they were stretched by', () => {
      const column = variable([1, 2], [2, 1]);
      const row = variable([3, 4, 5]);
      const grads = column.mul(row).add(row).sumAll().backward();
      expectFlat(grads.get(column)!, [2, 1], [12, 12]);
      expectFlat(grads.get(row)!, [3], [5, 5, 5]);
      const condition = from([1, 0, 1], 'u8');
      const chosen = condition.whereCond(column, row).sumAll().backward();
      expectFlat(chosen.get(column)!, [2, 1], [2, 2]);
      expectFlat(chosen.get(row)!, [3], [0, 2, 0]);
    });

    test('grad_tests::expand_grad', () => {
      const values = new Float32Array(24).map((_, i) => i);
      const x = variable(values, [1, 1, 4, 6]);
      const loss = x.unsqueeze(2).expand([1, 1, 3, 4, 6]).sqr().sumAll().mul(0.5);
      expectFlat(
        gradOf(loss, x),
        [1, 1, 4, 6],
        values.map((value) => 3 * value),
      );
    });

    test('grad_tests::matmul_grad', () => {
      const values = new Float32Array(12).map((_, i) => i);
      const x = variable(values, [2, 2, 3]);
      const y = variable(values, [2, 3, 2]);
      const grads = x.matmul(y).backward();
      expectFlat(grads.get(x)!, [2, 2, 3], [1, 5, 9, 1, 5, 9, 13, 17, 21, 13, 17, 21]);
      expectFlat(grads.get(y)!, [2, 3, 2], [3, 3, 5, 5, 7, 7, 15, 15, 17, 17, 19, 19]);
    });

    test('grad_tests::zero_matmul_grad', () => {
      const cases: [Shape, Shape, Shape][] = [
        [
          [2, 0],
          [0, 3],
          [2, 3],
        ],
        [
          [0, 2],
          [2, 3],
          [0, 3],
        ],
        [
          [2, 3],
          [3, 0],
          [2, 0],
        ],
        [
          [0, 2, 3],
          [0, 3, 4],
          [0, 2, 4],
        ],
        [
          [2, 3, 0],
          [2, 0, 4],
          [2, 3, 4],
        ],
      ];
      for (const [left, right, shape] of cases) {
        const [lhs, rhs] = [left, right].map((size) => Var.zeros(size, 'f32', device()));
        const out = lhs.matmul(rhs);
        expectFlat(out, shape, numbers(out).fill(0));
        const grads: GradStore = out.sumAll().backward();
        for (const v of [lhs, rhs]) expectFlat(grads.get(v)!, v.shape, new Array(v.elemCount).fill(0));
      }
    });

    test('products of transposed views', () => {
      const cases: [Shape, Shape][] = [
        [
          [2, 3],
          [3, 4],
        ],
        [
          [2, 2, 3],
          [2, 3, 4],
        ],
        [
          [2, 5, 3],
          [1, 3, 4],
        ],
        [
          [1, 2, 3],
          [3, 3, 4],
        ],
        [
          [2, 1, 3],
          [3, 1],
        ],
      ];
      for (const [left, right] of cases) {
        const [lhs, rhs] = [left, right].map((shape, i) =>
          Var.fromTensor(
            counted(shape, 'f32', i - 3)
              .t()
              .contiguous(),
          ),
        );
        const gradients = (views: (t: Tensor) => Tensor) => {
          const out = views(lhs).broadcastMatmul(views(rhs));
          // Products of small whole numbers are exact, so the order of a sum does not matter.
          return out.mul(counted(out.shape, 'f32', -2)).backward();
        };
        const viewed = gradients((t) => t.t());
        const copied = gradients((t) => t.t().contiguous());
        for (const v of [lhs, rhs]) expectSame(viewed.get(v)!, copied.get(v)!);
      }
    });

    test('grad_tests::grad_descent', () => {
      const x = variable(0);
      for (let step = 0; step < 100; step++) {
        const off = x.sub(4.2);
        const grad = gradOf(off.mul(off), x);
        x.set(x.sub(grad.mul(0.1)));
      }
      // candle gets 4.199999; f32 rounding of 100 steps.
      expect(Math.abs(x.toScalarSync() - 4.199999)).toBeLessThan(1e-6);
    });

    const VALUES = [3, 1, 4, 0.15];
    type UnaryCase = [string, (x: Tensor) => Tensor, number[], number[], number, number?];
    // Name, operation, candle's values and gradients, and the decimals that they have.
    const unary: UnaryCase[] = [
      ['log', (x) => x.log().add(1), [2.0986, 1, 2.3863, -0.8971], [0.3333, 1, 0.25, 6.6667], 4],
      ['exp', (x) => x.exp(), [20.0855, Math.E, 54.5982, 1.1618], [20.0855, Math.E, 54.5982, 1.1618], 4],
      ['exp sqr', (x) => x.exp().sqr(), [403.429, 7.389, 2980.958, 1.35], [806.86, 14.78, 5961.92, 2.7], 3, 2],
      ['sin', (x) => x.sin(), [0.1411, 0.8415, -0.7568, 0.1494], [-0.99, 0.5403, -0.6536, 0.9888], 4],
      ['cos', (x) => x.cos(), [-0.99, 0.5403, -0.6536, 0.9888], [-0.1411, -0.8415, 0.7568, -0.1494], 4],
      ['sqr', (x) => x.sqr(), [9, 1, 16, 0.0225], [6, 2, 8, 0.3], 6],
      ['sqr sqrt', (x) => x.sqr().sqrt(), [3, 1, 4, 0.15], [1, 1, 1, 1], 4],
      ['neg', (x) => x.neg(), [-3, -1, -4, -0.15], [-1, -1, -1, -1], 6],
      ['affine', (x) => x.affine(0.2, 1), [1.6, 1.2, 1.8, 1.03], [0.2, 0.2, 0.2, 0.2], 6],
      ['1 / x', (x) => from(1).broadcastDiv(x), [0.3333, 1, 0.25, 6.6667], [-0.1111, -1, -0.0625, -44.4444], 4],
      ['x / 0.5', (x) => x.broadcastDiv(from(0.5)), [6, 2, 8, 0.3], [2, 2, 2, 2], 6],
      ['powf', (x) => x.powf(2.5), [15.59, 1, 32, 0.01], [12.99, 2.5, 20, 0.15], 2],
      ['tanh', (x) => x.tanh(), [1, 0.76, 1, 0.15], [0.01, 0.42, 0, 0.98], 2],
      ['gelu', (x) => x.gelu(), [2.9964, 0.8412, 3.9999, 0.0839], [1.0116, 1.083, 1.0003, 0.6188], 4],
      ['erf', (x) => x.erf(), [1, 0.8427, 1, 0.168], [0.0001, 0.4151, 0, 1.1033], 4],
      ['geluErf', (x) => x.geluErf(), [2.996, 0.8413, 3.9999, 0.0839], [1.0119, 1.0833, 1.0005, 0.6188], 4],
      ['silu', (x) => x.silu(), [2.8577, 0.7311, 3.9281, 0.0806], [1.0881, 0.9277, 1.0527, 0.5747], 4],
    ];
    test.each(unary)('grad_tests::unary_grad %s', (_, op, values, slopes, digits, slopeDigits = digits) => {
      const x = variable(VALUES);
      const y = op(x);
      expectRounded(y, [4], values, digits);
      expectRounded(gradOf(y, x), [4], slopes, slopeDigits);
    });

    test('grad_tests::unary_grad elu', () => {
      const x = variable([-1, 0, -2, 3]);
      const y = x.elu(2);
      expectRounded(y, [4], [-1.2642, 0, -1.7293, 3], 4);
      expectRounded(gradOf(y, x), [4], [0.7358, 2, 0.2707, 1], 4);
    });

    /** Input, what resizes it, and the sums of 1, 2, .. that fall on each element (candle's comments have them). */
    const resized: [Shape, number[], (x: Tensor) => Tensor, number[]][] = [
      [[1, 3, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9], (x) => x.interpolate1d(12), [10, 26, 42, 58, 74, 90, 106, 122, 138]],
      [
        [1, 1, 3, 3],
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        (x) => x.interpolate2d(6, 6),
        [18, 26, 34, 66, 74, 82, 114, 122, 130],
      ],
      [[1, 1, 2, 2], [1, 2, 4, 5], (x) => x.interpolate2d(6, 6), [72, 99, 234, 261]],
      [[1, 2, 2, 2], [1, 2, 4, 5, 6, 7, 8, 9], (x) => x.interpolate2d(4, 4), [14, 22, 46, 54, 78, 86, 110, 118]],
      [[2, 1, 2, 2], [1, 2, 4, 5, 6, 7, 8, 9], (x) => x.interpolate2d(4, 4), [14, 22, 46, 54, 78, 86, 110, 118]],
    ];
    test.each(resized)('grad_tests::unary_grad resizing %j', (shape, data, resize, expected) => {
      const x = variable(data, shape);
      const y = resize(x).flattenAll();
      const z = counted([y.elemCount], 'f32', 1);
      const loss = y.unsqueeze(1).transpose(0, 1).matmul(z.unsqueeze(1));
      expectFlat(gradOf(loss, x), shape, expected);
    });

    test('grad_tests::binary_grad', () => {
      const x = variable([3, 1, -4, -1]);
      const leaky = x.maximum(x.mul(0.1));
      expectRounded(leaky, [4], [3, 1, -0.4, -0.1], 6);
      expectRounded(gradOf(leaky, x), [4], [1, 1, 0.1, 0.1], 6);
      const least = x.minimum(x.mul(0.1));
      expectRounded(least, [4], [0.3, 0.1, -4, -1], 6);
      expectRounded(gradOf(least, x), [4], [0.1, 0.1, 1, 1], 6);
      // The identity, whose slope is 1 though both operands tie everywhere.
      const same = x.minimum(x);
      expectFlat(same, [4], [3, 1, -4, -1]);
      expectFlat(gradOf(same, x), [4], [1, 1, 1, 1]);

      const six = variable([3, 1, -4, -1, 5, 9]);
      const row = variable([2, 7, 1]);
      const squares = six
        .reshape([2, 3])
        .sliceScatter(row.reshape([1, 3]), 0, 1)
        .sqr();
      const grads = squares.backward();
      expectFlat(squares, [2, 3], [9, 1, 16, 4, 49, 1]);
      expectFlat(grads.get(six)!, [6], [6, 2, -8, 0, 0, 0]);
      expectFlat(grads.get(row)!, [3], [4, 14, 2]);
    });

    test('a running sum: an element is part of all sums from its own on', () => {
      const x = variable([
        [1, 2, 3],
        [4, 5, 6],
      ]);
      const weights = from([
        [1, 10, 100],
        [2, 20, 200],
      ]);
      for (const [dim, expected] of [
        [
          1,
          [
            [111, 110, 100],
            [222, 220, 200],
          ],
        ],
        [
          0,
          [
            [3, 30, 300],
            [2, 20, 200],
          ],
        ],
      ] as const) {
        const grad = x.cumsum(dim).mul(weights).sumAll().backward().getId(x.id)!;
        expect(grad.toVecSync()).toEqual(expected);
      }
    });

    test('grad_tests::test_flip_backprop', () => {
      const x = Var.ones([2, 2], 'f64', device());
      const weights = counted([2, 2], 'f64', 1);
      const y = x.matmul(weights);
      expectFlat(y, [2, 2], [4, 6, 4, 6]);
      const z = y.flip([1]);
      expectFlat(z, [2, 2], [6, 4, 6, 4]);
      const grad = z.sumAll().backward().getId(x.id)!;
      expectSame(grad, ones([2, 2], 'f64').matmul(weights.flip([1]).t()));
    });
  });

  describe(`gradients of convolutions on ${name}`, () => {
    const channel = (tensor: Tensor) => tensor.narrow(0, 0, 1);

    test('conv_tests::conv2d_grad', () => {
      const t = variable(IMAGE2D, [1, 4, 5, 5]);
      const w = variable(KERNEL2D, [2, 4, 3, 3]);
      const check = (out: Tensor, total: number, input: number[], kernel: number[]) => {
        const loss = out.sqr().sumAll();
        expectRounded(loss, [], [total], 2);
        const grads = loss.backward();
        expectRounded(grads.get(t)!, t.shape, input, 2);
        const ofKernel = grads.get(w)!;
        expect(ofKernel.shape).toEqual(w.shape);
        const compared = kernel.length === w.elemCount ? ofKernel : channel(ofKernel);
        expectRounded(compared, compared.shape, kernel, 2);
      };
      check(t.conv2d(w), 741.12, conv.STRIDE1_INPUT, conv.STRIDE1_KERNEL);
      check(t.conv2d(w, { stride: 2 }), 277.16, conv.STRIDE2_INPUT, conv.STRIDE2_KERNEL);
      // candle's issue 1212: rows and columns that no window reaches.
      const part = t.i(':', ':', [0, 4], [0, 4]);
      check(part.conv2d(w, { stride: 2 }), 21.12, conv.PART_INPUT, conv.PART_KERNEL);
    });

    test('conv_tests::conv2d_grad of transposed convolutions', () => {
      const t = variable(conv.TRANSPOSED_IMAGE, [1, 4, 7, 5]);
      const w = variable(conv.TRANSPOSED_WEIGHTS, [4, 2, 3, 5]);
      const check = (out: Tensor, total: number, input: number[], kernel: number[]) => {
        const loss = out.sqr().sumAll();
        expectRounded(loss, [], [total], 0);
        const grads = loss.backward();
        expectRounded(grads.get(t)!, t.shape, input, 1);
        expectRounded(grads.get(w)!, w.shape, kernel, 1);
      };
      const wide = { padding: 4, outputPadding: 2, stride: 3, dilation: 3 };
      check(t.convTranspose2d(w, wide), 2904, conv.TRANSPOSED_A_INPUT, conv.TRANSPOSED_A_KERNEL);
      const near = { padding: 1, outputPadding: 1, stride: 2 };
      check(t.convTranspose2d(w, near), 3627, conv.TRANSPOSED_B_INPUT, conv.TRANSPOSED_B_KERNEL);
    });

    test('conv_tests::conv2d_grad_noncontiguous_kernel', () => {
      const tenths = (count: number) => new Float32Array(count).map((_, i) => (i + 1) * 0.1);
      const run = (kernelOf: (weight: Tensor) => Tensor) => {
        const input = variable(tenths(32), [1, 2, 4, 4]);
        const weight = variable(tenths(12), [3, 4, 1, 1]);
        const kernel = kernelOf(weight.i(':', [1, 3], ':', ':'));
        const loss = input.conv2d(kernel, { stride: 2 }).sqr().sumAll();
        const grads = loss.backward();
        return { kernel, loss, input: grads.get(input)!, weight: grads.get(weight)! };
      };
      const view = run((kernel) => kernel);
      const copy = run((kernel) => kernel.contiguous());
      expect([view.kernel.isContiguous(), copy.kernel.isContiguous()]).toEqual([false, true]);
      for (const key of ['loss', 'input', 'weight'] as const) expectSame(view[key], copy[key], 1e-5);
      // Weights outside of the kernel have none.
      expectFlat(view.weight.i(':', 0, 0, 0), [3], [0, 0, 0]);
      expectFlat(view.weight.i(':', 3, 0, 0), [3], [0, 0, 0]);
    });
  });
}

/** Numbers that are rounded to some decimals, against f32 results. */
function expectRounded(tensor: Tensor, shape: Shape, expected: readonly number[], digits: number): void {
  expect(tensor.shape).toEqual(shape);
  const actual = numbers(tensor);
  const half = 0.5 * 10 ** -digits;
  const off = actual.findIndex((value, i) => !(Math.abs(value - expected[i]) <= half * 1.05 + 4e-6 * Math.abs(value)));
  if (off >= 0) expect(actual[off], `element ${off} of ${tensor}`).toBe(expected[off]);
  expect(expected.length).toBe(actual.length);
}
