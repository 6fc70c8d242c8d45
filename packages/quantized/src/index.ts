/** The public API of `@x/quantized`. */
export * from './blocks';
export * from './gguf';
export type { DenseDType } from './load';
export { QMatMul, type QMatMulOptions } from './qmatmul';
export { QTensor, type QTensorLoadOptions, type QTensorOptions } from './qtensor';
export { type PreloadOptions, QuantizedVarBuilder, type QuantizedVarBuilderOptions } from './var-builder';
