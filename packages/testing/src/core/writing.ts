/** `write`, `copyFrom` and arithmetic in place on one device: new values for a tensor that exists. */

import { type Device, DTYPES, noGrad, Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { makers } from './makers';

const code = (name: string) => expect.objectContaining({ code: name });

export function writingSuite(name: string, device: () => Device): void {
  const { from, zeros, counted } = makers(device);

  describe(`new values for tensors on ${name}`, () => {
    test.each(DTYPES)('write takes numbers, nested numbers and what toArray gives: %s', (dtype) => {
      const t = zeros([2, 2], dtype);
      const read = () => [...t.toArraySync()].map(Number);
      t.write([1, 2, 3, 4]);
      expect(read()).toEqual([1, 2, 3, 4]);
      t.write([
        [4, 3],
        [2, 1],
      ]);
      expect(read()).toEqual([4, 3, 2, 1]);
      const other = counted([2, 2], dtype, 5);
      t.write(other.toArraySync());
      expect(read()).toEqual([5, 6, 7, 8]);
      t.get(1).write([0, 1]);
      expect(read()).toEqual([5, 6, 0, 1]);
    });

    test('write allocates nothing and may be given the same array again', () => {
      const t = zeros([3]);
      const values = Float32Array.of(1, 2, 3);
      const before = device().memory();
      t.write(values);
      values.fill(9);
      expect(t.toVecSync()).toEqual([1, 2, 3]);
      expect(device().memory()).toEqual(before);
    });

    test('write refuses what does not fit', () => {
      const t = zeros([2, 3], 'u32');
      expect(() => t.write([1, 2])).toThrow(code('SHAPE_MISMATCH'));
      expect(() =>
        t.write([
          [1, 2],
          [3, 4],
          [5, 6],
        ]),
      ).toThrow(code('SHAPE_MISMATCH'));
      expect(() =>
        t.write([
          [1, 2, 3],
          [4, 5],
        ]),
      ).toThrow(code('INVALID_SHAPE'));
      expect(() => t.write([1, 2, 3, 4, 5, -1])).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.write([1, 2, 3, 4, 5, 0.5])).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.write(Float32Array.of(1, 2, 3, 4, 5, 6))).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.write(new Int32Array(6))).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.write(new DataView(new ArrayBuffer(24)))).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.write('123456' as never)).toThrow(code('INVALID_ARGUMENT'));
      expect(() => t.write(undefined as never)).toThrow(code('INVALID_ARGUMENT'));
      expect(() => t.t().write([1, 2, 3, 4, 5, 6])).toThrow(code('INVALID_SHAPE'));
      expect(t.toArraySync()).toEqual(new Uint32Array(6));
      zeros([0, 3]).write([]);
      zeros([]).write(3);
      t.dispose();
      expect(() => t.write([1, 2, 3, 4, 5, 6])).toThrow(code('DISPOSED'));
    });

    test('copyFrom takes any strides and allocates nothing', () => {
      const t = zeros([3, 2]);
      const source = counted([2, 3]).t();
      t.copyFrom(source);
      const before = device().memory();
      t.copyFrom(source);
      expect(device().memory()).toEqual(before);
      expect(t.toVecSync()).toEqual([
        [0, 3],
        [1, 4],
        [2, 5],
      ]);
      t.get(1).copyFrom(from([7, 8]));
      t.get(2).copyFrom(from([9]).broadcastAs([2]));
      expect(t.toVecSync()).toEqual([
        [0, 3],
        [7, 8],
        [9, 9],
      ]);
    });

    test('arithmetic in place is arithmetic, and takes no memory', () => {
      const [a, b] = [from([4, -6, 8.5]), from([2, 4, -0.5])];
      for (const [inPlace, plain] of [
        ['addSet', 'add'],
        ['subSet', 'sub'],
        ['mulSet', 'mul'],
        ['divSet', 'div'],
      ] as const) {
        const rows = Tensor.stack([b, a, b], 0);
        const middle = rows.get(1);
        middle[inPlace](b);
        expect(rows.toVecSync()).toEqual([b.toVecSync(), a[plain](b).toVecSync(), b.toVecSync()]);
      }
      const t = counted([2, 3]);
      t.addSet(from([10, 20]).unsqueeze(1));
      t.affineSet(2, 1);
      expect(t.toVecSync()).toEqual([
        [21, 23, 25],
        [47, 49, 51],
      ]);
      const other = t.copy();
      const before = device().memory();
      t.addSet(other);
      const { liveBytes, peakBytes } = device().memory();
      expect(liveBytes).toBe(before.liveBytes);
      // The plain backend makes the result apart.
      if (device().backend.compile) expect(peakBytes).toBe(before.peakBytes);
    });

    test('arithmetic in place refuses what does not fit', () => {
      const t = zeros([2, 2]);
      expect(() => t.addSet(zeros([4]))).toThrow(code('SHAPE_MISMATCH'));
      expect(() => zeros([2]).addSet(t)).toThrow(code('SHAPE_MISMATCH'));
      expect(() => t.mulSet(zeros([2], 'f16'))).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.subSet(t.t())).toThrow(code('INVALID_SHAPE'));
      expect(() => t.t().affineSet(1, 1)).toThrow(code('INVALID_SHAPE'));
      expect(() => t.divSet(2 as never)).toThrow(code('INVALID_ARGUMENT'));
      const v = Var.from([1, 2], { device: device() });
      expect(() => v.addSet(zeros([2]))).toThrow(code('GRADIENT_IN_PLACE'));
      expect(() => zeros([2]).addSet(v)).toThrow(code('GRADIENT_IN_PLACE'));
      noGrad(() => v.addSet(zeros([2])));
      expect(v.toVecSync()).toEqual([1, 2]);
    });

    test('copyFrom refuses what does not fit', () => {
      const t = zeros([2, 2]);
      expect(() => t.copyFrom(zeros([4]))).toThrow(code('SHAPE_MISMATCH'));
      expect(() => t.copyFrom(zeros([2, 2], 'f16'))).toThrow(code('DTYPE_MISMATCH'));
      expect(() => t.copyFrom(t.t())).toThrow(code('INVALID_SHAPE'));
      expect(() => t.t().copyFrom(zeros([2, 2]))).toThrow(code('INVALID_SHAPE'));
      expect(() => t.copyFrom([1, 2] as never)).toThrow(code('INVALID_ARGUMENT'));
    });

    test('a tensor with a history is not written', () => {
      const v = Var.from([1, 2], { device: device() });
      const y = v.mul(2);
      for (const target of [v, y]) {
        expect(() => target.write([3, 4])).toThrow(code('GRADIENT_IN_PLACE'));
        expect(() => target.copyFrom(zeros([2]))).toThrow(code('GRADIENT_IN_PLACE'));
      }
      expect(() => zeros([2]).copyFrom(y)).toThrow(code('GRADIENT_IN_PLACE'));
      noGrad(() => v.write([5, 6]));
      expect(v.toVecSync()).toEqual([5, 6]);
      const z = v.exp();
      noGrad(() => z.write([0, 0]));
      expect(() => z.sumAll().backward()).toThrow(code('CHANGED_IN_PLACE'));
    });
  });
}
