import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { GgufFile } from '@x/quantized';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { GGUF, goldenQ8, TOKENIZER, temporaryDirectory } from '../../engine/test/helpers';
import { Tokenizer } from '../src';

let fromFile: Tokenizer;
let fromGguf: Tokenizer;

beforeAll(async () => {
  fromFile = await Tokenizer.fromFile(TOKENIZER);
  const file = GgufFile.open(GGUF);
  fromGguf = Tokenizer.fromGguf(file.metadata);
  file.close();
});

/** Text of many kinds: words, scripts, digits, contractions, spaces, control characters, special tokens. */
const text = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        'Once upon a time',
        " there lived a king's daughter",
        "I'LL don't we've",
        '  ',
        '\n\n',
        '\r\n',
        '\t',
        ' 1234567 ',
        'e=mc²',
        '½',
        '…—“quoted”',
        'Ünïcödé',
        'Привет',
        '日本語のテキスト',
        '한국어',
        'مرحبا',
        'नमस्ते',
        '👩‍👩‍👧‍👦',
        '🇩🇪',
        'a\u0301',
        '\u0000',
        '\u00a0',
        '\u3000',
        '<|endoftext|>',
        '<|begin_of_text|>',
        '<|end',
        '|>',
        '__proto__',
      ),
      fc.string({ unit: 'grapheme', maxLength: 12 }),
      fc.string({ unit: 'grapheme-ascii', maxLength: 12 }),
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.join(''));

describe('the tokenizer of tiny-tales', () => {
  it('gives the ids and texts of transformers', () => {
    for (const { text, ids, greedy_ids, greedy_text } of goldenQ8().prompts) {
      expect(fromFile.encode(text)).toEqual(ids);
      expect(fromGguf.encode(text)).toEqual(ids);
      expect(fromFile.encode(text, { addSpecialTokens: false })).toEqual(ids.slice(1));
      expect(fromFile.decode(greedy_ids)).toBe(greedy_text);
      expect(fromGguf.decode([...ids, ...greedy_ids])).toBe(text + greedy_text);
    }
  });

  it('is described alike by both files', () => {
    for (const tokenizer of [fromFile, fromGguf]) {
      expect([tokenizer.bosId, tokenizer.eosIds, tokenizer.vocabSize]).toEqual([0, [1], 4096]);
    }
  });

  it('gives the same ids from tokenizer.json and from GGUF, and the text back', () => {
    fc.assert(
      fc.property(text, (sample) => {
        const ids = fromFile.encode(sample);
        expect(fromGguf.encode(sample)).toEqual(ids);
        expect(fromGguf.decode(ids.slice(1), { skipSpecialTokens: false })).toBe(sample);
        expect(fromFile.decode(ids)).toBe(fromGguf.decode(ids));
      }),
      { numRuns: 300 },
    );
  });

  it('streams any ids to the text that decoding them at once gives', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 4095 }), { maxLength: 40 }), text, (random, sample) => {
        for (const ids of [random, fromFile.encode(sample)]) {
          const stream = fromFile.decodeStream();
          let streamed = '';
          for (const id of ids) {
            const piece = stream.push(id);
            expect(piece.endsWith('\ufffd')).toBe(false);
            streamed += piece;
          }
          expect(streamed + stream.flush()).toBe(fromFile.decode(ids));
        }
      }),
      { numRuns: 200 },
    );
  });

  it('refuses ids outside the vocabulary', () => {
    for (const id of [4096, -1, 1.5])
      expect(() => fromFile.decode([5, id])).toThrow(expect.objectContaining({ code: 'BAD_TOKEN' }));
    // A stream meets what a model gives, whose output layer may be wider than the vocabulary.
    expect(fromFile.decodeStream().push(5000)).toBe('');
  });
});

describe('Tokenizer.fromFile', () => {
  it('learns what ends a generation from the files beside it', async () => {
    const { path, remove } = temporaryDirectory();
    try {
      const file = join(path, 'tokenizer.json');
      copyFileSync(TOKENIZER, file);
      expect((await Tokenizer.fromFile(file)).eosIds).toEqual([1]); // by its name
      writeFileSync(join(path, 'config.json'), '{"eos_token_id": 7}');
      expect((await Tokenizer.fromFile(file)).eosIds).toEqual([7]);
      writeFileSync(join(path, 'generation_config.json'), '{"eos_token_id": [8, 9]}');
      expect((await Tokenizer.fromFile(file)).eosIds).toEqual([8, 9]);
      expect((await Tokenizer.fromFile(file, { eosIds: [3] })).eosIds).toEqual([3]);
    } finally {
      remove();
    }
  });

  it('says what is wrong with a file', async () => {
    const { path, remove } = temporaryDirectory();
    try {
      const file = join(path, 'tokenizer.json');
      await expect(Tokenizer.fromFile(file)).rejects.toMatchObject({ code: 'FILE_NOT_FOUND', path: file });
      writeFileSync(file, '{ not json');
      await expect(Tokenizer.fromFile(file)).rejects.toMatchObject({
        code: 'BAD_TOKENIZER',
        message: expect.stringContaining('not JSON'),
      });
      writeFileSync(file, '{"model": {"type": "BPE"}}');
      await expect(Tokenizer.fromFile(file)).rejects.toMatchObject({ code: 'BAD_TOKENIZER' });
      writeFileSync(file, 'null');
      await expect(Tokenizer.fromFile(file)).rejects.toMatchObject({ code: 'BAD_TOKENIZER' });
    } finally {
      remove();
    }
  });
});
