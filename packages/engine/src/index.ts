/**
 * Runs language models: sequences and their key-value caches, batching, sampling and generation. A model computes, the
 * engine remembers.
 */
export type { Constraint } from './constraint';
export { type FinishReason, type GenerateOptions, Generation, type GenerationStats, type Piece } from './generation';
export { type CacheDType, defaultCacheDtype, KvPool, type KvPoolOptions, type KvPoolStats } from './kv/pool';
export { SequenceCache } from './kv/sequence-cache';
export { LanguageModel, type LanguageModelParts } from './language-model';
export { type LoadModelOptions, loadModel } from './load';
export { Runner, type Step } from './runner';
export {
  applyRepetitionPenalty,
  argmax,
  type Choice,
  choose,
  type Edit,
  LogitsProcessor,
  logProbability,
  Random,
  type Sampler,
  type SamplingOptions,
  type TokenLogprob,
} from './sampling';
export { BatchScheduler, type PrefillOptions } from './scheduler';
