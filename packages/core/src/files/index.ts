/**
 * File formats, `@x/core/files`: npy and npz, PyTorch's pth, safetensors, and writing files whole or not at all. Files are
 * named by their path in Node; the bytes of one are read everywhere.
 */
export { Tensor } from '../tensor';
export { DeviceReads, type ReadPart } from './device-reads';
export { CONFIG_LIMITS, type JsonLimits, readJsonFile } from './json';
export { NpzFile, type NpzInfo, readNpy, readNpySync, writeNpy, writeNpz } from './npy';
export { type PthEntry, PthFile, type PthInfo, type PthOptions } from './pth';
export type { PthKind, PthScalar, PthValue } from './pth-tree';
export { SafetensorsFile, saveSafetensors, type TensorReader } from './safetensors';
export type { SafetensorsDType, SafetensorsInfo } from './safetensors-header';
export { ShardedSafetensors } from './safetensors-shards';
export { type ByteSource, type FileInput, openSource, type SourceErrors, type SourceOptions } from './source';
export { refuseStandIn, STAND_IN_BYTES } from './stand-ins';
export type { FileType, LoadOptions } from './types';
export { type FileSink, replaceFile } from './write';
