import { Tensor } from '@x/core';
import type { ForwardPass, PassStep } from '@x/transformers';
import { expect, test } from 'vitest';
import type { SequenceCache } from '../kv/sequence-cache';
import { halvesOf, inTurn } from './paired-pass';
import type { Step } from './pass-planner';

const cache = { length: 7 } as SequenceCache;
const step = (count: number, first = 0): Step => ({ cache, ids: Array.from({ length: count }, (_, i) => first + i) });
const counts = (halves: ReturnType<typeof halvesOf>) => halves?.map((half) => half.map(({ ids }) => ids.length));

test('a pass is cut in whole tiles near its middle', () => {
  const halves = halvesOf([step(1000), step(500, 5000)], 512, true);
  expect(counts(halves)).toEqual([[768], [232, 500]]);
  const [[front], [rest, last]] = halves!;
  expect(front).toMatchObject({ isCut: true });
  expect([rest.skipped, rest.isCut, rest.ids[0], last.skipped, last.ids[0]]).toEqual([
    768,
    undefined,
    768,
    undefined,
    5000,
  ]);
  expect(counts(halvesOf([step(512), step(512)], 512, true))).toEqual([[512], [512]]);
});

test('what has too few tokens, drafts, or a state that cannot be cut stays whole', () => {
  expect(halvesOf([step(1023)], 512, true)).toBeUndefined();
  expect(halvesOf([step(2000), { ...step(3), drafts: 0 }], 512, true)).toBeUndefined();
  expect(halvesOf([step(2000)], 512, false)).toBeUndefined();
  expect(counts(halvesOf([step(600), step(700), step(800)], 512, false))).toEqual([[600], [700, 800]]);
  expect(halvesOf([step(100), step(1900)], 512, false)).toBeUndefined();
});

const rows = (first: number, count: number) =>
  Tensor.from(
    [...Array(count).keys()].map((i) => [first + i]),
    { dtype: 'f32' },
  );

function* pass(name: string, seen: string[], steps: number, result?: () => Tensor): ForwardPass {
  const output = {} as Tensor;
  try {
    for (let i = 1; i <= steps; i++) {
      seen.push(`${name}${i}`);
      yield { output, share: i / steps } satisfies PassStep;
    }
    return result?.();
  } finally {
    seen.push(`${name} ends`);
  }
}

test('steps of both halves go out in turn, and their rows are joined', () => {
  const seen: string[] = [];
  const both = inTurn(
    pass('a', seen, 2, () => rows(1, 1)),
    pass('b', seen, 2, () => rows(5, 2)),
  );
  const taken = [both.next(), both.next()].map(({ value }) => value as PassStep);
  expect(taken.map(({ share, steps }) => [share, steps])).toEqual([
    [0.5, 2],
    [1, 2],
  ]);
  const { value, done } = both.next();
  expect(done).toBe(true);
  expect((value as Tensor).toArraySync()).toEqual(new Float32Array([1, 5, 6]));
  expect(seen).toEqual(['a1', 'b1', 'a2', 'b2', 'a ends', 'b ends']);
});

test('a half without logits ends before the other one', () => {
  const seen: string[] = [];
  const both = inTurn(
    pass('a', seen, 1),
    pass('b', seen, 2, () => rows(3, 1)),
  );
  expect([...Array(2)].map(() => (both.next().value as PassStep).share)).toEqual([0.5, 1]);
  expect((both.next().value as Tensor).toArraySync()).toEqual(new Float32Array([3]));
});

test('both halves end where one fails or the pass is left', () => {
  const left: string[] = [];
  const both = inTurn(pass('a', left, 3), pass('b', left, 3));
  both.next();
  both.return(undefined);
  expect(left.slice(2)).toEqual(['a ends', 'b ends']);
  const failed: string[] = [];
  const made: Tensor[] = [];
  const failing = inTurn(
    pass('a', failed, 1, () => {
      made.push(rows(1, 1));
      return made[0];
    }),
    pass('b', failed, 1, () => {
      throw new Error('no memory');
    }),
  );
  failing.next();
  expect(() => failing.next()).toThrow('no memory');
  expect(failed.slice(2)).toEqual(['a ends', 'b ends']);
  expect(() => made[0].toArraySync()).toThrow(/dispos/);
});
