import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { mergesOfScores, rulesOfLines, rulesOfMerges, rulesOfScores, type ScoredPieces } from './pair-ranks';

describe('rules', () => {
  test('have their place as rank, of equal ones the last', () => {
    const { rank, joined } = rulesOfMerges([['a', 'b'], 'ab c', ['b', 'c d'], ['a', 'b']]);
    expect([...joined()]).toEqual(['ab', 'abc', 'bc d', 'ab']);
    expect([rank('a', 'b'), rank('ab', 'c'), rank('b', 'c d')]).toEqual([3, 1, 2]);
    expect([rank('b', 'c'), rank('a', 'bc'), rank('b c', 'd')]).toEqual([undefined, undefined, undefined]);
    const lines = rulesOfLines(['a b', 'ab c', 'a b']);
    expect([lines.rank('a', 'b'), lines.rank('ab', 'c'), lines.rank('a', 'bc')]).toEqual([2, 1, undefined]);
    expect([...lines.joined()]).toEqual(['ab', 'abc', 'ab']);
  });

  test('of the same form are not mixed up', () => {
    const { rank } = rulesOfMerges([['1 a', 'b']]);
    expect([rank('1 a', 'b'), rank('1', ' ab'), rank('', '1 ab')]).toEqual([0, undefined, undefined]);
  });
});

describe('scores', () => {
  /** Ids by token, as from-gguf.ts makes them. */
  const piecesOf = (tokens: string[], scores: number[], joined: boolean[]): ScoredPieces => ({
    tokens,
    scores,
    ids: new Map(tokens.map((token, id) => [token, id])),
    joins: (id) => joined[id],
  });

  test('order neighbours as the rules that are made of them do', () => {
    const letter = fc.constantFrom('a', 'b', 'c', '🙂');
    const token = fc.array(letter, { minLength: 1, maxLength: 5 }).map((letters) => letters.join(''));
    const vocabulary = fc.array(fc.tuple(token, fc.integer({ min: -3, max: 0 }), fc.boolean()), { maxLength: 40 });
    fc.assert(
      fc.property(vocabulary, (entries) => {
        const pieces = piecesOf(
          entries.map(([text]) => text),
          entries.map(([, score]) => score),
          entries.map(([, , joined]) => joined),
        );
        const merges = mergesOfScores(pieces);
        const [rules, scored] = [rulesOfMerges(merges), rulesOfScores(pieces)];
        const [byRules, byScores] = [rules.rank, scored.rank];
        // A piece that nothing is cut into is no harm there.
        expect([...scored.joined()]).toEqual(expect.arrayContaining([...rules.joined()]));
        const pairs = merges.map(([left, right]) => ({ rule: byRules(left, right)!, score: byScores(left, right)! }));
        pairs.sort((a, b) => a.rule - b.rule);
        for (const [i, { rule, score }] of pairs.entries()) {
          if (i === 0) continue;
          const before = pairs[i - 1];
          expect(Math.sign(score - before.score)).toBe(Math.sign(rule - before.rule));
        }
        for (const left of pieces.tokens)
          for (const right of pieces.tokens)
            expect(byScores(left, right) === undefined).toBe(byRules(left, right) === undefined);
      }),
      { numRuns: 200 },
    );
  });
});
