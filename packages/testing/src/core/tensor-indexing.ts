/**
 * candle's tensor_tests about picking and placing by index tensors (embeddings, index_select, index_add, gather, scatter)
 * on one device: every dtype of values, and the five dtypes of ids.
 */

import { type Device, DTYPES, type DType, isInt } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, numbers } from './close';
import * as values from './gather-values';
import { makers } from './makers';

const ID_DTYPES = DTYPES.filter(isInt);

export function tensorIndexingSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, ones, counted } = makers(device);
  /** What a dtype holds of values: f8e4m3 has four significant bits. */
  const held = (list: number[], dtype: DType) => numbers(from(list).toDtype(dtype));

  describe(`indexing by tensors on ${name}`, () => {
    test.each(DTYPES)('tensor_tests::embeddings in %s', (dtype) => {
      const table = counted([3, 2], dtype);
      const rows = [0, 1, 4, 5, 2, 3];
      for (const idDtype of ID_DTYPES) {
        const ids = from([0, 2, 1], idDtype);
        expectFlat(table.embedding(ids), [3, 2], rows);
        expectFlat(table.indexSelect(ids, 0), [3, 2], rows);
      }
      const square = shaped([0, 2, 1, 0], [2, 2], 'u32');
      expectFlat(table.embedding(square), [2, 2, 2], [0, 1, 4, 5, 2, 3, 0, 1]);
    });

    test('tensor_tests::index_select_fail: an id outside is an error where the device looks at ids', () => {
      const selected = () =>
        counted([3, 2])
          .indexSelect(from([4, 2, 1], 'u32'), 0)
          .toArraySync();
      const { kind } = device();
      if (kind === 'js' || kind === 'cpu')
        expect(selected).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
    });

    test.each(ID_DTYPES)('tensor_tests::index_select by %s', (idDtype) => {
      const t = counted([4, 3]);
      const ids = from([0, 2, 1], idDtype);
      expectFlat(t.indexSelect(ids, 1), [4, 3], [0, 2, 1, 3, 5, 4, 6, 8, 7, 9, 11, 10]);
      expectFlat(t.indexSelect(ids, 0), [3, 3], [0, 1, 2, 6, 7, 8, 3, 4, 5]);
      // More ids than rows: candle once left the last rows 0.
      const twice = from([0, 2, 1, 0, 2, 1], idDtype);
      const rows = [0, 1, 2, 6, 7, 8, 3, 4, 5];
      expectFlat(t.indexSelect(twice, 0), [6, 3], [...rows, ...rows]);
      const square = counted([2, 2], 'f32', 1);
      expectFlat(square.indexSelect(from([1, 0, 1], idDtype), 1), [2, 3], [2, 1, 2, 4, 3, 4]);
      expectFlat(square.indexSelect(from([1, 0, 1], idDtype), -1), [2, 3], [2, 1, 2, 4, 3, 4]);
    });

    test.each(DTYPES)('tensor_tests::index_select of views of %s', (dtype) => {
      const t = counted([4, 3], dtype);
      expectFlat(t.t().indexSelect(from([3, 0], 'u32'), 1), [3, 2], [9, 0, 10, 1, 11, 2]);
      expectFlat(t.narrow(0, 1, 2).indexSelect(from([1, 1, 0], 'u32'), 0), [3, 3], [6, 7, 8, 6, 7, 8, 3, 4, 5]);
      const ids = from([0, 9, 2, 9], 'u32').reshape([2, 2]).narrow(1, 0, 1).squeeze(1);
      expectFlat(t.indexSelect(ids, 0), [2, 3], [0, 1, 2, 6, 7, 8]);
    });

    test.each(DTYPES)('tensor_tests::index_add in %s', (dtype) => {
      const t = counted([4, 3], dtype);
      for (const idDtype of ID_DTYPES) {
        const onto = ones([4, 2], dtype);
        expectFlat(onto.indexAdd(from([0, 1, 1], idDtype), t, 1), [4, 2], [1, 4, 4, 10, 7, 16, 10, 22]);
        expectFlat(onto, [4, 2], Array(8).fill(1));
      }
      const columns = zeros([4, 2], dtype).indexAdd(from([1, 0, 0], 'u32'), t, 1);
      expectFlat(columns, [4, 2], held([3, 0, 9, 3, 15, 6, 21, 9], dtype));
      const rows = zeros([6, 3], dtype).indexAdd(from([5, 0, 1, 0], 'u32'), t, 0);
      expectFlat(rows, [6, 3], [12, 14, 16, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    });

    test.each(DTYPES)('tensor_tests::gather in %s', (dtype) => {
      const t = counted([4, 3], dtype);
      for (const idDtype of ID_DTYPES) {
        expectFlat(t.gather(shaped([0, 2, 1, 0], [4, 1], idDtype), 1), [4, 1], [0, 5, 7, 9]);
        const pairs = shaped([0, 0, 2, 0, 1, 1, 0, 2], [4, 2], idDtype);
        expectFlat(t.gather(pairs, 1), [4, 2], [0, 0, 5, 3, 7, 7, 9, 11]);
        expectFlat(t.gather(shaped([0, 2, 0], [1, 3], idDtype), 0), [1, 3], [0, 7, 2]);
        expectFlat(t.gather(shaped([0, 2, 0, 0, 1, 1], [2, 3], idDtype), 0), [2, 3], [0, 7, 2, 0, 4, 5]);
        expectFlat(t.t().gather(pairs.t(), 0), [2, 4], [0, 5, 7, 9, 0, 3, 7, 11]);
      }
    });

    // -253 to 255 is exact in these.
    test.each(['f32', 'f64', 'f16', 'bf16', 'i16', 'i32', 'i64'] as const)(
      'tensor_tests::gather of random data in %s, along each of three dimensions',
      (dtype) => {
        const ids = (data: number[], shape: number[]) => shaped(data, shape, 'u32');
        const deep = shaped(values.SOURCE0, [7, 6, 7], dtype);
        expectFlat(deep.gather(ids(values.IDS0, [4, 6, 7]), 0), [4, 6, 7], values.GATHERED0);
        const middle = shaped(values.SOURCE1, [6, 6, 4], dtype);
        expectFlat(middle.gather(ids(values.IDS1, [6, 1, 4]), 1), [6, 1, 4], values.GATHERED1);
        const one = shaped(
          [-162, 202, -126, -39, 35, -65, 1, 80, 37, 248, -191, 89, 117, -40, -217, 220],
          [2, 4, 2],
          dtype,
        );
        const single = one.gather(ids([1, 0, 1, 1, 0, 1, 0, 1], [2, 4, 1]), 2);
        expectFlat(single, [2, 4, 1], [202, -126, -65, 80, 37, 89, 117, 220]);
        const two = shaped(
          [-21, -197, 194, 122, 255, -106, -191, 250, 33, -117, 43, 10, -130, 238, -217, -92],
          [4, 2, 2],
          dtype,
        );
        const swapped = two.gather(ids([0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0], [4, 2, 2]), 2);
        const expected = [-21, -197, 122, 194, -106, 255, -191, 250, 33, -117, 43, 10, 238, -130, -92, -217];
        expectFlat(swapped, [4, 2, 2], expected);
      },
    );

    test.each(DTYPES)('tensor_tests::scatter in %s', (dtype) => {
      const t = counted([4, 3], dtype);
      const data = [0, 1, 2, 3, 4, 0, 3, 3, 1, 2, 0, 4];
      const wide = ones([4, 5], dtype);
      const tall = ones([6, 3], dtype);
      const written = [0, 10, 5, 1, 1, 8, 9, 1, 2, 6, 7, 1, 1, 4, 11, 1, 1, 1];
      const added = [1, 11, 6, 1, 2, 9, 10, 1, 3, 10, 8, 1, 1, 5, 12, 1, 1, 1];
      for (const idDtype of ID_DTYPES) {
        const ids = shaped(data, [4, 3], idDtype);
        const across = [1, 2, 3, 1, 1, 6, 1, 1, 4, 5, 1, 9, 1, 14, 1, 11, 1, 10, 1, 12];
        expectFlat(wide.scatterAdd(ids, t, 1), [4, 5], across);
        const placed = [0, 1, 2, 1, 1, 5, 1, 1, 3, 4, 1, 8, 1, 7, 1, 10, 1, 9, 1, 11];
        expectFlat(wide.scatter(ids, t, 1), [4, 5], placed);
        expectFlat(tall.scatterAdd(ids, t, 0), [6, 3], added);
        expectFlat(tall.scatter(ids, t, 0), [6, 3], written);
      }
      expect(numbers(tall), 'the copying forms leave their input alone').toEqual(Array(18).fill(1));
      const ids = shaped(data, [4, 3], 'u32');
      tall.scatterSet(ids, t, 0);
      expectFlat(tall, [6, 3], written);
      tall.scatterAddSet(ids, t, 0);
      expectFlat(tall.get(0), [3], [0, 20, 10]);
    });
  });
}
