/** Matrix products and fused ops on one device. Values of candle's tests where they have them. */
import { describe, expect, test } from 'vitest';
import { type Device, type DType, Tensor } from '../../src';
import { expectClose } from './close';

export function productsSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype?: DType) =>
    Tensor.from(data, { dtype, device: device() });
  const arange = (shape: number[]) =>
    Tensor.arange(
      0,
      shape.reduce((a, b) => a * b, 1),
      'f32',
      device(),
    ).reshape(shape);

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
