/**
 * Source compiled at run time behind core's `Device.compile`: kernels of the user's own, which take storages as their
 * arguments (candle's `CudaDevice::compile`, candle-core/src/cuda_backend/device.rs, without its kernel language).
 */
import {
  type BackendStorage,
  type CompiledKernel,
  type CompiledProgram,
  type CompileOptions,
  DeviceError,
  type KernelArgument,
  kinds,
  type LaunchSize,
  sizeInBytes,
} from '@x/core';
import type { KernelDevice } from './device';
import { compileCached } from './runtime-compile';
import { KernelStorage } from './storage';

const ARGUMENTS = kinds.kind(Array.isArray, "give an array of the kernel's arguments, in its order");

/** Compiles at once, so that an error in the source is reported here; loading waits for the first kernel. */
export function compileProgram(device: KernelDevice, source: string, options: CompileOptions = {}): CompiledProgram {
  const { platform, properties } = device.hip;
  compileCached({ source, options, platform, arch: properties.arch });
  return { kernel: (name) => compiledKernel(device, name, source, options) };
}

function compiledKernel(device: KernelDevice, name: string, source: string, options: CompileOptions): CompiledKernel {
  kinds.check('kernel', 'name', name, kinds.STRING);
  const loaded = device.getOrLoadFuncRaw(name, source, options);
  return {
    name,
    launch(size, args) {
      const op = `launch of ${name}`;
      kinds.check(op, 'size', size, typeof size === 'number' ? kinds.COUNT : kinds.OBJECT);
      kinds.check(op, 'args', args, ARGUMENTS);
      const values = args.map((argument, i) => packed(device, name, argument, i));
      device.launchFunction(loaded, launchSize(device, size), values);
    },
  };
}

function launchSize(device: KernelDevice, size: number | LaunchSize): LaunchSize {
  return typeof size === 'number' ? device.shapes.elementwise(size) : size;
}

/** A number as it is, a storage as its device address. */
function packed(device: KernelDevice, kernel: string, argument: KernelArgument, i: number): number | bigint {
  if (typeof argument === 'number' || typeof argument === 'bigint') return argument;
  const [storage, offset] = isPlaced(argument) ? argument : [argument, 0];
  if (storage instanceof KernelStorage && storage.device === device)
    return storage.ptr + offset * sizeInBytes(storage.dtype);
  const { kind, ordinal } = device.location;
  throw new DeviceError(
    'DEVICE_MISMATCH',
    `launch of ${kernel}: argument ${i} is no storage of ${kind}:${ordinal}, which the kernel was compiled for; move its tensor there with toDevice.`,
  );
}

function isPlaced(argument: KernelArgument): argument is readonly [storage: BackendStorage, offset: number] {
  return Array.isArray(argument);
}
