/**
 * Ids on one device: those out of range, the largest values of their dtypes, and ids smaller than the tensor outside the
 * dimension, against loops over plain arrays.
 */

import { CandleError, type Device, DTYPES, type DType, isInt, type Shape, type Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, numbers } from './close';
import { makers } from './makers';

const ID_DTYPES = DTYPES.filter(isInt);
const SIGNED: readonly DType[] = ['i16', 'i32', 'i64'];
const LARGEST: Record<string, number | bigint> = {
  u8: 255,
  u32: 4294967295,
  i16: 32767,
  i32: 2147483647,
  i64: 2n ** 63n - 1n,
};

/** Every index of a shape, in row-major order. */
function indices(shape: Shape): number[][] {
  return shape.reduce<number[][]>(
    (all, size) => all.flatMap((index) => Array.from({ length: size }, (_, i) => [...index, i])),
    [[]],
  );
}

const placeOf = (shape: Shape, index: readonly number[]) => index.reduce((at, i, d) => at * shape[d] + i, 0);
const withAt = (index: readonly number[], dim: number, i: number) => index.map((other, d) => (d === dim ? i : other));

function gathered(x: readonly number[], shape: Shape, ids: readonly number[], idShape: Shape, dim: number): number[] {
  return indices(idShape).map((index, i) => x[placeOf(shape, withAt(index, dim, ids[i]))]);
}

function scattered(
  x: readonly number[],
  shape: Shape,
  ids: readonly number[],
  idShape: Shape,
  src: readonly number[],
  srcShape: Shape,
  dim: number,
  add: boolean,
): number[] {
  const out = [...x];
  indices(idShape).forEach((index, i) => {
    const to = placeOf(shape, withAt(index, dim, ids[i]));
    out[to] = (add ? out[to] : 0) + src[placeOf(srcShape, index)];
  });
  return out;
}

export function tensorIdsSuite(name: string, device: () => Device): void {
  const { from, shaped, zeros, ones, counted } = makers(device);
  /** Whether an id out of range is an error here; GPUs look at ids only when asked to. */
  const reports = () => ['js', 'cpu'].includes(device().kind) || Number(process.env.X_DEBUG) >= 1;

  /** Devices without kernels look at the ids before they do anything. */
  const atOnce = () => device().backend.compile === undefined;

  describe(`ids on ${name}`, () => {
    const shape = [3, 4, 5];
    const x = Array.from({ length: 60 }, (_, i) => i);
    const SMALLER: [Shape, number][] = [
      [[2, 6, 3], 1],
      [[2, 4, 5], 1],
      [[1, 1, 1], 0],
      [[7, 2, 5], 0],
      [[3, 3, 2], 2],
      [[2, 1, 7], 2],
      [[3, 4, 5], 2],
    ];
    const idsFor = (idShape: Shape, dim: number) => indices(idShape).map((_, i) => (i * 7 + (i >> 2)) % shape[dim]);

    test.each(DTYPES)('gather by fewer ids than the tensor has elements outside the dimension, in %s', (dtype) => {
      const square = shaped([1, 2, 3, 4, 5, 6], [2, 3], dtype);
      expectFlat(square.gather(shaped([1, 0, 0, 1], [2, 2], 'u32'), 0), [2, 2], [4, 2, 1, 5]);
      const t = shaped(x, shape, dtype);
      const turned = t.permute([2, 0, 1]).contiguous().permute([1, 2, 0]);
      for (const [idShape, dim] of SMALLER) {
        const ids = idsFor(idShape, dim);
        // f8e4m3 holds 16 and 18, not 17.
        const expected = gathered(numbers(t), shape, ids, idShape, dim);
        for (const idDtype of ID_DTYPES) {
          const list = shaped(ids, idShape, idDtype);
          expectFlat(t.gather(list, dim), idShape, expected);
          expectFlat(turned.gather(list, dim), idShape, expected);
          const strided = list.transpose(0, 2).contiguous().transpose(0, 2);
          expectFlat(t.gather(strided, dim), idShape, expected);
          expectFlat(turned.gather(strided, dim), idShape, expected);
        }
      }
      const row = counted([5], dtype).broadcastAs([3, 4, 5]);
      const one = from([4, 0, 2], 'u8').reshape([3, 1, 1]).broadcastAs([3, 2, 2]);
      expectFlat(row.gather(one, 2), [3, 2, 2], [4, 4, 4, 4, 0, 0, 0, 0, 2, 2, 2, 2]);
      const late = shaped([...x, ...x], [6, 4, 5], dtype)
        .narrow(0, 3, 3)
        .narrow(1, 1, 3);
      expectFlat(late.gather(shaped([0, 1], [1, 1, 2], 'i64'), 0), [1, 1, 2], [5, 26]);
    });

    test.each(DTYPES)('scatter and scatterAdd by fewer ids than the target and the source have, in %s', (dtype) => {
      const t = ones(shape, dtype);
      for (const [idShape, dim] of SMALLER) {
        // Distinct along the dimension where it is long enough, else the last one wins.
        const ids = idsFor(idShape, dim);
        const srcShape = idShape.map((size, d) => size + (d === 1 ? 2 : 0));
        const src = indices(srcShape).map((_, i) => i % 11);
        const values = shaped(src, srcShape, dtype);
        const turned = values.transpose(0, 1).contiguous().transpose(0, 1);
        for (const add of [false, true]) {
          const expected = scattered(Array(60).fill(1), shape, ids, idShape, src, srcShape, dim, add);
          // f8e4m3 rounds after each addition.
          if (add && dtype === 'f8e4m3') continue;
          for (const idDtype of ID_DTYPES) {
            const list = shaped(ids, idShape, idDtype);
            const strided = list.transpose(0, 2).contiguous().transpose(0, 2);
            for (const [by, given] of [
              [list, values],
              [strided, turned],
            ] as const) {
              expectFlat(add ? t.scatterAdd(by, given, dim) : t.scatter(by, given, dim), shape, expected);
              const target = t.copy();
              if (add) target.scatterAddSet(by, given, dim);
              else target.scatterSet(by, given, dim);
              expectFlat(target, shape, expected);
            }
          }
        }
      }
      expectFlat(t, shape, Array(60).fill(1));
    });

    test('scatterSet into a part of a tensor writes nothing beside it', () => {
      const all = zeros([4, 2, 3]);
      all.narrow(0, 1, 2).scatterSet(shaped([2, 0], [2, 1, 1], 'u32'), ones([2, 2, 3]), 2);
      expectFlat(all, [4, 2, 3], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    });

    test('ids and sources of too large sizes are refused', () => {
      const mismatch = expect.objectContaining({ code: 'SHAPE_MISMATCH' });
      const t = zeros([2, 3]);
      const ids = (of: Shape) => zeros(of, 'u32');
      expect(() => t.gather(ids([3, 1]), 1)).toThrow(mismatch);
      expect(() => t.gather(ids([1, 4]), 0)).toThrow(mismatch);
      for (const op of ['scatter', 'scatterAdd', 'scatterSet', 'scatterAddSet'] as const) {
        expect(() => t[op](ids([3, 1]), zeros([3, 1]), 1)).toThrow(mismatch);
        expect(() => t[op](ids([2, 2]), zeros([2, 1]), 1)).toThrow(mismatch);
        expect(() => t[op](ids([2, 2]), zeros([1, 2]), 1)).toThrow(mismatch);
        expect(() => t[op](ids([2]), zeros([2]), 1)).toThrow(CandleError);
      }
      const whole = zeros([4], 'u32');
      const shared = () => whole.scatterSet(whole, ones([4], 'u32'), 0);
      expect(shared).toThrow(expect.objectContaining({ code: 'INVALID_SHAPE' }));
    });

    test('gradients through fewer ids', () => {
      const ids = shaped([1, 0, 0, 1], [2, 2], 'u32');
      const weights = shaped([1, 10, 100, 1000], [2, 2]);
      const source = Var.fromTensor(counted([2, 3]));
      const picked = source.gather(ids, 0).mul(weights).sumAll().backward();
      expectFlat(picked.get(source)!, [2, 3], [100, 10, 0, 1, 1000, 0]);
      const target = Var.fromTensor(ones([3, 3]));
      const values = Var.fromTensor(counted([3, 4]));
      const scale = counted([3, 3]);
      const set = target
        .scatter(shaped([2, 0, 1, 2], [2, 2], 'i64'), values, 0)
        .mul(scale)
        .sumAll()
        .backward();
      expectFlat(set.get(target)!, [3, 3], [0, 0, 2, 0, 4, 5, 0, 0, 8]);
      expectFlat(set.get(values)!, [3, 4], [6, 1, 0, 0, 3, 7, 0, 0, 0, 0, 0, 0]);
      const added = target.scatterAdd(ids, values, 0).mul(scale).sumAll().backward();
      expectFlat(added.get(target)!, [3, 3], numbers(scale));
      expectFlat(added.get(values)!, [3, 4], [3, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);
    });

    test('no ids, and tensors without elements', () => {
      for (const idDtype of ID_DTYPES) {
        const none = (of: Shape) => zeros(of, idDtype);
        expectFlat(ones([2, 3]).gather(none([2, 0]), 1), [2, 0], []);
        expectFlat(ones([2, 3]).gather(none([0, 3]), 1), [0, 3], []);
        expectFlat(zeros([0, 3]).gather(none([0, 2]), 1), [0, 2], []);
        expectFlat(ones([2]).scatter(none([0]), ones([2]), 0), [2], [1, 1]);
        expectFlat(ones([2]).scatterAdd(none([0]), zeros([0]), 0), [2], [1, 1]);
        expectFlat(ones([2]).indexAdd(none([0]), zeros([0]), 0), [2], [1, 1]);
        expectFlat(ones([2, 3]).indexSelect(none([0]), 0), [0, 3], []);
        for (const empty of [
          () => zeros([0, 3]).indexSelect(none([1]), 0),
          () => zeros([0, 3]).embedding(none([1])),
          () => zeros([2, 0]).gather(none([2, 1]), 1),
          () => zeros([2, 0]).scatter(none([2, 1]), ones([2, 1]), 1),
          () => zeros([0]).indexAdd(none([1]), ones([1]), 0),
        ]) {
          expect(empty).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
        }
      }
    });

    test.each([
      ['u8', 255, 300],
      ['i16', 32767, 32768],
    ] as const)('the largest %s, %d, is a position of a dimension of %d', (idDtype, last, size) => {
      const table = counted([size, 2], 'f64');
      const ids = from([last, 0, last], idDtype);
      expectFlat(table.indexSelect(ids, 0), [3, 2], [2 * last, 2 * last + 1, 0, 1, 2 * last, 2 * last + 1]);
      expectFlat(table.embedding(ids.reshape([3, 1])).narrow(0, 0, 1), [1, 1, 2], [2 * last, 2 * last + 1]);
      expectFlat(table.t().gather(ids.reshape([1, 3]), 1), [1, 3], [2 * last, 0, 2 * last]);
      expectFlat(table.gather(ids.reshape([3, 1]), 0), [3, 1], [2 * last, 0, 2 * last]);
      const places = ids.narrow(0, 0, 2);
      const sum = (t: Tensor) => [t.narrow(0, last, 1), t.narrow(0, 0, 1)].flatMap(numbers);
      const row = ones([size]);
      expect(sum(row.scatter(places, from([5, 7]), 0))).toEqual([5, 7]);
      expect(sum(row.scatterAdd(ids, from([5, 7, 9]), 0))).toEqual([15, 8]);
      expect(sum(row.indexAdd(ids, from([5, 7, 9]), 0))).toEqual([15, 8]);
      const grown = Var.fromTensor(table);
      const gradient = grown.indexSelect(ids, 0).sumAll().backward().get(grown)!;
      expect(sum(gradient)).toEqual([2, 2, 1, 1]);
    });

    describe('out of range', () => {
      const table = () => counted([3, 2], 'f32', 1);
      /** Each with [1, bad]; what a device that does not look gives. */
      const operations: [string, (ids: Tensor) => Tensor, Shape, number[]][] = [
        ['indexSelect', (ids) => table().indexSelect(ids, 0), [2, 2], [3, 4, 0, 0]],
        ['embedding', (ids) => table().embedding(ids), [2, 2], [3, 4, 0, 0]],
        ['gather', (ids) => table().gather(ids.unsqueeze(1), 0), [2, 1], [3, 0]],
        ['gather', (ids) => table().t().contiguous().gather(ids.unsqueeze(0), 1), [1, 2], [3, 0]],
        ['scatter', (ids) => zeros([3]).scatter(ids, from([5, 7]), 0), [3], [0, 5, 0]],
        ['scatterAdd', (ids) => ones([3]).scatterAdd(ids, from([5, 7]), 0), [3], [1, 6, 1]],
        ['scatterAdd', (ids) => ones([3, 2]).scatterAdd(ids.unsqueeze(1), ones([2, 1]), 0), [3, 2], [1, 1, 2, 1, 1, 1]],
        ['indexAdd', (ids) => ones([3]).indexAdd(ids, from([5, 7]), 0), [3], [1, 6, 1]],
      ];
      const bad: [DType, number | bigint][] = [
        ...ID_DTYPES.flatMap((dtype): [DType, number | bigint][] => [
          [dtype, 3],
          [dtype, LARGEST[dtype]],
        ]),
        ...SIGNED.map((dtype): [DType, number] => [dtype, -1]),
        ['i16', -32768],
        ['i64', -(2n ** 63n)],
        ['i64', 2n ** 32n + 1n],
      ];

      test.each(bad)(
        '%s %s is an error by the next wait, or skipped where ids are not looked at',
        async (dtype, id) => {
          const ids = () => from([1, id].map((value) => (dtype === 'i64' ? BigInt(value) : value)) as number[], dtype);
          for (const [op, run, of, guarded] of operations) {
            const error = expect.objectContaining({
              code: 'INDEX_OUT_OF_RANGE',
              message: expect.stringMatching(
                new RegExp(`^${op}: id ${id} at position 1 is outside 0\\.\\.2 .*dimension`),
              ),
            });
            if (reports()) {
              expect(() => run(ids()).toArraySync(), op).toThrow(error);
              await expect((async () => run(ids()).toArray())()).rejects.toEqual(error);
              await expect(
                (async () => {
                  run(ids());
                  await device().synchronize();
                })(),
              ).rejects.toEqual(error);
              expect(() => {
                run(ids());
                device().synchronizeSync();
              }).toThrow(error);
            } else {
              expectFlat(run(ids()), of, guarded);
            }
            // The device goes on, and nothing is left to report.
            await device().synchronize();
            expectFlat(table().indexSelect(from([2, 0], dtype), 0), [2, 2], [5, 6, 1, 2]);
          }
        },
      );

      test('in place, what is in range is written', () => {
        for (const op of ['scatterSet', 'scatterAddSet'] as const) {
          const target = ones([3]);
          const write = () => target[op](from([1, 9], 'u32'), from([5, 7]), 0);
          if (reports()) {
            expect(() => {
              write();
              target.toArraySync();
            }).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
          } else write();
          const written = op === 'scatterSet' ? 5 : 6;
          expectFlat(target, [3], atOnce() ? [1, 1, 1] : [1, written, 1]);
        }
      });

      test('the first operation is named, and work that follows a read is for the next one', async () => {
        if (!reports() || atOnce()) return;
        const y = table().indexSelect(from([7], 'u32'), 0);
        const z = table().gather(from([[8, 0]], 'u32'), 0);
        const first = z.toArray();
        const w = table().indexSelect(from([1, 2, 9], 'u32'), 0);
        await expect(first).rejects.toThrow(/indexSelect: id 7 at position 0/);
        await expect(w.toArray()).rejects.toThrow(/indexSelect: id 9 at position 2/);
        expectFlat(y, [1, 2], [0, 0]);
      });

      test('ids of any strides, and one in many', () => {
        if (!reports()) return;
        const ids = counted([40, 50], 'u32').t();
        const t = zeros([50, 2000]);
        expectFlat(t.gather(ids, 1), [50, 40], new Float32Array(2000));
        const one = zeros([100_000], 'i32');
        one.narrow(0, 77_777, 1).constSet(-5);
        const picked = () => zeros([9]).indexSelect(one, 0).toArraySync();
        expect(picked).toThrow(/id -5 at position 77777 is outside 0\.\.8/);
        const narrower = () => zeros([50, 1999]).gather(ids, 1).toArraySync();
        expect(narrower).toThrow(/id 1999 at position 1999/);
      });
    });
  });
}
