/**
 * Compiled kernels and their sources: data and its description, no native code. candle's counterpart is the
 * candle-kernels crate, whose modules are PTX texts; here a module has one code object a target.
 */
export { parseCodeObject } from './code-object';
export { KernelError, type KernelErrorCode } from './errors';
export {
  AFFINE,
  ALL_MODULES,
  ATTENTION,
  BINARY,
  CAST,
  CONV,
  type CodeObject,
  DECODE,
  FILL,
  GEMM,
  headerSource,
  INDEXING,
  KernelModule,
  kernelDirectory,
  listTargets,
  QUANTIZED,
  RANDOM,
  REDUCE,
  readManifest,
  SAMPLING,
  SORT,
  TERNARY,
  UNARY,
} from './module';
export { PtxText } from './ptx';
export { resolveTarget } from './targets';
export type { CodeObjectFormat, KernelInfo, Manifest, ManifestModule, ParamType, ParsedCodeObject } from './types';
