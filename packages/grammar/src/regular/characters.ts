/** Sets of Unicode characters, and the bytes that they are in UTF-8. */
import type { Expression, Expressions } from './expression';

/** First and last code point of each part, in order, with gaps between the parts. */
export type CharacterSet = readonly (readonly [number, number])[];

/** What JavaScript's `\s` stands for and its `trim` takes away (ECMA-262, WhiteSpace and LineTerminator). */
export const WHITE_SPACE: CharacterSet = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];

export const MOST_CODE_POINT = 0x10ffff;

/** Puts parts in order and joins what touches. */
export function union(...sets: readonly CharacterSet[]): CharacterSet {
  const parts = sets.flat().sort(([a], [b]) => a - b);
  const joined: [number, number][] = [];
  for (const [first, last] of parts) {
    const before = joined.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else joined.push([first, last]);
  }
  return joined;
}

export function complement(set: CharacterSet): CharacterSet {
  const parts: [number, number][] = [];
  let next = 0;
  for (const [first, last] of union(set)) {
    if (first > next) parts.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= MOST_CODE_POINT) parts.push([next, MOST_CODE_POINT]);
  return parts;
}

/** With what differs in case only, as JavaScript's flags `i` and `u` together understand it. */
export function withBothCases(set: CharacterSet): CharacterSet {
  const letters: [number, number][] = [];
  const add = (text: string) => {
    const [code, ...more] = Array.from(text, (one) => one.codePointAt(0)!);
    if (more.length === 0) letters.push([code, code]);
  };
  for (const [first, last] of set) {
    // Without letters above: all of them have code points below.
    for (let code = first; code <= Math.min(last, 0x1e943); code++) {
      if (code >= 0xd800 && code < 0xe000) continue;
      const text = String.fromCodePoint(code);
      add(text.toLowerCase());
      add(text.toUpperCase());
      for (const other of SAME_FOLDING.get(text) ?? []) add(other);
    }
  }
  return union(set, letters);
}

/** Characters that fold together beyond their own upper and lower case. */
const SAME_FOLDING: ReadonlyMap<string, readonly string[]> = new Map(
  ['kK\u212a', 'sS\u017f', '\u00e5\u00c5\u212b', '\u03c9\u03a9\u2126'].flatMap((group) =>
    Array.from(group, (one): [string, string[]] => [one, Array.from(group)]),
  ),
);

/** One character of a set, in UTF-8. Surrogates are no characters and left out. */
export function characters(make: Expressions, set: CharacterSet): Expression {
  const parts: Expression[] = [];
  for (const [first, last] of union(set)) {
    for (const [from, to] of LENGTHS) {
      const low = Math.max(first, from);
      const high = Math.min(last, to);
      if (low <= high) parts.push(sameLength(make, encoded(low), encoded(high)));
    }
  }
  return make.either(...parts);
}

/** Code points of one, two, three (around the surrogates) and four bytes. */
const LENGTHS = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xd7ff],
  [0xe000, 0xffff],
  [0x10000, MOST_CODE_POINT],
] as const;

function encoded(code: number): number[] {
  return [...Buffer.from(String.fromCodePoint(code), 'utf8')];
}

/** Texts of bytes from `low` to `high`, in the order of their bytes; both have one length. */
function sameLength(make: Expressions, low: readonly number[], high: readonly number[]): Expression {
  if (low.length === 0) return make.epsilon;
  const [a, ...lows] = low;
  const [b, ...highs] = high;
  const least = lows.map(() => 0x80);
  const most = highs.map(() => 0xbf);
  if (a === b) return make.sequence(make.range(a, a), sameLength(make, lows, highs));
  const parts: Expression[] = [];
  let [from, to] = [a, b];
  if (lows.some((byte) => byte > 0x80)) {
    parts.push(make.sequence(make.range(a, a), sameLength(make, lows, most)));
    from++;
  }
  if (highs.some((byte) => byte < 0xbf)) {
    parts.push(make.sequence(make.range(b, b), sameLength(make, least, highs)));
    to--;
  }
  if (from <= to) parts.push(make.sequence(make.range(from, to), ...most.map((byte) => make.range(0x80, byte))));
  return make.either(...parts);
}
