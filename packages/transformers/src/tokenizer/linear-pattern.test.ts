/** The matcher for expressions from files against RegExp, and in time. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LinearPattern } from './linear-pattern';
import { PRE_TOKENIZERS } from './pre-tokenizers';

/** What the methods of strings make of an expression. */
function results(text: string, pattern: RegExp): unknown {
  return {
    match: text.match(pattern),
    all: Array.from(text.matchAll(pattern), (match) => [match[0], match.index]),
    replaced: text.replaceAll(pattern, '<$$>'),
  };
}

const linear = (source: string) => new LinearPattern(source) as unknown as RegExp;

function same(source: string, text: string): void {
  expect(results(text, linear(source)), `${source} on ${JSON.stringify(text)}`).toEqual(
    results(text, new RegExp(source, 'gu')),
  );
}

// Without pairs of surrogates: RegExp finds empty matches inside them.
const text = fc.string({ unit: fc.constantFrom(...'aabbcA1 \n\r\t.é漢\u0301'), maxLength: 24 });

/** Expressions of every construction; a loop's body takes at least a character, or JavaScript's rule for empty ones differs. */
const expression = fc.letrec<{ any: string; some: string }>((tie) => ({
  some: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(
      'a',
      'b',
      '.',
      '\\s',
      '\\S',
      '[ab]',
      '[^a\\n]',
      '\\p{L}',
      '\\p{N}',
      '🙂',
      '\\u{1F642}',
      '\\x61',
      '\\.',
    ),
    fc.tuple(tie('some'), tie('any')).map(([a, b]) => `${a}${b}`),
    fc.tuple(tie('some'), tie('some')).map(([a, b]) => `(?:${a}|${b})`),
    fc.tuple(tie('some'), fc.constantFrom('+', '{2}', '{1,3}', '{2,}', '+?', '{1,2}?')).map(([a, q]) => `(${a})${q}`),
  ),
  any: fc.oneof(
    { depthSize: 'small' },
    tie('some'),
    fc.constantFrom('', '^', '$', '(?=a)', '(?!\\S)', '(?<=a)', '(?<![ab])', '(?=[ab]+\\s)', '(?!a|b+c)'),
    fc.tuple(tie('some'), fc.constantFrom('*', '?', '*?', '??', '{0,2}', '{0}')).map(([a, q]) => `(?:${a})${q}`),
    fc.tuple(tie('any'), tie('any')).map(([a, b]) => `(?:${a}|${b})`),
  ),
}));

describe('LinearPattern', () => {
  it('finds what RegExp finds', () => {
    fc.assert(
      fc.property(
        fc.array(expression.any, { minLength: 1, maxLength: 3 }),
        fc.array(text, { maxLength: 8 }),
        (parts, texts) => {
          for (const sample of texts) same(parts.join('|'), sample);
        },
      ),
      { numRuns: 3000, seed: 5 },
    );
  });

  it('splits by the expressions of models as RegExp does', () => {
    const sample = fc.string({
      unit: fc.constantFrom(...'aZ éß9٣\n\r\t .,;\'`"$|ſ漢か한🙂\u0301-ABcd'),
      maxLength: 60,
    });
    const folded = (source: string) =>
      source.replace(
        /\(\?i:([^)]*)\)/g,
        (_, body: string) => `(?:${body.replace(/[a-z]/g, (c) => `[${c}${c.toUpperCase()}]`)})`,
      );
    const all = [...PRE_TOKENIZERS.values()].flatMap(({ split }) => split.map(folded));
    // The library writes \b in other terms, as RegExp's is ASCII's.
    const sources = [...new Set(all)].filter((source) => !source.includes('\\b'));
    sources.push('\\p{N}{1,3}(?=(?:\\p{N}{3})*(?:\\P{N}|$))', ' {2,}');
    for (const source of sources)
      fc.assert(
        fc.property(sample, (each) => same(source, each)),
        { numRuns: 60 },
      );
  });

  it('splits', () => {
    for (const [source, sample] of [
      ['\\s+', ' a  b c '],
      ['-', '--a-'],
      ['x', ''],
    ])
      expect(sample.split(linear(source))).toEqual(sample.split(new RegExp(source, 'u')));
  });

  it('takes little time for what takes RegExp an exponential or a quadratic one', () => {
    const long = 'a'.repeat(20_000);
    const cases: [string, string][] = [
      ['(a+)+$', `${'a'.repeat(40)}!`],
      ['(a+)+$', `${long}!`],
      ['(a|a)*b', long],
      ['(a|aa)+$', `${long}!`],
      ['(.*a){20}', `${'a'.repeat(2000)}`],
      ['a*a*a*a*a*a*b', long],
      ['a*b|a', long],
      ['\\s+$', `${' '.repeat(100_000)}x`],
      ['(?=a*b)a', 'a'.repeat(3000)],
      ['([a-z]+)*\\d', long],
      ['(?:a?){30}a{30}', 'a'.repeat(30)],
      ['((a*)*)*b', long],
      ['(?:(?:a*)+)+?c', long],
    ];
    for (const [source, sample] of cases) {
      const start = performance.now();
      try {
        sample.match(linear(source));
      } catch (error) {
        expect(error).toMatchObject({ code: 'UNSUPPORTED_TOKENIZER' });
      }
      expect(performance.now() - start, source).toBeLessThan(5000);
    }
    expect(`${'a'.repeat(40)}!`.match(linear('(a+)+$'))).toBe(null);
  });

  it('refuses what has no bound, and expressions that are too long', () => {
    const code = (source: string) => {
      try {
        new LinearPattern(new RegExp(source, 'u').source);
      } catch (error) {
        return (error as { code: string }).code;
      }
      return 'none';
    };
    for (const source of [
      '(a)\\1',
      '(?<x>a)\\k<x>',
      '(?<=a+)b',
      '(?:a{100}){100}',
      `${'('.repeat(300)}a${')'.repeat(300)}`,
    ])
      expect(code(source), source).toBe('UNSUPPORTED_TOKENIZER');
    expect(code('a'.repeat(20_000))).toBe('UNSUPPORTED_TOKENIZER');
  });
});
