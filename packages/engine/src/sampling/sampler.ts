/**
 * How one token is to be chosen from a row of logits, as data: what a device's kernel and the host's {@link choose} read. The
 * random number is in it, so the same data gives the same token wherever it is chosen.
 *
 * Order: mask, penalties and bias, temperature, topK, topP, minP, typicalP, draw.
 */

/** Tokens that `topLogprobs` lists at most. */
export const MAX_TOP = 20;

/** What becomes of one token's logit. */
export interface Edit {
  id: number;
  /** Multiplies a logit of 0 or more. */
  positive: number;
  /** Multiplies a logit below 0. */
  negative: number;
  /** Added then. */
  add: number;
}

/** Numbers are f32 or u32. */
export interface Sampler {
  /** The likeliest token, or one drawn by weight. */
  kind: 'greedy' | 'draw';
  inverseTemperature: number;
  /** 0: all. */
  topK: number;
  /** In 2^-32; 0: all. */
  topP: number;
  /** Logits this far below the largest are kept; 0 or less. */
  leastLogit: number;
  /** In 2^-32; 0: all. */
  typicalP: number;
  /** In 2^-32. */
  uniform: number;
  /** Each id once. */
  edits: readonly Edit[];
  /** Which tokens are possible: bit i % 32 of element i / 32; those behind the end are not. Undefined: all. */
  mask?: Uint32Array;
  /** Whether the log probability of the token is wanted. */
  logprob: boolean;
  /** How many of the likeliest tokens are to be listed, at most 20; `logprob` is true then. */
  top: number;
}

/** A token and its log probability: of the model, before penalties, temperature and filters. */
export interface TokenLogprob {
  id: number;
  logprob: number;
}

export interface Choice {
  id: number;
  /** Where wanted. */
  logprob?: number;
  /** The likeliest tokens, where wanted; fewer where no more are possible. */
  top?: TokenLogprob[];
}
