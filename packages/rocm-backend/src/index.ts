/**
 * candle's GPU backend for TypeScript: turns core's backend interface into launches of the kernels of `@x/kernels`
 * through the driver table of `@x/hip`. Importing it registers the devices `rocm:N`, `cuda:N` and `cpu`.
 */
import { registerProviders } from './provider';

export { CachingAllocator } from './allocator';
export { RocmDevice } from './device';
export { KernelLookupError } from './errors';
export { RocmGraph } from './graph';
export { cacheDirectory } from './kernel-cache';
export type { LaunchShape } from './launch-shape';
export type { ConvolutionChoice, DeviceOptions, GemmChoice } from './libraries';
export { ModuleStore, type ModuleStoreStats } from './module-store';
export { Map1, Map1Any, Map2, Map2Any, Map2InPlace, Map3 } from './ops';
export { type CompileCacheStats, compileCacheStats, type RuntimeSource } from './runtime-compile';
export { RocmStorage } from './storage';
export type { QuantizedChoice } from './storage/quantized';

registerProviders();
