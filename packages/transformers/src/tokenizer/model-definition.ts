/** The part `model` of a tokenizer.json: a vocabulary, and how words become its tokens. */
import { type Fields, wrong } from './fields';
import { type PairModel, rulesOfMerges } from './pair-ranks';

/** Largest id that is believed; the largest vocabularies have some million tokens. */
export const MOST_ID = 2 ** 23 - 1;
/** Pieces of Unigram become a tree of their characters, which takes some hundred bytes for each. */
const MOST_PIECE = 256;
const MOST_PIECE_CHARACTERS = 2 ** 22;

export interface CheckedModel {
  /** As the library takes it. */
  model: unknown;
  largestId: number;
  /** The tables of byte-pair encoding. */
  pairs?: PairModel;
}

/**
 * @param made tables of byte-pair encoding, where there are some: `vocab` and `merges` of the object are not looked at then
 * @throws TransformersError BAD_TOKENIZER, naming the field
 */
export function checkModel(model: Fields, made?: PairModel): CheckedModel {
  const type = made ? 'BPE' : kindOf(model);
  if (type === 'Unigram') return unigram(model);
  const vocab = made ? {} : model.object('vocab');
  const unk_token = model.has('unk_token') ? model.text('unk_token', undefined, 512) : null;
  if (type === 'BPE') {
    const table = made?.vocab ?? (new Map(Object.entries(vocab)) as Map<string, number>);
    const largestId = largestIdOf(model, table);
    const merges = made ? [] : checkMerges(model);
    const pairs = made ?? { vocab: table, ...rulesOfMerges(merges) };
    return { model: { vocab, merges, unk_token, ...bpe(model) }, largestId, pairs };
  }
  const largestId = largestIdOf(model, Object.entries(vocab));
  const common = { vocab, unk_token };
  if (type === 'WordPiece') {
    return {
      model: {
        ...common,
        type,
        continuing_subword_prefix: model.text('continuing_subword_prefix', '##'),
        max_input_chars_per_word: model.whole('max_input_chars_per_word', 1, 1024, 100),
      },
      largestId,
    };
  }
  return { model: common, largestId };
}

/** Old files do not say it; then it is what @huggingface/tokenizers takes it for. */
function kindOf(model: Fields): string {
  const type = model.text('type', '');
  if (['BPE', 'WordPiece', 'Unigram'].includes(type)) return type;
  if (type !== '' && type !== 'WordLevel') wrong(model.place('type'), type, 'BPE, WordPiece, WordLevel or Unigram');
  if (Array.isArray(model.any('vocab'))) return 'Unigram';
  if (model.has('merges')) return 'BPE';
  return model.has('continuing_subword_prefix') && model.has('unk_token') ? 'WordPiece' : 'WordLevel';
}

function largestIdOf(model: Fields, vocab: Iterable<[string, unknown]>): number {
  let largest = -1;
  for (const [token, id] of vocab) {
    if (!(Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) <= MOST_ID)) {
      wrong(
        `${model.place('vocab')}[${JSON.stringify(token.slice(0, 40))}]`,
        id,
        `a whole number from 0 to ${MOST_ID}`,
      );
    }
    largest = Math.max(largest, id as number);
  }
  return largest;
}

function checkMerges(model: Fields): readonly (string | [string, string])[] {
  const merges = model.list('merges', MOST_ID);
  // All are read in the form of the first.
  const pairs = Array.isArray(merges[0]);
  merges.forEach((merge, i) => {
    const isPair = (value: unknown) => Array.isArray(value) && value.length === 2 && value.every(isText);
    if (pairs ? !isPair(merge) : !(isText(merge) && merge.includes(' ')))
      wrong(`${model.place('merges')}[${i}]`, merge, pairs ? 'a pair of pieces' : 'two pieces with a space between');
  });
  return merges as readonly (string | [string, string])[];
}

function bpe(model: Fields): Record<string, unknown> {
  return {
    type: 'BPE',
    byte_fallback: model.flag('byte_fallback', false),
    fuse_unk: model.flag('fuse_unk', false),
    ignore_merges: model.flag('ignore_merges', false),
    end_of_word_suffix: model.has('end_of_word_suffix') ? model.text('end_of_word_suffix') : null,
    continuing_subword_suffix: model.has('continuing_subword_suffix') ? model.text('continuing_subword_suffix') : null,
  };
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function unigram(model: Fields): { model: unknown; largestId: number } {
  const vocab = model.list('vocab', MOST_ID);
  if (vocab.length === 0) wrong(model.place('vocab'), vocab, 'a piece at least');
  let characters = 0;
  vocab.forEach((entry, i) => {
    const [piece, score] = Array.isArray(entry) && entry.length === 2 ? entry : [];
    if (!isText(piece) || piece.length > MOST_PIECE || typeof score !== 'number')
      wrong(`${model.place('vocab')}[${i}]`, entry, `a piece of at most ${MOST_PIECE} characters with its score`);
    characters += piece.length;
  });
  if (characters > MOST_PIECE_CHARACTERS)
    wrong(model.place('vocab'), `${characters} characters`, `at most ${MOST_PIECE_CHARACTERS}`);
  const unk_id = model.has('unk_id') ? model.whole('unk_id', 0, vocab.length - 1) : null;
  return { model: { type: 'Unigram', vocab, unk_id }, largestId: vocab.length - 1 };
}
