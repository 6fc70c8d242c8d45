/** Random numbers of a device's kernels: element i of a call of the Philox stream, the same on every device. */
import { type DType, isFloat, PhiloxGenerator, type RandomOps } from '@x/core';
import type { RocmDevice } from './device';
import { unsupported } from './errors';
import { launchRandom } from './kernels';
import { run } from './ops';
import type { RocmStorage } from './storage';

export class DeviceRandom implements RandomOps {
  readonly #device: RocmDevice;
  readonly #stream = new PhiloxGenerator();

  constructor(device: RocmDevice) {
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

  uniform(count: number, dtype: DType, lo: number, up: number): RocmStorage {
    return this.#made('rand_uniform', count, dtype, up - lo, lo);
  }

  normal(count: number, dtype: DType, mean: number, std: number): RocmStorage {
    return this.#made('rand_normal', count, dtype, std, mean);
  }

  #made(kernel: string, count: number, dtype: DType, mul: number, add: number): RocmStorage {
    const device = this.#device;
    if (!isFloat(dtype)) throw unsupported(kernel, dtype, device);
    device.recording?.refuse(kernel);
    return run(device, dtype, count, (out) =>
      launchRandom(device, `${kernel}_${dtype}`, count, this.#stream.nextCall(), mul, add, out),
    );
  }
}
