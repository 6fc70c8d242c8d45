import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PairJoiner } from './pair-joiner';
import { type PairRank, rulesOfMerges } from './pair-ranks';

/** One join after the other, each looked for in the whole word. */
function joinedOneByOne(rank: PairRank, characters: readonly string[]): string[] {
  const pieces = [...characters];
  for (;;) {
    let best = -1;
    const rankAt = (i: number) => rank(pieces[i], pieces[i + 1]) ?? Number.POSITIVE_INFINITY;
    for (let i = 0; i + 1 < pieces.length; i++)
      if (rankAt(i) < (best < 0 ? Number.POSITIVE_INFINITY : rankAt(best))) best = i;
    if (best < 0) return pieces;
    pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
  }
}

test('rules are followed in their order, from the left', () => {
  const letters = ['a', 'b', 'c', '🙂'];
  const words = fc.array(fc.array(fc.constantFrom(...letters), { minLength: 1, maxLength: 60, size: 'max' }), {
    minLength: 1,
    maxLength: 5,
  });
  // Each rule joins two of what there is by then; numbers choose which.
  const rules = fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 25, size: 'max' });
  fc.assert(
    fc.property(rules, fc.nat(), words, (choices, turn, all) => {
      const pieces = [...letters];
      const merges = choices.map(([left, right]): [string, string] => {
        const pair: [string, string] = [pieces[left % pieces.length], pieces[right % pieces.length]];
        pieces.push(pair.join(''));
        return pair;
      });
      // Rules of long pieces may come before those of their parts.
      const from = merges.length === 0 ? 0 : turn % merges.length;
      const { rank } = rulesOfMerges([...merges.slice(from), ...merges.slice(0, from)]);
      const joiner = new PairJoiner(rank);
      for (const word of all) expect(joiner.join(word)).toEqual(joinedOneByOne(rank, word));
    }),
    { numRuns: 500 },
  );
});

test('what is remembered has a bound, and forgetting changes nothing', () => {
  const { rank } = rulesOfMerges([
    ['a', 'b'],
    ['ab', 'ab'],
  ]);
  const joiner = new PairJoiner(rank);
  const every = Array.from({ length: 2 ** 18 + 10 }, (_, i) => String.fromCodePoint(0x10000 + i));
  expect(joiner.join(every)).toEqual(every);
  expect(joiner.join(['a', 'b', 'a', 'b', 'c'])).toEqual(['abab', 'c']);
  const { pieces, pairs, pairCount } = joiner as unknown as {
    pieces: string[];
    pairs: Map<number, unknown>[];
    pairCount: number;
  };
  expect(pieces).toEqual(['a', 'b', 'c', 'ab', 'abab']);
  expect(pairs.flatMap((behind) => [...behind.keys()])).toHaveLength(pairCount);
  expect(pairCount).toBeLessThan(10);
});
