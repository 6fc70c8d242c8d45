/** Random numbers of a device's kernels: element i of a call of the Philox stream, the same on every device. */
import { type DType, isFloat, PhiloxGenerator, type RandomOps } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { launchRandom } from '../launchers/random';
import type { KernelStorage } from '../storage';
import { filled } from './result';

export class DeviceRandom implements RandomOps {
  readonly #device: KernelDevice;
  readonly #stream = new PhiloxGenerator();

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  get seed(): number {
    return this.#stream.seed;
  }

  get calls(): number {
    return this.#stream.calls;
  }

  setSeed(seed: number): void {
    this.#stream.setSeed(seed);
  }

  restore(seed: number, calls: number): void {
    this.#stream.restore(seed, calls);
  }

  uniform(count: number, dtype: DType, lo: number, up: number): KernelStorage {
    return this.#made('rand_uniform', count, dtype, up - lo, lo);
  }

  normal(count: number, dtype: DType, mean: number, std: number): KernelStorage {
    return this.#made('rand_normal', count, dtype, std, mean);
  }

  #made(kernel: string, count: number, dtype: DType, mul: number, add: number): KernelStorage {
    const device = this.#device;
    if (!isFloat(dtype)) throw unsupported(kernel, dtype, device);
    device.recording?.refuse(kernel);
    return filled(device, dtype, count, (out) => {
      const { seed, call } = this.#stream.nextCall();
      const shape = device.shapes.elementwise(count);
      launchRandom(device, `${kernel}_${dtype}`, shape, { numel: count, seed, call, mul, add, out });
    });
  }
}
