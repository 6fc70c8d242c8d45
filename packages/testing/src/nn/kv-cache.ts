/** Caches on one device: candle-nn's tests/kv_cache.rs and the unit tests of kv_cache.rs. */
import { CandleError, type Device, scope, Tensor, Var } from '@x/core';
import {
  Cache,
  ConcatKvCache,
  InterleavedKvCache,
  KvCache,
  RotatingCache,
  RotatingKvCache,
  ScatteredCacheBuilder,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';

export function kvCacheSuite(name: string, device: () => Device): void {
  const from = (data: number[]) => Tensor.from(data, { device: device(), dtype: 'f64' });
  describe(`caches on ${name}`, () => {
    check('count dimensions from the last', () => {
      const [one, more] = [
        Tensor.ones([1, 1, 1, 4], { device: device() }),
        Tensor.ones([1, 1, 3, 4], { device: device() }),
      ];
      for (const cache of [new KvCache(-2, 2), new ConcatKvCache(-2), new RotatingKvCache(-2, 8)]) {
        cache.append(one, one);
        const { k, v } = cache.append(more, more);
        expect([k.shape, v.shape]).toEqual([
          [1, 1, 4, 4],
          [1, 1, 4, 4],
        ]);
        cache.dispose();
      }
      using cache = new KvCache(-2, 5);
      cache.reserve([1, 1, 1, 4], 'f32', device());
      expect([cache.k.capacity, cache.v.capacity]).toEqual([5, 5]);
    });

    check('have keys and values of a position, or neither', () => {
      const [good, wrong] = [
        Tensor.ones([1, 2, 4], { device: device() }),
        Tensor.ones([1, 2, 3], { device: device() }),
      ];
      for (const cache of [new KvCache(1, 4), new ConcatKvCache(1)]) {
        cache.append(good, good);
        expect(() => cache.append(good, wrong)).toThrow();
        expect(cache.currentSeqLen).toBe(2);
        const { k, v } = cache.append(good, good);
        expect([k.dim(1), v.dim(1)]).toEqual([4, 4]);
        cache.dispose();
      }
    });

    check('kv_cache::kv_cache', () => {
      using cache = new Cache(0, 16);
      for (let round = 0; round < 2; round++) {
        expect([cache.currentSeqLen, cache.currentData()]).toEqual([0, undefined]);
        const appended: number[] = [];
        for (const part of [[1, 2, 3], [4], [0, 5, 6, 7]]) {
          appended.push(...part);
          cache.append(from(part));
          expect(cache.currentData()!.toVecSync()).toEqual(appended);
        }
        expect(cache.currentSeqLen).toBe(8);
        cache.reset();
      }
    });

    check('gradients end in a cache, whose views stay usable', () => {
      const v = Var.from([1, 2], { device: device() });
      using cache = new Cache(0, 4);
      using rotating = new RotatingCache(0, 3);
      for (const factor of [1, 2]) {
        cache.append(v.mul(factor));
        const held = [cache.currentData()!, rotating.append(v.mul(factor))];
        expect(held.map(({ trackOp }) => trackOp)).toEqual([false, false]);
      }
      expect(cache.currentData()!.toVecSync()).toEqual([1, 2, 2, 4]);
    });

    check('an append that fails leaves a cache with a window as it was', () => {
      using cache = new RotatingKvCache(0, 4);
      cache.append(from([1, 2, 3]), from([1, 2, 3]));
      const wrong = [from([4, 5, 6]), from([4, 5]).unsqueeze(1), from([4, 5]).toDtype('f16')];
      for (const values of wrong) expect(() => cache.append(from([4, 5]), values)).toThrow(CandleError);
      expect([cache.k, cache.v].map((one) => one.currentData()!.toVecSync())).toEqual([
        [1, 2, 3],
        [1, 2, 3],
      ]);
      expect(cache.currentSeqLen).toBe(3);
    });

    check('kv_cache::rotating_kv_cache', () => {
      using cache = new RotatingCache(0, 6);
      const expectAppend = (part: number[], held: number[], seen: number, offset: number) => {
        expect(cache.append(from(part)).toVecSync()).toEqual(held);
        expect([cache.currentSeqLen, cache.offset]).toEqual([seen, offset]);
      };
      const expectPositions = (expected: Record<number, number[]>) => {
        for (const [count, positions] of Object.entries(expected)) {
          expect(cache.positions(Number(count))).toEqual(positions);
        }
      };
      // candle's masks, which have 1 where a position is hidden.
      const expectMask = (count: number, hidden: number[][]) =>
        expect(cache.attnMask(count, device())!.eq(0).toVecSync()).toEqual(hidden);
      for (let round = 0; round < 2; round++) {
        expect([cache.offset, cache.currentSeqLen, cache.currentData()]).toEqual([0, 0, undefined]);
        expectPositions({ 1: [0], 2: [0, 1] });
        expectAppend([1, 2, 3], [1, 2, 3], 3, 3);
        expectPositions({
          0: [0, 1, 2],
          1: [0, 1, 2, 3],
          2: [0, 1, 2, 3, 4],
          3: [0, 1, 2, 3, 4, 5],
          4: [6, 1, 2, 3, 4, 5],
        });
        expectAppend([4], [1, 2, 3, 4], 4, 4);
        expectAppend([0, 5, 6, 7], [6, 7, 3, 4, 0, 5], 8, 2);
        expectAppend([8], [6, 7, 8, 4, 0, 5], 9, 3);
        expectAppend([9, 10, 11], [6, 7, 8, 9, 10, 11], 12, 0);
        expectAppend([12], [12, 7, 8, 9, 10, 11], 13, 1);
        expectMask(2, [
          [0, 0, 1, 0, 0, 0],
          [0, 0, 0, 0, 0, 0],
        ]);
        expectMask(3, [
          [0, 0, 1, 1, 0, 0],
          [0, 0, 0, 1, 0, 0],
          [0, 0, 0, 0, 0, 0],
        ]);
        expectPositions({
          0: [12, 7, 8, 9, 10, 11],
          2: [12, 13, 14, 9, 10, 11],
          3: [12, 13, 14, 15, 10, 11],
          8: [13, 14, 15, 16, 17, 18, 19, 20],
        });
        expectAppend([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8], 22, 0);
        expectPositions({ 0: [16, 17, 18, 19, 20, 21], 1: [22, 17, 18, 19, 20, 21] });
        expect(cache.attnMask(1, device())).toBeUndefined();
        expectMask(2, [
          [0, 1, 0, 0, 0, 0],
          [0, 0, 0, 0, 0, 0],
        ]);
        expectMask(3, [
          [0, 1, 1, 0, 0, 0],
          [0, 0, 1, 0, 0, 0],
          [0, 0, 0, 0, 0, 0],
        ]);
        expectAppend([42], [42, 4, 5, 6, 7, 8], 23, 1);
        cache.reset();
      }
    });

    check('a scattered cache writes where each batch entry is', () => {
      const builder = new ScatteredCacheBuilder(2, 5, 'f32', device());
      const hide = Number.NEGATIVE_INFINITY;
      const step = (count: number, active: boolean[]) => {
        const { indices, mask } = builder.indicesAndMask(count, active);
        expect(mask.shape).toEqual([2, 1, count, 5]);
        return [indices.toVecSync(), mask.squeeze(1).toVecSync()];
      };
      const all = [0, 0, 0, 0, 0];
      expect(step(1, [true, false])).toEqual([
        [[0], [0]],
        [[[0, hide, hide, hide, hide]], [all]],
      ]);
      expect(step(1, [true, false])).toEqual([
        [[1], [0]],
        [[[0, 0, hide, hide, hide]], [all]],
      ]);
      expect(step(3, [false, true])).toEqual([
        [
          [2, 2, 2],
          [0, 1, 2],
        ],
        [
          [all, all, all],
          [
            [0, hide, hide, hide, hide],
            [0, 0, hide, hide, hide],
            [0, 0, 0, hide, hide],
          ],
        ],
      ]);
      expect(step(3, [true, true])).toEqual([
        [
          [2, 3, 4],
          [3, 4, 0],
        ],
        [
          [[0, 0, 0, hide, hide], [0, 0, 0, 0, hide], all],
          [[hide, 0, 0, 0, hide], [hide, 0, 0, 0, 0], all],
        ],
      ]);
      expect(step(1, [true, false])).toEqual([
        [[0], [1]],
        [[all], [all]],
      ]);
      expect(step(2, [true, false])).toEqual([
        [
          [1, 2],
          [1, 1],
        ],
        [
          [[0, 0, hide, 0, 0], all],
          [all, all],
        ],
      ]);
      expect(builder.positions).toEqual([8, 6]);
      const long = builder.indicesAndMask(6, [true, false]);
      expect([long.indices.toVecSync(), long.mask.shape]).toEqual([
        [
          [3, 4, 0, 1, 2, 3],
          [1, 1, 1, 1, 1, 1],
        ],
        [6, 6],
      ]);
      builder.resetBatchIndex(0);
      expect(builder.positions).toEqual([0, 6]);
      expect(() => builder.indicesAndMask(1, [true])).toThrow(/1 entries.*batch of 2/);
    });

    check('what a scattered cache holds', () => {
      const builder = new ScatteredCacheBuilder(2, 3, 'f32', device());
      using cache = builder.makeCache(1, 2);
      const at = (...rows: number[][]) =>
        Tensor.from(
          rows.flatMap((row) => row.flatMap((x) => [x, -x])),
          { device: device(), shape: [2, 1, rows[0].length, 2] },
        );
      const first = (held: Tensor) => held.narrow(3, 0, 1).flattenFrom(1).toVecSync();
      const append = (active: boolean[], ...rows: number[][]) => {
        const places = builder.indicesAndMask(rows[0].length, active);
        const { k, v } = cache.append(at(...rows), at(...rows).neg(), places);
        expect(k.add(v).abs().maxAll().toScalarSync()).toBe(0);
        return first(k);
      };
      expect(append([true, true], [1, 2], [11, 12])).toEqual([
        [1, 2, 0],
        [11, 12, 0],
      ]);
      // What is written for an entry that rests is overwritten by its next step.
      expect(append([true, false], [3], [99])).toEqual([
        [1, 2, 3],
        [11, 12, 99],
      ]);
      expect(append([true, true], [4], [13])).toEqual([
        [4, 2, 3],
        [11, 12, 13],
      ]);
    });

    check('caches that join', () => {
      for (const dim of [1, 2]) {
        using cache = new ConcatKvCache(dim);
        expect([cache.isEmpty, cache.currentSeqLen, cache.k]).toEqual([true, 0, undefined]);
        const part = (start: number, count: number) => {
          const shape = [1, 2, 2, 3].map((size, i) => (i === dim ? count : size));
          return Tensor.arange(start, start + 6 * count, 'f32', device()).reshape(shape);
        };
        const kept = scope(() => cache.append(part(0, 3), part(0, 3).neg()));
        const { k, v } = cache.append(part(50, 2), part(50, 2).neg());
        expect(k.toVecSync()).toEqual(Tensor.cat([part(0, 3), part(50, 2)], dim).toVecSync());
        expect(v.neg().toVecSync()).toEqual(k.toVecSync());
        expect([cache.currentSeqLen, cache.isEmpty]).toEqual([5, false]);
        expect(kept.k.dim(dim)).toBe(3);
        cache.reset();
        expect([cache.isEmpty, cache.currentSeqLen, cache.v]).toEqual([true, 0, undefined]);
      }
      using cache = new InterleavedKvCache(3);
      const k = Tensor.arange(0, 12, 'f32', device()).reshape([1, 2, 2, 3]);
      expect(cache.append(k, k.neg()).toVecSync()).toEqual([
        [
          [0, 1, 2, -0, -1, -2],
          [6, 7, 8, -6, -7, -8],
        ],
        [
          [3, 4, 5, -3, -4, -5],
          [9, 10, 11, -9, -10, -11],
        ],
      ]);
      expect(() => cache.append(k.narrow(3, 0, 2), k)).toThrow(/seq, 3/);
    });
  });
}
