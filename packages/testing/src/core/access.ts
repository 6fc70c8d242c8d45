/** Looking at tensors: printing, indexing by position, sizes. Numbers and texts are those of candle's tests of these names. */
import { inspect } from 'node:util';
import { all, D, type Device, newAxis, operators, printOptions, range, scope, setPrintOptions, Tensor } from '@x/core';
import { afterEach, describe, expect, test } from 'vitest';

export function accessSuite(name: string, device: () => Device): void {
  const arange = (shape: number[]) =>
    Tensor.arange(
      0,
      shape.reduce((a, b) => a * b, 1),
      'u32',
      device(),
    ).reshape(shape);
  const line = (shape: string, dtype: string) => `Tensor[${shape}, ${dtype}, ${device()}]`;

  describe(`printing on ${name}`, () => {
    afterEach(() => setPrintOptions('default'));

    test('display_tests::display_scalar', () => {
      const show = (t: Tensor) => String(t).split('\n');
      expect(String(Tensor.from(1234, { dtype: 'u32', device: device() }))).toBe(`[1234]\n${line('[]', 'u32')}`);
      const t = Tensor.from(-1234, { device: device() });
      expect(String(t.div(10))).toBe(`[-123.4000]\n${line('[]', 'f32')}`);
      expect(show(t.div(1e8))[0]).toBe('[-1.2340e-5]');
      expect(show(t.mul(1e8))[0]).toBe('[-1.2340e11]');
      expect(show(t.mul(0).abs())[0]).toBe('[0.]');
      expect(show(Tensor.from(-0, { device: device() }))[0]).toBe('[-0.]');
      expect(show(Tensor.from(2n ** 62n, { device: device() }))[0]).toBe('[4611686018427387904]');
    });

    test('display_tests::display_vector', () => {
      expect(String(Tensor.zeros([0], 'u32', device()))).toBe(`[]\n${line('[0]', 'u32')}`);
      const t = Tensor.from([0.1234567, 1, -1.2, 4.1, Number.NaN], { dtype: 'f64', device: device() });
      expect(String(t)).toBe(`[ 0.1235,  1.0000, -1.2000,  4.1000,     NaN]\n${line('[5]', 'f64')}`);
      const full = '42., '.repeat(16).trimEnd();
      expect(String(Tensor.full(42, [50], 'f32', device()))).toBe(
        `[${full}\n ${full}\n ${full}\n 42., 42.]\n${line('[50]', 'f32')}`,
      );
      const long = String(Tensor.full(42, [11000], 'f32', device()));
      expect(long).toBe(`[42., 42., 42., ..., 42., 42., 42.]\n${line('[11000]', 'f32')}`);
    });

    test('display_tests::display_multi_dim', () => {
      const row = '[42., 42., 42., ..., 42., 42., 42.]';
      const block = (indent: number) => {
        const next = `\n${' '.repeat(indent)}`;
        return `[${[row, row, row].join(`,${next}`)},${next}...${next}${[row, row, row].join(`,${next}`)}]`;
      };
      const t = Tensor.full(42, [200, 100], 'f32', device());
      expect(String(t)).toBe(`${block(1)}\n${line('[200, 100]', 'f32')}`);
      const deep = t.reshape([2, 1, 1, 100, 100]);
      expect(String(deep)).toBe(`[[[${block(4)}]],\n [[${block(4)}]]]\n${line('[2, 1, 1, 100, 100]', 'f32')}`);
    });

    test('every dtype, views, infinities; the edges are the tensor’s', () => {
      for (const dtype of ['u8', 'i16', 'i32', 'i64', 'u32'] as const)
        expect(String(arange([2, 2]).t().toDtype(dtype))).toBe(`[[0, 2],\n [1, 3]]\n${line('[2, 2]', dtype)}`);
      for (const dtype of ['f16', 'bf16', 'f8e4m3', 'f32', 'f64'] as const)
        expect(String(arange([3]).toDtype(dtype))).toBe(`[0., 1., 2.]\n${line('[3]', dtype)}`);
      const odd = Tensor.from([1.5, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY], { device: device() });
      expect(String(odd).split('\n')[0]).toBe('[1.5000,    inf,   -inf]');
      expect(
        String(arange([40, 50]))
          .split('\n')
          .slice(0, 5),
      ).toEqual([
        '[[   0,    1,    2, ...,   47,   48,   49],',
        ' [  50,   51,   52, ...,   97,   98,   99],',
        ' [ 100,  101,  102, ...,  147,  148,  149],',
        ' ...',
        ' [1850, 1851, 1852, ..., 1897, 1898, 1899],',
      ]);
    });

    test('options', () => {
      const t = Tensor.from([1.23456, 2], { device: device() });
      setPrintOptions('short');
      expect(String(t).split('\n')[0]).toBe('[1.23, 2.00]');
      expect(printOptions()).toMatchObject({ precision: 2, edgeItems: 2, threshold: 1000 });
      setPrintOptions({ sciMode: true, precision: 1 });
      expect(String(t).split('\n')[0]).toBe('[1.2e0, 2.0e0]');
      setPrintOptions('full');
      expect(String(arange([1100])).split('\n').length).toBeGreaterThan(50);
      setPrintOptions({ threshold: 3, edgeItems: 1, lineWidth: 20 });
      expect(String(arange([3])).split('\n')[0]).toBe('[0, 1, 2]');
      expect(String(arange([4])).split('\n')[0]).toBe('[0, ..., 3]');
      setPrintOptions({ sciMode: false, precision: 2 });
      expect(String(Tensor.from([1e30, 0.5], { dtype: 'f64', device: device() })).split('\n')[0]).toBe(
        '[1000000000000000019884624838656.00,\n                               0.50]'.split('\n')[0],
      );
      for (const wrong of [{ precision: -1 }, { edgeItems: 0 }, { lineWidth: 0.5 }])
        expect(() => setPrintOptions(wrong)).toThrow(/setPrintOptions: \w+ is/);
      expect(() => setPrintOptions('long' as 'full')).toThrow(/no preset/);
    });

    test('console.log, in objects, and of what cannot be read', () => {
      const t = arange([2, 2]);
      expect(inspect(t)).toBe(`[[0, 1],\n [2, 3]]\n${line('[2, 2]', 'u32')}`);
      expect(inspect({ a: { b: { c: { d: t } } } }, { depth: 2 })).not.toContain('[[0, 1]');
      t.dispose();
      expect(String(t)).toBe(`Tensor[[2, 2], u32, ${device()}, disposed]`);
      expect(inspect(t)).toBe(t.describe());
    });
  });

  describe(`positions on ${name}`, () => {
    test('indexing_tests::integer_index', () => {
      const t = arange([2, 3]);
      expect(t.i(1).toVecSync()).toEqual([3, 4, 5]);
      expect(t.i(all, 2).toVecSync()).toEqual([2, 5]);
      expect(t.i(-1, -3).toScalarSync()).toBe(3);
      expect(() => t.i(2)).toThrow(/index 2 is outside dimension 0 of shape \[2, 3\]/);
      expect(() => t.i(0, 0, 0)).toThrow(/3 positions/);
    });

    test('indexing_tests::range_index', () => {
      const t = arange([4, 3]);
      const rows = (...numbers: number[]) => numbers.map((row) => [3 * row, 3 * row + 1, 3 * row + 2]);
      expect(arange([2, 3]).i(all).toVecSync()).toEqual(rows(0, 1));
      expect(t.i(range(1, 3)).toVecSync()).toEqual(rows(1, 2));
      expect(t.i(range(2)).toVecSync()).toEqual(rows(2, 3));
      expect(t.i(range(null, 2)).toVecSync()).toEqual(rows(0, 1));
      expect(t.i([1, 3]).toVecSync()).toEqual(rows(1, 2));
      expect(t.i({ end: 1 }).toVecSync()).toEqual(rows(0));
      expect(t.i(range(-2)).toVecSync()).toEqual(rows(2, 3));
      expect(t.i(range(0, -1)).toVecSync()).toEqual(rows(0, 1, 2));
      for (const empty of [range(1, 1), range(1, 0), range(4)]) {
        expect(t.i(empty).shape).toEqual([0, 3]);
        expect(t.i(empty).toVecSync()).toEqual([]);
      }
      expect(() => t.i(range(0, 5))).toThrow(/outside dimension 0 of shape \[4, 3\]/);
    });

    test('indexing_tests::index_3d', () => {
      const t = arange([2, 3, 4]);
      expect([t.i(0, 0, 0), t.i(1, 0, 0), t.i(0, 1, 0), t.i(0, 1, 3)].map((x) => x.toScalarSync())).toEqual([
        0, 12, 4, 7,
      ]);
      expect(t.i(range(0, 2), 0, 0).toVecSync()).toEqual([0, 12]);
      expect(t.i(range(0, 2), all, 0).toVecSync()).toEqual([
        [0, 4, 8],
        [12, 16, 20],
      ]);
      expect(t.i(range(null, 2), all, 3).toVecSync()).toEqual([
        [3, 7, 11],
        [15, 19, 23],
      ]);
      expect(t.i(1, all, 3).toVecSync()).toEqual([15, 19, 23]);
      expect(t.i(0, newAxis, range(1, 3), newAxis, 2).shape).toEqual([1, 2, 1]);
      const ids = Tensor.from([2, 0], { dtype: 'u32', device: device() });
      expect(t.i(1, ids, range(0, 2)).toVecSync()).toEqual([
        [20, 21],
        [12, 13],
      ]);
    });

    test('indexing_tests::slice_assign', () => {
      const t = arange([4, 5]);
      const src = arange([3, 2]);
      expect(t.sliceAssign([range(1, 4), range(3, 5)], src).toVecSync()).toEqual([
        [0, 1, 2, 3, 4],
        [5, 6, 7, 0, 1],
        [10, 11, 12, 2, 3],
        [15, 16, 17, 4, 5],
      ]);
      expect(t.sliceAssign([[0, 3], range(0, 2)], src).toVecSync()).toEqual([
        [0, 1, 2, 3, 4],
        [2, 3, 7, 8, 9],
        [4, 5, 12, 13, 14],
        [15, 16, 17, 18, 19],
      ]);
      expect(t.i(3).toVecSync(), 'this tensor is left alone').toEqual([15, 16, 17, 18, 19]);
      expect(
        t
          .sliceAssign([all, range(-1)], arange([4, 1]).mul(100))
          .i(all, -1)
          .toVecSync(),
      ).toEqual([0, 100, 200, 300]);
      const cube = arange([2, 3, 4]);
      expect(
        cube
          .sliceAssign([range(1), [1, 2], [2, 4]], Tensor.full(9, [1, 1, 2], 'u32', device()))
          .i(1)
          .toVecSync(),
      ).toEqual([
        [12, 13, 14, 15],
        [16, 17, 9, 9],
        [20, 21, 22, 23],
      ]);
      expect(
        t
          .t()
          .sliceAssign([range(3, 5), range(1, 4)], src.t())
          .t()
          .i(1)
          .toVecSync(),
      ).toEqual([5, 6, 7, 0, 1]);
      expect(
        arange([])
          .sliceAssign([], Tensor.from(7, { dtype: 'u32', device: device() }))
          .toScalarSync(),
      ).toBe(7);
      expect(() => t.sliceAssign([range(0, 3)], src)).toThrow(/\[4, 5\] and \[3, 2\].*\[3, 5\]/);
      expect(() => t.sliceAssign([range(2, 5), range(0, 2)], src)).toThrow(/outside dimension 0/);
      expect(() => t.sliceAssign([all, all, all], src)).toThrow(/3 ranges/);
      expect(() =>
        t.sliceAssign(
          [
            [0, 3],
            [0, 2],
          ],
          src.toDtype('f32'),
        ),
      ).toThrow(/dtype|u32/);
    });

    test('sliceScatter0 and sliceAssign leave no temporaries', () => {
      const t = arange([3, 2]);
      expect(t.sliceScatter0(arange([1, 2]).add(7), 1).toVecSync()).toEqual([
        [0, 1],
        [7, 8],
        [4, 5],
      ]);
      const made = scope(() =>
        t.sliceAssign(
          [
            [0, 1],
            [1, 2],
          ],
          arange([1, 1]),
        ),
      );
      expect(made.toVecSync()).toEqual([
        [0, 0],
        [2, 3],
        [4, 5],
      ]);
    });

    test('sizes, axes, offsets', () => {
      const t = arange([2, 3, 4]);
      expect([arange([]).dims0(), arange([5]).dims1(), t.i(0).dims2(), t.dims3()]).toEqual([[], 5, [3, 4], [2, 3, 4]]);
      expect([t.unsqueeze(0).dims4(), t.unsqueeze(0).unsqueeze(0).dims5()]).toEqual([
        [1, 2, 3, 4],
        [1, 1, 2, 3, 4],
      ]);
      expect(() => t.dims2()).toThrow(/dims2: shape \[2, 3, 4\] has 3 dimensions, not 2/);
      expect([t.normalizeAxis(-1), t.normalizeAxis(1), t.dim(D.Minus2), D.Minus(3)]).toEqual([2, 1, 3, -3]);
      expect(() => t.normalizeAxis(3)).toThrow(/dimension 3/);
      expect([...t.i(0).t().stridedIndex()]).toEqual([0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
      const blocks = t.narrow(2, 1, 2).stridedBlocks();
      expect([blocks.blockLen, blocks.blockCount, [...blocks.starts()]]).toEqual([2, 6, [1, 5, 9, 13, 17, 21]]);
      expect(t.stridedBlocks()).toMatchObject({ blockLen: 24, blockCount: 1 });
    });
  });

  describe(`candle’s other names on ${name}`, () => {
    test('cmp, apply, applyT, emptyLike', () => {
      const t = arange([3]);
      expect((['eq', 'ne', 'lt', 'le', 'gt', 'ge'] as const).map((op) => t.cmp(1, op).toVecSync())).toEqual([
        [0, 1, 0],
        [1, 0, 1],
        [1, 0, 0],
        [1, 1, 0],
        [0, 0, 1],
        [0, 1, 1],
      ]);
      expect(t.cmp(Tensor.from([0, 5, 0], { dtype: 'u32', device: device() }), 'lt').toVecSync()).toEqual([0, 1, 0]);
      expect(() => t.cmp(1, 'is' as 'eq')).toThrow(/"is" is no comparison/);
      const double = { forward: (x: Tensor) => x.mul(2) };
      expect(
        t
          .apply(double)
          .apply((x) => x.add(1))
          .toVecSync(),
      ).toEqual([1, 3, 5]);
      const dropout = { forwardT: (x: Tensor, train: boolean) => (train ? x.mul(0) : x.copy()) };
      expect([t.applyT(dropout, true).toVecSync(), t.applyT(dropout, false).toVecSync()]).toEqual([
        [0, 0, 0],
        [0, 1, 2],
      ]);
      const like = t.emptyLike();
      expect([like.shape, like.dtype, String(like.device)]).toEqual([[3], 'u32', String(device())]);
    });

    test('operators take a number on either side', () => {
      const { add, sub, mul, div, neg } = operators;
      const t = Tensor.from([1, 2, 4], { device: device() });
      expect([add(1, t), sub(1, t), mul(2, t), div(8, t), neg(t)].map((x) => x.toVecSync())).toEqual([
        [2, 3, 5],
        [0, -1, -3],
        [2, 4, 8],
        [8, 4, 2],
        [-1, -2, -4],
      ]);
      expect([add(t, 1), sub(t, 1), mul(t, t), div(t, 2)].map((x) => x.toVecSync())).toEqual([
        [2, 3, 5],
        [0, 1, 3],
        [1, 4, 16],
        [0.5, 1, 2],
      ]);
      expect(sub(10, arange([3])).toVecSync()).toEqual([10, 9, 8]);
      expect(() => sub(0.5, arange([3]))).toThrow(/0\.5 is not a value of u32/);
      expect(() => add(1, 2)).toThrow(/neither operand/);
      expect(() => add(t, arange([2]).toDtype('f32'))).toThrow(/\[3\] and \[2\]/);
    });

    test('reading with a dtype: the array’s type, and a check', async () => {
      const floats: Float32Array = await Tensor.ones([2], 'bf16', device()).toArray('bf16');
      const longs: BigInt64Array = Tensor.ones([2], 'i64', device()).toArraySync('i64');
      const one: bigint = Tensor.ones([], 'i64', device()).toScalarSync('i64');
      const two: number = await Tensor.full(2, [1], 'f64', device()).toScalar('f64');
      expect([floats, longs, one, two]).toEqual([Float32Array.of(1, 1), BigInt64Array.of(1n, 1n), 1n, 2]);
      // @ts-expect-error the array of i64 values holds bigints
      const wrong: Float32Array = Tensor.ones([1], 'i64', device()).toArraySync('i64');
      expect(wrong[0]).toBe(1n);
      expect(() => arange([2, 3]).toArraySync('f32')).toThrow(/f32 values are expected.*\[2, 3\] is u32.*toDtype/);
      await expect(arange([1]).toScalar('i64')).rejects.toMatchObject({ code: 'DTYPE_MISMATCH' });
    });

    test('types refuse what makes no sense', () => {
      const t = arange([2, 3]);
      const [rows, columns]: [number, number] = t.dims2();
      expect([rows, columns]).toEqual([2, 3]);
      const misuse = [
        // @ts-expect-error no such dtype
        () => t.toDtype('f31'),
        // @ts-expect-error a shape is a list
        () => Tensor.zeros(3, 'f32', device()),
        // @ts-expect-error no such comparison
        () => t.cmp(1, 'near'),
        // @ts-expect-error text is no position
        () => t.i('1'),
        // @ts-expect-error a module has forward
        () => t.apply({ run: () => t }),
      ];
      for (const body of misuse) expect(body).toThrow();
    });

    test('conv1dWithAlgo, conv2dWithAlgo, avgPool2dWithStride, maxPool2dWithStride', () => {
      const x = arange([1, 1, 4, 4]).toDtype('f32');
      const kernel = Tensor.ones([1, 1, 2, 2], 'f32', device());
      const same = (a: Tensor, b: Tensor) => expect(a.toVecSync()).toEqual(b.toVecSync());
      same(x.conv2dWithAlgo(kernel, { padding: 1 }, 'winograd'), x.conv2d(kernel, { padding: 1 }));
      same(x.conv2dWithAlgo(kernel), x.conv2d(kernel));
      const row = x.reshape([1, 1, 16]);
      const taps = Tensor.ones([1, 1, 3], 'f32', device());
      same(row.conv1dWithAlgo(taps, { stride: 2 }, 'gemm'), row.conv1d(taps, { stride: 2 }));
      expect(() => row.conv1dWithAlgo(taps, {}, 'magic' as 'gemm')).toThrow(/"magic" is no algorithm/);
      expect(x.avgPool2dWithStride(2, 1).shape).toEqual([1, 1, 3, 3]);
      same(x.avgPool2dWithStride([2, 2], [2, 1]), x.avgPool2d([2, 2], [2, 1]));
      expect(x.maxPool2dWithStride(2, 2).flattenAll().toVecSync()).toEqual([5, 7, 13, 15]);
    });
  });
}
