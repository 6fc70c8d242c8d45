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
  COLLECTIVES,
  CONV,
  type CodeObject,
  DECODE,
  EXPERTS,
  FILL,
  GEMM,
  headerSource,
  INDEXING,
  KernelModule,
  listTargets,
  OPTIM,
  QUANTIZED,
  RANDOM,
  RECURRENT,
  REDUCE,
  readManifest,
  SAMPLING,
  SORT,
  TERNARY,
  UNARY,
} from './module';
export { KERNEL_PACKAGES, type KernelPackage, kernelPackageFor } from './packages';
export { PtxText } from './ptx';
export {
  CODE_OBJECT_FORMAT,
  type InstalledKernels,
  installCommand,
  installedKernels,
  kernelDirectory,
  type PackageIndex,
  type PackedFile,
} from './stores';
export { CUBIN_TARGETS, cubinTargets, gfxName, resolveTarget } from './targets';
export type {
  CodeObjectFormat,
  KernelInfo,
  KernelParamType,
  Manifest,
  ManifestModule,
  ParsedCodeObject,
} from './types';
