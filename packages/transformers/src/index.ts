/** Language models, tokenizers, sampling and generation: candle-transformers for TypeScript. */
export { TransformersError, type TransformersErrorCode } from './errors';
export { type FinishReason, type GenerateOptions, Generation, type GenerationStats, type Piece } from './generation';
export { type GgufExport, type GgufTensorName, ggufExport } from './gguf-export';
export { LanguageModel } from './language-model';
export { type LoadModelOptions, loadModel } from './load';
export { Llama } from './models/llama';
export {
  type LlamaConfig,
  llamaConfigFromGguf,
  llamaConfigFromJson,
  type RopeScaling,
  SUPPORTED_ARCHITECTURES,
} from './models/llama-config';
export type { CausalModel, ProgressListener, WeightSource } from './models/weights';
export { Random } from './random';
export { applyRepetitionPenalty, argmax, LogitsProcessor, logProbability, type SamplingOptions } from './sampling';
export * from './tokenizer';
