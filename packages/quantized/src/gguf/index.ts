export type { GgufErrorCode } from './error';
export { type GgufChunk, GgufFile, type GgufOpenOptions } from './file';
export { DEFAULT_LIMITS, type GgufLimits, type GgufTensorInfo } from './header';
export { GgufMetadata } from './metadata';
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
