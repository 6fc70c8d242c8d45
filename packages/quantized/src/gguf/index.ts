export type { GgufErrorCode } from './error';
export { GgufFile, type GgufOpenOptions } from './file';
export { GgmlFile, type GgmlHyperParameters, type GgmlVocabularyEntry } from './ggml-file';
export { hasBlocks, holdsBlocks, holdsNarrow } from './has-blocks';
export { DEFAULT_LIMITS, type GgufLimits } from './header';
export { type Imatrix, loadImatrix } from './imatrix';
export { GgufMetadata } from './metadata';
export { type GgufChunk, type GgufTensorInfo, TensorFile } from './tensor-file';
export {
  GGUF_TYPES,
  type GgufArray,
  type GgufBigType,
  type GgufItems,
  type GgufNumberType,
  type GgufType,
  type GgufValue,
  gguf,
} from './value';
export { type GgufContent, type GgufTensorSource, writeGguf } from './writer';
