/** What a text is generated with. */
import { kinds } from '@x/core';
import { ADAPTER_OPTION, type AdapterChoice } from './adapters';
import type { Constraint } from './constraint';
import { MAX_TOP, type SamplingOptions } from './sampling';
import { type Speculative, speculative } from './speculate/options';
import { STRUCTURE_OPTIONS, type StructureOptions } from './structured';

/** @typeParam T type of the value that a `schema` describes */
export interface GenerateOptions<T = unknown> extends SamplingOptions, StructureOptions<T> {
  /** Most tokens to generate, at least 1. Default: until the model ends its text or the context is full. */
  maxTokens?: number;
  /** Ends the text before the first of these strings; it is not shown. Default: none. */
  stop?: string | readonly string[];
  /**
   * Once aborted, the iteration throws the signal's reason (an `AbortError` by default), as fetch does: when the device has
   * finished what it was given, which is at most some 60 ms of work or, where that takes longer, one step of a layer.
   */
  signal?: AbortSignal;
  /** Fill in {@link Piece.logprob}. Default false. */
  logprobs?: boolean;
  /** Fill in {@link Piece.topLogprobs} with this many tokens, at most 20, and {@link Piece.logprob}. Default 0: none. */
  topLogprobs?: number;
  /** Go on after an end-of-text token, as measurements need it. Default false. */
  ignoreEos?: boolean;
  /**
   * Take the beginning of the prompt from the cache where another sequence had it, in blocks of 32 tokens. What is computed
   * in other pieces may differ in its last bits. Default true.
   */
  reusePrompt?: boolean;
  /** Compute with a LoRA adapter of the model, by its name, or at another `scale` than 1. Default: the model as it is. */
  adapter?: AdapterChoice;
  /** Which tokens may come next, asked before each. Default: all. */
  constraint?: Constraint;
  /**
   * Guess the next tokens and check several of them in one step, which reads the weights once for all of them: `'lookup'` finds
   * them in the text so far, `{ draft: model }` has a smaller model of the same vocabulary write them. The text is the same as
   * without, also with a temperature, for the same seed and logits; only logits computed in other pieces may differ in their last bits.
   * A `constraint` needs `fork()`. Default: one token a step.
   */
  speculative?: Speculative;
  /** Put what the model expects around a text, usually BOS, around a string prompt. Ids are taken as they are. Default true. */
  addSpecialTokens?: boolean;
  /**
   * Called while the prompt is read: tokens that the device is done with and in all. It computes some hundred tokens
   * together, layer by layer; those under way count in part. The first number grows by 16 or more at each call.
   */
  onProgress?: (promptTokensDone: number, promptTokens: number) => void;
}

export const GENERATE_OPTIONS: Record<keyof GenerateOptions, kinds.Kind> = {
  temperature: kinds.NUMBER,
  topK: kinds.NUMBER,
  topP: kinds.NUMBER,
  minP: kinds.NUMBER,
  typicalP: kinds.NUMBER,
  seed: kinds.NUMBER,
  repetitionPenalty: kinds.NUMBER,
  frequencyPenalty: kinds.NUMBER,
  presencePenalty: kinds.NUMBER,
  repetitionWindow: kinds.NUMBER,
  logitBias: kinds.kind(kinds.isObject, 'give an object of biases by token id'),
  maxTokens: kinds.NUMBER,
  stop: kinds.kind(
    (value) => typeof value === 'string' || (Array.isArray(value) && value.every((text) => typeof text === 'string')),
    'give a string or a list of strings',
  ),
  signal: kinds.SIGNAL,
  logprobs: kinds.BOOLEAN,
  topLogprobs: kinds.kind(
    (value) => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_TOP,
    `give an integer from 0 to ${MAX_TOP}`,
  ),
  ignoreEos: kinds.BOOLEAN,
  reusePrompt: kinds.BOOLEAN,
  adapter: ADAPTER_OPTION,
  constraint: kinds.kind(
    (value) => typeof (value as Constraint)?.mask === 'function' && typeof (value as Constraint).accept === 'function',
    'give an object with mask() and accept()',
  ),
  speculative,
  ...STRUCTURE_OPTIONS,
  addSpecialTokens: kinds.BOOLEAN,
  onProgress: kinds.FUNCTION,
};
