/**
 * Layers, losses, optimisers, caches and weight loading: candle-nn for TypeScript. As in candle's crate, classes and the
 * functions that make layers are here by themselves, and modules of functions by their names: `ops.layerNorm(x, w, b, eps)`
 * normalises, `layerNorm(size, eps, vb)` makes a layer.
 */
export { ACTIVATIONS, type Activation, type ActivationName, activate, isActivation, PReLU, prelu } from './activation';
export * as attention from './attention';
export {
  AttnMask,
  CACHE_GROUP,
  causalBias,
  causalDecodeF32Interleaved,
  type FlashOptions,
  flashAttn,
  flashAttnVarlenCpu,
  flashAttnVarlenUnfused,
  fusesPrompt,
  type PackedAttentionOptions,
  type PagedAttentionOptions,
  type PagedCache,
  type PagedStep,
  packedAttention,
  pagedActivations,
  pagedAppend,
  pagedAttention,
  pagedPrompt,
  pagedUnpack,
  pagedVarlen,
  runCausalAttnCpu,
  runFlashAttnCpu,
  type SdpaOptions,
  Segments,
  Slopes,
  sdpa,
  TILE_NUMBERS,
  type VarlenOptions,
  type VarlenPart,
  type VarlenTables,
  varlenRows,
  varlenTiles,
} from './attention';
export { BatchNorm, type BatchNormConfig, type BatchNormOptions, batchNorm } from './batch-norm';
export {
  type ActivationForm,
  type Activations,
  activateAs,
  gateActivation,
  gatedActivation,
  gatedGroupNorm,
  headNorm,
  type NormAddOptions,
  normAdd,
} from './between';
export {
  Conv1d,
  type Conv1dConfig,
  Conv2d,
  type Conv2dConfig,
  ConvTranspose1d,
  type ConvTranspose1dConfig,
  ConvTranspose2d,
  type ConvTranspose2dConfig,
  conv1d,
  conv1dNoBias,
  conv2d,
  conv2dNoBias,
  convTranspose1d,
  convTranspose1dNoBias,
  convTranspose2d,
  convTranspose2dNoBias,
} from './conv';
export { Embedding, embedding } from './embedding';
export { oneHot } from './encoding';
export { Func, FuncT, func, funcT } from './func';
export { GroupNorm, groupNorm } from './group-norm';
export {
  fusesHeads,
  type HeadAttentionOptions,
  type HeadOptions,
  type HeadParts,
  type HeadRotation,
  headsAppend,
  headsAttend,
  type PromptHeadParts,
  promptHeads,
} from './heads';
export * as init from './init';
export { DEFAULT_KAIMING_NORMAL, DEFAULT_KAIMING_UNIFORM, Init } from './init';
export {
  Cache,
  ConcatKvCache,
  type IndicesAndMask,
  InterleavedKvCache,
  KvCache,
  RotatingCache,
  RotatingKvCache,
  ScatteredCacheBuilder,
  ScatteredKvCache,
} from './kv-cache';
export { type LatentParts, type LatentQueries, latentAppend } from './latent';
export { LayerNorm, type LayerNormConfig, layerNorm, layerNormNoBias, RmsNorm, rmsNorm } from './layer-norm';
export { Linear, linear, linearB, linearNoBias } from './linear';
export * as loss from './loss';
export { type Module, type ModuleT, OwningModule } from './module';
export {
  type ExpertWeights,
  moeGemm,
  moeGemmGguf,
  type SortedExperts,
  sortByExpert,
} from './moe';
export * as ops from './ops';
export {
  Dropout,
  dropout,
  hardSigmoid,
  Identity,
  leakyRelu,
  logSoftmax,
  mish,
  pixelShuffle,
  pixelUnshuffle,
  replicationPad2d,
  selu,
  sigmoid,
  silu,
  softmax,
  softmaxLastDim,
  softplus,
  swiglu,
} from './ops';
export {
  Adam,
  AdamW,
  clipGradNorm,
  clipGradValue,
  constantLr,
  cosineAnnealingLr,
  cosineAnnealingWarmRestarts,
  type DataParallelOptions,
  DistributedDataParallel,
  exponentialLr,
  GradAccumulator,
  type GradAccumulatorOptions,
  Lion,
  type LionParams,
  linearLr,
  multiStepLr,
  Optimizer,
  type ParamsAdam,
  type ParamsAdamW,
  polynomialLr,
  RMSProp,
  type RmsPropParams,
  type Schedule,
  Scheduler,
  SGD,
  type SgdParams,
  stepLr,
  warmup,
} from './optim';
export {
  type CausalConv1dOptions,
  causalConv1d,
  type DecayedInputs,
  type DecayedOptions,
  type GatedDeltaInputs,
  type GatedDeltaOptions,
  gatedDeltaRule,
  type SelectiveScanInputs,
  type SequenceSpans,
  type SsdInputs,
  type SsdOptions,
  selectiveScan,
  ssd,
} from './recurrent';
export {
  type Direction,
  GRU,
  type GRUConfig,
  type GRUState,
  gru,
  LSTM,
  type LSTMConfig,
  type LSTMState,
  lstm,
  RNN,
  type RnnConfig,
  type RnnState,
} from './rnn';
export {
  RotaryTable,
  type RotaryTableOptions,
  rope,
  ropeI,
  ropeISlow,
  ropeSlow,
  ropeThd,
  ropeThdSlow,
  rotate,
} from './rotary-emb';
export { type RouteOptions, routeExperts, routeTokens } from './route';
export { gumbelSoftmax } from './sampling';
export { Sequential, seq } from './sequential';
export { type GetOptions, type Shard, VarBuilder, type VarBuilderOptions, type VarSource } from './var-builder';
export { VarMap } from './var-map';
