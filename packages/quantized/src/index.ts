/** The public API of `@x/quantized`. */
export { productsBeside } from './beside';
export * from './blocks';
export { ExpertOrder } from './expert-order';
export { ExpertSlots } from './expert-slots';
export {
  areBlocks,
  fusesGate,
  fusesMix,
  type GatedExpertsOptions,
  type GateWeights,
  gatedExperts,
  gatedExpertsBeside,
  groupedExperts,
  type MixedExpertsOptions,
  mixedExperts,
  mixedExpertsInto,
  quantizedRows,
} from './fused-experts';
export * from './gguf';
export { type DenseDType, deviceBytes } from './load';
export { isMixName, isQuantizable, MIXES, type MixFacts, type MixName, type MixTensor, planMix } from './mixes';
export { indexedMoe } from './moe';
export { mxfp4Names, mxfp4Shape, type PartReader, type RowPart } from './mxfp4';
export type { PartRange, TensorPart } from './part';
export { QMatMul, type QMatMulOptions } from './qmatmul';
export { QTensor } from './qtensor';
export type {
  AsyncQuantizeTensorOptions,
  IndexedMoeOptions,
  Mxfp4LoadOptions,
  QTensorLoadOptions,
  QTensorOptions,
  QuantizeTensorOptions,
} from './qtensor-options';
export { type ParallelQuantizeOptions, type QuantizeOptions, quantizeBlocks } from './quantize';
