/** The fused ops of models on one device: softmax, norms, rotary embedding. Values of candle's tests where they have them. */

import { type Device, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectClose } from './close';
import { makers } from './makers';

export function fusedSuite(name: string, device: () => Device): void {
  const { from, counted, ones, zeros } = makers(device);

  describe(`fused ops on ${name}`, () => {
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
      const large = from([[7e9, -7e9, 7e9, -7e9]]).rmsNorm(ones([4]), 1e-5);
      expectClose(large, [[1, -1, 1, -1]]);
    });

    test('the eps of norms is an f32 for f64, too', () => {
      const eps = Math.fround(1e-5);
      const x = from([3e-3, 1e-3], 'f64');
      const [mean, squares] = [2e-3, 5e-6];
      const root = Math.sqrt(squares + eps);
      expectClose(x.rmsNorm(ones([2], 'f64'), 1e-5), [3e-3 / root, 1e-3 / root], 1e-12);
      const deviation = Math.sqrt(squares - mean * mean + eps);
      expectClose(x.layerNorm(ones([2], 'f64'), zeros([2], 'f64'), 1e-5), [1e-3 / deviation, -1e-3 / deviation], 1e-12);
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
      const x = counted([2, 3, 4, 6]).affine(0.01, -0.5);
      const cos = counted([2, 4, 3]).affine(0.1, 0).cos();
      const sin = counted([2, 4, 3]).affine(0.1, 0).sin();
      for (const kind of ['half', 'interleaved'] as const) {
        const parts = [0, 1].map((b) => x.narrow(0, b, 1).rope(cos.get(b), sin.get(b), kind));
        expectClose(x.rope(cos, sin, kind), Tensor.cat(parts, 0).toVecSync());
      }
    });
  });
}
