/** Creation, views, joining, in-place writing, reading and empty tensors on one device. */
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { type Device, DTYPES, Tensor } from '../../src';

export function viewsSuite(name: string, device: () => Device): void {
  const arange = (shape: number[]) =>
    Tensor.arange(
      0,
      shape.reduce((a, b) => a * b, 1),
      'f32',
      device(),
    ).reshape(shape);

  describe(`creation on ${name}`, () => {
    test.each(DTYPES)('zeros, ones, full, arange, eye in %s', (dtype) => {
      const values = (t: Tensor) =>
        JSON.parse(JSON.stringify(t.toVecSync(), (_, v) => (typeof v === 'bigint' ? Number(v) : v)));
      expect(values(Tensor.zeros([2, 2], dtype, device()))).toEqual([
        [0, 0],
        [0, 0],
      ]);
      expect(values(Tensor.ones([3], { dtype, device: device() }))).toEqual([1, 1, 1]);
      expect(values(Tensor.full(3, [2], dtype, device()))).toEqual([3, 3]);
      expect(values(Tensor.arange(1, 5, dtype, device()))).toEqual([1, 2, 3, 4]);
      expect(values(Tensor.arangeStep(0, 6, 4, dtype, device()))).toEqual([0, 4]);
      expect(values(Tensor.eye(2, dtype, device()))).toEqual([
        [1, 0],
        [0, 1],
      ]);
      expect(values(Tensor.tril2(2, dtype, device()))).toEqual([
        [1, 0],
        [1, 1],
      ]);
      expect(values(Tensor.triu2(2, dtype, device()))).toEqual([
        [1, 1],
        [0, 1],
      ]);
      expect(values(Tensor.full(5, [2], dtype, device()).onesLike())).toEqual([1, 1]);
    });

    test('from infers shape and dtype', () => {
      const options = { device: device() };
      expect(
        Tensor.from(
          [
            [1, 2],
            [3, 4],
            [5, 6],
          ],
          options,
        ).shape,
      ).toEqual([3, 2]);
      expect(Tensor.from([1n], options).dtype).toBe('i64');
      expect(Tensor.from([true, false], options).dtype).toBe('u8');
      expect(Tensor.from(new Float64Array(4), { ...options, shape: [2, 2] }).dtype).toBe('f64');
      expect(Tensor.from(7, options).shape).toEqual([]);
      expect(Tensor.from([[], []], options).shape).toEqual([2, 0]);
      expect(Tensor.fromArray([1, 2, 3, 4], [2, 2], 'i16', device()).toVecSync()).toEqual([
        [1, 2],
        [3, 4],
      ]);
      expect(Tensor.fromBytes(Uint16Array.of(0x3c00, 0xc000), [2], 'f16', device()).toVecSync()).toEqual([1, -2]);
    });

    test('random numbers are the seed’s', () => {
      device().setSeed(42);
      const first = Tensor.rand(0, 1, [1000], 'f32', device()).toArraySync<Float32Array>();
      const normal = Tensor.randn(2, 3, [20001], 'f32', device()).toArraySync<Float32Array>();
      device().setSeed(42);
      expect(Tensor.rand(0, 1, [1000], 'f32', device()).toArraySync()).toEqual(first);
      expect(Math.min(...first)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...first)).toBeLessThan(1);
      const mean = normal.reduce((a, b) => a + b, 0) / normal.length;
      const variance = normal.reduce((a, b) => a + (b - mean) ** 2, 0) / normal.length;
      expect(mean).toBeCloseTo(2, 1);
      expect(Math.sqrt(variance)).toBeCloseTo(3, 1);
      expect(Array.from(first.subarray(0, 5))).toEqual(UNIFORM_42);
    });
  });

  describe(`views on ${name}`, () => {
    test('reshape, with a hole, of strided tensors too', () => {
      const t = arange([2, 3]);
      expect(t.reshape([3, -1]).toVecSync()).toEqual([
        [0, 1],
        [2, 3],
        [4, 5],
      ]);
      expect(t.t().reshape([6]).toVecSync()).toEqual([0, 3, 1, 4, 2, 5]);
      expect(t.t().reshape([3, 2, 1]).toVecSync()).toEqual([
        [[0], [3]],
        [[1], [4]],
        [[2], [5]],
      ]);
      expect(arange([2, 6]).narrow(1, 2, 4).reshape([2, 2, 2]).toVecSync()).toEqual([
        [
          [2, 3],
          [4, 5],
        ],
        [
          [8, 9],
          [10, 11],
        ],
      ]);
    });

    test('transpose, permute, squeeze, unsqueeze, narrow, chunk, flatten', () => {
      const t = arange([2, 3, 4]);
      expect(t.transpose(0, -1).shape).toEqual([4, 3, 2]);
      expect(t.permute([2, 0, 1]).i(1, 1).toVecSync()).toEqual([13, 17, 21]);
      expect(t.unsqueeze(-1).shape).toEqual([2, 3, 4, 1]);
      expect(t.unsqueeze(1).squeeze(1).toVecSync()).toEqual(t.toVecSync());
      expect(t.squeeze(0).shape, 'a size other than 1 stays').toEqual([2, 3, 4]);
      expect(t.narrow(2, -2, 2).narrow(0, 1, 1).toVecSync()).toEqual([
        [
          [14, 15],
          [18, 19],
          [22, 23],
        ],
      ]);
      expect(
        arange([7])
          .chunk(3, 0)
          .map((part) => part.toVecSync()),
      ).toEqual([
        [0, 1, 2],
        [3, 4],
        [5, 6],
      ]);
      expect(t.flatten(0, 1).shape).toEqual([6, 4]);
      expect(t.flattenTo(1).shape).toEqual([6, 4]);
      expect(t.flattenFrom(1).shape).toEqual([2, 12]);
      expect(t.flattenAll().shape).toEqual([24]);
    });

    test('i', () => {
      const t = arange([4, 3]);
      expect(t.i(1).toVecSync()).toEqual([3, 4, 5]);
      expect(t.i(-1, -1).toScalarSync()).toBe(11);
      expect(t.i([1, 3]).toVecSync()).toEqual([
        [3, 4, 5],
        [6, 7, 8],
      ]);
      expect(t.i(':', { start: -2 }).toVecSync()).toEqual([
        [1, 2],
        [4, 5],
        [7, 8],
        [10, 11],
      ]);
      expect(t.i([null, 1], null, 2).shape).toEqual([1, 1]);
      expect(t.i(Tensor.from([2, 0], { dtype: 'u32', device: device() }), [0, 2]).toVecSync()).toEqual([
        [6, 7],
        [0, 1],
      ]);
      expect(t.get(2).toVecSync()).toEqual([6, 7, 8]);
    });

    test('broadcastAs, expand, broadcastLeft', () => {
      const row = arange([3]);
      expect(row.broadcastAs([2, 3]).toVecSync()).toEqual([
        [0, 1, 2],
        [0, 1, 2],
      ]);
      expect(row.expand([2, 3]).stride).toEqual([0, 1]);
      expect(row.broadcastLeft([2]).contiguous().stride).toEqual([3, 1]);
    });

    test('views share memory, copies do not', () => {
      const t = arange([2, 2]);
      const [view, copy] = [t.t(), t.copy()];
      t.i(0).constSet(9);
      expect(view.toVecSync()).toEqual([
        [9, 2],
        [9, 3],
      ]);
      expect(copy.toVecSync()).toEqual([
        [0, 1],
        [2, 3],
      ]);
      t.t().get(0).zeroSet();
      expect(t.toVecSync()).toEqual([
        [0, 9],
        [0, 3],
      ]);
    });
  });

  describe(`joining on ${name}`, () => {
    test.each(DTYPES)('cat, stack and repeat in %s', (dtype) => {
      const t = arange([2, 2]).toDtype(dtype);
      const u = t.t();
      const values = (x: Tensor) => x.toDtype('f32').toVecSync();
      expect(values(Tensor.cat([t, u], 0))).toEqual([
        [0, 1],
        [2, 3],
        [0, 2],
        [1, 3],
      ]);
      expect(values(Tensor.cat([t, u, t], 1))).toEqual([
        [0, 1, 0, 2, 0, 1],
        [2, 3, 1, 3, 2, 3],
      ]);
      expect(values(Tensor.stack([t, u], 0))).toEqual([
        [
          [0, 1],
          [2, 3],
        ],
        [
          [0, 2],
          [1, 3],
        ],
      ]);
      expect(values(Tensor.stack([t, u], -1))).toEqual([
        [
          [0, 0],
          [1, 2],
        ],
        [
          [2, 1],
          [3, 3],
        ],
      ]);
      expect(values(t.repeat([2, 1, 2]))).toEqual([
        [
          [0, 1, 0, 1],
          [2, 3, 2, 3],
        ],
        [
          [0, 1, 0, 1],
          [2, 3, 2, 3],
        ],
      ]);
    });

    test('padding, flip, roll', () => {
      const t = arange([2, 2]);
      expect(t.padWithZeros(1, 1, 2).toVecSync()).toEqual([
        [0, 0, 1, 0, 0],
        [0, 2, 3, 0, 0],
      ]);
      expect(t.padWithSame(0, 1, 0).toVecSync()).toEqual([
        [0, 1],
        [0, 1],
        [2, 3],
      ]);
      expect(t.flip([0, 1]).toVecSync()).toEqual([
        [3, 2],
        [1, 0],
      ]);
      expect(arange([5]).roll(2, 0).toVecSync()).toEqual([3, 4, 0, 1, 2]);
      expect(arange([5]).roll(-1, 0).toVecSync()).toEqual([1, 2, 3, 4, 0]);
    });

    test('sliceSet writes along any dimension', () => {
      const cache = Tensor.zeros([2, 5, 2], 'f32', device());
      cache.sliceSet(arange([2, 2, 2]), 1, 1);
      cache.sliceSet(arange([2, 2, 1]).transpose(1, 2).affine(1, 10), 1, 4);
      expect(cache.toVecSync()).toEqual([
        [
          [0, 0],
          [0, 1],
          [2, 3],
          [0, 0],
          [10, 11],
        ],
        [
          [0, 0],
          [4, 5],
          [6, 7],
          [0, 0],
          [12, 13],
        ],
      ]);
      const rows = Tensor.zeros([3, 2], 'f32', device());
      expect(rows.sliceScatter(arange([3, 1]), 1, 1).toVecSync()).toEqual([
        [0, 0],
        [0, 1],
        [0, 2],
      ]);
      expect(rows.sumAll().toScalarSync(), 'sliceScatter leaves its input alone').toBe(0);
      rows.sliceSet(arange([1, 2]).affine(1, 1), 0, 2);
      expect(rows.toVecSync()).toEqual([
        [0, 0],
        [0, 0],
        [1, 2],
      ]);
    });
  });

  describe(`reading on ${name}`, () => {
    test('toArray gives typed arrays, async and sync', async () => {
      const t = arange([2, 2]);
      expect(await t.toArray()).toEqual(Float32Array.of(0, 1, 2, 3));
      expect(await t.t().toVec()).toEqual([
        [0, 2],
        [1, 3],
      ]);
      expect(await t.i(1, 1).toScalar()).toBe(3);
      expect(t.toDtype('i64').toArraySync()).toEqual(BigInt64Array.of(0n, 1n, 2n, 3n));
      expect(t.toDtype('bf16').toArraySync()).toEqual(Float32Array.of(0, 1, 2, 3));
      expect(t.toDtype('f16').i(0).toBytesSync()).toEqual(Uint8Array.of(0, 0, 0, 0x3c));
      expect(t.narrow(0, 1, 1).toArraySync()).toEqual(Float32Array.of(2, 3));
    });

    test('inspect is short and never fails', () => {
      expect(inspect(arange([2, 2]))).toBe(`[[0, 1],\n [2, 3]]\nTensor[[2, 2], f32, ${device()}]`);
      const large = inspect(arange([1000, 1000]));
      expect(large).toContain('[0, 1, 2, ..., 997, 998, 999]');
      expect(large.split('\n').length).toBeLessThan(10);
      const gone = arange([2]);
      gone.dispose();
      expect(inspect(gone)).toContain('disposed');
    });
  });

  describe(`empty tensors on ${name}`, () => {
    test('every family answers', () => {
      const e = Tensor.zeros([0, 3], 'f32', device());
      const ids = Tensor.zeros([0], 'u32', device());
      expect(e.toVecSync()).toEqual([]);
      expect(e.exp().add(e).mul(2).shape).toEqual([0, 3]);
      expect(e.eq(e).whereCond(e, e).shape).toEqual([0, 3]);
      expect(e.sum(0).toVecSync()).toEqual([0, 0, 0]);
      expect(e.sumAll().toScalarSync()).toBe(0);
      expect(e.max(1).shape).toEqual([0]);
      expect(e.t().matmul(e).toVecSync()).toEqual([
        [0, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
      ]);
      expect(e.matmul(e.t()).shape).toEqual([0, 0]);
      expect(Tensor.cat([e, arange([1, 3])], 0).toVecSync()).toEqual([[0, 1, 2]]);
      expect(arange([2, 3]).indexSelect(ids, 0).shape).toEqual([0, 3]);
      expect(e.indexSelect(ids, 0).shape).toEqual([0, 3]);
      expect(e.softmaxLastDim().shape).toEqual([0, 3]);
      expect(e.t().contiguous().reshape([3, 0]).toDtype('f16').toVecSync()).toEqual([[], [], []]);
      expect(arange([2, 3]).repeat([0, 1]).shape).toEqual([0, 3]);
      expect(e.cumsum(0).shape).toEqual([0, 3]);
      expect(Tensor.rand(0, 1, [0], 'f32', device()).shape).toEqual([0]);
      expect(e.padWithZeros(0, 1, 0).toVecSync()).toEqual([[0, 0, 0]]);
      e.constSet(1);
      arange([2, 3]).sliceSet(e, 0, 1);
    });
  });
}

/** The stream of seed 42, call 0, as philox.ts defines it: see philox.test.ts for the words behind it. */
const UNIFORM_42 = [
  0.6129598617553711, 0.4685865044593811, 0.07323169708251953, 0.3408614993095398, 0.9877186417579651,
];
