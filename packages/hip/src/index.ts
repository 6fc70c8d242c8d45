/**
 * `@x/hip`: one runtime binding for AMD GPUs (HIP), NVIDIA GPUs (CUDA) and this CPU, found at run time. Nothing is loaded
 * before the first call.
 */
export type { Counters, HostView } from './addon';
export { BlasHandle, type GemmOperand, type GemmProblem } from './blas';
export type { ClangCandidate } from './clang.mjs';
export {
  type CollectiveData,
  type CollectiveReduction,
  type CollectiveType,
  type GroupFailure,
  type GroupMembership,
  HipCommunicator,
} from './communicator';
export { type CompileOptions, type CompilerReport, compileProgram, compilers, targetOptions } from './compile';
export {
  CONVOLUTION_ALIGNMENT,
  ConvolutionHandle,
  type ConvolutionPlan,
  type ConvolutionShape,
} from './convolution';
export { type DeviceProperties, HipDevice, openDevice } from './device';
export { HipError, type HipErrorCode, type HipErrorDetails } from './errors';
export { HipEvent } from './event';
export { HipFileReader } from './file-reader';
export { type Dim, HipFunction } from './function';
export { HipGraph } from './graph';
export { HipGraphExec } from './graph-exec';
export {
  BLAS_LIBRARIES,
  type BlasLibrary,
  COLLECTIVE_LIBRARIES,
  CONVOLUTION_LIBRARIES,
  type CollectiveLibrary,
  type ConvolutionLibrary,
  type LibraryName,
  type LibraryReport,
  type LibraryType,
  libraryReport,
  libraryReports,
} from './libraries';
export { HipModule } from './module';
export type { ParamType } from './params';
export { PeerMemory } from './peer-memory';
export { PinnedMemory } from './pinned-memory';
export { PLATFORMS, type Platform, type PlatformFailure, type PlatformReport, platforms } from './platforms';
export { HipStream } from './stream';
