/** Sorting, grids and windows on one device. Values of candle's tests where they have them. */
import { describe, expect, test } from 'vitest';
import { type Device, DTYPES, type DType, Tensor } from '../../src';

export function sortSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype?: DType) =>
    Tensor.from(data, { dtype, device: device() });

  /** For long rows, where `toEqual` takes seconds. */
  const expectPositions = (positions: Tensor, expected: Uint32Array) => {
    const actual = positions.toArraySync<Uint32Array>();
    const wrong = actual.findIndex((value, i) => value !== expected[i]);
    expect({ wrong, count: actual.length }).toEqual({ wrong: -1, count: expected.length });
  };

  describe(`sorting on ${name}`, () => {
    test('positions and values in both directions', () => {
      const t = from([
        [3, 1, 4, 1.1, 5],
        [2.1, 1, 7, 8, 2],
      ]);
      const ascending = [
        [1, 3, 0, 2, 4],
        [1, 4, 0, 2, 3],
      ];
      const descending = [
        [4, 2, 0, 3, 1],
        [3, 2, 0, 4, 1],
      ];
      expect(t.argSortLastDim(true).dtype).toBe('u32');
      expect(t.argSortLastDim(true).toVecSync()).toEqual(ascending);
      expect(t.argSortLastDim(false).toVecSync()).toEqual(descending);
      const [up, upPositions] = t.toDtype('f64').sortLastDim(true);
      expect(upPositions.toVecSync()).toEqual(ascending);
      expect(up.toDtype('f32').toVecSync()).toEqual(t.gather(from(ascending, 'u32'), 1).toVecSync());
      const [down, downPositions] = t.sortLastDim(false);
      expect(downPositions.toVecSync()).toEqual(descending);
      expect(down.get(1).narrow(0, 0, 2).toVecSync()).toEqual([8, 7]);
    });

    test('views: an offset, a transposed and a broadcast one', () => {
      const t = from([
        [1, 2, 3],
        [30, 10, 20],
      ]);
      const [sorted, positions] = t.narrow(0, 1, 1).sortLastDim(true);
      expect([sorted.toVecSync(), positions.toVecSync()]).toEqual([[[10, 20, 30]], [[1, 2, 0]]]);
      const [turned] = t.t().sortLastDim(false);
      expect(turned.toVecSync()).toEqual([
        [30, 1],
        [10, 2],
        [20, 3],
      ]);
      expect(t.get(1).broadcastAs([2, 3]).argSortLastDim(true).toVecSync()).toEqual([
        [1, 2, 0],
        [1, 2, 0],
      ]);
    });

    test('equal elements keep their order in both directions, also 0 and -0', () => {
      const t = from([2, 1, 2, 1, 2]);
      expect(t.argSortLastDim(true).toVecSync()).toEqual([1, 3, 0, 2, 4]);
      expect(t.argSortLastDim(false).toVecSync()).toEqual([0, 2, 4, 1, 3]);
      expect(from([0, -0, 0, -1]).argSortLastDim(true).toVecSync()).toEqual([3, 0, 1, 2]);
      expect(from([0, -0, 0, -1]).argSortLastDim(false).toVecSync()).toEqual([0, 1, 2, 3]);
    });

    test.each(['f32', 'f64', 'f16', 'bf16'] as const)('NaN is greater than every number in %s', (dtype) => {
      const t = from([Number.NaN, 1, Infinity, Number.NaN, -Infinity], dtype);
      expect(t.argSortLastDim(true).toVecSync()).toEqual([4, 1, 2, 0, 3]);
      expect(t.argSortLastDim(false).toVecSync()).toEqual([0, 3, 2, 1, 4]);
    });

    test.each(DTYPES)('every dtype: %s', (dtype) => {
      const signed = dtype !== 'u8' && dtype !== 'u32';
      const data = signed ? [5, -3, 0, 100, -100, 5] : [5, 3, 0, 100, 200, 5];
      const t = from(data, dtype);
      expect(t.argSortLastDim(true).toVecSync()).toEqual(signed ? [4, 1, 2, 0, 5, 3] : [2, 1, 0, 5, 3, 4]);
      expect(t.argSortLastDim(false).toVecSync()).toEqual(signed ? [3, 0, 5, 2, 1, 4] : [4, 3, 0, 5, 1, 2]);
    });

    test('the extremes of wide integers', () => {
      const big = [2n ** 63n - 1n, -(2n ** 63n), 0n, 2n ** 53n + 1n, 2n ** 53n];
      expect(from(big, 'i64').argSortLastDim(true).toVecSync()).toEqual([1, 2, 4, 3, 0]);
      expect(
        from([2 ** 32 - 1, 0, 2 ** 31], 'u32')
          .argSortLastDim(false)
          .toVecSync(),
      ).toEqual([0, 2, 1]);
    });

    // 2000: candle's; 4097: one column past a chunk; 152064: a vocabulary, where candle's shared memory ends.
    test.each([2000, 4096, 4097, 20000, 152064])('rows of %i columns', (width) => {
      const down = from(Float32Array.from({ length: width }, (_, i) => width - i));
      const rising = Uint32Array.from({ length: width }, (_, i) => i);
      expectPositions(down.argSortLastDim(true), rising.slice().reverse());
      expectPositions(down.argSortLastDim(false), rising);
      // Few distinct values: stability over chunks.
      const classes = Uint8Array.from(rising, (i) => (i * 7919) % 5);
      const expected = Uint32Array.from([0, 1, 2, 3, 4].flatMap((c) => [...rising.filter((i) => classes[i] === c)]));
      const two = Tensor.stack([from(classes), from(new Uint8Array(width))], 0).argSortLastDim(true);
      expectPositions(two.get(0), expected);
      expectPositions(two.get(1), rising);
    });

    test('topk', () => {
      const t = from([
        [3, 9, 4, 9],
        [1, 2, 8, Number.NaN],
      ]);
      const [values, positions] = t.topk(2);
      expect(values.toVecSync()).toEqual([
        [9, 9],
        [Number.NaN, 8],
      ]);
      expect(positions.toVecSync()).toEqual([
        [1, 3],
        [3, 2],
      ]);
      expect(t.topk(0)[0].shape).toEqual([2, 0]);
      expect(() => t.topk(5)).toThrow(/rows of \[2, 4\] have no 5 elements; use a whole number in 0..4/);
    });

    test('no rows, no columns, no dimension', () => {
      expect(Tensor.zeros([0, 3], 'f32', device()).argSortLastDim(true).shape).toEqual([0, 3]);
      expect(Tensor.zeros([3, 0], 'f32', device()).sortLastDim(true)[0].shape).toEqual([3, 0]);
      expect(() => from(1).argSortLastDim(true)).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
    });
  });

  describe(`grids and windows on ${name}`, () => {
    test('meshgrid', () => {
      const [x, y] = [from([1, 2, 3]), from([4, 5])];
      expect(Tensor.meshgrid([x, y], false).map((grid) => grid.toVecSync())).toEqual([
        [
          [1, 1],
          [2, 2],
          [3, 3],
        ],
        [
          [4, 5],
          [4, 5],
          [4, 5],
        ],
      ]);
      expect(Tensor.meshgrid([x, y], true).map((grid) => grid.toVecSync())).toEqual([
        [
          [1, 2, 3],
          [1, 2, 3],
        ],
        [
          [4, 4, 4],
          [5, 5, 5],
        ],
      ]);
      const empty = Tensor.meshgrid([Tensor.zeros([0], 'f32', device()), x], false);
      expect(empty.map((grid) => grid.shape)).toEqual([
        [0, 3],
        [0, 3],
      ]);
      expect(() => Tensor.meshgrid([x], false)).toThrow(/two or more of rank 1/);
      expect(() => Tensor.meshgrid([x, x.unsqueeze(0)], false)).toThrow(/ranks \[1, 2\]/);
    });

    test('unfold gives windows, which may overlap', () => {
      const t = from([0, 1, 2, 3, 4, 5, 6]);
      expect(t.unfold(0, 3, 2).toVecSync()).toEqual([
        [0, 1, 2],
        [2, 3, 4],
        [4, 5, 6],
      ]);
      expect(t.unfold(0, 3, 3).toVecSync()).toEqual([
        [0, 1, 2],
        [3, 4, 5],
      ]);
      const m = Tensor.arange(0, 12, 'f32', device()).reshape([3, 4]);
      expect(m.unfold(0, 2, 1).shape).toEqual([2, 4, 2]);
      expect(m.unfold(0, 2, 1).toVecSync()).toEqual([
        [
          [0, 4],
          [1, 5],
          [2, 6],
          [3, 7],
        ],
        [
          [4, 8],
          [5, 9],
          [6, 10],
          [7, 11],
        ],
      ]);
      expect(m.t().unfold(-1, 3, 1).sum(2).toVecSync()).toEqual([[12], [15], [18], [21]]);
      expect(() => t.unfold(0, 8, 1)).toThrow(/windows of 8 elements .* \[7\]; use a size in 1..7/);
      expect(() => t.unfold(0, 2, 0)).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
    });
  });
}
