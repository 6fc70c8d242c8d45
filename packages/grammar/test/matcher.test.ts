/** Masks against trying every token, and matchers as they are used. */
import { describe, expect, it } from 'vitest';
import {
  compileChoices,
  compileGbnf,
  compileRegex,
  compileSchema,
  type Grammar,
  type Matcher,
  Vocabulary,
} from '../src';
import { idsOf, randomOf, randomText, vocabularyOf } from './helpers';

const words = [
  '{"',
  '":',
  '": ',
  '",',
  '","',
  '"}',
  '"}]',
  '":"',
  '":1,"',
  'a":1,"a":',
  'a":1,"b":',
  '{"a":1,"a":2}',
  '{"a":1,"b":2}',
  '}}',
  ']]',
  '],[',
  'null',
  'true,',
  '12',
  '007',
  '-1',
  '1.5',
  'e1',
  'hello',
  ' world',
  'é',
  '日本',
  '日本"',
  '\\n',
  '\\u00',
  '\\u0041',
  '\\ud83d',
  '\\udd00"',
  '  ',
  '\n  ',
  'a'.repeat(40),
  `${'b'.repeat(9)}"`,
  Buffer.from([0xe6, 0x97]),
  Buffer.from([0xa5, 0x22]),
  '@example',
  '.org"',
  '2024-',
  '-02-29"',
];
const vocabulary = vocabularyOf(words);

const grammars: Record<string, Grammar> = {
  'any JSON': compileSchema({}),
  'any object': compileSchema({ type: 'object' }),
  'any object with white space': compileSchema({ type: 'object' }, { whitespace: 'any' }),
  'other properties': compileSchema({
    properties: { a: { type: 'integer' } },
    additionalProperties: { type: 'integer' },
    type: 'object',
  }),
  'patterns of names': compileSchema({
    type: 'object',
    patternProperties: { '^a': { type: 'integer' } },
    additionalProperties: { type: 'string' },
    maxProperties: 3,
  }),
  'different items': compileSchema({
    type: 'array',
    items: { type: ['integer', 'string', 'null'] },
    uniqueItems: true,
    maxItems: 5,
  }),
  'nested others': compileSchema({
    type: 'object',
    additionalProperties: { type: 'object', additionalProperties: { type: 'integer' } },
  }),
  'short strings': compileSchema({ type: 'array', items: { type: 'string', minLength: 2, maxLength: 9 }, maxItems: 3 }),
  'not these': compileSchema({ type: 'string', not: { enum: ['hello', 'hello world', 'a', 'é', 'n\n'] } }),
  email: compileSchema({ type: 'string', format: 'email' }),
  date: compileSchema({ type: 'string', format: 'date' }),
  numbers: compileSchema({ type: 'array', items: { type: 'number', minimum: -1.5, maximum: 120 }, maxItems: 3 }),
  recursive: compileGbnf('root ::= "[" (root ("," root)*)? "]" | [a-z0-9]{1,3}'),
  expression: compileRegex('(?:hello|[a-z]{2,20})(?: world)?|-?[0-9]+'),
  choices: compileChoices(['hello', 'hello world', '日本', '日本人', '12', '']),
};

/** The tokens that can be accepted, tried one after the other. */
function tried(at: Matcher): number[] {
  const end = vocabulary.endIds[0];
  const allowed: number[] = [];
  for (let id = 0; id < vocabulary.size; id++) {
    const matcher = at.fork();
    try {
      matcher.accept(id);
      if (id !== end || matcher.canEnd) allowed.push(id);
    } catch (error) {
      expect(error).toMatchObject({ code: 'NOT_ALLOWED' });
    }
  }
  return allowed;
}

describe('masks', () => {
  it.each(Object.entries(grammars))('of %s are what trying every token gives', (_, grammar) => {
    const end = vocabulary.endIds[0];
    for (let seed = 1; seed <= 3; seed++) {
      const random = randomOf(seed);
      const matcher = grammar.matcher(vocabulary);
      const ids: number[] = [];
      for (let count = 0; count < 12; count++) {
        const allowed = idsOf(matcher.mask());
        expect(allowed, JSON.stringify(ids.map((id) => String(vocabulary.text(id))))).toEqual(tried(matcher));
        // Long tokens rather, which go over the ends of terminals.
        const long = allowed.filter((id) => id >= 256 && id !== end);
        const from = long.length > 0 && random() < 0.7 ? long : allowed.filter((id) => id !== end);
        if (from.length === 0) break;
        const id = from[Math.floor(random() * from.length)];
        matcher.accept(id);
        ids.push(id);
      }
    }
  });

  it('of a text made from them belong to the grammar', () => {
    let texts = 0;
    for (const grammar of Object.values(grammars)) {
      for (let seed = 1; seed <= 5; seed++) {
        const text = randomText(grammar, vocabulary, randomOf(seed), 20);
        if (text === undefined) continue;
        expect(grammar.accepts(text), text).toBe(true);
        texts++;
      }
    }
    expect(texts).toBeGreaterThan(50);
  });

  it('leave out names that were there, also within one token', () => {
    const matcher = grammars['other properties'].matcher(vocabulary);
    const id = (text: string) => 256 + words.indexOf(text);
    expect(matcher.acceptBytes(Buffer.from('{"b":1,"'))).toBe(true);
    const allowed = idsOf(matcher.mask());
    expect(allowed).toContain('c'.charCodeAt(0));
    expect(allowed).toContain(id('hello'));
    expect(allowed).not.toContain(id('a":1,"a":'));
    expect(allowed).not.toContain(id('a":1,"b":'));
    expect(idsOf(grammars['any object'].matcher(vocabulary).mask())).toContain(id('{"a":1,"b":2}'));
    expect(idsOf(grammars['any object'].matcher(vocabulary).mask())).not.toContain(id('{"a":1,"a":2}'));
  });
});

describe('a matcher', () => {
  it('tells where a text may end and where it has to', () => {
    const matcher = compileChoices(['ab', 'abc']).matcher(vocabulary);
    expect([matcher.canEnd, matcher.isFinished]).toEqual([false, false]);
    matcher.acceptBytes(Buffer.from('ab'));
    expect([matcher.canEnd, matcher.isFinished]).toEqual([true, false]);
    matcher.accept(vocabulary.endIds[0]);
    matcher.accept('c'.charCodeAt(0));
    expect([matcher.canEnd, matcher.isFinished]).toEqual([true, true]);
    expect(idsOf(matcher.mask())).toEqual([vocabulary.endIds[0]]);
  });

  it('of nothing but the empty text has tokens that end it', () => {
    for (const grammar of [compileChoices(['']), compileRegex(''), compileRegex('a{0}'), compileGbnf('root ::= ""')]) {
      const matcher = grammar.matcher(vocabulary);
      expect(matcher.isFinished).toBe(true);
      expect(idsOf(matcher.mask())).toEqual([...vocabulary.endIds]);
    }
    expect(idsOf(compileChoices(['', 'b']).matcher(vocabulary).mask())).toContain(vocabulary.endIds[0]);
  });

  it('changes nothing for a token that is not allowed', () => {
    const matcher = grammars.date.matcher(vocabulary);
    matcher.acceptBytes(Buffer.from('"20'));
    const before = idsOf(matcher.mask());
    for (const id of [256 + words.indexOf('007'), 'x'.charCodeAt(0), vocabulary.endIds[0], -1, 10_000, 1.5])
      expect(() => matcher.accept(id)).toThrow(/cannot come after "\\"20"/);
    expect(idsOf(matcher.mask())).toEqual(before);
    expect(matcher.acceptBytes(Buffer.from('24-02-3'))).toBe(false);
    expect(matcher.acceptBytes(Buffer.from('24-02-29"'))).toBe(true);
    expect(matcher.isFinished).toBe(true);
  });

  it('forks', () => {
    const matcher = grammars['different items'].matcher(vocabulary);
    matcher.acceptBytes(Buffer.from('["a",1'));
    const fork = matcher.fork();
    expect(fork.acceptBytes(Buffer.from(',1]'))).toBe(false);
    expect(fork.acceptBytes(Buffer.from(',12]'))).toBe(true);
    expect(matcher.acceptBytes(Buffer.from(',"b"]'))).toBe(true);
    expect([fork.isFinished, matcher.isFinished]).toEqual([true, true]);
  });
});

describe('a vocabulary', () => {
  it('takes tokens of equal bytes, empty ones and none', () => {
    const tokens = ['a', '', undefined, 'a', 'ab', 'b'];
    const own = new Vocabulary({
      size: 7,
      bytes: (id) => (tokens[id] === undefined ? undefined : Buffer.from(tokens[id])),
      endIds: [6],
    });
    expect(idsOf(compileRegex('ab?').matcher(own).mask())).toEqual([0, 3, 4]);
    const none = new Vocabulary({ size: 1, bytes: () => undefined, endIds: [] });
    expect(idsOf(compileRegex('a').matcher(none).mask())).toEqual([]);
  });

  it('refuses sizes and ids that are none', () => {
    const bytes = () => undefined;
    for (const size of [0, -1, 1.5, Number.NaN, 2 ** 30])
      expect(() => new Vocabulary({ size, bytes, endIds: [] })).toThrow(/whole number/);
    for (const id of [5, -1, 0.5]) expect(() => new Vocabulary({ size: 5, bytes, endIds: [id] })).toThrow(/end token/);
    expect(() => new Vocabulary({ size: 1, bytes: () => new Uint8Array(70_000), endIds: [] })).toThrow(/70000 bytes/);
  });
});
