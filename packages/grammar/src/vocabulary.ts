/** The tokens of a model as a tree of their bytes, so that what tokens begin with is looked at once for all of them. */
import { kinds } from '@x/core';
import { GrammarError } from './errors';

export interface VocabularyParts {
  /** Ids are below this. */
  size: number;
  /**
   * What a token adds to a text, which may end inside a character; undefined for tokens that are no text, such as control
   * tokens.
   */
  bytes(id: number): Uint8Array | undefined;
  /** Tokens that end a text. */
  endIds: readonly number[];
  /** Tokens that are marks, such as those around calls, by their text. In other texts they are never. Default: none. */
  marks?: ReadonlyMap<number, string>;
}

/**
 * A mark that is a token of its own, in the bytes of a text: begun by one that UTF-8 does not have, so that no text of a model's
 * other tokens is taken for it.
 */
export function markBytes(mark: string): Uint8Array {
  return Buffer.concat([Buffer.of(0xff), Buffer.from(mark, 'utf8')]);
}

const LIST = kinds.kind(Array.isArray, 'give a list');
const PARTS = kinds.fields({ bytes: kinds.FUNCTION, endIds: LIST });

/** One for each tokenizer, for any number of grammars. Nodes are numbered from the root down, each before its children. */
export class Vocabulary {
  readonly size: number;
  readonly endIds: readonly number[];
  /** Number of nodes. */
  readonly nodes: number;
  /** The last byte of each node's text. */
  readonly byte: Uint8Array;
  /** Bytes of each node's text, less one. */
  readonly depth: Uint16Array;
  /** The first node that is not below a node. */
  readonly end: Int32Array;
  /** Where the tokens of a node begin in {@link ids}; they end where those of the next one begin. */
  readonly first: Int32Array;
  /** Tokens in the order of their bytes. */
  readonly ids: Int32Array;
  /** Of the longest token. */
  readonly longest: number;
  private readonly texts: readonly (Uint8Array | undefined)[];

  /** @throws GrammarError BAD_VOCABULARY for sizes and ids that are none */
  constructor(parts: VocabularyParts) {
    kinds.check('new Vocabulary', 'parts', parts, PARTS);
    const { size, bytes, endIds, marks } = parts;
    if (!Number.isSafeInteger(size) || size < 1 || size > 2 ** 24)
      throw new GrammarError('BAD_VOCABULARY', `The vocabulary has ${size} tokens; give a whole number of 1 to 2^24.`);
    const outside = endIds.find((id) => !(Number.isSafeInteger(id) && id >= 0 && id < size));
    if (outside !== undefined)
      throw new GrammarError('BAD_VOCABULARY', `The end token ${outside} is not one of the ${size} tokens.`);
    this.size = size;
    this.endIds = [...endIds];
    const ends = new Set(endIds);
    this.texts = Array.from({ length: size }, (_, id) => {
      const mark = marks?.get(id);
      const text = ends.has(id) ? undefined : mark === undefined ? bytes(id) : markBytes(mark);
      return text && text.length > 0 ? text : undefined;
    });
    const sorted = sortedByText(this.texts);
    this.ids = Int32Array.from(sorted);
    const byte: number[] = [];
    const depth: number[] = [];
    const first: number[] = [];
    /** Nodes of the text before, by depth. */
    const path: number[] = [];
    const end: number[] = [];
    let before: Uint8Array = new Uint8Array();
    let longest = 0;
    sorted.forEach((id, at) => {
      const text = this.texts[id]!;
      if (text.length > 65_535)
        throw new GrammarError('BAD_VOCABULARY', `Token ${id} has ${text.length} bytes; at most 65535 are possible.`);
      longest = Math.max(longest, text.length);
      let shared = 0;
      while (shared < before.length && shared < text.length && before[shared] === text[shared]) shared++;
      while (path.length > shared) end[path.pop()!] = byte.length;
      for (let i = shared; i < text.length; i++) {
        path.push(byte.length);
        byte.push(text[i]);
        depth.push(i);
        first.push(at);
      }
      before = text;
    });
    while (path.length > 0) end[path.pop()!] = byte.length;
    first.push(sorted.length);
    this.nodes = byte.length;
    this.byte = Uint8Array.from(byte);
    this.depth = Uint16Array.from(depth);
    this.first = Int32Array.from(first);
    this.end = Int32Array.from(end);
    this.longest = longest;
  }

  /** What a token adds to a text; undefined for one that is no text. */
  text(id: number): Uint8Array | undefined {
    return this.texts[id];
  }

  /** The text of a node. */
  path(node: number): Uint8Array {
    return this.texts[this.ids[this.first[node]]]!.subarray(0, this.depth[node] + 1);
  }
}

function sortedByText(texts: readonly (Uint8Array | undefined)[]): number[] {
  const ids: number[] = [];
  // The first six bytes as a number decide nearly always.
  const keys = new Float64Array(texts.length);
  texts.forEach((text, id) => {
    if (!text) return;
    ids.push(id);
    let key = 0;
    for (let i = 0; i < 6; i++) key = key * 256 + (i < text.length ? text[i] : 0);
    keys[id] = key;
  });
  return ids.sort((a, b) => keys[a] - keys[b] || Buffer.compare(texts[a]!, texts[b]!) || a - b);
}
