/** Reductions, index ops, products and fused ops on one device. Values of candle's tests where they have them. */
import { describe, expect, test } from 'vitest';
import { type Device, DTYPES, type DType, Tensor } from '../../src';
import { expectClose } from './close';

export function reduceSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype?: DType) =>
    Tensor.from(data, { dtype, device: device() });
  const arange = (shape: number[]) =>
    Tensor.arange(
      0,
      shape.reduce((a, b) => a * b, 1),
      'f32',
      device(),
    ).reshape(shape);

  describe(`reductions on ${name}`, () => {
    const cube = [
      [
        [3, 1, 4],
        [1, 5, 9],
      ],
      [
        [2, 1, 7],
        [8, 2, 8],
      ],
    ];

    test('sum over one, several and all dimensions', () => {
      const t = from(cube, 'u32');
      expect(t.sumKeepdim(2).toVecSync()).toEqual([
        [[8], [15]],
        [[10], [18]],
      ]);
      expect(t.sumKeepdim(0).toVecSync()).toEqual([
        [
          [5, 2, 11],
          [9, 7, 17],
        ],
      ]);
      expect(t.sum([0, 2]).toVecSync()).toEqual([18, 33]);
      expect(t.sumKeepdim([0, -1, 1]).toVecSync()).toEqual([[[51]]]);
      expect(t.sumAll().toScalarSync()).toBe(51);
      expect(t.permute([2, 0, 1]).sum([0]).toVecSync()).toEqual([
        [8, 15],
        [10, 18],
      ]);
      expect(arange([4000]).sumAll().toScalarSync()).toBe(7998000);
      expect(arange([200, 20]).t().sum(0).sum(0).toScalarSync()).toBe(7998000);
    });

    test('min, max and their positions', () => {
      const t = from(cube);
      expect(t.min(2).toVecSync()).toEqual([
        [1, 1],
        [1, 2],
      ]);
      expect(t.max(0).toVecSync()).toEqual([
        [3, 1, 7],
        [8, 5, 9],
      ]);
      expect(t.max([0, 1]).toVecSync()).toEqual([8, 5, 9]);
      expect(t.maxKeepdim([1, 2]).toVecSync()).toEqual([[[9]], [[8]]]);
      expect([t.maxAll().toScalarSync(), t.minAll().toScalarSync()]).toEqual([9, 1]);
      expect(t.argmin(2).toVecSync()).toEqual([
        [1, 0],
        [1, 1],
      ]);
      expect(t.argmaxKeepdim(0).toVecSync()).toEqual([
        [
          [0, 0, 1],
          [1, 0, 0],
        ],
      ]);
      expect(t.argmax(-1).dtype).toBe('u32');
      expect(t.transpose(0, 2).argmax(0).toVecSync()).toEqual([
        [2, 2],
        [2, 0],
      ]);
    });

    test('NaN wins and ties go to the first', () => {
      const t = from([
        [1, Number.NaN, 3, Number.NaN],
        [5, 5, 2, 2],
      ]);
      expect(t.max(1).toVecSync()).toEqual([Number.NaN, 5]);
      expect(t.min(1).toVecSync()).toEqual([Number.NaN, 2]);
      expect(t.argmax(1).toVecSync()).toEqual([1, 0]);
      expect(t.argmin(1).toVecSync()).toEqual([1, 2]);
    });

    test.each(DTYPES)('sum, min, max, argmax in %s', (dtype) => {
      const t = from(
        [
          [1, 4, 2],
          [6, 3, 0],
        ],
        dtype,
      );
      const values = (x: Tensor) => (x.toVecSync() as number[]).map(Number);
      expect(values(t.sum(1))).toEqual([7, 9]);
      expect(values(t.sum(0))).toEqual([7, 7, 2]);
      expect(values(t.max(1))).toEqual([4, 6]);
      expect(values(t.min(0))).toEqual([1, 3, 0]);
      expect(values(t.argmax(1))).toEqual([1, 0]);
    });

    test('sums are accurate, means of f16 do not overflow, integer sums wrap', () => {
      const many = Tensor.full(0.1, [100000], 'f32', device());
      expect(Math.abs(many.sumAll().toScalarSync() - 10000) / 10000).toBeLessThan(1e-6);
      expect(Tensor.full(60000, [8], 'f16', device()).meanAll().toScalarSync()).toBe(60000);
      expect(Tensor.ones([300], 'u8', device()).sumAll().toScalarSync()).toBe(300 - 256);
    });

    test('mean, var, norm, logSumExp, cumsum', () => {
      expectClose(from(cube).mean(2), [
        [2.6667, 5],
        [3.3333, 6],
      ]);
      expectClose(from(cube).meanKeepdim([0, 1]), [[[3.5, 2.25, 7]]]);
      const t = from([
        [0.2035, 1.2959, 1.8101, -0.4644],
        [1.5027, -0.327, 0.5905, 0.6538],
        [-1.5745, 1.333, -0.5596, -0.6548],
        [0.1264, -0.508, 1.642, 0.1992],
      ]);
      expectClose(t.varKeepdim(1), [[1.0631], [0.559], [1.4893], [0.8258]], 1e-4);
      expectClose(from([3, 4]).norm(), 5);
      expectClose(
        from([
          [1, 2, 3],
          [4, 5, 6],
        ]).logSumExp(1),
        [3.4076, 6.4076],
      );
      expectClose(from([[1000, 1000]]).logSumExp(1), [1000.6931]);
      expect(from([-Infinity, -Infinity]).logSumExp(0).toScalarSync()).toBe(-Infinity);
      const c = from([
        [1, 2, 3],
        [4, 5, 6],
      ]);
      expect(c.cumsum(1).toVecSync()).toEqual([
        [1, 3, 6],
        [4, 9, 15],
      ]);
      expect(c.cumsum(0).toVecSync()).toEqual([
        [1, 2, 3],
        [5, 7, 9],
      ]);
      expect(Tensor.ones([1000], 'i32', device()).cumsum(0).get(-1).toScalarSync()).toBe(1000);
    });
  });

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

  describe(`products and fused ops on ${name}`, () => {
    test('matmul, batches, broadcast batches, mv, dot', () => {
      expect(
        from([
          [1, 2],
          [3, 4],
        ])
          .matmul(
            from([
              [1, 2],
              [3, 4],
            ]),
          )
          .toVecSync(),
      ).toEqual([
        [7, 10],
        [15, 22],
      ]);
      const a = arange([2, 2, 3]);
      const b = arange([2, 3, 2]);
      const expected = [
        [
          [10, 13],
          [28, 40],
        ],
        [
          [172, 193],
          [244, 274],
        ],
      ];
      expect(a.matmul(b).toVecSync()).toEqual(expected);
      expect(a.matmul(b.transpose(1, 2).contiguous().transpose(1, 2)).toVecSync()).toEqual(expected);
      expect(a.transpose(1, 2).contiguous().transpose(1, 2).matmul(b).toVecSync()).toEqual(expected);
      expect(a.broadcastMatmul(b.get(0)).toVecSync()).toEqual([
        [
          [10, 13],
          [28, 40],
        ],
        [
          [46, 67],
          [64, 94],
        ],
      ]);
      expect(
        a
          .narrow(2, 1, 2)
          .matmul(b.narrow(1, 1, 2))
          .toVecSync(),
      ).toEqual([
        [
          [10, 13],
          [28, 37],
        ],
        [
          [136, 151],
          [190, 211],
        ],
      ]);
      expect(
        from([
          [1, 2],
          [3, 4],
        ])
          .mv(from([3, 4]))
          .toVecSync(),
      ).toEqual([11, 25]);
      expect(
        from([1, 2, 3])
          .dot(from([4, 5, 6]))
          .toScalarSync(),
      ).toBe(32);
    });

    test.each(['f16', 'bf16', 'f64'] as const)('matmul in %s', (dtype) => {
      const a = from(
        [
          [1, 2, 3],
          [4, 5, 6],
        ],
        dtype,
      );
      expect(a.matmul(a.t()).toVecSync()).toEqual([
        [14, 32],
        [32, 77],
      ]);
    });

    test('matmul sizes that are no multiple of any block', () => {
      for (const [m, k, n] of [
        [1, 7, 5],
        [3, 33, 6],
        [17, 5, 31],
      ]) {
        const a = arange([m, k]).affine(0.01, -1);
        const b = arange([k, n]).affine(-0.02, 1);
        const [x, y] = [a.toVecSync<number[][]>(), b.toVecSync<number[][]>()];
        const expected = x.map((row) => y[0].map((_, j) => row.reduce((sum, v, p) => sum + v * y[p][j], 0)));
        expectClose(a.matmul(b), expected, 1e-4);
        expectClose(a.matmul(b.t().contiguous().t()), expected, 1e-4);
      }
    });

    const cube = [
      [
        [3, 1, 4],
        [1, 5, 9],
      ],
      [
        [2, 1, 7],
        [8, 2, 8],
      ],
    ];

    test('softmaxLastDim', () => {
      expectClose(from(cube).log().softmaxLastDim(), [
        [
          [0.375, 0.125, 0.5],
          [0.0667, 0.3333, 0.6],
        ],
        [
          [0.2, 0.1, 0.7],
          [0.4444, 0.1111, 0.4444],
        ],
      ]);
      expect(from([1234, 0]).softmaxLastDim().toVecSync()).toEqual([1, 0]);
      expectClose(
        from([
          [1, 1],
          [0, 0],
        ])
          .t()
          .softmaxLastDim(),
        [
          [0.7311, 0.2689],
          [0.7311, 0.2689],
        ],
      );
    });

    test('rmsNorm and layerNorm', () => {
      const alpha = from([1, 2, 3]);
      expectClose(from(cube).rmsNorm(alpha, 1e-5), [
        [
          [1.019, 0.6794, 4.0762],
          [0.1674, 1.6744, 4.521],
        ],
        [
          [0.4714, 0.4714, 4.9497],
          [1.206, 0.603, 3.6181],
        ],
      ]);
      expectClose(from(cube).layerNorm(alpha, from([0.5, 0, -0.2]), 1e-5), [
        [
          [0.7673, -2.6726, 3.0071],
          [-0.7247, 0, 3.4742],
        ],
        [
          [-0.008, -1.778, 3.991],
          [1.2071, -2.8284, 1.9213],
        ],
      ]);
      const large = from([[7e9, -7e9, 7e9, -7e9]]).rmsNorm(Tensor.ones([4], 'f32', device()), 1e-5);
      expectClose(large, [[1, -1, 1, -1]]);
    });

    test('rope pairs halves or neighbours', () => {
      const x = from([[[[1, 2, 3, 4]]]]);
      const cos = from([[0.5, 1]]);
      const sin = from([[2, 0.25]]);
      expectClose(x.rope(cos, sin), [[[[1 * 0.5 - 3 * 2, 2 - 4 * 0.25, 1 * 2 + 3 * 0.5, 2 * 0.25 + 4]]]]);
      expectClose(x.rope(cos, sin, 'interleaved'), [
        [[[1 * 0.5 - 2 * 2, 1 * 2 + 2 * 0.5, 3 - 4 * 0.25, 3 * 0.25 + 4]]],
      ]);
    });

    test('rope with angles of each batch equals rope of each batch', () => {
      const x = arange([2, 3, 4, 6]).affine(0.01, -0.5);
      const cos = arange([2, 4, 3]).affine(0.1, 0).cos();
      const sin = arange([2, 4, 3]).affine(0.1, 0).sin();
      for (const kind of ['half', 'interleaved'] as const) {
        const parts = [0, 1].map((b) => x.narrow(0, b, 1).rope(cos.get(b), sin.get(b), kind));
        expectClose(x.rope(cos, sin, kind), Tensor.cat(parts, 0).toVecSync());
      }
    });
  });
}
