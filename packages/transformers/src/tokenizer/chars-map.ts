/**
 * SentencePiece's precompiled tables of characters: what NFKC and a model's own rules make of each. A table is a double-array
 * trie over UTF-8 bytes, behind it the texts that its leaves point to, each ended by a zero byte. As the Rust crate
 * `spm_precompiled` applies them, which `tokenizers` uses: to graphemes of fewer than six bytes whole, to others by character,
 * and of several entries that a text begins with the shortest counts.
 */
import { badTokenizer } from './fields';

/** Longest text that an entry may put in place of another, in characters, as in published tables; and in bytes with its end. */
export const MOST_MAPPED = 18;
const MOST_BYTES = 4 * MOST_MAPPED + 1;
/** Graphemes of so many bytes are looked up by character. */
const LONG = 6;

/** The function of a table. @throws TransformersError BAD_TOKENIZER for what is no such table */
export function charsMap(table: Uint8Array): (text: string) => string {
  const view = new DataView(table.buffer, table.byteOffset, table.byteLength);
  const trieBytes = table.byteLength >= 4 ? view.getUint32(0, true) : 0;
  if (trieBytes < 4 || trieBytes % 4 !== 0 || 4 + trieBytes > table.byteLength)
    throw badTokenizer('normalizer.precompiled_charsmap is no table of characters; download the file again');
  const trie = Uint32Array.from({ length: trieBytes / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
  const texts = table.subarray(4 + trieBytes);
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();
  const known = new Map<string, string | undefined>();

  const lookUp = (chunk: string): string | undefined => {
    if (known.has(chunk)) return known.get(chunk);
    const start = firstOf(trie, encoder.encode(chunk));
    let found: string | undefined;
    if (start !== undefined && start < texts.length) {
      const end = texts.subarray(start, start + MOST_BYTES).indexOf(0);
      found = decoder.decode(texts.subarray(start, start + Math.max(0, end)));
      if (end < 0 || found.length > MOST_MAPPED)
        throw badTokenizer(
          `normalizer.precompiled_charsmap has an entry of more than ${MOST_MAPPED} characters; download the file again`,
        );
    }
    if (known.size < 65_536) known.set(chunk, found);
    return found;
  };

  const segmenter = new Intl.Segmenter('und', { granularity: 'grapheme' });
  const byCharacter = (text: string): string => {
    let result = '';
    for (const character of text) result += lookUp(character) ?? character;
    return result;
  };
  return (text) => {
    // Characters of ASCII are graphemes each by itself, but for CR LF.
    if (/^[\0-\x7f]*$/.test(text) && !text.includes('\r\n')) return byCharacter(text);
    let result = '';
    for (const { segment } of segmenter.segment(text)) {
      const whole = encoder.encode(segment).length < LONG ? lookUp(segment) : undefined;
      result += whole ?? byCharacter(segment);
    }
    return result;
  };
}

/** The value of the shortest entry that the bytes begin with. */
function firstOf(trie: Uint32Array, bytes: Uint8Array): number | undefined {
  const offset = (unit: number) => ((unit >>> 10) << ((unit & 0x200) >>> 6)) >>> 0;
  let at = offset(trie[0]);
  for (const byte of bytes) {
    if (byte === 0) return undefined;
    at = (at ^ byte) >>> 0;
    const unit = trie[at];
    if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return undefined;
    at = (at ^ offset(unit)) >>> 0;
    if ((unit >>> 8) & 1) return at < trie.length ? trie[at] & 0x7fffffff : undefined;
  }
  return undefined;
}
