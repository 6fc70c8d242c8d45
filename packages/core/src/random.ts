/**
 * Random arrays in a dtype's storage form, from the stream that philox.ts defines: what the plain backend fills storages
 * with, and what a device without a random kernel uploads, so that a seed means the same everywhere.
 */
import type { BackendDevice, BackendStorage, RandomOps } from './backend';
import { type DType, isFloat } from './dtype';
import { UnsupportedError } from './errors';
import { bytesOf, castValues, type RawArray } from './host-array';
import { DEFAULT_SEED, philoxNormal, philoxUniform } from './philox';

/** A seed and the number of calls made since it was set. */
export class PhiloxGenerator {
  #seed = DEFAULT_SEED;
  #calls = 0;

  /** The seed set last, or {@link DEFAULT_SEED}. */
  get seed(): number {
    return this.#seed;
  }

  /** Calls so far: the `call` of the next one. */
  get calls(): number {
    return this.#calls;
  }

  /** Takes the next call, for a device whose kernels make its numbers. */
  nextCall(): { seed: number; call: number } {
    return { seed: this.#seed, call: this.#calls++ };
  }

  /** A whole number from 0 to 2^53 - 1; starts the stream anew. */
  setSeed(seed: number): void {
    this.#seed = seed;
    this.#calls = 0;
  }

  /** Goes to where a stream was after so many calls. */
  restore(seed: number, calls: number): void {
    this.#seed = seed;
    this.#calls = calls;
  }

  /** `count` numbers in [lo, up) of a float dtype; rounding may reach `up`. */
  uniform(count: number, dtype: DType, lo: number, up: number): RawArray {
    return this.#next('randUniform', philoxUniform, count, dtype, up - lo, lo);
  }

  /** `count` normal numbers of a float dtype. */
  normal(count: number, dtype: DType, mean: number, std: number): RawArray {
    return this.#next('randNormal', philoxNormal, count, dtype, std, mean);
  }

  #next(op: string, make: typeof philoxUniform, count: number, dtype: DType, mul: number, add: number): RawArray {
    if (!isFloat(dtype)) {
      throw new UnsupportedError(
        'UNSUPPORTED',
        `${op}: there are no random numbers of ${dtype}; make f32 ones and convert them.`,
      );
    }
    const { seed, call } = this.nextCall();
    const values = make(seed, call, count, dtype === 'f64');
    if (dtype === 'f64') return values.map((value) => value * mul + add);
    return castValues(
      'f32',
      Float32Array.from(values, (value) => value * mul + add),
      dtype,
    );
  }
}

/** The stream of a device whose numbers are made on the host. */
export class HostRandom implements RandomOps {
  readonly #generator = new PhiloxGenerator();
  readonly #device: BackendDevice;

  constructor(device: BackendDevice) {
    this.#device = device;
  }

  get seed(): number {
    return this.#generator.seed;
  }

  get calls(): number {
    return this.#generator.calls;
  }

  setSeed(seed: number): void {
    this.#generator.setSeed(seed);
  }

  restore(seed: number, calls: number): void {
    this.#generator.restore(seed, calls);
  }

  uniform(count: number, dtype: DType, lo: number, up: number): BackendStorage {
    return this.#upload(this.#generator.uniform(count, dtype, lo, up), dtype);
  }

  normal(count: number, dtype: DType, mean: number, std: number): BackendStorage {
    return this.#upload(this.#generator.normal(count, dtype, mean, std), dtype);
  }

  #upload(values: RawArray, dtype: DType): BackendStorage {
    return this.#device.fromHost(bytesOf(values), dtype);
  }
}
