// Each family of tokenizers against the Rust library: ids of 10,000 awkward texts, from tokenizer.json, GGUF and tiktoken files.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { GgufMetadata, type GgufValue, gguf } from '@x/quantized';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory } from '../../engine/test/helpers';
import { Tokenizer } from '../src';
import { awkwardTexts } from './awkward-texts';

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`./fixtures/tokenizers/${name}.json`, import.meta.url), 'utf8'));

interface Definition {
  model: { vocab: Record<string, number> | [string, number][]; merges: [string, string][] };
  added_tokens: { id: number }[];
  [part: string]: unknown;
}
interface Family {
  vocabulary: string;
  changes: Record<string, object>;
  gguf?: string;
  scores?: number[];
  hashes: number[];
  samples: number[][];
  pairs: number[][];
}

const vocabularies = read('vocabularies') as Record<string, Definition> & { charsmap: string };
const expected = read('expected') as { families: Record<string, Family>; tiktoken: number[] };
const texts = awkwardTexts(2, 10_000);
const CHUNK = 250;
/** Texts for what differs from a tested tokenizer in its making only. */
const SOME = 2000;
const first = (all: readonly number[]) => all.slice(0, SOME / CHUNK);

/** FNV-1a of the ids of each chunk of texts. */
function hashes(tokenizer: Tokenizer, count = texts.length): number[] {
  const all: number[] = [];
  for (let start = 0; start < count; start += CHUNK) {
    let hash = 2166136261;
    for (const text of texts.slice(start, start + CHUNK)) {
      const line = `${tokenizer.encode(text).join(',')};`;
      for (let i = 0; i < line.length; i++) hash = Math.imul(hash ^ line.charCodeAt(i), 16777619) >>> 0;
    }
    all.push(hash);
  }
  return all;
}

function definitionOf({ vocabulary, changes }: Family): Definition {
  const definition = structuredClone(vocabularies[vocabulary]);
  const filled = JSON.parse(JSON.stringify(changes).replaceAll('CHARSMAP', vocabularies.charsmap));
  for (const [key, value] of Object.entries(filled as Record<string, object>))
    definition[key] = key === 'model' ? { ...definition.model, ...value } : value;
  return definition;
}

const names = Object.keys(expected.families);

describe.each(names)('%s', (name) => {
  const family = expected.families[name];

  it('gives the ids of the Rust library', () => {
    const tokenizer = Tokenizer.fromJson(definitionOf(family));
    expect(texts.slice(0, 8).map((text) => tokenizer.encode(text))).toEqual(family.samples);
    expect(hashes(tokenizer)).toEqual(family.hashes);
    for (const [i, ids] of family.pairs.entries())
      expect(tokenizer.encodeInput(texts[i], { pair: texts[i + 1] }).ids).toEqual(ids);
  });

  it('never says that a text has more tokens than it has', () => {
    const tokenizer = Tokenizer.fromJson(definitionOf(family));
    const { vocab } = vocabularies[family.vocabulary].model;
    const pieces = Array.isArray(vocab) ? vocab.map(([piece]) => piece) : Object.keys(vocab);
    const longest = pieces.reduce((a, b) => (b.length > a.length ? b : a));
    const parts = ['\u03b1\u0313\u0300\u0345', '\u1112\u1161\u11ab', ' ', '\n', '\ue000', 'A'];
    parts.push(tokenizer.decode([tokenizer.tokenToId(longest)!]));
    for (const text of [...texts.slice(0, 500), ...parts.map((part) => part.repeat(200))])
      expect(tokenizer.fewestTokens(text), text).toBeLessThanOrEqual(tokenizer.encode(text).length);
    // Of a byte-level tokenizer that drops nothing something is known.
    const { pre_tokenizer, added_tokens } = definitionOf(family);
    const drops = ['words', 'removed'].includes(name) || JSON.stringify(added_tokens).includes('strip":true');
    if (JSON.stringify(pre_tokenizer).includes('ByteLevel') && !drops)
      expect(tokenizer.fewestTokens('a'.repeat(1_000_000))).toBeGreaterThan(1000);
  });

  it('gives out whole characters when ids come one by one', () => {
    const tokenizer = Tokenizer.fromJson({ ...definitionOf(family), post_processor: null });
    for (const text of texts.slice(0, 200)) {
      const ids = tokenizer.encode(text);
      const stream = tokenizer.decodeStream();
      const pieces = [...ids.map((id) => stream.push(id)), stream.flush()];
      // An unpaired surrogate is half a character; what was U+FFFD in the text may stay.
      for (const piece of pieces) expect(piece).not.toMatch(/\p{Cs}/u);
      if (!text.includes('\ufffd')) expect(pieces.join('')).toBe(tokenizer.decode(ids));
    }
  });
});

/** As llama.cpp's converter writes it. */
function ggufOf(entries: Record<string, GgufValue>): Tokenizer {
  const named = Object.entries(entries).map(([key, value]) => [`tokenizer.ggml.${key}`, value] as const);
  return Tokenizer.fromGguf(new GgufMetadata('test.gguf', named));
}

function tokensOf({ model }: Definition): string[] {
  if (Array.isArray(model.vocab)) return model.vocab.map(([token]) => token);
  const tokens: string[] = [];
  for (const [token, id] of Object.entries(model.vocab)) tokens[id] = token;
  return tokens;
}

/** llama.cpp's types: 1 normal, 2 unknown, 3 control, 6 byte. */
function typesOf(tokens: readonly string[], controls: readonly number[], unknown?: number): GgufValue {
  const type = (token: string, id: number) =>
    id === unknown ? 2 : controls.includes(id) ? 3 : /^<0x[0-9A-F]{2}>$/.test(token) ? 6 : 1;
  return gguf.array('int32', Int32Array.from(tokens, type));
}

function mergesOf({ model }: Definition): GgufValue {
  return gguf.strings(model.merges.map((merge) => merge.join(' ')));
}

function expectAlike(tokenizer: Tokenizer, family: Family, fits: (text: string) => boolean): void {
  const other = Tokenizer.fromJson(definitionOf(family));
  const some = texts.slice(0, SOME).filter(fits);
  expect(some.length).toBeGreaterThan(SOME / 5);
  for (const text of some) expect(tokenizer.encode(text)).toEqual(other.encode(text));
}

const NO = { add_bos_token: gguf.bool(false), add_eos_token: gguf.bool(false) };

describe('the same from GGUF files', () => {
  it.each(names.filter((name) => expected.families[name].gguf))('%s', (name) => {
    const family = expected.families[name];
    const definition = definitionOf(family);
    const tokens = tokensOf(definition);
    const isMarked = definition.post_processor !== null;
    const tokenizer = ggufOf({
      model: gguf.string('gpt2'),
      pre: gguf.string(family.gguf!),
      tokens: gguf.strings(tokens),
      token_type: typesOf(tokens, definition.added_tokens.map(({ id }) => id)), // biome-ignore format: one thing a line
      merges: mergesOf(definition),
      bos_token_id: gguf.uint32(0),
      eos_token_id: gguf.uint32(2),
      seperator_token_id: gguf.uint32(2),
      add_bos_token: gguf.bool(isMarked),
      add_eos_token: gguf.bool(isMarked),
    });
    expect(hashes(tokenizer, SOME)).toEqual(first(family.hashes));
    for (const [i, ids] of family.pairs.entries())
      expect(tokenizer.encodeInput(texts[i], { pair: texts[i + 1] }).ids).toEqual(ids);
  });

  // Gemma 4's files have the merges of what are SentencePiece's pieces.
  it.each([
    ['gemma4', 'gemma4'],
    ['gpt2', 'granite-embed-multi-311m'],
  ])('gemma4, as model %s and pre-tokenizer %s', (model, pre) => {
    const family = expected.families.gemma;
    const definition = definitionOf(family);
    const tokens = tokensOf(definition);
    const tokenizer = ggufOf({
      model: gguf.string(model),
      pre: gguf.string(pre),
      tokens: gguf.strings(tokens),
      merges: mergesOf(definition),
      token_type: typesOf(tokens, [1, 2], 0),
      ...NO,
    });
    expect(hashes(tokenizer, SOME)).toEqual(first(family.hashes));
    const text = 'Once  upon\n\na time 🙂';
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
  });

  it.each(['gemma', 'llama2'])('%s', (name) => {
    const family = expected.families[name];
    const tokens = tokensOf(definitionOf(family));
    const tokenizer = ggufOf({
      model: gguf.string('llama'),
      tokens: gguf.strings(tokens),
      scores: gguf.array('float32', Float32Array.from(family.scores!)),
      token_type: typesOf(tokens, [1, 2], 0),
      add_space_prefix: gguf.bool(name === 'llama2'),
      ...NO,
    });
    expect(hashes(tokenizer, SOME)).toEqual(first(family.hashes));
  });

  it.each(['bert-uncased', 'bert-cased'])('%s', (name) => {
    const family = expected.families[name];
    const tokens = tokensOf(definitionOf(family));
    const stored = tokens.map((token, id) => {
      if (id < 5) return token;
      return token.startsWith('##') ? token.slice(2) : `▁${token}`;
    });
    const tokenizer = ggufOf({
      model: gguf.string('bert'),
      tokens: gguf.strings(stored),
      token_type: typesOf(tokens, [0, 1, 2, 3, 4]),
      bos_token_id: gguf.uint32(2),
      eos_token_id: gguf.uint32(3),
      unknown_token_id: gguf.uint32(1),
      'normalizer.lowercase': gguf.bool(name === 'bert-uncased'),
    });
    // A ▁ inside of a word looks as the beginning of one in such files.
    expectAlike(tokenizer, family, (text) => !text.includes('▁'));
  });

  it.each(['xlm-roberta', 't5'])('%s', (name) => {
    const family = expected.families[name];
    const { model } = definitionOf(family);
    const vocab = model.vocab as [string, number][];
    const tokens = vocab.map(([token]) => token);
    const isMarked = name === 'xlm-roberta';
    const tokenizer = ggufOf({
      model: gguf.string('t5'),
      tokens: gguf.strings(tokens),
      scores: gguf.array(
        'float32',
        Float32Array.from(vocab, ([, score]) => score),
      ),
      token_type: typesOf(tokens, [1, 2], 0),
      precompiled_charsmap: gguf.array('uint8', new Uint8Array(Buffer.from(vocabularies.charsmap, 'base64'))),
      bos_token_id: gguf.uint32(1),
      eos_token_id: gguf.uint32(2),
      add_bos_token: gguf.bool(isMarked),
      add_eos_token: gguf.bool(isMarked),
    });
    // transformers' present converter cuts white space in front of special tokens and at the end, which these definitions do not;
    // T5's splits at all white space, SentencePiece at spaces.
    const fits = (text: string) => /[\p{L}\p{N}]$/u.test(text) && !/<\/?s>|<unk>/.test(text);
    const hasOtherSpaces = (text: string) => /[^\S ]|\u0085/u.test(text);
    expectAlike(tokenizer, family, (text) => fits(text) && (isMarked || !hasOtherSpaces(text)));
  });
});

it('gives the ids of tiktoken from its files', () => {
  const folder = temporaryDirectory();
  const path = join(folder.path, 'small.tiktoken');
  const bytes = new Map<string, number>();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const isKept = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    bytes.set(String.fromCharCode(isKept ? byte : next++), byte);
  }
  const lines = tokensOf(vocabularies['byte-level'])
    .slice(4)
    .map((token, rank) => {
      return `${Buffer.from(Array.from(token, (character) => bytes.get(character)!)).toString('base64')} ${rank}`;
    });
  writeFileSync(path, `${lines.join('\n')}\n`);
  try {
    const tokenizer = Tokenizer.fromTiktoken(path, { pattern: 'llama3', specialTokens: { '<|end|>': 2000 } });
    expect(hashes(tokenizer, SOME)).toEqual(first(expected.tiktoken));
    expect(tokenizer.encode('<|end|>')).toEqual([2000]);
    for (const [change, message] of [
      [lines.slice(1), 'no token for the byte'],
      [[...lines, lines[300]], 'is no new token'],
      [[...lines, 'hello'], `line ${lines.length + 1}`],
      [[...lines, `${Buffer.from('qzqzq').toString('base64')} 5000`], 'rank 5000 is not made of two'],
    ] as const) {
      writeFileSync(path, change.join('\n'));
      expect(() => Tokenizer.fromTiktoken(path, { pattern: 'llama3' })).toThrow(message);
    }
    expect(() => Tokenizer.fromTiktoken(path, { pattern: '' })).toThrow('pattern');
    rmSync(path);
    expect(() => Tokenizer.fromTiktoken(path, { pattern: 'llama3' })).toThrow('no such file');
  } finally {
    folder.remove();
  }
});
