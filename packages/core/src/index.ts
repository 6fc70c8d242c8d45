/** The public API of `@x/core`. */
export * from './backend';
export {
  Device,
  type DeviceInfo,
  type DeviceKind,
  registerBackend,
  registeredBackends,
  type SkippedDevice,
} from './device';
export * from './dtype';
export * from './errors';
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
} from './host-array';
export { JsDevice } from './js/device';
export { JsStorage } from './js/storage';
export { Layout, type StridedBlocks } from './layout';
export { type DeviceUsage, type MemoryStats, memoryStats } from './memory';
export { DEFAULT_SEED, philox4x32, philoxNormal, philoxUniform } from './philox';
export { PhiloxGenerator } from './random';
export { type LoadOptions, SafetensorsFile, saveSafetensors } from './safetensors';
export type { SafetensorsDType, SafetensorsInfo } from './safetensors-header';
export { keep, type Scoped, scope, TENSORS } from './scope';
export { broadcastShapes, contiguousStrides, elemCount, formatShape, resolveDim, type Shape, sameShape } from './shape';
export { type FromOptions, Tensor, type TensorData, type TensorOptions } from './tensor';
export type { ConvOptions, ConvTransposeOptions } from './tensor/convolution';
export type { Nested } from './tensor/host';
export { cat, meshgrid, stack } from './tensor/joining';
export type { Size2d } from './tensor/resampling';
export type { Index, IndexRange } from './tensor/views';
