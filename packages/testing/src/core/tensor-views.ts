/** candle's tensor_tests about views (narrow, broadcast, transpose), with reshape and positions, on one device. */

import { type Device, DTYPES } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat } from './close';
import { makers } from './makers';

export function tensorViewsSuite(name: string, device: () => Device): void {
  const { from, shaped, counted } = makers(device);

  describe(`views on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::narrow in %s', (dtype) => {
      const t = shaped([3, 1, 4, 1, 5, 9, 2, 1, 7, 8, 2, 8], [2, 2, 3], dtype);
      expectFlat(t.narrow(2, 1, 2), [2, 2, 2], [1, 4, 5, 9, 1, 7, 2, 8]);
      expectFlat(t.narrow(1, 1, 1), [2, 1, 3], [1, 5, 9, 8, 2, 8]);
      expectFlat(t.narrow(0, 0, 1), [1, 2, 3], [3, 1, 4, 1, 5, 9]);
      expectFlat(t.narrow(0, 1, 1), [1, 2, 3], [2, 1, 7, 8, 2, 8]);
      // PyTorch: t.transpose(-1, -2).narrow(1, 1, 2)
      expectFlat(t.t().narrow(1, 1, 2), [2, 2, 2], [1, 5, 4, 9, 1, 2, 7, 8]);
      expectFlat(t.narrow(2, -2, 2).narrow(0, 1, 1), [1, 2, 2], [1, 7, 2, 8]);
    });

    test.each(DTYPES)('tensor_tests::broadcast in %s', (dtype) => {
      const t = from([3, 1, 4], dtype);
      expectFlat(t.broadcastLeft([3, 1]), [3, 1, 3], [3, 1, 4, 3, 1, 4, 3, 1, 4]);
      expect(t.broadcastLeft([2]).contiguous().stride).toEqual([3, 1]);
      expectFlat(t.broadcastAs([2, 3]), [2, 3], [3, 1, 4, 3, 1, 4]);
      expect(t.expand([2, 3]).stride).toEqual([0, 1]);
      expectFlat(t.unsqueeze(1).expand([3, 2]).contiguous(), [3, 2], [3, 3, 1, 1, 4, 4]);
    });

    test.each(DTYPES)('tensor_tests::transpose in %s', (dtype) => {
      const data = [3, 1, 4, 1, 5, 2, 1, 7, 8, 2];
      const turned = shaped(data, [2, 5], dtype).t();
      expectFlat(turned, [5, 2], [3, 2, 1, 1, 4, 7, 1, 8, 5, 2]);
      expectFlat(turned.t(), [2, 5], data);
      expectFlat(turned.contiguous().t(), [2, 5], data);
      expectFlat(turned.add(1).t().sub(1), [2, 5], data);
    });

    test('transpose, permute, squeeze, unsqueeze, chunk, flatten', () => {
      const t = counted([2, 3, 4]);
      expect(t.transpose(0, -1).shape).toEqual([4, 3, 2]);
      expect(t.permute([2, 0, 1]).i(1, 1).toVecSync()).toEqual([13, 17, 21]);
      expect(t.unsqueeze(-1).shape).toEqual([2, 3, 4, 1]);
      expect(t.unsqueeze(1).squeeze(1).toVecSync()).toEqual(t.toVecSync());
      expect(t.squeeze(0).shape, 'a size other than 1 stays').toEqual([2, 3, 4]);
      const parts = counted([7]).chunk(3, 0);
      expect(parts.map((part) => part.toVecSync())).toEqual([
        [0, 1, 2],
        [3, 4],
        [5, 6],
      ]);
      expect(t.flatten(0, 1).shape).toEqual([6, 4]);
      expect(t.flattenTo(1).shape).toEqual([6, 4]);
      expect(t.flattenFrom(1).shape).toEqual([2, 12]);
      expect(t.flattenAll().shape).toEqual([24]);
    });

    test('reshape, with a hole, of strided tensors too', () => {
      const t = counted([2, 3]);
      expectFlat(t.reshape([3, -1]), [3, 2], [0, 1, 2, 3, 4, 5]);
      expectFlat(t.t().reshape([6]), [6], [0, 3, 1, 4, 2, 5]);
      expectFlat(t.t().reshape([3, 2, 1]), [3, 2, 1], [0, 3, 1, 4, 2, 5]);
      expectFlat(counted([2, 6]).narrow(1, 2, 4).reshape([2, 2, 2]), [2, 2, 2], [2, 3, 4, 5, 8, 9, 10, 11]);
    });

    test('i', () => {
      const t = counted([4, 3]);
      expect(t.i(1).toVecSync()).toEqual([3, 4, 5]);
      expect(t.i(-1, -1).toScalarSync()).toBe(11);
      expectFlat(t.i([1, 3]), [2, 3], [3, 4, 5, 6, 7, 8]);
      expectFlat(t.i(':', { start: -2 }), [4, 2], [1, 2, 4, 5, 7, 8, 10, 11]);
      expect(t.i([null, 1], null, 2).shape).toEqual([1, 1]);
      expectFlat(t.i(from([2, 0], 'u32'), [0, 2]), [2, 2], [6, 7, 0, 1]);
      expect(t.get(2).toVecSync()).toEqual([6, 7, 8]);
    });

    test('unfold gives windows, which may overlap', () => {
      const t = counted([7]);
      expectFlat(t.unfold(0, 3, 2), [3, 3], [0, 1, 2, 2, 3, 4, 4, 5, 6]);
      expectFlat(t.unfold(0, 3, 3), [2, 3], [0, 1, 2, 3, 4, 5]);
      const m = counted([3, 4]);
      expectFlat(m.unfold(0, 2, 1), [2, 4, 2], [0, 4, 1, 5, 2, 6, 3, 7, 4, 8, 5, 9, 6, 10, 7, 11]);
      expectFlat(m.t().unfold(-1, 3, 1).sum(2), [4, 1], [12, 15, 18, 21]);
      expect(() => t.unfold(0, 8, 1)).toThrow(/windows of 8 elements .* \[7\]; use a size in 1..7/);
      expect(() => t.unfold(0, 2, 0)).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
    });

    test('views share memory, copies do not', () => {
      const t = counted([2, 2]);
      const [view, copy] = [t.t(), t.copy()];
      t.i(0).constSet(9);
      expectFlat(view, [2, 2], [9, 2, 9, 3]);
      expectFlat(copy, [2, 2], [0, 1, 2, 3]);
      t.t().get(0).zeroSet();
      expectFlat(t, [2, 2], [0, 9, 0, 3]);
    });
  });
}
