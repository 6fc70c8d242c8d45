/** Language models, tokenizers, sampling and generation: candle-transformers for TypeScript. */

export type { ConfigKey, ConfigSource } from './config/config-source';
export type { DecoderConfig } from './config/decoder-config';
export { type RopeConfig, type RopeScaling, ropeFrequencies } from './config/rope';
export { TransformersError, type TransformersErrorCode } from './errors';
export { type FinishReason, type GenerateOptions, Generation, type GenerationStats, type Piece } from './generation';
export { type GgufExport, type GgufTensorName, ggufExport } from './gguf-export';
export { LanguageModel } from './language-model';
export { type LoadModelOptions, loadModel } from './load';
export type { AttendOptions, Batch, CausalModel, KvLayout, KvView, LayerKv } from './models/causal-model';
export { Random } from './random';
export {
  ARCHITECTURES,
  type Architecture,
  describeConfig,
  describeGguf,
  type ModelDescription,
  SUPPORTED_ARCHITECTURES,
} from './registry';
export { applyRepetitionPenalty, argmax, LogitsProcessor, logProbability, type SamplingOptions } from './sampling';
export * from './tokenizer';
export type { ProgressListener, TensorLayout, WeightSource } from './weights/source';
