/**
 * Steps of tokenizers as the Rust library `tokenizers` has them, where `@huggingface/tokenizers` differs: what counts as white
 * space, a digit or punctuation, characters beyond 16 bits, behaviours of splitting, and SentencePiece's tables of characters.
 */
import { lettersOf } from './byte-letters';
import { charsMap } from './chars-map';
import type { LinearPattern } from './linear-pattern';

/** Unicode's White_Space, of which JavaScript's \s lacks U+0085 and has U+FEFF beside. */
const SPACE = '\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
/** ASCII's symbols are punctuation too. */
const PUNCTUATION = '\\p{P}!-\\/:-@\\[-`{-~';
const GPT2 = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  'gu',
);
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';
const PATTERNS = {
  bert: new RegExp(`[^${SPACE}${PUNCTUATION}]+|[${PUNCTUATION}]`, 'gu'),
  words: new RegExp(`[${WORD}]+|[^${WORD}${SPACE}]+`, 'gu'),
  notSpace: new RegExp(`[^${SPACE}]+`, 'gu'),
  digit: /\p{N}/gu,
  digits: /\p{N}+/gu,
  punctuation: new RegExp(`[${PUNCTUATION}]`, 'gu'),
  spaceAtStart: new RegExp(`^[${SPACE}]+`, 'u'),
  spaceAtEnd: new RegExp(`[${SPACE}]+$`, 'u'),
};

/** As `@huggingface/tokenizers` makes it; what differs is put in place of its methods. */
export interface Step {
  pattern?: unknown;
  config?: Record<string, unknown> & { type?: string; pattern?: { Regex?: string } };
  normalizers?: readonly (Step | null)[];
  tokenizers?: readonly (Step | null)[];
  decoders?: readonly (Step | null)[];
  normalize?(text: string): string;
  pre_tokenize?(text: string | readonly string[], options?: { section_index?: number }): string[];
  pre_tokenize_text?(text: string, options?: { section_index?: number }): string[];
}

export type Behavior = 'Removed' | 'Isolated' | 'Contiguous' | 'MergedWithPrevious' | 'MergedWithNext';
export const BEHAVIORS: readonly Behavior[] = [
  'Removed',
  'Isolated',
  'Contiguous',
  'MergedWithPrevious',
  'MergedWithNext',
];

/** @param definition of a normalizer, as `checkDefinition` gives it, which `step` was made from */
export function exactNormalizer(step: Step, definition: Record<string, unknown>): void {
  switch (definition.type) {
    case 'BertNormalizer':
      step.normalize = (text) => bertNormalized(text, definition as unknown as BertSettings);
      break;
    case 'Lowercase':
      step.normalize = lowered;
      break;
    case 'Strip':
      step.normalize = (text) => {
        const start = definition.strip_left ? text.replace(PATTERNS.spaceAtStart, '') : text;
        return definition.strip_right ? start.replace(PATTERNS.spaceAtEnd, '') : start;
      };
      break;
    case 'Precompiled':
      // Without a table the library does what those of published models mostly say.
      if (definition.charsmap instanceof Uint8Array) step.normalize = charsMap(definition.charsmap);
      break;
  }
}

/** @param definition of a pre-tokenizer, which `step` was made from */
export function exactPreTokenizer(step: Step, definition: Record<string, unknown>): void {
  const isolated = (pattern: RegExp, behavior: Behavior) => {
    step.pre_tokenize_text = (text) => splitBy(text, pattern, behavior);
  };
  switch (definition.type) {
    case 'ByteLevel': {
      const { add_prefix_space: prefix, use_regex: splits } = definition;
      const words = (text: string) => {
        const whole = prefix && !text.startsWith(' ') ? ` ${text}` : text;
        return splits ? (whole.match(GPT2) ?? []) : [whole];
      };
      step.pre_tokenize = (text) => {
        const all = typeof text === 'string' ? words(text) : prefix || splits ? text.flatMap(words) : text;
        return all.map(lettersOf);
      };
      return;
    }
    case 'Digits':
      if (definition.individual_digits) isolated(PATTERNS.digit, 'Isolated');
      else isolated(PATTERNS.digits, 'Contiguous');
      break;
    case 'Punctuation':
      isolated(PATTERNS.punctuation, definition.behavior as Behavior);
      break;
    case 'BertPreTokenizer':
      step.pre_tokenize_text = (text) => text.match(PATTERNS.bert) ?? [];
      break;
    case 'Whitespace':
      step.pre_tokenize_text = (text) => text.match(PATTERNS.words) ?? [];
      break;
    case 'WhitespaceSplit':
      step.pre_tokenize_text = (text) => text.match(PATTERNS.notSpace) ?? [];
      break;
    case 'Split':
      step.pre_tokenize_text = (text) =>
        step.pattern === null || step.pattern === undefined
          ? [text]
          : splitBy(
              text,
              step.pattern as RegExp | LinearPattern,
              definition.behavior as Behavior,
              definition.invert === true,
            );
      break;
    case 'Metaspace': {
      const whole = step.pre_tokenize_text!.bind(step);
      const mark = definition.replacement as string;
      if (definition.split === false) break;
      step.pre_tokenize_text = (text, options) => whole(text, options).flatMap((marked) => cutBefore(marked, mark));
      break;
    }
  }
  withoutLists(step);
}

/** The first step has one text to split: a list of one list is not made flat, which takes longer than splitting. */
export function withoutLists(step: Step): void {
  const parts = step.pre_tokenize_text!.bind(step);
  step.pre_tokenize = (text, options) => {
    if (typeof text === 'string') return parts(text, options);
    return text.length === 1 ? parts(text[0], options) : text.flatMap((part) => parts(part, options));
  };
}

interface Piece {
  text: string;
  matches: boolean;
}

/** @param pattern global @param invert what lies between matches is what splits */
function splitBy(text: string, pattern: RegExp | LinearPattern, behavior: Behavior, invert = false): string[] {
  if (behavior === 'Isolated') return isolated(text, pattern);
  const pieces: Piece[] = [];
  const add = (from: number, to: number, matches: boolean) => {
    if (from < to) pieces.push({ text: text.slice(from, to), matches: matches !== invert });
  };
  let at = 0;
  for (const match of text.matchAll(pattern as RegExp)) {
    add(at, match.index, false);
    at = match.index + match[0].length;
    add(match.index, at, true);
  }
  add(at, text.length, false);
  return joined(pieces, behavior);
}

/** Matches and what lies between them. */
function isolated(text: string, pattern: RegExp | LinearPattern): string[] {
  const pieces: string[] = [];
  let at = 0;
  for (const { 0: match, index } of text.matchAll(pattern as RegExp)) {
    if (at < index) pieces.push(text.slice(at, index));
    if (match !== '') pieces.push(match);
    at = index + match.length;
  }
  if (at < text.length) pieces.push(text.slice(at));
  return pieces;
}

/** Each part but the first begins with `mark`. */
function cutBefore(text: string, mark: string): string[] {
  const parts: string[] = [];
  let from = 0;
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + mark.length)) {
    if (at > from) parts.push(text.slice(from, at));
    from = at;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

function joined(pieces: readonly Piece[], behavior: Exclude<Behavior, 'Isolated'>): string[] {
  if (behavior === 'Removed') return pieces.filter(({ matches }) => !matches).map(({ text }) => text);
  const order = behavior === 'MergedWithNext' ? [...pieces].reverse() : pieces;
  const groups: string[][] = [];
  let before: boolean | undefined;
  for (const { text, matches } of order) {
    const stays = behavior === 'Contiguous' ? matches === before : matches && before === false;
    if (stays) groups[groups.length - 1].push(text);
    else groups.push([text]);
    before = matches;
  }
  if (behavior !== 'MergedWithNext') return groups.map((group) => group.join(''));
  return groups.map((group) => group.reverse().join('')).reverse();
}

interface BertSettings {
  clean_text: boolean;
  handle_chinese_chars: boolean;
  strip_accents: boolean | null;
  lowercase: boolean;
}

const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}]/u;
const IS_SPACE = new RegExp(`[${SPACE}]`, 'u');
const CHINESE =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

function bertNormalized(text: string, settings: BertSettings): string {
  const { clean_text, handle_chinese_chars, lowercase, strip_accents } = settings;
  let result = text;
  if (clean_text) {
    let clean = '';
    for (const character of result) {
      if ('\t\n\r'.includes(character)) clean += ' ';
      else if (character === '\0' || character === '\ufffd' || CONTROL.test(character)) continue;
      else clean += IS_SPACE.test(character) ? ' ' : character;
    }
    result = clean;
  }
  if (handle_chinese_chars) result = result.replace(CHINESE, ' $& ');
  if (strip_accents ?? lowercase) result = result.normalize('NFD').replace(/\p{Mn}/gu, '');
  return lowercase ? lowered(result) : result;
}

/** A character at a time: a sigma at the end of a word is one as any other. */
function lowered(text: string): string {
  let result = '';
  for (const character of text) result += character.toLowerCase();
  return result;
}
