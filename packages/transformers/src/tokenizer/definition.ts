/**
 * Checks a tokenizer.json before `@huggingface/tokenizers` believes it: every field that it reads has its type, ids are whole
 * numbers, and no chain of steps can make much of a small text. Steps come as new objects with the checked fields only.
 */
import { MOST_MAPPED } from './chars-map';
import { BEHAVIORS, type Behavior } from './exact-steps';
import { Fields, wrong } from './fields';
import { checkModel, MOST_ID } from './model-definition';
import type { PairModel } from './pair-ranks';
import type { AddedTokenJson, TokenizerJson } from './tokenizer';

/** Steps of one kind, also inside of sequences; the most known are some ten. */
const MOST_STEPS = 64;
const MOST_DEPTH = 8;
/** How many times as long a text may become from a chain of steps: compatibility forms alone make 18 characters of one. */
const MOST_GROWTH = 256;
/** Added tokens become a tree of their characters, which takes some hundred bytes for each. */
const MOST_ADDED_CHARACTERS = 2 ** 20;
const MOST_CONTENT = 512;
/** A table of characters in base64; published ones have some 320 kB. */
const MOST_TABLE = 2 ** 23;

export interface Definition {
  json: TokenizerJson;
  /** Ids are below this. */
  vocabSize: number;
  /** The tables of byte-pair encoding. */
  pairs?: PairModel;
}

/** @param made see `checkModel` @throws TransformersError BAD_TOKENIZER, naming the field */
export function checkDefinition(value: unknown, made?: PairModel): Definition {
  const root = new Fields('', value);
  const before = new Chain();
  const normalizer = before.optional(root, 'normalizer', normalizerOf);
  const pre_tokenizer = before.optional(root, 'pre_tokenizer', preTokenizerOf);
  const decoder = new Chain().optional(root, 'decoder', decoderOf);
  const post_processor = new Chain().optional(root, 'post_processor', postProcessorOf);
  const { model, largestId, pairs } = checkModel(new Fields('model', root.any('model')), made);
  const added_tokens = addedTokens(root);
  const vocabSize = added_tokens.reduce((size, { id }) => Math.max(size, id + 1), largestId + 1);
  return { json: { added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model }, vocabSize, pairs };
}

function addedTokens(root: Fields): AddedTokenJson[] {
  let characters = 0;
  return root.list('added_tokens', MOST_ID, []).map((value, i) => {
    const token = new Fields(`added_tokens[${i}]`, value);
    const content = token.text('content', undefined, MOST_CONTENT);
    characters += content.length;
    if (characters > MOST_ADDED_CHARACTERS)
      wrong('added_tokens', `${characters} characters`, 'at most a million of them');
    const special = token.flag('special', false);
    return {
      id: token.whole('id', 0, MOST_ID),
      content,
      single_word: token.flag('single_word', false),
      lstrip: token.flag('lstrip', false),
      rstrip: token.flag('rstrip', false),
      normalized: token.flag('normalized', !special),
      special,
    };
  });
}

type Checked = Record<string, unknown> & { type: string };
type StepOf = (fields: Fields, type: string, chain: Chain) => Checked | undefined;

/** Steps that a text goes through one after another. */
class Chain {
  #steps = 0;
  #growth = 1;
  #depth = 0;

  optional(root: Fields, name: string, of: StepOf): Checked | null {
    return root.has(name) ? this.step(root.place(name), root.any(name), of) : null;
  }

  step(at: string, value: unknown, of: StepOf): Checked {
    const fields = new Fields(at, value);
    const type = fields.text('type');
    if (++this.#steps > MOST_STEPS) wrong(at, value, `no more than ${MOST_STEPS} steps`);
    return of(fields, type, this) ?? wrong(`${at}.type`, type, 'a kind that is known here');
  }

  /** The steps of a sequence. */
  steps(fields: Fields, name: string, of: StepOf): Checked[] {
    if (++this.#depth > MOST_DEPTH) wrong(fields.at, name, `a nesting of at most ${MOST_DEPTH} sequences`);
    const steps = fields
      .list(name, MOST_STEPS, [])
      .map((item, i) => this.step(`${fields.place(name)}[${i}]`, item, of));
    this.#depth--;
    return steps;
  }

  /** A step that makes up to `factor` characters of one. */
  grow(fields: Fields, factor: number): void {
    this.#growth *= factor;
    if (this.#growth <= MOST_GROWTH) return;
    wrong(
      fields.at,
      `the step after which a text may be ${this.#growth} times as long`,
      `at most ${MOST_GROWTH} times`,
    );
  }

  /** What every `Replace` has. What it puts is text, in which a dollar sign has no meaning for the Rust library. */
  replace(fields: Fields): Record<string, unknown> {
    const content = fields.text('content', '');
    this.grow(fields, content.length + 1);
    return { pattern: patternOf(fields), content: content.replaceAll('$', '$$$$') };
  }
}

function patternOf(fields: Fields): Record<string, string> {
  const pattern = new Fields(fields.place('pattern'), fields.any('pattern'));
  if (pattern.has('Regex')) return { Regex: pattern.text('Regex', undefined, 16_384) };
  return { String: pattern.text('String', undefined, 256) };
}

/** What `Metaspace` writes in place of spaces. */
function markOfSpace(fields: Fields): string {
  const mark = fields.text('replacement', '▁', 8);
  return mark === '' ? wrong(fields.place('replacement'), mark, 'a character') : mark;
}

/** What becomes of the places where a text is split. */
function behaviorOf(fields: Fields): Behavior {
  const name = fields.text('behavior', 'Isolated');
  // Old files write it as `merged_with_previous`.
  const found = BEHAVIORS.find((behavior) => behavior.toLowerCase() === name.replaceAll('_', '').toLowerCase());
  return found ?? wrong(fields.place('behavior'), name, `one of ${BEHAVIORS.join(', ')}`);
}

const normalizerOf: StepOf = (fields, type, chain) => {
  switch (type) {
    case 'Sequence':
      return { type, normalizers: chain.steps(fields, 'normalizers', normalizerOf) };
    case 'Replace':
      return { type, ...chain.replace(fields) };
    case 'Prepend':
      chain.grow(fields, 1);
      return { type, prepend: fields.text('prepend') };
    case 'Strip':
      return { type, strip_left: fields.flag('strip_left', false), strip_right: fields.flag('strip_right', false) };
    case 'BertNormalizer':
      chain.grow(fields, 4);
      return {
        type,
        clean_text: fields.flag('clean_text', false),
        handle_chinese_chars: fields.flag('handle_chinese_chars', false),
        strip_accents: fields.has('strip_accents') ? fields.flag('strip_accents') : null,
        lowercase: fields.flag('lowercase', false),
      };
    case 'NFC':
    case 'NFD':
    case 'Lowercase':
      chain.grow(fields, 4);
      return { type };
    case 'Precompiled': {
      chain.grow(fields, MOST_MAPPED);
      const table = fields.has('precompiled_charsmap') ? fields.text('precompiled_charsmap', '', MOST_TABLE) : '';
      return { type, ...(table !== '' && { charsmap: new Uint8Array(Buffer.from(table, 'base64')) }) };
    }
    case 'NFKC':
    case 'NFKD':
      chain.grow(fields, 18);
      return { type };
    case 'StripAccents':
      return { type };
    default:
      return undefined;
  }
};

const preTokenizerOf: StepOf = (fields, type, chain) => {
  switch (type) {
    case 'Sequence':
      return { type, pretokenizers: chain.steps(fields, 'pretokenizers', preTokenizerOf) };
    case 'ByteLevel':
      chain.grow(fields, 3);
      return {
        type,
        add_prefix_space: fields.flag('add_prefix_space', false),
        trim_offsets: fields.flag('trim_offsets', false),
        use_regex: fields.flag('use_regex', true),
      };
    case 'Split': {
      return { type, pattern: patternOf(fields), behavior: behaviorOf(fields), invert: fields.flag('invert', false) };
    }
    case 'Metaspace': {
      const replacement = markOfSpace(fields);
      const str_rep = fields.text('str_rep', replacement, 8);
      chain.grow(fields, Math.max(1, str_rep.length));
      const prepend_scheme = fields.text('prepend_scheme', 'always');
      return { type, replacement, str_rep, prepend_scheme, split: fields.flag('split', true) };
    }
    case 'Replace':
      return { type, ...chain.replace(fields) };
    case 'FixedLength':
      return { type, length: fields.whole('length', 1, 2 ** 30) };
    case 'Digits':
      return { type, individual_digits: fields.flag('individual_digits', false) };
    case 'Punctuation':
      return { type, behavior: behaviorOf(fields) };
    case 'BertPreTokenizer':
    case 'Whitespace':
    case 'WhitespaceSplit':
      return { type };
    default:
      return undefined;
  }
};

const decoderOf: StepOf = (fields, type, chain) => {
  switch (type) {
    case 'Sequence':
      return { type, decoders: chain.steps(fields, 'decoders', decoderOf) };
    case 'ByteLevel':
      return { type, trim_offsets: fields.flag('trim_offsets', false) };
    case 'Replace':
      return { type, ...chain.replace(fields) };
    case 'Strip': {
      const most = 1024;
      return {
        type,
        content: fields.text('content', ''),
        start: fields.whole('start', 0, most, 0),
        stop: fields.whole('stop', 0, most, 0),
      };
    }
    case 'Metaspace':
      return { type, replacement: markOfSpace(fields) };
    case 'WordPiece':
      return { type, prefix: fields.text('prefix', '##'), cleanup: fields.flag('cleanup', false) };
    case 'BPEDecoder': {
      const suffix = fields.text('suffix', '</w>');
      chain.grow(fields, suffix === '' ? 2 : 1);
      return { type, suffix };
    }
    case 'CTC':
      chain.grow(fields, 2);
      return {
        type,
        pad_token: fields.text('pad_token', '<pad>'),
        word_delimiter_token: fields.text('word_delimiter_token', '|'),
        cleanup: fields.flag('cleanup', false),
      };
    case 'Fuse':
    case 'ByteFallback':
      return { type };
    default:
      return undefined;
  }
};

const postProcessorOf: StepOf = (fields, type, chain) => {
  switch (type) {
    case 'Sequence':
      return { type, processors: chain.steps(fields, 'processors', postProcessorOf) };
    case 'TemplateProcessing':
      return { type, single: templateOf(fields, 'single', ['A']), pair: templateOf(fields, 'pair', ['A', 'B']) };
    case 'BertProcessing':
    case 'RobertaProcessing':
      return { type, cls: markOf(fields, 'cls'), sep: markOf(fields, 'sep') };
    case 'ByteLevel':
      return { type };
    default:
      return undefined;
  }
};

/** Special tokens around the texts, each of which is there once at most. */
function templateOf(fields: Fields, name: string, texts: readonly string[]): unknown[] {
  const left = new Set(texts);
  return fields.list(name, 64, []).map((value, i) => {
    const item = new Fields(`${fields.place(name)}[${i}]`, value);
    const kind = item.has('SpecialToken') ? 'SpecialToken' : 'Sequence';
    const part = new Fields(item.place(kind), item.any(kind));
    const id = part.text('id', undefined, MOST_CONTENT);
    if (kind === 'Sequence' && !left.delete(id))
      wrong(part.place('id'), id, `each of ${texts.join(', ')} at most once`);
    return { [kind]: { id, type_id: part.whole('type_id', 0, 1024, 0) } };
  });
}

/** `["[CLS]", 101]` */
function markOf(fields: Fields, name: string): unknown {
  const [token, id] = fields.list(name, 2);
  if (typeof token === 'string' && Number.isSafeInteger(id)) return [token, id];
  return wrong(fields.place(name), [token, id], 'a token and its id');
}
