/** Picking and placing by index tensors on one device. Values of candle's tests. */
import { describe, expect, test } from 'vitest';
import { type Device, type DType, Tensor } from '../../src';

export function indexingSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype?: DType) =>
    Tensor.from(data, { dtype, device: device() });
  const arange = (shape: number[]) =>
    Tensor.arange(
      0,
      shape.reduce((a, b) => a * b, 1),
      'f32',
      device(),
    ).reshape(shape);

  describe(`indexing by tensors on ${name}`, () => {
    test('indexSelect along each dimension and ids dtype', () => {
      const t = arange([4, 3]);
      for (const dtype of ['u8', 'u32', 'i64'] as const) {
        const ids = from([0, 2, 1], dtype);
        expect(t.indexSelect(ids, 1).toVecSync()).toEqual([
          [0, 2, 1],
          [3, 5, 4],
          [6, 8, 7],
          [9, 11, 10],
        ]);
        expect(t.indexSelect(ids, 0).toVecSync()).toEqual([
          [0, 1, 2],
          [6, 7, 8],
          [3, 4, 5],
        ]);
      }
      expect(
        arange([2, 2])
          .indexSelect(from([1, 0, 1], 'u32'), -1)
          .toVecSync(),
      ).toEqual([
        [1, 0, 1],
        [3, 2, 3],
      ]);
      expect(
        t
          .t()
          .indexSelect(from([3, 0], 'u32'), 1)
          .toVecSync(),
      ).toEqual([
        [9, 0],
        [10, 1],
        [11, 2],
      ]);
      expect(t.indexSelect(from([4294967295, 1], 'u32'), 0).toVecSync()).toEqual([
        [0, 0, 0],
        [3, 4, 5],
      ]);
    });

    test('embedding keeps the shape of the ids', () => {
      const table = arange([3, 2]);
      expect(
        table
          .embedding(
            from(
              [
                [0, 2],
                [1, 0],
              ],
              'u32',
            ),
          )
          .toVecSync(),
      ).toEqual([
        [
          [0, 1],
          [4, 5],
        ],
        [
          [2, 3],
          [0, 1],
        ],
      ]);
    });

    test('gather', () => {
      const t = arange([4, 3]);
      expect(
        t
          .gather(
            from(
              [
                [0, 0],
                [2, 0],
                [1, 1],
                [0, 2],
              ],
              'u32',
            ),
            1,
          )
          .toVecSync(),
      ).toEqual([
        [0, 0],
        [5, 3],
        [7, 7],
        [9, 11],
      ]);
      expect(
        t
          .gather(
            from(
              [
                [0, 2, 0],
                [0, 1, 1],
              ],
              'u32',
            ),
            0,
          )
          .toVecSync(),
      ).toEqual([
        [0, 7, 2],
        [0, 4, 5],
      ]);
      const blanks = from(
        [
          [0, 0],
          [2, 4294967295],
          [4294967295, 1],
          [0, 2],
        ],
        'u32',
      );
      expect(t.gather(blanks, 1).toVecSync()).toEqual([
        [0, 0],
        [5, 0],
        [0, 7],
        [9, 11],
      ]);
    });

    test('scatter and scatterAdd', () => {
      const t = arange([4, 3]);
      const ids = from(
        [
          [0, 1, 2],
          [3, 4, 0],
          [3, 3, 1],
          [2, 0, 4],
        ],
        'u32',
      );
      const wide = Tensor.ones([4, 5], 'f32', device());
      expect(wide.scatterAdd(ids, t, 1).toVecSync()).toEqual([
        [1, 2, 3, 1, 1],
        [6, 1, 1, 4, 5],
        [1, 9, 1, 14, 1],
        [11, 1, 10, 1, 12],
      ]);
      expect(wide.scatter(ids, t, 1).toVecSync()).toEqual([
        [0, 1, 2, 1, 1],
        [5, 1, 1, 3, 4],
        [1, 8, 1, 7, 1],
        [10, 1, 9, 1, 11],
      ]);
      const tall = Tensor.ones([6, 3], 'f32', device());
      expect(tall.scatterAdd(ids, t, 0).toVecSync()).toEqual([
        [1, 11, 6],
        [1, 2, 9],
        [10, 1, 3],
        [10, 8, 1],
        [1, 5, 12],
        [1, 1, 1],
      ]);
      const max = 4294967295;
      const blanks = from(
        [
          [0, max, 2],
          [3, 4, max],
          [3, 3, 1],
          [max, max, 4],
        ],
        'u32',
      );
      expect(tall.scatter(blanks, t, 0).toVecSync()).toEqual([
        [0, 1, 1],
        [1, 1, 8],
        [1, 1, 2],
        [6, 7, 1],
        [1, 4, 11],
        [1, 1, 1],
      ]);
      expect(tall.sumAll().toScalarSync(), 'the copying forms leave their input alone').toBe(18);
      tall.scatterSet(ids, t, 0);
      expect(tall.get(0).toVecSync()).toEqual([0, 10, 5]);
      tall.scatterAddSet(ids, t, 0);
      expect(tall.get(0).toVecSync()).toEqual([0, 20, 10]);
    });

    test('indexAdd', () => {
      const t = arange([4, 3]);
      const ones = Tensor.ones([4, 2], 'f32', device());
      expect(ones.indexAdd(from([0, 1, 1], 'u32'), t, 1).toVecSync()).toEqual([
        [1, 4],
        [4, 10],
        [7, 16],
        [10, 22],
      ]);
      const zeros = Tensor.zeros([6, 3], 'f32', device());
      expect(zeros.indexAdd(from([5, 0, 1, 0], 'i64'), t, 0).toVecSync()).toEqual([
        [12, 14, 16],
        [6, 7, 8],
        [0, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
        [0, 1, 2],
      ]);
    });
  });
}
