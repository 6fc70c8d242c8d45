/** Kernels that a device compiles from source at run time. `Device.compile` is what people call. */
import type { BackendStorage } from './storage';

/** What a kernel is called with: numbers, storages (their first element), or storages from an element on. */
export type KernelArgument = number | bigint | BackendStorage | readonly [storage: BackendStorage, offset: number];

/** How many threads run a kernel. On the CPU a block is one thread whatever `block` says. */
export interface LaunchSize {
  /** Blocks, in one or three dimensions. */
  grid: number | readonly [number, number, number];
  /** Threads of a block. */
  block: number | readonly [number, number, number];
  /** Bytes of dynamic shared memory a block. Default 0. */
  sharedBytes?: number;
}

export interface CompiledKernel {
  readonly name: string;
  /**
   * Enqueues the kernel. `size` is the number of elements for a grid-stride kernel, for which the device chooses grid and
   * block, or both in full. Arguments are those of the kernel's declaration, in its order and number.
   */
  launch(size: number | LaunchSize, args: readonly KernelArgument[]): void;
}

/** Kernels compiled from source at run time. */
export interface CompiledProgram {
  /** @throws an error that names the kernels there are when there is no such one */
  kernel(name: string): CompiledKernel;
}

export interface CompileOptions {
  /** Compiler options such as `-DTILE=64`. */
  flags?: readonly string[];
}
