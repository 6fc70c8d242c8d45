/** A model that makes vectors of texts, and scores of pairs where it has a head for them: what {@link loadEmbeddingModel} gives. */
import { type Device, DisposedError, kinds, scope, Tensor } from '@x/core';
import { type PoolingMode, poolRows, type Tokenizer, TransformersError } from '@x/transformers';
import { checkOptions } from '../options';
import { Batches, type BatchJob } from './batches';
import type { Dense } from './dense';
import { type EmbeddingInput, Inputs } from './inputs';
import type { EmbeddingSettings } from './settings';
import type { TextIds, TextModel } from './text-model';

export interface EmbeddingModelParts {
  model: TextModel;
  tokenizer: Tokenizer;
  settings: EmbeddingSettings;
  pooling: readonly PoolingMode[];
  dense: readonly Dense[];
  /** Tokens of a text at most. */
  maxTokens: number;
  loadMs: number;
}

/** What all calls share. */
export interface BatchOptions {
  /** What does not fit into the model is left out and counted (`dropped`); `false`: it is an error. Default true. */
  truncate?: boolean;
  /** Tokens of a text at most, special tokens included. Default and most: the model's {@link EmbeddingModel.maxTokens}. */
  maxTokens?: number;
  /** Tokens of all texts of a batch together, unless one text alone has more. Default: by device. */
  batchTokens?: number;
  /** Once aborted, the call throws the signal's reason after at most some 60 ms of work, or one step of a layer. */
  signal?: AbortSignal;
  /** Called after each batch with the texts that are done and all. */
  onProgress?: (done: number, total: number) => void;
}

export interface EmbedOptions extends BatchOptions {
  /**
   * Which of the model's prompts goes in front of each text: `query`, `document`, or another name of its files. Models
   * without a prompt for queries or documents take none. Default: the model's own default, mostly none.
   */
  promptName?: string;
  /** A text that goes in front of each text, instead of a prompt by name. */
  prompt?: string;
  /** Keep so many first numbers of each vector, for models that were trained for it (matryoshka). Default: all. */
  dimensions?: number;
  /** Make vectors of length 1. Default true. */
  normalize?: boolean;
}

export interface TextEmbedding {
  vector: Float32Array;
  /** Tokens that the model was given, prompt and special tokens included. */
  tokens: number;
  /** Tokens at the end of the text that did not fit and do not count. */
  dropped: number;
}

export interface RerankOptions extends BatchOptions {
  /** Return so many of the best documents only. Default: all. */
  topN?: number;
  /** What a document is asked for, of models that are told it (Qwen3-Reranker). Default: to answer a web search. */
  instruction?: string;
}

export interface RankedDocument {
  /** In the list of documents. */
  index: number;
  /** Larger is more relevant: from 0 to 1, or the model's own number where its files say so. */
  score: number;
  /** Tokens that the model was given. */
  tokens: number;
  /** Tokens of query and document that did not fit and do not count. */
  dropped: number;
}

export interface Classification {
  /** Each label with its score, best first: probabilities that add up to 1, or the model's own number where there is one label. */
  labels: { label: string; score: number }[];
  tokens: number;
  dropped: number;
}

const BATCH = {
  truncate: kinds.BOOLEAN,
  maxTokens: kinds.POSITIVE,
  batchTokens: kinds.POSITIVE,
  signal: kinds.SIGNAL,
  onProgress: kinds.FUNCTION,
} satisfies Record<keyof BatchOptions, kinds.Kind>;
const EMBED = {
  ...BATCH,
  promptName: kinds.STRING,
  prompt: kinds.STRING,
  dimensions: kinds.POSITIVE,
  normalize: kinds.BOOLEAN,
} satisfies Record<keyof EmbedOptions, kinds.Kind>;
const RERANK = { ...BATCH, topN: kinds.POSITIVE, instruction: kinds.STRING } satisfies Record<
  keyof RerankOptions,
  kinds.Kind
>;

/** Vectors of texts, scores of pairs and labels, as the model has heads: what `loadEmbeddingModel` gives. Calls may overlap. */
export class EmbeddingModel {
  readonly tokenizer: Tokenizer;
  readonly device: Device;
  /** How hidden states become a vector; several: their vectors one after the other. */
  readonly pooling: readonly PoolingMode[];
  /** Tokens of a text at most, special tokens included. */
  readonly maxTokens: number;
  /** Numbers of a vector. */
  readonly dimensions: number;
  /** Prompts of the model's files, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** Results of the classification head, by name; none where the model has none. One result: {@link rerank} is there. */
  readonly labels: readonly string[];
  /** Milliseconds that loading took. */
  readonly loadMs: number;
  readonly #model: TextModel;
  readonly #dense: readonly Dense[];
  readonly #settings: EmbeddingSettings;
  readonly #inputs: Inputs;
  readonly #batches: Batches;
  #disposed = false;

  /** `loadEmbeddingModel` makes it. It takes `model` and `dense` over: {@link dispose} disposes them. */
  constructor({ model, tokenizer, settings, pooling, dense, maxTokens, loadMs }: EmbeddingModelParts) {
    this.tokenizer = tokenizer;
    this.device = model.device;
    this.pooling = pooling;
    this.maxTokens = maxTokens;
    this.dimensions = dense.at(-1)?.outFeatures ?? model.config.hiddenSize * pooling.length;
    this.prompts = settings.prompts;
    this.labels = Array.from({ length: model.labels }, (_, i) => settings.labels[i] ?? `LABEL_${i}`);
    this.loadMs = loadMs;
    this.#model = model;
    this.#dense = dense;
    this.#settings = settings;
    this.#inputs = new Inputs(tokenizer, settings, maxTokens);
    this.#batches = new Batches(model);
  }

  /**
   * The vector of a text, or of each of some: texts of similar length are computed together, packed without padding. Token ids
   * are taken as they are, without prompt and special tokens.
   * @throws TransformersError INVALID_OPTION, EMPTY_INPUT for a text without tokens, CONTEXT_EXCEEDED with `truncate: false`,
   *   BAD_TOKEN; CandleError INVALID_ARGUMENT for what is no text; the signal's reason
   */
  embed(text: string, options?: EmbedOptions): Promise<TextEmbedding>;
  embed(texts: readonly EmbeddingInput[], options?: EmbedOptions): Promise<TextEmbedding[]>;
  async embed(
    texts: string | readonly EmbeddingInput[],
    options: EmbedOptions = {},
  ): Promise<TextEmbedding | TextEmbedding[]> {
    checkOptions('embed', options, EMBED);
    this.#checkAlive('embed');
    const { dimensions = this.dimensions, normalize = true, promptName, prompt } = options;
    if (dimensions > this.dimensions) {
      throw new TransformersError(
        'INVALID_OPTION',
        `embed: dimensions is ${dimensions}; the model's vectors have ${this.dimensions}.`,
        { option: 'dimensions' },
      );
    }
    const before = this.#inputs.prompt(prompt, promptName);
    const list = typeof texts === 'string' ? [texts] : texts;
    const inputs = await this.#inputs.texts('embed', list, before.text, options);
    const skipped = this.#settings.poolPrompt ? 0 : before.tokens();
    const vectors = await this.#run(inputs, options, (hidden, { segments, items }) => {
      const skip = items.map(({ plain }) => (plain ? 0 : skipped));
      const pooled = this.pooling.map((mode) => poolRows(hidden, segments, mode, skip));
      const whole = pooled.length === 1 ? pooled[0] : Tensor.cat(pooled, 1);
      return this.#dense.reduce((x, dense) => dense.forward(x), whole);
    });
    const results = inputs.map(({ ids, dropped }, i): TextEmbedding => {
      const vector = vectors[i].slice(0, dimensions);
      return { vector: normalize ? unit(vector) : vector, tokens: ids.length, dropped };
    });
    return typeof texts === 'string' ? results[0] : results;
  }

  /**
   * Documents by how well they answer a query, best first.
   * @throws as {@link embed}; TransformersError UNSUPPORTED_MODEL for a model without a head of one result
   */
  async rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<RankedDocument[]> {
    checkOptions('rerank', options, RERANK);
    this.#checkAlive('rerank');
    if (this.labels.length !== 1) {
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        `rerank: the model ${this.labels.length === 0 ? 'has no classification head' : `has ${this.labels.length} labels instead of one score`}; use a reranker (a cross-encoder), or compare vectors of embed.`,
      );
    }
    const inputs = await this.#inputs.pairs('rerank', query, documents, options);
    const logits = await this.#run(inputs, options, (hidden, { segments }) => this.#model.classify(hidden, segments));
    const ranked = inputs.map(({ ids, dropped }, index): RankedDocument => {
      const [logit] = logits[index];
      const score = this.#settings.scores === 'sigmoid' ? 1 / (1 + Math.exp(-logit)) : logit;
      return { index, score, tokens: ids.length, dropped };
    });
    return ranked.sort((a, b) => b.score - a.score).slice(0, options.topN ?? ranked.length);
  }

  /**
   * What a classification head says of each text.
   * @throws as {@link embed}; TransformersError UNSUPPORTED_MODEL for a model without such a head
   */
  async classify(texts: readonly EmbeddingInput[], options: BatchOptions = {}): Promise<Classification[]> {
    checkOptions('classify', options, BATCH);
    this.#checkAlive('classify');
    if (this.labels.length === 0 || this.#settings.yesNo) {
      const what = this.#settings.yesNo ? 'scores pairs of a query and a document' : 'has no classification head';
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        `classify: the model ${what}; use one for sequence classification.`,
      );
    }
    const inputs = await this.#inputs.texts('classify', texts, '', options);
    const logits = await this.#run(inputs, options, (hidden, { segments }) => this.#model.classify(hidden, segments));
    return inputs.map(({ ids, dropped }, i) => {
      const scores = logits[i].length === 1 ? [logits[i][0]] : softmax(logits[i]);
      const labels = this.labels.map((label, at) => ({ label, score: scores[at] }));
      return { labels: labels.sort((a, b) => b.score - a.score), tokens: ids.length, dropped };
    });
  }

  /** Gives all memory back. Harmless when repeated; anything else afterwards raises a `DisposedError`. */
  dispose(): void {
    this.#disposed = true;
    for (const dense of this.#dense) dense.dispose();
    this.#model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #run<Item extends TextIds>(
    inputs: readonly Item[],
    { signal, onProgress, batchTokens }: BatchOptions,
    finish: (hidden: Tensor, job: BatchJob<Item>) => Tensor,
  ): Promise<Float32Array[]> {
    return this.#batches.run(inputs, {
      signal,
      onProgress,
      batchTokens,
      finish: (hidden, job) => {
        this.#checkAlive('embed');
        return scope(() => finish(hidden, job));
      },
    });
  }

  #checkAlive(what: string): void {
    if (this.#disposed) throw new DisposedError('DISPOSED', `${what}: the model was disposed; load it again.`);
  }
}

/** Of length 1; a vector of zeros stays. */
function unit(vector: Float32Array): Float32Array {
  let squares = 0;
  for (const value of vector) squares += value * value;
  const length = Math.max(Math.sqrt(squares), 1e-12);
  return vector.map((value) => value / length);
}

function softmax(logits: Float32Array): number[] {
  const top = Math.max(...logits);
  const weights = Array.from(logits, (logit) => Math.exp(logit - top));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}
