/** The public API of `@x/quantized`. */
export * from './blocks';
export * from './gguf';
export { type DenseDType, deviceBytes } from './load';
export { isMixName, isQuantizable, MIXES, type MixFacts, type MixName, type MixTensor, planMix } from './mixes';
export { indexedMoe } from './moe';
export { QMatMul, type QMatMulOptions } from './qmatmul';
export {
  type AsyncQuantizeTensorOptions,
  type IndexedMoeOptions,
  QTensor,
  type QTensorLoadOptions,
  type QTensorOptions,
  type QuantizeTensorOptions,
} from './qtensor';
export { type ParallelQuantizeOptions, type QuantizeOptions, quantizeBlocks } from './quantize';
