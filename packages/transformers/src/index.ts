/**
 * Language models, their weights and tokenizers: candle-transformers for TypeScript. A model computes and remembers nothing;
 * `@x/engine` runs it.
 */

export type { ConfigKey, ConfigSource } from './config/config-source';
export type { DecoderConfig } from './config/decoder-config';
export { type RopeConfig, type RopeScaling, ropeFrequencies } from './config/rope';
export { TransformersError, type TransformersErrorCode } from './errors';
export { type GgufExport, type GgufTensorName, ggufExport } from './gguf-export';
export type {
  AttendOptions,
  Batch,
  CausalModel,
  ForwardPass,
  KvLayout,
  KvView,
  LayerKv,
  PagedLayer,
  PassStep,
} from './models/causal-model';
export {
  ARCHITECTURES,
  type Architecture,
  describeConfig,
  describeGguf,
  type ModelDescription,
  SUPPORTED_ARCHITECTURES,
} from './registry';
export * from './tokenizer';
export type { LinearGroup } from './weights/linear-group';
export { QuantizedVarBuilder } from './weights/quantized-var-builder';
export { type StoredTensor, type TensorForm, type TensorNamePair, TensorNames } from './weights/tensor-names';
export { openSafetensors, type ProgressListener, WeightFile, type WeightFileOptions } from './weights/weight-file';
export { type LinearPart, type TensorLayout, type WeightOptions, Weights } from './weights/weights';
