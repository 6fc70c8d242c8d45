/** Reads regular expressions of JavaScript. */
import { GrammarError } from '../errors';
import {
  type CharacterSet,
  complement,
  MOST_CODE_POINT,
  union,
  WHITE_SPACE,
  withBothCases,
} from '../regular/characters';

export type PatternNode =
  | { readonly kind: 'set'; readonly set: CharacterSet }
  | { readonly kind: 'sequence' | 'either'; readonly items: readonly PatternNode[] }
  | { readonly kind: 'repeat'; readonly item: PatternNode; readonly min: number; readonly max: number }
  | { readonly kind: 'start' | 'end' }
  | { readonly kind: 'ahead'; readonly item: PatternNode; readonly isNegative: boolean };

const MOST_LENGTH = 20_000;
const MOST_DEPTH = 200;

const DIGITS: CharacterSet = [[0x30, 0x39]];
const WORD: CharacterSet = union(DIGITS, [[0x41, 0x5a]], [[0x5f, 0x5f]], [[0x61, 0x7a]]);
const LINE_ENDS: CharacterSet = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
const CONTROL: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13 };

/**
 * @param flags of `RegExp`: `i`, `s`, `u` and `v` have a meaning, `d`, `g` and `y` none for what matches
 * @throws GrammarError BAD_PATTERN, saying where
 */
export function parsePattern(source: string, flags = ''): PatternNode {
  return new Parser(source, flags).parse();
}

class Parser {
  private readonly text: readonly string[];
  private readonly ignoresCase: boolean;
  private readonly dotAll: boolean;
  private at = 0;
  private depth = 0;

  constructor(
    private readonly source: string,
    flags: string,
  ) {
    if (typeof source !== 'string')
      throw new GrammarError('BAD_PATTERN', `The expression is of type ${typeof source}; give its source as a string.`);
    if (source.length > MOST_LENGTH) this.fail(`is ${source.length} characters long; give at most ${MOST_LENGTH}`);
    for (const flag of flags)
      if (!'dgisuvy'.includes(flag)) this.fail(`has the flag ${flag}, which is not supported; leave it out`);
    this.text = Array.from(source);
    this.ignoresCase = flags.includes('i');
    this.dotAll = flags.includes('s');
  }

  parse(): PatternNode {
    const node = this.either();
    if (this.at < this.text.length) this.fail('has a ) without a (');
    return node;
  }

  private either(): PatternNode {
    if (++this.depth > MOST_DEPTH) this.fail(`nests more than ${MOST_DEPTH} groups`);
    const items = [this.sequence()];
    while (this.take('|')) items.push(this.sequence());
    this.depth--;
    return items.length === 1 ? items[0] : { kind: 'either', items };
  }

  private sequence(): PatternNode {
    const items: PatternNode[] = [];
    for (;;) {
      const next = this.text[this.at];
      if (next === undefined || next === '|' || next === ')') break;
      items.push(this.repeated(this.atom()));
    }
    return items.length === 1 ? items[0] : { kind: 'sequence', items };
  }

  private repeated(item: PatternNode): PatternNode {
    const range = this.range();
    if (!range) return item;
    this.take('?');
    if (item.kind === 'start' || item.kind === 'end' || item.kind === 'ahead') this.fail('repeats an assertion');
    const [min, max] = range;
    if (max < min) this.fail(`has the repetition {${min},${max}}, whose limits are the wrong way round`);
    if (this.range()) this.fail('has two repetitions after each other');
    return { kind: 'repeat', item, min, max };
  }

  private range(): [number, number] | undefined {
    if (this.take('*')) return [0, Number.POSITIVE_INFINITY];
    if (this.take('+')) return [1, Number.POSITIVE_INFINITY];
    if (this.take('?')) return [0, 1];
    const match = /^\{(\d{1,15})(,(\d{1,15})?)?\}/.exec(this.text.slice(this.at, this.at + 36).join(''));
    if (!match) return undefined;
    this.at += match[0].length;
    const min = Number(match[1]);
    return [min, match[3] !== undefined ? Number(match[3]) : match[2] ? Number.POSITIVE_INFINITY : min];
  }

  private atom(): PatternNode {
    const character = this.text[this.at++];
    switch (character) {
      case '(':
        return this.group();
      case '[':
        return this.set(this.characterClass());
      case '.':
        return { kind: 'set', set: this.dotAll ? [[0, MOST_CODE_POINT]] : complement(LINE_ENDS) };
      case '^':
        return { kind: 'start' };
      case '$':
        return { kind: 'end' };
      case '\\':
        return this.set(this.escape(false));
      case '*':
      case '+':
      case '?':
        return this.fail(`has nothing before ${character}`);
      default:
        return this.set(point(character.codePointAt(0)!));
    }
  }

  private group(): PatternNode {
    let isAhead = false;
    let isNegative = false;
    if (this.take('?')) {
      if (this.take('=')) isAhead = true;
      else if (this.take('!')) isAhead = isNegative = true;
      else if (this.take('<')) {
        if (this.text[this.at] === '=' || this.text[this.at] === '!')
          this.fail('has lookbehind, which is not supported');
        while (this.at < this.text.length && !this.take('>')) this.at++;
      } else if (!this.take(':'))
        this.fail(`has a group that begins with (?${this.text[this.at] ?? ''}, which is not supported`);
    }
    const item = this.either();
    if (!this.take(')')) this.fail('has a ( without a )');
    // Something of its own, so that what follows repeats all of it.
    return isAhead ? { kind: 'ahead', item, isNegative } : item.kind === 'sequence' ? { ...item } : item;
  }

  private characterClass(): CharacterSet {
    const isNegative = this.take('^');
    const sets: CharacterSet[] = [];
    for (;;) {
      if (this.at >= this.text.length) this.fail('has a [ without a ]');
      if (this.take(']')) break;
      const first = this.classAtom();
      if (this.text[this.at] === '-' && this.text[this.at + 1] !== ']' && this.at + 1 < this.text.length) {
        this.at++;
        const last = this.classAtom();
        const [low, high] = [single(first), single(last)];
        // Without the flag u, [\w-x] has three members, one of them the hyphen.
        if (low === undefined || high === undefined) sets.push(first, point(0x2d), last);
        else if (low > high) this.fail('has a range of characters whose ends are the wrong way round');
        else sets.push([[low, high]]);
      } else sets.push(first);
    }
    const set = this.ignoresCase ? withBothCases(union(...sets)) : union(...sets);
    return isNegative ? complement(set) : set;
  }

  private classAtom(): CharacterSet {
    const character = this.text[this.at++];
    return character === '\\' ? this.escape(true) : point(character.codePointAt(0)!);
  }

  private escape(isInClass: boolean): CharacterSet {
    const character = this.text[this.at++];
    switch (character) {
      case undefined:
        return this.fail('ends with a backslash');
      case 'd':
        return DIGITS;
      case 'D':
        return complement(DIGITS);
      case 'w':
        return WORD;
      case 'W':
        return complement(WORD);
      case 's':
        return WHITE_SPACE;
      case 'S':
        return complement(WHITE_SPACE);
      case 'b':
        return isInClass ? point(8) : this.fail('has a word boundary, which is not supported');
      case 'B':
        return this.fail('has \\B, which is not supported');
      case 'k':
        return this.fail('has a backreference, which is not supported');
      case 'p':
      case 'P':
        return this.property(character === 'P');
      case 'c':
        return point(this.digits(/^[A-Za-z]/, 1).charCodeAt(0) & 31);
      case 'x':
        return point(Number.parseInt(this.digits(/^[0-9a-fA-F]{2}/, 2), 16));
      case 'u':
        return point(this.unicode());
      case '0':
        return point(0);
    }
    if (/[1-9]/.test(character)) return this.fail('has a backreference, which is not supported');
    return point(CONTROL[character] ?? character.codePointAt(0)!);
  }

  private digits(form: RegExp, length: number): string {
    const match = form.exec(this.text.slice(this.at, this.at + length).join(''));
    if (!match) return this.fail(`has an escape \\${this.text[this.at - 1]} that is cut short`);
    this.at += length;
    return match[0];
  }

  private unicode(): number {
    if (this.take('{')) {
      const end = this.text.indexOf('}', this.at);
      const digits = this.text.slice(this.at, end < 0 ? this.at : end).join('');
      const code = /^[0-9a-fA-F]{1,8}$/.test(digits) ? Number.parseInt(digits, 16) : Number.NaN;
      if (!(code <= MOST_CODE_POINT)) return this.fail('has an escape \\u{...} that is no character');
      this.at = end + 1;
      return code;
    }
    const code = Number.parseInt(this.digits(/^[0-9a-fA-F]{4}/, 4), 16);
    const rest = this.text.slice(this.at, this.at + 6).join('');
    const low = /^\\u[dD][c-fC-F][0-9a-fA-F]{2}$/.test(rest) ? Number.parseInt(rest.slice(2), 16) : 0;
    if (code < 0xd800 || code >= 0xdc00 || low === 0) return code;
    this.at += 6;
    return (code - 0xd800) * 0x400 + low - 0xdc00 + 0x10000;
  }

  private property(isNegative: boolean): CharacterSet {
    const end = this.text.indexOf('}', this.at);
    const name = this.text[this.at] === '{' && end > 0 ? this.text.slice(this.at + 1, end).join('') : '';
    const set = propertySet(name);
    if (!set) return this.fail(`has the property \\p{${name}}, which is not known`);
    this.at = end + 1;
    return isNegative ? complement(set) : set;
  }

  private set(set: CharacterSet): PatternNode {
    return { kind: 'set', set: this.ignoresCase ? withBothCases(set) : set };
  }

  private take(character: string): boolean {
    if (this.text[this.at] !== character) return false;
    this.at++;
    return true;
  }

  private fail(what: string): never {
    const shown = this.source.length > 80 ? `${this.source.slice(0, 80)}...` : this.source;
    throw new GrammarError('BAD_PATTERN', `The pattern /${shown}/ ${what} (at character ${this.at}).`);
  }
}

function point(code: number): CharacterSet {
  return [[code, code]];
}

function single(set: CharacterSet): number | undefined {
  return set.length === 1 && set[0][0] === set[0][1] ? set[0][0] : undefined;
}

const properties = new Map<string, CharacterSet>();

/** What JavaScript's own `\p{...}` matches. */
function propertySet(name: string): CharacterSet | undefined {
  const known = properties.get(name);
  if (known) return known;
  if (!/^[A-Za-z0-9_=]{1,64}$/.test(name)) return undefined;
  let test: RegExp;
  try {
    test = new RegExp(`^\\p{${name}}$`, 'u');
  } catch {
    return undefined;
  }
  const parts: [number, number][] = [];
  for (let code = 0; code <= MOST_CODE_POINT; code++) {
    if ((code >= 0xd800 && code < 0xe000) || !test.test(String.fromCodePoint(code))) continue;
    const last = parts.at(-1);
    if (last?.[1] === code - 1) last[1] = code;
    else parts.push([code, code]);
  }
  properties.set(name, parts);
  return parts;
}
