/**
 * Files of OpenAI's tiktoken: a token's bytes in base64 and its rank on each line. Merges follow from the ranks: a token is made
 * of the two parts that merging by lower ranks leaves of its bytes.
 */
import { readFileSync, statSync } from 'node:fs';
import { FileFormatError } from '@x/core';
import { badTokenizer } from './fields';
import type { AddedTokenJson, TokenizerJson } from './tokenizer';

/** Largest known: 200,000 tokens in 3.6 MB. */
const MOST_FILE = 2 ** 26;
const MOST_TOKEN = 1024;

export interface TiktokenOptions {
  /** How text is split: a regular expression, or a name of {@link PRE_TOKENIZERS}, such as `gpt-4o`. */
  pattern: string;
  /** Ids of tokens that are no text, such as `{ '<|endoftext|>': 100257 }`. Default: none. */
  specialTokens?: Readonly<Record<string, number>>;
}

/** @param split regular expressions that split a text, one after the other */
export function tiktokenJson(
  path: string,
  split: readonly string[],
  specials: Readonly<Record<string, number>>,
): TokenizerJson {
  const ranks = readRanks(path);
  const vocab = Object.fromEntries([...ranks].map(([token, rank]) => [characters(token), rank]));
  const merges = [...ranks]
    .filter(([token]) => token.length > 1)
    .sort(([, a], [, b]) => a - b)
    .map(([token, rank]): [string, string] => {
      const parts = partsOf(token, ranks, rank);
      if (parts.length === 2) return [characters(parts[0]), characters(parts[1])];
      throw badTokenizer(`${path}: the token of rank ${rank} is not made of two tokens of lower ranks`);
    });
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const steps = split.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }));
  return {
    added_tokens: Object.entries(specials).map(([content, id]): AddedTokenJson => {
      return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
    }),
    normalizer: null,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [...steps, byteLevel] },
    post_processor: null,
    decoder: byteLevel,
    model: { type: 'BPE', unk_token: null, byte_fallback: false, ignore_merges: true, vocab, merges },
  };
}

/** By their bytes, a character each. */
function readRanks(path: string): Map<string, number> {
  let text: string;
  try {
    const { size } = statSync(path);
    if (size > MOST_FILE) throw badTokenizer(`${path} has ${size} bytes, more than ${MOST_FILE}`);
    text = readFileSync(path, 'latin1');
  } catch (cause) {
    const { code, syscall, message } = cause as NodeJS.ErrnoException;
    if (syscall === undefined) throw cause;
    throw new FileFormatError(
      code === 'ENOENT' ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE',
      `${path}: ${code === 'ENOENT' ? 'there is no such file' : message}. Give a file of tiktoken.`,
      { path, cause },
    );
  }
  const ranks = new Map<string, number>();
  const taken = new Set<number>();
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const [, base64, digits] = /^([A-Za-z0-9+/]+={0,2}) (\d{1,7})\r?$/.exec(line) ?? [];
    const token = base64 === undefined ? '' : Buffer.from(base64, 'base64').toString('latin1');
    const rank = Number(digits);
    if (token === '' || token.length > MOST_TOKEN || ranks.has(token) || taken.has(rank))
      throw badTokenizer(`${path}: line ${i + 1} is no new token in base64 with a rank of its own`);
    ranks.set(token, rank);
    taken.add(rank);
  }
  for (let byte = 0; byte < 256; byte++)
    if (!ranks.has(String.fromCharCode(byte))) throw badTokenizer(`${path} has no token for the byte ${byte}`);
  return ranks;
}

/** What merging by ranks below `most` leaves of a token. */
function partsOf(token: string, ranks: ReadonlyMap<string, number>, most: number): string[] {
  const parts = token.split('');
  for (;;) {
    let [best, at] = [most, -1];
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ranks.get(parts[i] + parts[i + 1]);
      if (rank !== undefined && rank < best) [best, at] = [rank, i];
    }
    if (at < 0) return parts;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
}

/** GPT-2's characters for bytes: printable ones stand for themselves, the others follow from U+0100 on. */
const CHARACTERS: readonly string[] = (() => {
  const isKept = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isKept(byte) ? byte : next++));
})();

function characters(bytes: string): string {
  let text = '';
  for (let i = 0; i < bytes.length; i++) text += CHARACTERS[bytes.charCodeAt(i)];
  return text;
}
