import { BPE } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Seams } from './known-words';
import { Tokenizer } from './tokenizer';

const LETTERS = ['a', 'b', '▁', '🙂', '\ud83d', 'é'];
const letters = (minLength: number, maxLength: number) =>
  fc.array(fc.constantFrom(...LETTERS), { minLength, maxLength, size: 'max' }).map((all) => all.join(''));

/** One without a pre-tokenizer, as SentencePiece's are; rules join any two pieces. */
function tokenizerOf(pieces: readonly string[], more: object = {}): Tokenizer {
  const vocab: Record<string, number> = { '<unk>': 0 };
  for (const piece of [...LETTERS, ...pieces]) vocab[piece] ??= Object.keys(vocab).length;
  const merges = Object.keys(vocab).flatMap((piece) => {
    const characters = Array.from(piece);
    const cuts = characters
      .slice(1)
      .map((_, i) => [characters.slice(0, i + 1).join(''), characters.slice(i + 1).join('')]);
    return cuts.filter((cut) => cut.every((part) => part in vocab));
  });
  return Tokenizer.fromJson({
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: 'Fuse' },
    model: { type: 'BPE', vocab, merges, unk_token: '<unk>', ...more },
  });
}

const modelOf = (tokenizer: Tokenizer) => (tokenizer as unknown as { inner: { model: BPE } }).inner.model;

test('what is cut and remembered has the pieces of the whole', () => {
  const more = fc.constantFrom({}, { ignore_merges: true }, { end_of_word_suffix: 'b' }, { fuse_unk: true });
  const texts = fc.array(fc.oneof(letters(0, 300), letters(1024, 1300)), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(fc.array(letters(2, 5), { maxLength: 12 }), texts, more, (pieces, words, options) => {
      const model = modelOf(tokenizerOf(pieces, options));
      const whole = words.map((word) => BPE.prototype.encode.call(model, [word]));
      expect(words.map((word) => model.encode([word]))).toEqual(whole);
      expect(model.encode(words)).toEqual(whole.flat());
    }),
    { numRuns: 150 },
  );
});

test('texts are cut between neighbours that are in no piece, never inside of a character', () => {
  const seams = new Seams(['▁ab', 'b▁', '🙂🙂']);
  expect(seams.cut('▁ab▁b▁▁abba🙂🙂a🙃')).toEqual(['▁ab▁', 'b▁', '▁ab', 'b', 'a', '🙂🙂', 'a', '🙃']);
  expect(seams.cut('')).toEqual(['']);
});

test('a text of millions of characters takes no longer for each than a short one', () => {
  const tokenizer = tokenizerOf(['▁a', 'ab', '▁ab']);
  const model = modelOf(tokenizer);
  const long = '▁ab'.repeat(2 ** 19);
  let looked = 0;
  const { bpe } = model;
  model.bpe = (word) => {
    looked += word.length;
    return bpe.call(model, word);
  };
  expect(tokenizer.encode(long)).toHaveLength(2 ** 19);
  expect(looked).toBeLessThan(100);
});
