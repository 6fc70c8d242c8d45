/**
 * Quantized weights as numbers, kept for the next product of many rows while memory is plenty: a prompt's pass reads them where
 * it would dequantize every weight again. They are a cache. One is kept where half of the device's memory stays free, and all are
 * given back before an allocation fails.
 */
import { type DenseForm, settings, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import type { KernelStorage } from '../storage';
import { filled } from './result';

/** Of the device's memory, what stays free. */
const FREE_SHARE = 1 / 2;

export class DenseWeights {
  /** Whether weights are kept. Default: `X_DENSE_WEIGHTS`, on. */
  isOn = settings.denseWeights();
  readonly #device: KernelDevice;
  /** By the weight in blocks. */
  readonly #copies = new Map<KernelStorage, KernelStorage>();
  /** Whether there was no room for one more, so that the driver is not asked for each product. */
  #isFull = false;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  /**
   * All `elemCount` numbers of `weight`, which stay this object's; undefined where they are not kept, and the caller makes them
   * for itself. A weight is kept in one dtype, that of its first product. @param fill writes them to an address
   */
  of(
    weight: KernelStorage,
    dtype: DenseForm,
    elemCount: number,
    fill: (out: number) => void,
  ): KernelStorage | undefined {
    const { recording, streams } = this.#device;
    if (!this.isOn || (!recording && streams.current !== streams.own.id)) return undefined;
    const kept = this.#copies.get(weight);
    if (kept?.dtype === dtype) return kept;
    if (kept || recording || !this.#hasRoom(elemCount * sizeInBytes(dtype))) return undefined;
    const copy = filled(this.#device, dtype, elemCount, fill);
    this.#copies.set(weight, copy);
    weight.join(this);
    return copy;
  }

  /** Whether one more would be kept, as far as is known. */
  get areKept(): boolean {
    return this.isOn && !this.#isFull;
  }

  /** Bytes of all that are kept. */
  get bytes(): number {
    let sum = 0;
    for (const copy of this.#copies.values()) sum += copy.byteLength;
    return sum;
  }

  /** A weight is being disposed. */
  lose(weight: KernelStorage): void {
    const copy = this.#copies.get(weight);
    this.#copies.delete(weight);
    copy?.dispose();
    this.#isFull = false;
  }

  /** A weight is being written to: its numbers are others. */
  forget(weight: KernelStorage): void {
    if (!this.#copies.has(weight)) return;
    weight.leave(this);
    this.lose(weight);
  }

  /** Gives back what no captured graph reads. @returns whether there was any */
  release(): boolean {
    this.#isFull = false;
    const before = this.#copies.size;
    for (const [weight, copy] of this.#copies) {
      if (copy.hasDependents) continue;
      weight.leave(this);
      this.lose(weight);
    }
    return this.#copies.size < before;
  }

  #hasRoom(bytes: number): boolean {
    if (this.#isFull) return false;
    const { free, total } = this.#device.hip.memoryInfo();
    this.#isFull = free - bytes < total * FREE_SHARE;
    return !this.#isFull;
  }
}
