/**
 * Language models, their weights and tokenizers: candle-transformers for TypeScript. A model computes and remembers nothing;
 * `@x/engine` runs it.
 */

export type { LoraBase } from './adapters/base';
export { openLora } from './adapters/open';
export type { ChatMessage, ChatPiece, ChatRole, ToolCall, ToolDefinition } from './chat/messages';
export { checkMessages, checkTools } from './chat/normalize';
export { type ReplyFormat, standsAlone, thoughtOf } from './chat/reply/formats';
export { marksOf, ReplyParser, type ReplyParserOptions } from './chat/reply/parser';
export { type ArgumentReading, ArgumentTypes } from './chat/reply/tag-calls';
export {
  isStandardSchema,
  jsonSchemaOf,
  type StandardResult,
  type StandardSchema,
  standardValue,
} from './chat/standard-schema';
export { stopIds } from './chat/stops';
export {
  CHATML,
  type ChatPrompt,
  ChatTemplate,
  type KnownTokens,
  type PromptOptions,
  type RenderOptions,
  TEMPLATE_VARIABLES,
} from './chat/template';
export type { ConfigKey, ConfigSource } from './config/config-source';
export type { DecoderConfig } from './config/decoder-config';
export { type RopeConfig, type RopeScaling, ropeFrequencies } from './config/rope';
export type { EncoderBatch, EncoderModel } from './encoders/encoder-model';
export { PackedKv } from './encoders/packed-kv';
export { type PoolingMode, poolRows } from './encoders/pooling';
export {
  describeEncoderConfig,
  describeEncoderGguf,
  ENCODERS,
  type EncoderArchitecture,
  type EncoderDescription,
  SUPPORTED_ENCODERS,
} from './encoders/registry';
export { TransformersError, type TransformersErrorCode } from './errors';
export { type GgufExport, type GgufTensorName, ggufExport, ggufExportOfDirectory } from './gguf-export';
export type {
  AttendOptions,
  Batch,
  CausalModel,
  ForwardPass,
  KvLayout,
  KvView,
  LayerKv,
  LayerStates,
  PagedLayer,
  PagedStepLayer,
  PassStep,
  PromptLayer,
  StateLayout,
} from './models/causal-model';
export { type ExpertGroups, type MoeConfig, mixtureOf } from './models/moe';
export {
  ARCHITECTURES,
  type Architecture,
  describeConfig,
  describeGguf,
  type ModelDescription,
  SUPPORTED_ARCHITECTURES,
} from './registry';
export * from './tokenizer';
export { type CheckedModel, checkWeights, missingHead, type WeightsReport } from './weights/check-weights';
export { holdsHalves, keepsHalves, numberBytes } from './weights/halves';
export { type ExpertStats, HostExperts } from './weights/host-experts';
export type { LinearGroup } from './weights/linear-group';
export { checkLora, Lora, type LoraDelta, type LoraFile, type LoraRows, LoraSites } from './weights/lora';
export { QuantizedVarBuilder } from './weights/quantized-var-builder';
export { checkpointRow } from './weights/row-order';
export { withScales } from './weights/scaled-fp8';
export { type StoredTensor, type TensorForm, type TensorNamePair, TensorNames } from './weights/tensor-names';
export { textPart } from './weights/text-part';
export { type WeightBytes, type WeightBytesOptions, weightBytes } from './weights/weight-bytes';
export { openSafetensors, type ProgressListener, WeightFile, type WeightFileOptions } from './weights/weight-file';
export type { WeightRead } from './weights/weight-read';
export { type LinearPart, type TensorLayout, type WeightOptions, Weights } from './weights/weights';
