/** Reductions on one device. Values of candle's tests where they have them. */
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
}
