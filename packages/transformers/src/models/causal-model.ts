/**
 * What a language model is to whoever runs it: weights and a forward pass over a batch of tokens. It remembers nothing;
 * keys, values and states lie in a cache that someone else owns, which the model sees through {@link KvView}. candle's models
 * own their cache and their position, so that one model is one sequence.
 */
import type { Device, Tensor } from '@x/core';
import type { Activations, PagedCache, PagedStep, PromptHeadParts, SequenceSpans } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { HostExperts } from '../weights/host-experts';
import type { LoraRows, LoraSites } from '../weights/lora';

/** Tokens of one or more sequences, one sequence after the other. Everything lies on the model's device. */
export interface Batch {
  /** [tokens], u32 */
  tokens: Tensor;
  /** [tokens], u32: the place of each token in its sequence. */
  positions: Tensor;
  /** Which tokens' logits are wanted: [rows], u32; or the hidden states of all tokens, behind the last norm, instead. */
  outputs: Tensor | 'all' | 'none' | 'hidden';
  /** Whose rows adapters are for: of the tokens, and of those whose logits are wanted. Default: nobody's. */
  lora?: { readonly tokens: readonly LoraRows[]; readonly outputs: readonly LoraRows[] };
}

export interface AttendOptions {
  /** Multiplies the scores. Default 1: the queries are scaled. */
  scale?: number;
  /** A query sees this many keys at most, its own included. Default: all. */
  window?: number;
  /** Scores become cap · tanh(scores / cap). Default: they stay. */
  softcap?: number;
  /** A score of each head that takes its share of the softmax and has no value: [heads], f32. Default: none. */
  sinks?: Tensor;
}

/** A cache in blocks, and where in it the keys and values of a batch go. */
export interface PagedLayer extends PagedCache {
  /** [tokens], u32; a slot beyond the cache is left out. */
  slots: Tensor;
}

/** The same for single tokens, no two of one sequence. */
export interface PagedStepLayer extends PagedCache, PagedStep {}

/** The same for tokens of prompts: queries as `promptHeads` of `@x/nn` makes them. */
export interface PromptLayer extends PagedLayer {
  /** Tokens in front of those of prompts. */
  wide: number;
  /** Attention of all tokens, whose keys and values are in the cache: [tokens, heads · dv] in the cache's dtype. */
  attend(made: PromptHeadParts): Tensor;
}

/** The cache of one layer, as a forward pass sees it: the sequences of its batch, and room for their new tokens. */
export interface LayerKv {
  /** Where the cache is in blocks: what a kernel may write to instead of calling {@link append}. */
  readonly paged?: PagedLayer;
  /** The same where a kernel may also attend at once. Only with {@link attendInBlocks}. */
  readonly step?: PagedStepLayer;
  /**
   * Where the batch has tokens of prompts, whose attention may multiply in the cache's narrow dtype: undefined where there is no
   * kernel for this layer and options.
   */
  prompts?(options: AttendOptions): PromptLayer | undefined;
  /** Puts the keys [kvHeads, tokens, d] and values [kvHeads, tokens, dv] of the batch behind those of each sequence. */
  append(k: Tensor, v: Tensor): void;
  /**
   * Each query looks at the keys of its sequence up to its own position.
   * @param q [heads, tokens, d], heads a multiple of kvHeads @returns [tokens, heads · dv]
   */
  attend(q: Tensor, options: AttendOptions): Tensor;
  /** The same for a product that reads blocks; it may give numbers. Without it there is {@link attend}. */
  attendInBlocks?(q: Tensor, options: AttendOptions): Activations;
}

/** The states of one layer, as a forward pass sees them. */
export interface LayerStates {
  /** By the names of the layer's {@link StateLayout}: [slots, ...shape], f32. */
  readonly states: Readonly<Record<string, Tensor>>;
  /** The sequences of the batch: which states they read and write. */
  readonly spans: SequenceSpans;
}

export interface KvView {
  layer(index: number): LayerKv;
  /** Of a layer that has a {@link StateLayout}; left out where models have none. */
  states?(index: number): LayerStates;
}

/** What a layer keeps of a token. */
export interface KvLayout {
  kvHeads: number;
  keyDim: number;
  valueDim: number;
  /** Values are the first elements of keys, and are not kept beside them. Default false. */
  valuesInKeys?: boolean;
}

/** What a recurrent layer keeps of a sequence, whatever its length: shapes of f32 tensors by their names. */
export type StateLayout = Readonly<Record<string, readonly number[]>>;

/** Where a forward pass stands after a step. */
export interface PassStep {
  /** What the step gives. It is the pass's: use it before the next step and do not dispose it. */
  output: Tensor;
  /** Steps enqueued so far as a share of all, above 0 and at most 1. */
  share: number;
  /** Steps of other passes that it takes the place of, for who measures them. Default 1. */
  steps?: number;
}

/**
 * A forward pass, a step at every `next()`. Steps enqueue their work and do not wait; the caller may wait, or stop, in
 * between. Returns the logits, or undefined when none were asked for: its last step then has the share 1. Run it to its
 * end or call `return()`, which gives its memory back.
 */
export type ForwardPass = Generator<PassStep, Tensor | undefined, void>;

export interface CausalModel {
  readonly config: DecoderConfig;
  readonly device: Device;
  /** A layer each; undefined for one without attention. */
  readonly kvLayouts: readonly (KvLayout | undefined)[];
  /** A layer each; undefined for one without a state. Left out: none has one. */
  readonly stateLayouts?: readonly (StateLayout | undefined)[];
  /** What adapters can change. Left out: nothing. */
  readonly lora?: LoraSites;
  /** Where experts are in host memory: a pass then reads from the device which are chosen. Left out: none are. */
  readonly hostExperts?: HostExperts | undefined;
  /**
   * Returns logits [rows, vocabSize] of the tokens that `batch.outputs` names, or hidden states [tokens, hiddenSize]; f32, the
   * caller's to dispose.
   */
  pass(batch: Batch, kv: KvView): ForwardPass;
  /** Gives the weights back. Harmless when repeated. */
  dispose(): void;
}
