/**
 * Writes the `tokenizer.json` object that a GGUF file's `tokenizer.ggml.*` metadata stands for, so that one tokenizer
 * implementation serves both kinds of model: candle's `TokenizerFromGguf` (candle-core/src/quantized/tokenizer.rs).
 *
 * Differences from candle: every common pre-tokenizer name (see pre-tokenizers.ts) and an error for the others;
 * SentencePiece vocabularies (`tokenizer.ggml.model` = "llama"), whose merges are rebuilt from the pieces; only control
 * and unknown tokens are special, so user-defined tokens stay visible when text is decoded.
 */
import type { GgufMetadata } from '@x/quantized';
import { TransformersError } from '../errors';
import { mergesOfScores, type PairModel, rulesOfLines, rulesOfScores, type ScoredPieces } from './pair-ranks';
import { CHARACTER_BPE, PRE_TOKENIZERS } from './pre-tokenizers';
import type { AddedTokenJson, TokenizerJson } from './tokenizer';
import { unigram } from './unigram-gguf';
import { wordPiece } from './word-piece-gguf';

/** llama.cpp's token types. */
export const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** End-of-turn tokens that files often fail to declare: a token of such a name is a control token and ends a generation. */
export const END_OF_GENERATION_NAMES: ReadonlySet<string> = new Set([
  '<|endoftext|>', '<|end_of_text|>', '<|eot_id|>', '<|eom_id|>', '<|im_end|>', '<|end|>', '<|eot|>', '<end_of_turn>', '</s>',
  '<EOT>', '_<EOT>', '<｜end▁of▁sentence｜>',
]); // biome-ignore format: a word list reads better in rows

export interface GgufTokenizer {
  /** Its vocabulary and rules of byte-pair encoding are made when read. */
  json: TokenizerJson;
  /** The same for the tokenizer; undefined for other kinds of models. */
  pairs?: PairModel;
  bosId?: number;
  eosIds: number[];
}

/** @throws FileFormatError for a missing or mistyped key, TransformersError BAD_GGUF_METADATA, UNSUPPORTED_TOKENIZER */
export function tokenizerJsonFromGguf(metadata: GgufMetadata): GgufTokenizer {
  const model = metadata.string('tokenizer.ggml.model');
  const tokens = metadata.strings('tokenizer.ggml.tokens');
  const stored = perToken(metadata, 'tokenizer.ggml.token_type', tokens);
  // Files often have them as another type, or have no types: llama.cpp goes by the name, too.
  const types = tokens.map((token, id) =>
    END_OF_GENERATION_NAMES.has(token) ? TYPE.control : (stored?.[id] ?? TYPE.normal),
  );
  const make = MODELS[model];
  if (!Object.hasOwn(MODELS, model)) {
    throw new TransformersError(
      'UNSUPPORTED_TOKENIZER',
      `The GGUF file has a "${model}" tokenizer; "${Object.keys(MODELS).join('", "')}" are supported. ` +
        "Load the model's tokenizer.json with Tokenizer.fromFile instead.",
    );
  }
  const bosId = tokenId(metadata, 'bos', tokens);
  const eosId = tokenId(metadata, 'eos', tokens);
  const sepId = tokenId(metadata, 'seperator', tokens);
  const added = addedTokens(tokens, types, [bosId, eosId]);
  const eosIds = new Set<number>();
  for (const key of ['eos', 'eot', 'eom']) {
    const id = tokenId(metadata, key, tokens);
    if (id !== undefined) eosIds.add(id);
  }
  for (const token of added) if (token.special && END_OF_GENERATION_NAMES.has(token.content)) eosIds.add(token.id);

  const base = make(metadata, tokens, types);
  const addBos = metadata.bool('tokenizer.ggml.add_bos_token', base.addBos);
  const addEos = metadata.bool('tokenizer.ggml.add_eos_token', base.addEos ?? false);
  // RoBERTa has one more mark between the texts of a pair. ModernBERT's files say so too, its tokenizers have one in all.
  const isModernBert = metadata.string('general.architecture', '') === 'modern-bert';
  const addSep = metadata.bool('tokenizer.ggml.add_sep_token', base.addSep ?? false) && !isModernBert;
  const named = (id: number | undefined) => (id === undefined ? undefined : tokens[id]);
  const marks = {
    bos: addBos ? named(bosId) : undefined,
    eos: addEos ? named(eosId) : undefined,
    sep: addSep ? named(sepId) : undefined,
  };
  const json: TokenizerJson = {
    ...base.json,
    added_tokens: added,
    post_processor: template(marks, base.secondType),
  };
  return { json, pairs: base.pairs, bosId, eosIds: [...eosIds] };
}

/** The ids that llama.cpp takes where a file does not say them, or says one that is no token's. */
const USUAL_IDS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  llama: { bos: 1, eos: 2, unknown: 0 },
};

/** The id of a special token where the file does not say it; -1 for none. @param name such as `bos` */
export function usualTokenId(metadata: GgufMetadata, name: string): number {
  return USUAL_IDS[metadata.string('tokenizer.ggml.model', '')]?.[name] ?? -1;
}

function tokenId(metadata: GgufMetadata, name: string, tokens: readonly string[]): number | undefined {
  const key = `tokenizer.ggml.${name}_token_id`;
  const usual = usualTokenId(metadata, name);
  const id = metadata.int(key, usual);
  // llama.cpp writes -1 (as u32: 4294967295) for "none".
  if (id === 0xffffffff || id === -1) return undefined;
  if (id >= 0 && id < tokens.length) return id;
  if (usual >= 0 && usual < tokens.length) return usual;
  throw new TransformersError(
    'BAD_GGUF_METADATA',
    `GGUF metadata "${key}" is ${id}, outside the vocabulary of ${tokens.length}; convert the file again.`,
  );
}

/** An array with a number for each token, or undefined when the key is missing. */
function perToken(metadata: GgufMetadata, key: string, tokens: readonly string[]): number[] | undefined {
  if (!metadata.has(key)) return undefined;
  const numbers = metadata.numbers(key);
  if (numbers.length === tokens.length) return numbers;
  throw new TransformersError(
    'BAD_GGUF_METADATA',
    `GGUF metadata "${key}" holds ${numbers.length} numbers for ${tokens.length} tokens; convert the file again.`,
  );
}

function addedTokens(
  tokens: readonly string[],
  types: readonly number[],
  declared: (number | undefined)[],
): AddedTokenJson[] {
  const added: AddedTokenJson[] = [];
  for (let id = 0; id < tokens.length; id++) {
    const special = types[id] === TYPE.control || types[id] === TYPE.unknown || declared.includes(id);
    if (!special && types[id] !== TYPE.userDefined) continue;
    added.push({
      id,
      content: tokens[id],
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special,
    });
  }
  return added;
}

/** Special tokens around texts. */
interface Marks {
  bos?: string;
  eos?: string;
  /** Between the texts of a pair, behind `eos`. */
  sep?: string;
}

/** What wraps texts that are encoded with special tokens. @param secondType of the second text of a pair, and what is behind */
function template({ bos, eos, sep }: Marks, secondType = 0): unknown {
  if (bos === undefined && eos === undefined) return null;
  const special = (id: string | undefined, type_id = 0) =>
    id === undefined ? [] : [{ SpecialToken: { id, type_id } }];
  const text = (id: string, type_id = 0) => ({ Sequence: { id, type_id } });
  const single = [...special(bos), text('A'), ...special(eos)];
  const pair = [...single, ...special(sep), text('B', secondType), ...special(eos, secondType)];
  return { type: 'TemplateProcessing', single, pair, special_tokens: {} };
}

interface Base {
  json: Omit<TokenizerJson, 'added_tokens' | 'post_processor'>;
  addBos: boolean;
  addEos?: boolean;
  addSep?: boolean;
  /** Type of the second text of a pair. Default 0. */
  secondType?: number;
  pairs?: PairModel;
}

type MakeBase = (metadata: GgufMetadata, tokens: readonly string[], types: readonly number[]) => Base;

/** By `tokenizer.ggml.model`. */
const MODELS: Record<string, MakeBase> = {
  /** Byte-level BPE, but for some names of pre-tokenizers. */
  gpt2: byteLevelBpe,
  /** SentencePiece BPE. */
  llama: sentencePiece,
  /** SentencePiece BPE whose merges are in the file: the pieces of Gemma 4 have no scores of use. */
  gemma4: (metadata, tokens, types) => blockBpe(tokens, types, linesOf(metadata, tokens), false),
  /** Unigram. */
  t5(metadata, tokens, types) {
    metadata.require('tokenizer.ggml.scores');
    const scores = perToken(metadata, 'tokenizer.ggml.scores', tokens)!;
    const marked = types.indexOf(TYPE.unknown);
    const unknown = tokenId(metadata, 'unknown', tokens) ?? (marked < 0 ? undefined : marked);
    return { addBos: false, addEos: true, json: unigram(metadata, tokens, scores, unknown) };
  },
  bert(metadata, tokens, types) {
    const unknown = tokenId(metadata, 'unknown', tokens);
    const isControl = (id: number) => types[id] === TYPE.control || types[id] === TYPE.unknown;
    const { json } = wordPiece(metadata, tokens, isControl, tokens[unknown ?? 0] ?? '[UNK]');
    return { addBos: true, addEos: true, secondType: 1, json };
  },
};

function byteLevelBpe(metadata: GgufMetadata, tokens: readonly string[], types: readonly number[]): Base {
  const name = metadata.string('tokenizer.ggml.pre', 'default');
  if (CHARACTER_BPE.has(name)) return { ...blockBpe(tokens, types, linesOf(metadata, tokens), false), addBos: false };
  const pre = PRE_TOKENIZERS.get(name);
  if (!pre) {
    throw new TransformersError(
      'UNSUPPORTED_TOKENIZER',
      `The GGUF file names the pre-tokenizer "${name}", which is not known here (known: ${[...PRE_TOKENIZERS.keys(), ...CHARACTER_BPE].join(', ')}). ` +
        "Load the model's tokenizer.json with Tokenizer.fromFile instead.",
    );
  }
  const { pairs, merges } = linesOf(metadata, tokens);
  const split = pre.split.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }));
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  return {
    addBos: pre.addBos ?? false,
    addSep: pre.addSep,
    json: {
      normalizer: pre.nfc ? { type: 'NFC' } : null,
      pre_tokenizer: { type: 'Sequence', pretokenizers: [...split, byteLevel] },
      decoder: byteLevel,
      model: {
        type: 'BPE',
        unk_token: null,
        byte_fallback: false,
        ignore_merges: pre.ignoreMerges ?? false,
        get vocab() {
          return Object.fromEntries(tokens.map((token, id) => [token, id]));
        },
        get merges() {
          return merges();
        },
      },
    },
    pairs,
  };
}

/** Which pieces become one, and in which order. */
interface Merges {
  pairs: PairModel;
  /** As tokenizer.json has them, which takes long: made where somebody asks. */
  merges: () => [string, string][];
}

/** The merges that the file lists. */
function linesOf(metadata: GgufMetadata, tokens: readonly string[]): Merges {
  const lines = metadata.strings('tokenizer.ggml.merges');
  for (let i = 0; i < lines.length; i++) {
    if (lines[i].indexOf(' ', 1) >= 0) continue;
    throw new TransformersError(
      'BAD_GGUF_METADATA',
      `tokenizer.ggml.merges[${i}] is "${lines[i]}", not two pieces with a space between; convert the file again.`,
    );
  }
  const merges = () =>
    lines.map((line): [string, string] => {
      const at = line.indexOf(' ', 1);
      return [line.slice(0, at), line.slice(at + 1)];
    });
  return { pairs: { vocab: vocabulary(tokens), ...rulesOfLines(lines) }, merges };
}

/** Characters looked at while pieces are cut; 250,000 pieces of 16 characters take 64 million. */
const MOST_CUTTING = 2 ** 28;

/** SentencePiece BPE joins the neighbours whose union has the best score. */
function sentencePiece(metadata: GgufMetadata, tokens: readonly string[], types: readonly number[]): Base {
  metadata.require('tokenizer.ggml.scores');
  const scores = perToken(metadata, 'tokenizer.ggml.scores', tokens)!;
  const joins = (id: number) => types[id] === TYPE.normal || types[id] === TYPE.userDefined;
  let work = 0;
  for (let id = 0; id < tokens.length; id++) {
    if (!joins(id)) continue;
    // Every cut looks at the whole piece.
    work += tokens[id].length ** 2;
    if (work > MOST_CUTTING || !Number.isFinite(scores[id])) {
      const what = work > MOST_CUTTING ? 'pieces that are too long' : `the score ${scores[id]} for token ${id}`;
      throw new TransformersError(
        'BAD_GGUF_METADATA',
        `The GGUF file's vocabulary has ${what}; convert the file again.`,
      );
    }
  }
  const pieces: ScoredPieces = { tokens, scores, ids: vocabulary(tokens), joins };
  const prefix = metadata.bool('tokenizer.ggml.add_space_prefix', true);
  const pairs = { vocab: pieces.ids, ...rulesOfScores(pieces) };
  const unknown = tokenId(metadata, 'unknown', tokens);
  return blockBpe(tokens, types, { pairs, merges: () => mergesOfScores(pieces) }, prefix, unknown);
}

/**
 * BPE on characters, spaces as `▁`, with bytes for those that are in no piece.
 * @param prefix whether texts get a space in front
 * @param usual the unknown token, where none has that type
 */
function blockBpe(
  tokens: readonly string[],
  types: readonly number[],
  { pairs, merges }: Merges,
  prefix: boolean,
  usual?: number,
): Base {
  const toBlock = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const decoders: unknown[] = [
    { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' },
    { type: 'Fuse' },
  ];
  if (prefix) decoders.push({ type: 'Strip', content: ' ', start: 1, stop: 0 });
  const marked = types.indexOf(TYPE.unknown);
  const unknown = marked >= 0 ? marked : usual;
  return {
    addBos: true,
    json: {
      normalizer: { type: 'Sequence', normalizers: prefix ? [{ type: 'Prepend', prepend: '▁' }, toBlock] : [toBlock] },
      pre_tokenizer: null,
      decoder: { type: 'Sequence', decoders },
      model: {
        type: 'BPE',
        unk_token: unknown === undefined ? null : tokens[unknown],
        fuse_unk: true,
        byte_fallback: true,
        ignore_merges: false,
        get vocab() {
          return Object.fromEntries(tokens.map((token, id) => [token, id]));
        },
        get merges() {
          return merges();
        },
      },
    },
    pairs,
  };
}

/** Ids by token. */
function vocabulary(tokens: readonly string[]): Map<string, number> {
  const ids = new Map<string, number>();
  for (let id = 0; id < tokens.length; id++) ids.set(tokens[id], id);
  return ids;
}
