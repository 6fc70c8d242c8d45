/**
 * Text to token ids and back, over `@huggingface/tokenizers` (plain JavaScript, no native code). candle uses the Rust
 * crate of the same family; a `tokenizer.json` means the same to both.
 *
 * Beyond that library: loading from GGUF metadata, streaming decoding, end-of-generation ids, range checks (the library
 * decodes an unknown id as the text "undefined" or fails inside), and files that mean harm: see definition.ts, guarded.ts.
 */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Tokenizer as HfTokenizer } from '@huggingface/tokenizers';
import { type CandleError, kinds } from '@x/core';
import { readJsonFile } from '@x/core/files';
import type { GgufMetadata } from '@x/quantized';
import { IDS, METADATA, OPTIONS, PATH } from '../arguments';
import { TransformersError } from '../errors';
import { checkDefinition, type Definition } from './definition';
import { fewestTokensOf } from './fewest-tokens';
import { badTokenizer } from './fields';
import { END_OF_GENERATION_NAMES, tokenizerJsonFromGguf } from './from-gguf';
import { guardedTokenizer, withBreaker } from './guarded';
import { PRE_TOKENIZERS } from './pre-tokenizers';
import { DecodeStream } from './stream';
import { type ModelInput, Template } from './template';
import { type TiktokenOptions, tiktokenJson } from './tiktoken';
import { tokenBytesOf } from './token-bytes';

/** One entry of `added_tokens` in tokenizer.json. */
export interface AddedTokenJson {
  id: number;
  content: string;
  single_word: boolean;
  lstrip: boolean;
  rstrip: boolean;
  normalized: boolean;
  special: boolean;
}

/** The parts of tokenizer.json that matter here; see the Hugging Face tokenizers documentation for the rest. */
export interface TokenizerJson {
  added_tokens: AddedTokenJson[];
  normalizer: unknown;
  pre_tokenizer: unknown;
  post_processor: unknown;
  decoder: unknown;
  model: unknown;
}

export interface TokenizerOptions {
  /** The token that starts texts; default: the one that the post-processor puts first. */
  bosId?: number;
  /** Tokens that end a generation; default: special tokens with a well-known name such as `<|im_end|>` or `</s>`. */
  eosIds?: readonly number[];
}

export interface EncodeOptions {
  /** Add what the model expects around a text, usually the BOS token. Default true. */
  addSpecialTokens?: boolean;
  /**
   * A character that is in the text to keep it from reading as added tokens: it breaks them where it stands and is then taken
   * out. So text of strangers inside of a template does not become control tokens. Default: none.
   */
  breaker?: string;
}

export interface DecodeOptions {
  /** Leave special tokens out of the text. Default true. */
  skipSpecialTokens?: boolean;
}

export interface DecodeStreamOptions extends DecodeOptions {
  /** Tokens before the first one, such as the prompt: some tokenizers drop a text's leading space otherwise. */
  context?: readonly number[];
  /** Special tokens that are text all the same, such as those that begin a tool call. Default: none. */
  keep?: ReadonlySet<number>;
}

/** Texts to token ids and back, as the model's own tokenizer: {@link fromFile}, {@link fromGguf}, {@link fromTiktoken}. */
export class Tokenizer {
  /** The token that starts texts, if the model has one. */
  readonly bosId: number | undefined;
  /** Tokens that end a generation. */
  readonly eosIds: readonly number[];
  /** Ids are below this. */
  readonly vocabSize: number;
  private readonly specialIds: ReadonlySet<number>;
  private readonly template: Template;
  private readonly fewest: (text: string) => number;

  private constructor(
    private readonly inner: HfTokenizer,
    private readonly definition: TokenizerJson,
    vocabSize: number,
    options: TokenizerOptions,
  ) {
    for (const [name, id] of [
      ['bosId', options.bosId] as const,
      ...(options.eosIds ?? []).map((id) => ['eosIds', id] as const),
    ]) {
      if (id === undefined || (Number.isSafeInteger(id) && id >= 0)) continue;
      throw new TransformersError(
        'INVALID_OPTION',
        `${name} holds ${String(id)}; give ids of tokens, whole numbers from 0.`,
      );
    }

    const added = inner.get_added_tokens_decoder();
    this.specialIds = new Set([...added.values()].filter((token) => token.special).map((token) => token.id));
    this.vocabSize = vocabSize;
    this.fewest = fewestTokensOf(definition, inner);
    this.template = Template.of(definition, (token) => this.tokenToId(token));
    this.bosId = options.bosId ?? inner.encode('').ids.find((id) => this.specialIds.has(id));
    const named = [...this.specialIds].filter((id) => END_OF_GENERATION_NAMES.has(inner.id_to_token(id) ?? ''));
    this.eosIds = options.eosIds ?? named;
  }

  /**
   * Reads a tokenizer.json. End-of-generation tokens come from generation_config.json or config.json beside it, where
   * there is one, else from the tokens' names.
   * @throws FileFormatError; TransformersError as {@link fromJson}, BAD_CONFIG for end-of-generation tokens that are no ids
   */
  static async fromFile(path: string, options: TokenizerOptions = {}): Promise<Tokenizer> {
    const json = readTokenizerJson(path);
    return Tokenizer.fromJson(json, { ...siblingOptions(dirname(path)), ...options });
  }

  /**
   * A tokenizer.json object in memory.
   * @throws TransformersError BAD_TOKENIZER, naming the field that is wrong; UNSUPPORTED_TOKENIZER; INVALID_OPTION
   */
  static fromJson(json: unknown, options: TokenizerOptions = {}): Tokenizer {
    return Tokenizer.ofDefinition(checkDefinition(json), options);
  }

  /**
   * A file of tiktoken, as Llama 3's `tokenizer.model` is, which holds neither how text is split nor special tokens.
   * @throws FileFormatError; TransformersError BAD_TOKENIZER, UNSUPPORTED_TOKENIZER, INVALID_OPTION
   */
  static fromTiktoken(path: string, options: TiktokenOptions & TokenizerOptions): Tokenizer {
    const { pattern, specialTokens = {}, ...rest } = options;
    if (typeof pattern !== 'string' || pattern === '') {
      throw new TransformersError(
        'INVALID_OPTION',
        `fromTiktoken: pattern is ${kinds.show(pattern)}; give a regular expression, or a name such as "gpt-4o".`,
      );
    }
    const split = PRE_TOKENIZERS.get(pattern)?.split ?? [pattern];
    return Tokenizer.fromJson(tiktokenJson(path, split, specialTokens), rest);
  }

  /**
   * The tokenizer inside a GGUF file.
   * @throws FileFormatError; TransformersError BAD_GGUF_METADATA, BAD_TOKENIZER, UNSUPPORTED_TOKENIZER
   */
  static fromGguf(metadata: GgufMetadata): Tokenizer {
    const { json, pairs, bosId, eosIds } = tokenizerJsonFromGguf(metadata);
    return Tokenizer.ofDefinition(checkDefinition(json, pairs), { bosId, eosIds });
  }

  private static ofDefinition({ json, vocabSize, pairs }: Definition, options: TokenizerOptions): Tokenizer {
    return new Tokenizer(guardedTokenizer(json, pairs), json, vocabSize, options);
  }

  /**
   * The ids of a text. What the vocabulary has no token for is left out, unless it has one for what is unknown.
   * @throws CandleError INVALID_ARGUMENT for what is no string; TransformersError UNSUPPORTED_TOKENIZER when a pattern of the
   * file takes too long for the text
   */
  encode(text: string, options: EncodeOptions = {}): number[] {
    // Only the ids of tokens in the vocabulary: a model without an unknown token has nothing for the others.
    const inner = options.breaker === undefined ? this.inner : withBreaker(this.inner, options.breaker);
    const { ids } = inner.encode(text, { add_special_tokens: options.addSpecialTokens ?? true });
    return ids.filter((id) => id !== undefined);
  }

  /**
   * How many tokens {@link encode} gives at least, found without encoding, so that a text that is far too long is refused at once: 0
   * where nothing can be said, as of tokenizers that drop what they do not know.
   */
  fewestTokens(text: string, { breaker }: Pick<EncodeOptions, 'breaker'> = {}): number {
    return this.fewest(breaker === undefined ? text : text.replaceAll(breaker, ''));
  }

  /**
   * A text, or a pair of texts, with its special tokens and at most `maxTokens` tokens, as models that read whole texts are
   * given it: what does not fit is cut from the ends of the texts, never from the special tokens. Of a pair the longer text
   * is cut first.
   * @throws as {@link encode}; TransformersError INVALID_OPTION unless `maxTokens` leaves room for the special tokens
   */
  encodeInput(text: string, options: { pair?: string; maxTokens?: number } = {}): ModelInput {
    const { pair, maxTokens = Number.MAX_SAFE_INTEGER } = options;
    const least = this.template.specials(pair !== undefined) + 1;
    if (!Number.isSafeInteger(maxTokens) || maxTokens < least) {
      throw new TransformersError(
        'INVALID_OPTION',
        `encodeInput: maxTokens is ${String(maxTokens)}; give a whole number from ${least}, which has room for the special tokens.`,
      );
    }
    const bare = { addSpecialTokens: false };
    const second = pair === undefined ? undefined : this.encode(pair, bare);
    return this.template.apply(this.encode(text, bare), second, maxTokens);
  }

  /** Malformed UTF-8 becomes U+FFFD. @throws TransformersError BAD_TOKEN for an id outside the vocabulary */
  decode(ids: readonly number[] | Uint32Array, options: DecodeOptions = {}): string {
    const skip = options.skipSpecialTokens ?? true;
    const kept: number[] = [];
    for (const id of ids) {
      this.check(id);
      if (!(skip && this.specialIds.has(id))) kept.push(id);
    }
    return this.join(kept);
  }

  /** A decoder for tokens that arrive one by one; it never gives out half a character. */
  decodeStream(options: DecodeStreamOptions = {}): DecodeStream {
    const skip = options.skipSpecialTokens ?? true;
    return new DecodeStream(
      (ids) => this.join(ids),
      // A model's output layer may be wider than its vocabulary; such an id has no text.
      (id) => this.idToToken(id) === undefined || (skip && this.specialIds.has(id) && !options.keep?.has(id)),
      options.context,
    );
  }

  /**
   * Texts that control a model when they are read as tokens: special tokens, and added ones in brackets such as `<think>`.
   * Longest first.
   */
  get controlTexts(): readonly string[] {
    const added = [...this.inner.get_added_tokens_decoder().values()];
    const texts = added
      .filter(({ special, content }) => special || BRACKETED.test(content))
      .map(({ content }) => content);
    return texts.filter((text) => text.length > 1).sort((a, b) => b.length - a.length);
  }

  /** The token as the vocabulary spells it (in byte-level models a space is "Ġ"), or undefined. */
  idToToken(id: number): string | undefined {
    return this.inner.id_to_token(id);
  }

  /** The id of a token as {@link idToToken} spells it; undefined where the vocabulary has none. */
  tokenToId(token: string): number | undefined {
    return this.inner.token_to_id(token);
  }

  /**
   * What each token adds to a text, in bytes, by its id: it may end inside of a character. Undefined for special tokens and
   * for ids outside of the vocabulary.
   * @throws TransformersError UNSUPPORTED_TOKENIZER where that depends on the tokens around it
   */
  tokenBytes(): (id: number) => Uint8Array | undefined {
    const bytesOf = tokenBytesOf(this.definition);
    return (id) => {
      const token = this.idToToken(id);
      return token === undefined || this.specialIds.has(id) ? undefined : bytesOf(token);
    };
  }

  /** Whether the tokenizer marks the token as special, such as BOS; `decode` leaves those out. False for ids that it has not. */
  isSpecial(id: number): boolean {
    return this.specialIds.has(id);
  }

  private join(ids: number[]): string {
    return ids.length === 0 ? '' : this.inner.decode(ids, { skip_special_tokens: false });
  }

  private check(id: number): void {
    if (this.inner.id_to_token(id) === undefined) {
      throw new TransformersError(
        'BAD_TOKEN',
        `Token ${id} is not in the vocabulary of ${this.vocabSize}; decode only ids that this model's tokenizer or output gave.`,
      );
    }
  }
}

const TEXT = { text: kinds.STRING, options: OPTIONS };
kinds.checkCalls(
  Tokenizer,
  {
    fromFile: { path: PATH, options: OPTIONS },
    fromTiktoken: { path: PATH, options: kinds.OBJECT },
    fromGguf: { metadata: METADATA },
  },
  'Tokenizer.',
);
kinds.checkCalls(
  Tokenizer.prototype,
  { encode: TEXT, fewestTokens: TEXT, encodeInput: TEXT, decode: { ids: IDS, options: OPTIONS } },
  'Tokenizer.',
);

const BRACKETED = /^(<[^\s<>]+>|\[[A-Z_/]+\])$/;

/** Of a tokenizer.json: the largest, of 260,000 tokens, have 33 MB and 2 million items. */
const TOKENIZER_LIMITS = { bytes: 128 * 2 ** 20, items: 8_000_000, depth: 64 };

/**
 * The object in a tokenizer.json.
 * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`; TransformersError BAD_TOKENIZER for what is no JSON
 */
export function readTokenizerJson(path: string): unknown {
  try {
    return readJsonFile(path, TOKENIZER_LIMITS);
  } catch (cause) {
    if ((cause as CandleError).code !== 'FILE_INVALID') throw cause;
    throw badTokenizer(`${path} is not JSON that can be read (${(cause as Error).message})`, cause);
  }
}

/** eos_token_id of generation_config.json, else of config.json: a number or a list. Both files may be missing. */
function siblingOptions(directory: string): TokenizerOptions {
  for (const name of ['generation_config.json', 'config.json']) {
    const path = join(directory, name);
    if (!existsSync(path)) continue;
    const json = (readJsonFile(path) ?? {}) as {
      eos_token_id?: unknown;
      text_config?: { eos_token_id?: unknown } | null;
    };
    // Models of texts and images may say it of their text part.
    const ids = json.eos_token_id ?? json.text_config?.eos_token_id;
    if (ids === undefined || ids === null) continue;
    const list: unknown[] = Array.isArray(ids) ? ids : [ids];
    if (list.every((id): id is number => Number.isSafeInteger(id) && (id as number) >= 0)) {
      if (list.length > 0) return { eosIds: list };
      continue;
    }
    throw new TransformersError(
      'BAD_CONFIG',
      `${path} gives eos_token_id = ${kinds.show(ids)}, but a token id or a list of some is needed; download it again.`,
    );
  }
  return {};
}
