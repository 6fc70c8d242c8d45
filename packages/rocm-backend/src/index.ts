/**
 * candle's GPU backend for TypeScript: turns core's backend interface into launches of the kernels of `@x/kernels`
 * through the driver table of `@x/hip`. Importing it registers the devices `rocm:N`, `cuda:N` and `cpu`.
 */
import { registerProviders } from './provider';

export { CachingAllocator } from './allocator';
/** `RocmDevice` is candle's name: it serves `cuda` and `cpu` too. */
export { KernelDevice, KernelDevice as RocmDevice } from './device';
export { KernelLookupError, type KernelLookupErrorCode } from './errors';
export { KernelGraph, KernelGraph as RocmGraph } from './graph';
export { cacheDirectory } from './kernel-cache';
export type { LaunchShape } from './launch-shape';
export type { ConvolutionChoice, DeviceOptions, GemmChoice } from './libraries';
export { ModuleStore, type ModuleStoreStats } from './module-store';
export type { QuantizedChoice } from './ops/quantized';
export { type CompileCacheStats, compileCacheStats, type RuntimeSource } from './runtime-compile';
export { KernelStorage, KernelStorage as RocmStorage } from './storage';

registerProviders(import.meta.url);
