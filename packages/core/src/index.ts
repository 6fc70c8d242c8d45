/** The public API of `@x/core`. */
export type { BackwardOptions } from './autograd/backward';
export { checkpoint } from './autograd/checkpoint';
export type {
  CustomOp1,
  CustomOp2,
  CustomOp3,
  CustomResult,
  InplaceOp1,
  InplaceOp2,
  InplaceOp3,
} from './autograd/custom-op';
export { GradStore } from './autograd/grad-store';
export { enableGrad, isGradEnabled, noGrad } from './autograd/mode';
export type { GradRecord } from './autograd/record';
export { Var } from './autograd/var';
export * from './backend';
export { backendModules, type DeviceKind, registerBackend, registeredBackends } from './backend-registry';
export { refuseInCapture } from './capture-state';
export { Communicator, type CommunicatorOptions } from './communicator';
export { Device, type DeviceInfo, type DeviceLike, type SkippedDevice } from './device';
export * from './dtype';
export * from './errors';
export type { FileInput } from './files/source';
export type { LoadOptions } from './files/types';
export { formatBytes } from './format-bytes';
export { type FusedCapability, fusedKernels, noFusing } from './fusing';
export { CapturedGraph, type GraphOutputs } from './graph';
export * from './half';
export {
  allocRaw,
  castValues,
  decodeRaw,
  encodeRaw,
  encodeScalar,
  type RawArray,
  rawFromBytes,
  roundScalar,
  type TensorArray,
  type ValuesOf,
} from './host-array';
export { hostStep } from './host-step';
export { type IdRange, idOutOfRange } from './id-range';
export { JsDevice } from './js/device';
export { JsStorage } from './js/storage';
export * as kinds from './kinds';
export { Layout, type StridedBlocks } from './layout';
export { type DeviceUsage, type MemoryStats, memoryStats } from './memory';
export { didYouMean } from './near';
export * as operators from './operators';
export { DEFAULT_SEED, philox4x32, philoxNormal, philoxUniform } from './philox';
export { QuantizedActivations } from './quantized-activations';
export { BLOCK_TYPES, type BlockFacts, type BlockType, isBlockType } from './quantized-types';
export { PhiloxGenerator } from './random';
export { keep, type Scoped, scope, TENSORS } from './scope';
export { type Setting, settings } from './settings';
export {
  broadcastShapes,
  contiguousStrides,
  D,
  elemCount,
  formatShape,
  resolveDim,
  type Shape,
  sameShape,
} from './shape';
export type { SharedTensor } from './shared-tensor';
export { type FromOptions, Tensor, type TensorOptions } from './tensor';
export {
  CONV_ALGORITHMS,
  type ConvAlgorithm,
  type ConvOptions,
  type ConvTransposeOptions,
} from './tensor/convolution';
export { type PrintOptions, printOptions, setPrintOptions } from './tensor/display';
export type { ByteSink } from './tensor/files';
export type { Nested } from './tensor/host';
export { all, type Index, type IndexRange, type IndexSlice, newAxis, range } from './tensor/index-op';
export { cat, meshgrid, stack } from './tensor/joining';
export type { TensorData } from './tensor/nested-data';
export type { Size2d } from './tensor/resampling';
export { warnOnce } from './warn-once';
