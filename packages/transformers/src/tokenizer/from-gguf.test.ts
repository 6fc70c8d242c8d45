import { Tokenizer as HfTokenizer } from '@huggingface/tokenizers';
import { GgufMetadata, type GgufValue, gguf } from '@x/quantized';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { tokenizerJsonFromGguf } from './from-gguf';
import { PRE_TOKENIZERS } from './pre-tokenizers';
import { Tokenizer } from './tokenizer';

function metadata(entries: Record<string, unknown>): GgufMetadata {
  return new GgufMetadata(
    'test.gguf',
    Object.entries(entries).map(([key, value]) => [`tokenizer.ggml.${key}`, typed(value)]),
  );
}

function typed(value: unknown): GgufValue {
  if (typeof value === 'string') return gguf.string(value);
  if (typeof value === 'boolean') return gguf.bool(value);
  if (typeof value === 'number') return gguf.uint32(value);
  if (value instanceof Int32Array) return gguf.array('int32', value);
  if (value instanceof Float32Array) return gguf.array('float32', value);
  return gguf.strings(value as string[]);
}

const bpe = {
  model: 'gpt2',
  pre: 'gpt-2',
  tokens: ['a', 'b', 'ab', 'Ġ', '<|im_end|>', '<s>'],
  merges: ['a b'],
  token_type: Int32Array.of(1, 1, 1, 1, 3, 3),
};

/** The pieces that a pre-tokenizer cuts a text into, spaces shown as Ġ. */
function pieces(pre: string, text: string): string[] {
  const { json } = tokenizerJsonFromGguf(metadata({ ...bpe, pre }));
  return new HfTokenizer(json, {}).pre_tokenizer!.pre_tokenize(text);
}

describe('pre-tokenizers', () => {
  it('split as the original models do', () => {
    expect(pieces('llama-bpe', "I'M 12345 ok!!\n\n x")).toEqual(['I', "'M", 'Ġ', '123', '45', 'Ġok', '!!ĊĊ', 'Ġx']);
    expect(pieces('qwen2', '12345  é')).toEqual(['1', '2', '3', '4', '5', 'Ġ', 'ĠÃ©']);
    expect(pieces('gpt-2', "I'M we're 12345   x ")).toEqual(['I', "'", 'M', 'Ġwe', "'re", 'Ġ12345', 'ĠĠ', 'Ġx', 'Ġ']);
    expect(pieces('smollm', 'in 2024.')).toEqual(['in', 'Ġ', '2', '0', '2', '4', '.']);
    expect(pieces('tekken', 'HelloWorld fooBar')).toEqual(['Hello', 'World', 'Ġfoo', 'Bar']);
    expect(pieces('gpt-4o', "theDog's 1234")).toEqual(['the', "Dog's", 'Ġ', '123', '4']);
    expect(pieces('deepseek-v3', 'x=1234;y')).toEqual(['x', '=', '123', '4', ';y']);
    expect(pieces('deepseek-llm', 'in 12  \n')).toEqual(['in', 'Ġ', '1', '2', 'ĠĠ', 'Ċ']);
    expect(pieces('deepseek-coder', 'f(x)\n')).toEqual(['f', '(', 'x', ')', 'Ċ']);
    expect(pieces('tiny_aya', 'a1234567')).toEqual(['a', '1', '234', '567']);
  });

  it('lose nothing', () => {
    const sample = fc.oneof(
      fc.string({ unit: 'grapheme' }),
      fc.string({ unit: fc.constantFrom(...'aZ éß9٣\n\r\t .,;\'`"$|ſ漢か한🙂\u0301') }),
    );
    for (const pre of PRE_TOKENIZERS.keys()) {
      const { json } = tokenizerJsonFromGguf(metadata({ ...bpe, pre }));
      const split = new HfTokenizer(json, {}).pre_tokenizer!;
      const bytes = new HfTokenizer({ ...json, pre_tokenizer: json.decoder as object }, {}).pre_tokenizer!;
      fc.assert(
        fc.property(sample, (text) => {
          expect(split.pre_tokenize(text).join('')).toBe(bytes.pre_tokenize(text).join(''));
        }),
        { numRuns: 30 },
      );
    }
  });
});

describe('byte-level BPE', () => {
  it('applies merges, special tokens and add_bos_token', () => {
    const base = { ...bpe, bos_token_id: 5, eos_token_id: 4 };
    const plain = Tokenizer.fromGguf(metadata(base));
    expect(plain.encode('ab a')).toEqual([2, 3, 0]);
    expect(plain.encode('ab<|im_end|>a')).toEqual([2, 4, 0]);
    expect([plain.bosId, plain.eosIds, plain.vocabSize]).toEqual([5, [4], 6]);
    const withBos = Tokenizer.fromGguf(metadata({ ...base, add_bos_token: true, add_eos_token: true }));
    expect(withBos.encode('ab')).toEqual([5, 2, 4]);
    expect(withBos.encode('ab', { addSpecialTokens: false })).toEqual([2]);
    expect(withBos.encode('')).toEqual([5, 4]);
    expect(withBos.decode([5, 2, 3, 0, 4])).toBe('ab a');
    expect(withBos.decode([5, 2, 4], { skipSpecialTokens: false })).toBe('<s>ab<|im_end|>');
    expect(withBos.decode([])).toBe('');
    expect([withBos.idToToken(2), withBos.tokenToId('ab'), withBos.isSpecial(4), withBos.isSpecial(2)]).toEqual([
      'ab',
      2,
      true,
      false,
    ]);
  });

  it('knows end-of-generation tokens that the file does not declare', () => {
    expect(Tokenizer.fromGguf(metadata(bpe)).eosIds).toEqual([4]);
    expect(Tokenizer.fromGguf(metadata({ ...bpe, eot_token_id: 5, eos_token_id: 0xffffffff })).eosIds).toEqual([5, 4]);
    const { token_type: _, ...untyped } = bpe;
    for (const entries of [untyped, { ...bpe, token_type: Int32Array.of(1, 1, 1, 1, 4, 3) }]) {
      const tokenizer = Tokenizer.fromGguf(metadata(entries));
      expect([tokenizer.eosIds, tokenizer.isSpecial(4)]).toEqual([[4], true]);
      expect(tokenizer.encode('ab<|im_end|>')).toEqual([2, 4]);
    }
  });

  it('has a mark more between the texts of a pair where the name says so', () => {
    const ends = { bos_token_id: 5, eos_token_id: 4, seperator_token_id: 4, add_bos_token: true, add_eos_token: true };
    const pair = (pre: string) =>
      Tokenizer.fromGguf(metadata({ ...bpe, ...ends, pre })).encodeInput('a', { pair: 'b' });
    expect(pair('roberta-bpe').ids).toEqual([5, 0, 4, 4, 1, 4]);
    expect(pair('jina-v2-es').ids).toEqual([5, 0, 4, 1, 4]);
  });

  it('takes any token name', () => {
    const odd = {
      ...bpe,
      tokens: ['_', '__', '__proto__', 'Ġ', '1', '0'],
      merges: ['_ _'],
      token_type: new Int32Array(6).fill(1),
    };
    expect(Tokenizer.fromGguf(metadata(odd)).encode('__ 10')).toEqual([1, 3, 4, 5]);
    expect(Tokenizer.fromGguf(metadata(odd)).tokenToId('__proto__')).toBe(2);
  });

  it('refuses what it cannot do right', () => {
    const code = (entries: Record<string, unknown>) => {
      try {
        Tokenizer.fromGguf(metadata(entries));
      } catch (error) {
        return [(error as { code: string }).code, (error as Error).message] as const;
      }
      return ['none', ''] as const;
    };
    expect(code({})).toEqual(['GGUF_MISSING_KEY', expect.stringContaining('tokenizer.ggml.model')]);
    expect(code({ ...bpe, pre: 'klingon' })).toEqual([
      'UNSUPPORTED_TOKENIZER',
      expect.stringMatching(/"klingon".*llama-bpe/),
    ]);
    expect(code({ ...bpe, model: 'rwkv' })).toEqual(['UNSUPPORTED_TOKENIZER', expect.stringContaining('"rwkv"')]);
    expect(code({ ...bpe, model: 't5' })).toEqual(['GGUF_MISSING_KEY', expect.stringContaining('scores')]);
    expect(code({ ...bpe, merges: ['ab'] })).toEqual(['BAD_GGUF_METADATA', expect.stringContaining('merges[0]')]);
    expect(code({ ...bpe, bos_token_id: 6 })).toEqual([
      'BAD_GGUF_METADATA',
      expect.stringContaining('vocabulary of 6'),
    ]);
    expect(code({ ...bpe, tokens: 'abc' })).toEqual(['GGUF_WRONG_TYPE', expect.stringContaining('array of strings')]);
    expect(code({ ...bpe, token_type: Int32Array.of(1) })).toEqual([
      'BAD_GGUF_METADATA',
      expect.stringContaining('1 numbers for 6 tokens'),
    ]);
    expect(code({ ...bpe, add_bos_token: 1 })).toEqual(['GGUF_WRONG_TYPE', expect.stringContaining('a bool')]);
  });
});

describe('SentencePiece', () => {
  const words = ['▁', 'a', 'b', 'c', '▁a', 'ab', 'bc', 'abc', '▁ab', 'ca', '▁abc'];
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  const tokens = ['<unk>', '<s>', '</s>', ...bytes, ...words];
  const first = 3 + 256;
  const scores = Float32Array.from(tokens, (_, id) => (id < first ? 0 : -(id - first)));
  const types = Int32Array.from(tokens, (_, id) => (id === 0 ? 2 : id < 3 ? 3 : id < first ? 6 : 1));
  const spm = { model: 'llama', tokens, scores, token_type: types, bos_token_id: 1, eos_token_id: 2 };
  const tokenizer = Tokenizer.fromGguf(metadata(spm));

  /** The algorithm as SentencePiece states it: join the best-scoring neighbours, the leftmost of equals. */
  function reference(text: string): number[] {
    const pieces = Array.from(`▁${text.replaceAll(' ', '▁')}`);
    for (;;) {
      let best = -1;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const score = (at: number) => scores[tokens.indexOf(pieces[at] + pieces[at + 1])] ?? Number.NEGATIVE_INFINITY;
        if (words.includes(pieces[i] + pieces[i + 1]) && (best < 0 || score(i) > score(best))) best = i;
      }
      if (best < 0) break;
      pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
    }
    return [
      1,
      ...pieces.flatMap((piece) =>
        words.includes(piece) ? [tokens.indexOf(piece)] : [...Buffer.from(piece)].map((byte) => 3 + byte),
      ),
    ];
  }

  it('encodes as SentencePiece does and decodes back', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c', ' ', 'é', '🙂'), minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(text, (sample) => {
        const ids = tokenizer.encode(sample);
        expect(ids).toEqual(reference(sample));
        expect(tokenizer.decode(ids)).toBe(sample);
      }),
    );
  });

  it("takes llama.cpp's ids of special tokens where the file gives none, or one that is no token's", () => {
    const { bos_token_id: _, eos_token_id: __, token_type: ___, ...bare } = spm;
    for (const entries of [bare, { ...bare, bos_token_id: 5000, eos_token_id: 5000, unknown_token_id: 5000 }]) {
      const usual = Tokenizer.fromGguf(metadata(entries));
      expect([usual.bosId, usual.eosIds, usual.isSpecial(1)]).toEqual([1, [2], true]);
      expect(usual.encode('abc')).toEqual(tokenizer.encode('abc'));
      expect(tokenizerJsonFromGguf(metadata(entries)).json.model).toMatchObject({ unk_token: '<unk>' });
    }
    const none = Tokenizer.fromGguf(metadata({ ...spm, bos_token_id: 0xffffffff }));
    expect([none.bosId, none.encode('abc')]).toEqual([undefined, tokenizer.encode('abc').slice(1)]);
    // Others have no usual ids.
    expect(Tokenizer.fromGguf(metadata(bpe)).bosId).toBeUndefined();
  });

  it('keeps the space of a continuation', () => {
    const prompt = tokenizer.encode('ab');
    const next = tokenizer.tokenToId('▁abc')!;
    const alone = tokenizer.decodeStream();
    expect(alone.push(next)).toBe('abc');
    const continued = tokenizer.decodeStream({ context: prompt });
    expect(continued.push(next)).toBe(' abc');
  });
});
