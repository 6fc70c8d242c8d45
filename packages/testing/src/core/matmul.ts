/** candle's matmul_tests on one device. Operands may have any strides here, where candle refuses most of them. */

import { Device, DTYPES, type DType, isFloat, type Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame } from './close';
import { makers } from './makers';

export function matmulSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, counted, randn } = makers(device);
  const code = (expected: string) => expect.objectContaining({ code: expected });
  const floats = DTYPES.filter(isFloat);
  /** The sum of the squared distances. */
  const apart = (a: Tensor, b: Tensor) => a.sub(b).sqr().sumAll().toScalarSync();
  /** The same elements with the last two dimensions swapped in memory. */
  const columns = (t: Tensor) => t.t().contiguous().t();

  describe(`matmul on ${name}`, () => {
    test.each(floats)('matmul_tests::matmul in %s', (dtype) => {
      const held = (list: number[]) => list.map((x) => from(x).toDtype(dtype).toScalarSync());
      const a = shaped([1, 2, 3, 4], [2, 2], dtype);
      expectFlat(a.matmul(a), [2, 2], [7, 10, 15, 22]);
      expectFlat(shaped([1, 2], [2, 1], dtype).matmul(shaped([3, 4], [1, 2], dtype)), [2, 2], [3, 4, 6, 8]);
      const flat = counted([2, 3], dtype).matmul(counted([3, 2], dtype, 2));
      expectFlat(flat, [2, 2], held([16, 19, 52, 64]));
      expect(flat.dtype).toBe(dtype);

      const x = counted([2, 2, 3], dtype);
      const y = counted([2, 3, 2], dtype, 2);
      const expected = held([16, 19, 52, 64, 214, 235, 304, 334]);
      expectFlat(x.matmul(y), [2, 2, 2], expected);
      const [xt, yt] = [columns(x), columns(y)];
      expect([xt.isContiguous(), xt.shape, xt.stride]).toEqual([false, [2, 2, 3], [6, 1, 2]]);
      expect([yt.isContiguous(), yt.shape, yt.stride]).toEqual([false, [2, 3, 2], [6, 1, 3]]);
      expectFlat(xt.matmul(y), [2, 2, 2], expected);
      expectFlat(x.matmul(yt), [2, 2, 2], expected);
      expectFlat(xt.matmul(yt), [2, 2, 2], expected);
    });

    test('matmul_tests::matmul_bf16', () => {
      const a = shaped([1, 2, 3, 4], [2, 2], 'bf16');
      expectFlat(a.matmul(a).toDtype('f32'), [2, 2], [7, 10, 15, 22]);
    });

    test('matmul_tests::broadcast_matmul', () => {
      const lhs = randn([3, 1, 4, 5]);
      const rhs = randn([6, 5, 2]);
      const out = lhs.broadcastMatmul(rhs);
      expect(out.shape).toEqual([3, 6, 4, 2]);
      for (let i = 0; i < 3; i++)
        for (let j = 0; j < 6; j++) expect(apart(out.i(i, j), lhs.i(i, 0).matmul(rhs.i(j)))).toBeLessThan(1e-6);
    });

    test('matmul_tests::broadcast_matmul_rank2_rhs', () => {
      const rhs = randn([5, 2]);
      const many = [randn([3, 4, 5]), randn([3, 6, 4, 5]), randn([1, 1, 5]), randn([3, 5, 4]).transpose(1, 2)];
      for (const lhs of many) {
        const out = lhs.broadcastMatmul(rhs);
        expect(out.shape).toEqual([...lhs.shape.slice(0, -1), 2]);
        const [m, k] = lhs.shape.slice(-2);
        const [rows, results] = [lhs.reshape([-1, m, k]), out.reshape([-1, m, 2])];
        for (let b = 0; b < rows.dim(0); b++) expect(apart(results.i(b), rows.i(b).matmul(rhs))).toBeLessThan(1e-6);
      }
    });

    test.each(floats)('matmul_tests::zero_matmul in %s', (dtype) => {
      expectFlat(zeros([2, 0], dtype).matmul(zeros([0, 3], dtype)), [2, 3], Array(6).fill(0));
      const lhs = zeros([2, 3, 4], dtype).transpose(1, 2).narrow(1, 0, 0);
      const rhs = zeros([2, 4, 3], dtype).transpose(1, 2).narrow(2, 0, 0);
      expect([lhs.shape, rhs.shape]).toEqual([
        [2, 0, 3],
        [2, 3, 0],
      ]);
      expectFlat(lhs.matmul(rhs), [2, 0, 0], []);
      expectFlat(lhs.matmul(zeros([2, 3, 4], dtype)), [2, 0, 4], []);
    });

    test('matmul_tests::zero_matmul_validation: shapes first, then dtypes, also without elements', () => {
      const shapes: [number[], number[], DType][] = [
        [[0, 2], [3, 4], 'f16'],
        [[2, 3], [4, 0], 'f32'],
        [[0, 2, 3], [1, 3, 4], 'f32'],
      ];
      for (const [left, right, dtype] of shapes) {
        const run = () => zeros(left).matmul(zeros(right, dtype));
        expect(run).toThrow(code('SHAPE_MISMATCH'));
        expect(run).toThrow(/^matmul: shapes /);
      }
      const run = () => zeros([0, 2]).matmul(zeros([2, 3], 'f16'));
      expect(run).toThrow(code('DTYPE_MISMATCH'));
      expect(run).toThrow(/^matmul: operands are f32 .* f16/);
    });

    test('matmul_tests::zero_matmul_device_validation: devices before dtypes', () => {
      const other = Device.parse(device().kind === 'js' ? 'cpu' : 'js');
      const away = makers(() => other).zeros([0, 2]);
      for (const run of [() => away.matmul(zeros([2, 3], 'f16')), () => zeros([0, 2], 'f16').matmul(away.t())]) {
        expect(run).toThrow(code('DEVICE_MISMATCH'));
        expect(run).toThrow(/^matmul: operands are on .* toDevice/);
      }
      expect(() => away.broadcastMatmul(zeros([2, 3], 'f16'))).toThrow(code('DEVICE_MISMATCH'));
    });

    test('matmul_tests::squeeze_mm: the last row of a batch of one', () => {
      const a = counted([1, 8, 16]);
      const x = a.i(':', 7, ':');
      expect(x.shape).toEqual([1, 16]);
      const w = zeros([32, 16]).t();
      expectFlat(x.matmul(w), [1, 32], Array(32).fill(0));
      expectFlat(x.matmul(w.onesLike()), [1, 32], Array(32).fill(112 * 16 + 120));
    });

    test('matmul_tests::mm_layout: dimensions of one with any stride', () => {
      const a = counted([1, 1, 4, 4]);
      const b = counted([1, 1, 4, 2]);
      const moved = b.transpose(1, 2).copy().transpose(1, 2);
      expect(moved.stride).not.toEqual(b.stride);
      expectSame(a.matmul(moved), a.matmul(b));
      expectFlat(a.matmul(moved), [1, 1, 4, 2], [28, 34, 76, 98, 124, 162, 172, 226]);
    });

    test.each(floats)('matmul_tests::tensor_dot in %s', (dtype) => {
      expectFlat(from([1, 2, 3], dtype).dot(from([4, 5, 6], dtype)), [], [32]);
    });

    test.each(floats)('matmul_tests::tensor_mv in %s', (dtype) => {
      const matrix = counted([2, 3], dtype, 1);
      expectFlat(matrix.mv(from([1, 1, 1], dtype)), [2], [6, 15]);
      expectFlat(matrix.t().mv(from([1, 2], dtype)), [3], [9, 12, 15]);
    });

    test('sizes that are no multiple of any block, and parts of larger matrices', () => {
      for (const [m, k, n] of [
        [1, 7, 5],
        [3, 33, 6],
        [17, 5, 31],
      ]) {
        const a = counted([m, k]).affine(0.01, -1);
        const b = counted([k, n]).affine(-0.02, 1);
        const [x, y] = [a.toVecSync<number[][]>(), b.toVecSync<number[][]>()];
        const expected = x.flatMap((row) => y[0].map((_, j) => row.reduce((sum, v, p) => sum + v * y[p][j], 0)));
        expectFlat(a.matmul(b), [m, n], expected, 1e-4);
        expectFlat(a.matmul(columns(b)), [m, n], expected, 1e-4);
        expectFlat(columns(a).matmul(b), [m, n], expected, 1e-4);
      }
      const part = counted([2, 2, 3])
        .narrow(2, 1, 2)
        .matmul(counted([2, 3, 2]).narrow(1, 1, 2));
      expectFlat(part, [2, 2, 2], [10, 13, 28, 37, 136, 151, 190, 211]);
    });
  });
}
