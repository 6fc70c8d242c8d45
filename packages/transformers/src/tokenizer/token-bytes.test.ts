import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { Tokenizer } from './tokenizer';

const TALES = fileURLToPath(new URL('../../../../models/tiny-tales/tokenizer.json', import.meta.url));

/** A SentencePiece tokenizer as GGUF files give it, with bytes for what has no piece. */
const PIECES = [
  '<unk>',
  '</s>',
  ...Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`),
  '▁a',
  'b',
  '▁',
  'é',
];
const pieces = {
  added_tokens: ['<unk>', '</s>'].map((content, id) => ({ id, content, special: true })),
  normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
  pre_tokenizer: null,
  post_processor: null,
  decoder: {
    type: 'Sequence',
    decoders: [
      { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      { type: 'Strip', content: ' ', start: 1, stop: 0 },
    ],
  },
  model: {
    type: 'BPE',
    vocab: Object.fromEntries(PIECES.map((piece, id) => [piece, id])),
    merges: [],
    byte_fallback: true,
    unk_token: '<unk>',
  },
};

describe('tokenBytes', () => {
  it('gives the bytes of byte-level tokens: those of a text together are the text', () => {
    const tokenizer = Tokenizer.fromJson(JSON.parse(readFileSync(TALES, 'utf8')));
    const bytes = tokenizer.tokenBytes();
    for (const text of ['Once upon a time, said the "fox"!\n', 'naïve café 東京 🦊 \u0000\u007f']) {
      const ids = tokenizer.encode(text, { addSpecialTokens: false });
      expect(Buffer.concat(ids.map((id) => bytes(id)!)).toString()).toBe(text);
    }
    // Every token that is whole characters by itself reads as the tokenizer decodes it.
    let compared = 0;
    for (let id = 0; id < tokenizer.vocabSize; id++) {
      const own = bytes(id);
      const text = own && Buffer.from(own).toString();
      if (text === undefined || text.includes('\ufffd')) continue;
      expect(tokenizer.decode([id])).toBe(text);
      compared++;
    }
    expect(compared).toBeGreaterThan(3000);
  });

  it('gives none for special tokens and for ids that are no tokens', () => {
    const tokenizer = Tokenizer.fromJson(JSON.parse(readFileSync(TALES, 'utf8')));
    const bytes = tokenizer.tokenBytes();
    for (const id of tokenizer.eosIds) expect(bytes(id)).toBeUndefined();
    expect(bytes(tokenizer.vocabSize)).toBeUndefined();
    expect(bytes(10_000_000)).toBeUndefined();
  });

  it('gives the bytes of SentencePiece tokens, of single bytes, too', () => {
    const bytes = Tokenizer.fromJson(pieces).tokenBytes();
    const text = (piece: string) => Buffer.from(bytes(PIECES.indexOf(piece))!).toString('latin1');
    expect(text('▁a')).toBe(' a');
    expect(text('b')).toBe('b');
    expect(text('▁')).toBe(' ');
    expect(text('<0xC3>')).toBe('\u00c3');
    expect(text('<0x0A>')).toBe('\n');
    expect(text('é')).toBe('\u00c3\u00a9');
    expect(bytes(0)).toBeUndefined();
  });

  it('writes added tokens of byte-level vocabularies as they are', () => {
    const tokenizer = Tokenizer.fromJson({
      ...pieces,
      added_tokens: [{ id: 9, content: 'é', special: false }],
      decoder: { type: 'ByteLevel' },
      model: { type: 'BPE', vocab: { Ã: 0, '©': 1, Ġx: 2 }, merges: [] },
    });
    const bytes = tokenizer.tokenBytes();
    expect(Buffer.from(bytes(9)!).toString()).toBe('é');
    expect([...bytes(0)!, ...bytes(1)!]).toEqual([0xc3, 0xa9]);
    expect(Buffer.from(bytes(2)!).toString()).toBe(' x');
  });

  it('refuses decoders that look at more than one token', () => {
    for (const decoder of [null, { type: 'WordPiece' }, { type: 'Replace', pattern: { Regex: 'a+' }, content: '' }]) {
      expect(() => Tokenizer.fromJson({ ...pieces, decoder }).tokenBytes()).toThrow(/no bytes of their own/);
    }
  });
});
