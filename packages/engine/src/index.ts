/**
 * Runs language models: sequences and their key-value caches, batching, sampling and generation. A model computes, the
 * engine remembers.
 */

export {
  type StandardResult,
  type StandardSchema,
  TransformersError,
  type TransformersErrorCode,
} from '@x/transformers';
export type { AdapterChoice, AdapterUse } from './adapters';
export {
  ChatSession,
  type ChatSessionOptions,
  ChatTurn,
  type ChatTurnOptions,
  restoredChat,
  type SavedChat,
} from './chat/session';
export type { ChatGeneration, ChatOptions, ParsedCall, ToolChoice } from './chat/types';
export type { Constraint } from './constraint';
export type { EmbeddingInput } from './embedding/inputs';
export { type LoadEmbeddingModelOptions, loadEmbeddingModel } from './embedding/load';
export {
  type BatchOptions,
  type Classification,
  EmbeddingModel,
  type EmbedOptions,
  type RankedDocument,
  type RerankOptions,
  type TextEmbedding,
} from './embedding/model';
export type { GenerateOptions } from './generate-options';
export {
  type FinishReason,
  Generation,
  type GenerationStats,
  type Piece,
  type SpeculativeStats,
} from './generation';
export { defaultCacheDtype, KvPool, type KvPoolOptions, type KvPoolStats, multipliesNarrow } from './kv/pool';
export { positionsIn } from './kv/room';
export { CACHE_DTYPES, type CacheDType, cacheElementBytes } from './kv/rows';
export { SequenceCache } from './kv/sequence-cache';
export {
  LanguageModel,
  type LanguageModelParts,
  type LoadAdapterOptions,
} from './language-model';
export type { ExpertOptions } from './load/expert-place';
export { type KernelProgress, type LoadModelOptions, loadModel } from './load/load';
export { findModel, hubName, type ModelFiles, weightPaths } from './load/model-files';
export type { WarmUpOptions } from './load/warm-up';
export { checkOptions } from './options';
export { type ProcessGroup, processGroup } from './parallel/environment';
export { devicesOf, type ParallelOptions } from './parallel/options';
export { type FollowOptions, followModel } from './parallel/processes';
export type { PromptFileOptions } from './prompt-files';
export { Runner, type RunnerOptions } from './runner';
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
export type { Step } from './schedule/pass-planner';
export { BatchScheduler, type PrefillOptions, type Verified } from './schedule/scheduler';
export type { DraftModel, DraftOptions, LookupOptions, Speculative } from './speculate/options';
export type { StepBytes } from './step-bytes';
export type { JsonSchema, StructureOptions } from './structured';
