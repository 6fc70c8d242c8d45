/**
 * Choosing the next token of each of several sequences on the device, as a device may have it. What is chosen and how is
 * data, so that a captured step serves any mixture; the same data gives the same token on every device, and in the host's
 * form of it, which `@x/engine` has for devices without (packages/engine/src/sampling).
 */
import type { StoragePart } from './attention';
import type { BackendStorage } from './storage';

/** Words of a row of parameters, by their places; those said to be f32 are its bits. */
export const SAMPLING_PARAMS = {
  /** {@link SAMPLING_KINDS} */
  kind: 0,
  /** {@link SAMPLING_FLAGS}, added */
  flags: 1,
  /** 1 / temperature, f32. */
  inverseTemperature: 2,
  /** Keep this many likeliest tokens; 0: all. */
  topK: 3,
  /** Of those left the smallest set of likeliest ones that has this share of the weight, in 2^-32; 0: all. */
  topP: 4,
  /** Keep logits that lie no further than this below the largest: f32, 0 or less. */
  leastLogit: 5,
  /** Of those left the ones of most typical likelihood that have this share of the weight, in 2^-32; 0: all. */
  typicalP: 6,
  /** Which of those left is drawn: a number in [0, 1), in 2^-32. */
  uniform: 7,
  firstEdit: 8,
  /** How many edits belong to the row, from the first one on. */
  edits: 9,
  /** How many of the likeliest tokens are listed. */
  top: 10,
} as const;
/** u32 words of a row of {@link SAMPLING_PARAMS}, of which the last is spare. */
export const SAMPLING_ROW_WORDS = 12;

/** Nothing, the token of the largest logit, or one drawn by weight. */
export const SAMPLING_KINDS = { leave: 0, greedy: 1, draw: 2 } as const;
/** Tokens whose bit in the row's mask is 0 are impossible; log probabilities are wanted. */
export const SAMPLING_FLAGS = { masked: 1, logprob: 2 } as const;

/** In place of an id: none was or could be chosen, since logits hold NaN, +Infinity or no finite value. */
export const NO_TOKEN = 0xffffffff;

/** Contiguous, of one device. No launch depends on what params, edits and masks hold. */
export interface SamplingProblem {
  rows: number;
  vocab: number;
  /** Room for likeliest tokens in a row of the result. */
  top: number;
  /** [rows, vocab], f32. Overwritten by masks and edits. */
  logits: StoragePart;
  /** [rows, {@link SAMPLING_ROW_WORDS}], u32 */
  params: StoragePart;
  /**
   * [edits, 4], u32: an id below `vocab`, once a row; factors of its logit where that is 0 or more and where less, and what is
   * then added, all f32. Overwritten.
   */
  edits?: StoragePart;
  /** [rows, ceil(vocab / 32)], u32: bit i % 32 of element i / 32 for token i. */
  masks?: StoragePart;
}

/** Added to a row's number: in place of an id, what that row chose. */
export const FROM_CHOSEN = 0x80000000;

/** Contiguous, of one device. */
export interface FollowProblem {
  rows: number;
  vocab: number;
  /** [rows], u32: ids below {@link FROM_CHOSEN}, and {@link FROM_CHOSEN} + a row of `chosen`. */
  ids: StoragePart;
  /** [rows of the step before], u32: ids, or {@link NO_TOKEN}. */
  chosen: StoragePart;
}

export interface SamplingOps {
  /** Whether there is a kernel for rows of this many logits. */
  supports(vocab: number): boolean;
  /**
   * Masks, edits, filters and the draw: [rows, 2 + 2 top], u32: the id or {@link NO_TOKEN}; the log probability of the token in
   * the softmax of the masked logits, f32; ids of the likeliest tokens in that; their log probabilities. Of equal logits the
   * first are the likeliest. Log probabilities are there where wanted.
   */
  choose(problem: SamplingProblem): BackendStorage;
  /** Ids with those of `chosen` where they stand for them: [rows], u32. What is no token becomes the last one of `vocab`. */
  follow(problem: FollowProblem): BackendStorage;
}
