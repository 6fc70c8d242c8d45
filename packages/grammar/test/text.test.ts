/** Regular expressions against JavaScript's own, GBNF, and choices. */
import { describe, expect, it, vi } from 'vitest';
import { compileChoices, compileGbnf, compileRegex, compileSchema, GrammarError } from '../src';
import { randomOf, randomText, vocabularyOf } from './helpers';

const vocabulary = vocabularyOf(['ab', 'ba', ' a', '12', 'é', '-a']);

const PATTERNS = [
  'a*b+c?',
  '(a|b)*abb',
  '[a-c]{2,4}',
  '[^a-c]+',
  '\\d+(\\.\\d+)?',
  '\\w+\\s\\w+',
  '(?:ab|a)(?:c|bcd)',
  'a{0}b',
  '(a?){3}a{3}',
  '.',
  '.*b.',
  '(?=a)[ab]+',
  '(?!ab)[ab]+',
  'x(?=.*1)[a-z0-9]*',
  '^a|b$',
  '(?:^|-)a',
  'a(?:b|$)',
  '[\\w.-]+@[a-z]+',
  '\\u00e9+',
  '\\p{Lu}\\p{Ll}*',
  '\\P{L}+',
  '[\\s\\S]',
  '[^]',
  '(?<name>a)+',
  'a+?b*?',
  '\\x41\\t',
  '[-a]+',
  '[a\\-z]+',
  '\\/\\.',
  '((((a))))',
  '|a|',
  '\\cA',
  'é{1,2}🦊?',
];
const ALPHABET = [...'aaabbbccxyzAB019 .-@\t\n/é🦊\u0001'];

function randomString(random: () => number): string {
  return Array.from({ length: Math.floor(random() * 7) }, () => ALPHABET[Math.floor(random() * ALPHABET.length)]).join(
    '',
  );
}

describe('regular expressions', () => {
  it.each(PATTERNS)('%s matches what RegExp does, as a whole and anywhere', (source) => {
    const whole = compileRegex(source);
    const some = compileSchema({ type: 'string', pattern: source });
    const wholeTest = new RegExp(`^(?:${source})$`, 'u');
    const someTest = new RegExp(source, 'u');
    const random = randomOf(source.length);
    const texts = Array.from({ length: 300 }, () => randomString(random));
    for (let seed = 1; seed <= 10; seed++) {
      const text = randomText(whole, vocabulary, randomOf(seed), 6);
      if (text !== undefined) texts.push(text, `${text}a`, text.slice(1));
    }
    for (const text of texts.filter((one) => !/\p{Surrogate}/u.test(one))) {
      expect(whole.accepts(text), JSON.stringify(text)).toBe(wholeTest.test(text));
      expect(some.accepts(JSON.stringify(text)), JSON.stringify(text)).toBe(someTest.test(text));
    }
  });

  it('knows the flags i and s', () => {
    for (const text of ['aB', 'AB', 'k\u212a', 'ſS', 'é', 'É']) {
      for (const source of ['ab', '[k]{2}', 's+', '\\u00c9', '[^a]{1,2}'])
        expect(compileRegex(source, 'iu').accepts(text), `${source} ${text}`).toBe(
          new RegExp(`^(?:${source})$`, 'iu').test(text),
        );
    }
    expect(compileRegex('a.b', 's').accepts('a\nb')).toBe(true);
    expect(compileRegex('a.b').accepts('a\nb')).toBe(false);
  });

  it.each([
    ['(a)\\1', /backreference/],
    ['(?<=a)b', /lookbehind/],
    ['\\bword', /word boundary/],
    ['(a', /\( without a \)/],
    ['a)', /\) without/],
    ['[a', /\[ without/],
    ['a{3,1}', /wrong way round/],
    ['*a', /nothing before \*/],
    ['a**', /two repetitions/],
    ['\\', /ends with a backslash/],
    ['\\u{110000}', /no character/],
    ['\\p{Klingon}', /not known/],
    ['(?i:a)', /not supported/],
    ['(?:^a)*', /assertion/],
    ['a?^b', /behind a part/],
    ['('.repeat(60_000), /20000/],
    [`${'('.repeat(300)}a${')'.repeat(300)}`, /nests/],
  ])('refuses %s and says why', (source, why) => {
    expect(() => compileRegex(source)).toThrow(why);
    try {
      compileSchema({ properties: { a: { pattern: source } } });
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({
        code: 'BAD_PATTERN',
        message: expect.stringContaining('"#/properties/a/pattern"'),
      });
    }
  });

  it('finds out that nothing matches', () => {
    for (const source of ['(?!a)a', 'a^', '[]', '$a']) expect(() => compileRegex(source)).toThrow(/No text meets/);
  });

  it('is where it was when it cannot go on', () => {
    const matcher = compileRegex('xa*').matcher(vocabulary);
    expect(matcher.acceptBytes(Buffer.from('x'))).toBe(true);
    const { frames } = matcher as unknown as { frames: { advance(...args: unknown[]): unknown } };
    const advance = frames.advance.bind(frames);
    const tooLarge = new GrammarError('TOO_LARGE', 'too ambiguous');
    let bytes = 0;
    const spy = vi.spyOn(frames, 'advance').mockImplementation((...args) => {
      if (++bytes === 3) throw tooLarge;
      return advance(...args);
    });
    expect(() => matcher.acceptBytes(Buffer.from('aaaa'))).toThrow(tooLarge);
    spy.mockRestore();
    expect(matcher.acceptBytes(Buffer.from('ab'))).toBe(false);
    expect(() => matcher.accept('b'.charCodeAt(0))).toThrow('cannot come after "x"');
  });

  it('takes hostile expressions in little time, or says that they are too large', () => {
    const hostile = [
      '(a|a)*b',
      '(a*)*b',
      '(a{0,1000}){0,1000}b',
      '((a{1,100}){1,100}){1,100}',
      '(.*a){12}',
      '(?=(.*1))(?=(.*2))(?=(.*3)).{0,5000}',
      '(x+x+)+y',
      '[a-z]{1,5000000}',
    ];
    for (const source of hostile) {
      const begun = performance.now();
      const matcher = compileRegex(source).matcher(vocabulary);
      try {
        for (const byte of Buffer.from('aaaaaaaaaaaaaaaaaaaaaaaa')) {
          matcher.mask();
          matcher.acceptBytes(Uint8Array.of(byte));
        }
      } catch (error) {
        expect(error).toMatchObject({ code: 'TOO_LARGE' });
      }
      expect(performance.now() - begun, source).toBeLessThan(30_000);
    }
  });
});

it('is told what is no text', () => {
  for (const source of [undefined, null, 5, {}])
    expect(() => compileRegex(source as never)).toThrow(expect.objectContaining({ code: 'BAD_PATTERN' }));
  for (const choices of ['abc', null, undefined, {}, [5]])
    expect(() => compileChoices(choices as never)).toThrow(expect.objectContaining({ code: 'BAD_GRAMMAR' }));
});

describe('GBNF', () => {
  const JSON_GRAMMAR = String.raw`
# JSON, as llama.cpp's own grammar has it in outline
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
`;

  it('reads a grammar of JSON, whose texts parse', () => {
    const grammar = compileGbnf(JSON_GRAMMAR);
    for (const text of ['{}', '{"a": [1, -2.5e3, "x\\u00e9\\n", {"b":null}]}'])
      expect(grammar.accepts(text)).toBe(true);
    for (const text of ['[]', '{"a" 1}', '{"a":01}', '{"a":"\n"}', '']) expect(grammar.accepts(text)).toBe(false);
    let texts = 0;
    for (let seed = 1; seed <= 30; seed++) {
      const text = randomText(grammar, vocabulary, randomOf(seed), 40);
      if (text === undefined) continue;
      JSON.parse(text);
      texts++;
    }
    expect(texts).toBeGreaterThan(10);
  });

  it('knows its escapes, sets and repetitions', () => {
    const accepts = (source: string, text: string) => compileGbnf(`root ::= ${source}`).accepts(text);
    expect(accepts('"\\x41\\u00e9\\U0001F98A\\t\\"\\\\"', 'Aé🦊\t"\\')).toBe(true);
    expect(accepts('[^\\]a-c\\-]+', 'xyz')).toBe(true);
    expect(accepts('[^\\]a-c\\-]+', 'x-')).toBe(false);
    expect(accepts('.{2}', 'é🦊')).toBe(true);
    expect(accepts('"a"{2,3} "b"?', 'aaab')).toBe(true);
    expect(accepts('"a"{,3}'.replace('{,', '{0,'), 'aaaa')).toBe(false);
    expect(accepts('("a" |\n "b")+ # comment', 'abba')).toBe(true);
    expect(accepts('pair* \npair ::= "(" pair ")" | "-"', '(-)((-))-')).toBe(true);
    expect(accepts('"x" | ""', '')).toBe(true);
  });

  it.each([
    ['root ::= a', /line 1: there is no rule a/],
    ['a ::= "x"', /no rule root/],
    ['root ::= "x', /" is missing/],
    ['root ::= [a', /\] is missing/],
    ['root ::= ("a"', /\) is missing/],
    ['root ::= "a"\nroot ::= "b"', /line 2: the rule root is there twice/],
    ['root = "a"', /a rule such as/],
    ['root ::= root "a" | "b"', /begins with itself \(root -> root\)/],
    ['root ::= x\nx ::= "a"? y\ny ::= x "b" | "c"', /begins with itself/],
    ['root ::= "a" root', /No text meets/],
    ['root ::= [z-a]', /wrong way round/],
    ['root ::= "a"{2,1}', /wrong way round/],
    ['root ::= "\\q"', /escape/],
    ['', /no rule root/],
    [`root ::= ${'('.repeat(60_000)}`, /nested/],
    ['root ::= <token>', /not expected/],
  ])('refuses %s and says where', (source, why) => {
    expect(() => compileGbnf(source)).toThrow(why);
  });
});

describe('choices', () => {
  it('are the texts and nothing else', () => {
    const choices = ['yes', 'no', 'yes, but', '日本', ''];
    const grammar = compileChoices(choices);
    for (const text of choices) expect(grammar.accepts(text)).toBe(true);
    for (const text of ['y', 'yes,', 'nono', '日']) expect(grammar.accepts(text)).toBe(false);
    const many = Array.from({ length: 20_000 }, (_, i) => `choice number ${i}`);
    expect(compileChoices(many).accepts('choice number 19999')).toBe(true);
    expect(() => compileChoices([])).toThrow(/one at least/);
    expect(() => compileChoices(['\ud800'])).toThrow(/whole characters/);
  });
});
