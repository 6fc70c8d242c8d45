/** The plain TypeScript device: allocation, transfers, random numbers. It serves `js`, and `cpu` where no package does. */

import type { BackendDevice, BackendStorage, DeviceLocation, DeviceMemory } from '../backend';
import { brand } from '../brand';
import type { DType } from '../dtype';
import { DisposedError } from '../errors';
import { allocRaw, bytesOf, rawFromBytes } from '../host-array';
import { LINE } from '../one-core';
import { HostRandom } from '../random';
import { conv, fused, ops, resampling, scan, sorting } from './operations';
import { JsStorage, js } from './storage';

/** Storages are typed arrays, and work is done when a call returns. */
export class JsDevice implements BackendDevice {
  readonly location: DeviceLocation;
  readonly description: string;
  readonly ops = ops;
  readonly fused = fused;
  readonly conv = conv;
  readonly resampling = resampling;
  readonly sorting = sorting;
  readonly scan = scan;
  readonly random: HostRandom = new HostRandom(this);
  #open = true;
  #memory: DeviceMemory = {
    liveStorages: 0,
    liveBytes: 0,
    cachedBytes: 0,
    graphBytes: 0,
    driverBytes: 0,
    peakBytes: 0,
  };

  constructor(location: DeviceLocation = { kind: 'js', ordinal: 0 }, description = 'plain TypeScript on the CPU') {
    this.location = location;
    this.description = description;
  }

  /** @throws DisposedError once the device is disposed */
  checkOpen(): void {
    if (this.#open) return;
    throw new DisposedError('DISPOSED', `device ${this.location.kind} was disposed; get it again from Device.`);
  }

  /** Counts a storage that came (1) or went (-1). */
  track(change: number, bytes: number): void {
    this.#memory.liveStorages += change;
    this.#memory.liveBytes += bytes;
    this.#memory.peakBytes = Math.max(this.#memory.peakBytes, this.#memory.liveBytes);
  }

  allocUninit(elemCount: number, dtype: DType): JsStorage {
    return this.zeros(elemCount, dtype);
  }

  zeros(elemCount: number, dtype: DType): JsStorage {
    this.checkOpen();
    return new JsStorage(this, dtype, allocRaw(dtype, elemCount));
  }

  fromHost(bytes: ArrayBufferView, dtype: DType): JsStorage {
    const source = rawFromBytes(dtype, bytes);
    const storage = this.zeros(source.length, dtype);
    storage.raw().set(source as never);
    return storage;
  }

  write(dst: BackendStorage, byteOffset: number, bytes: ArrayBufferView): void {
    bytesOf(js(dst).raw()).set(bytesOf(bytes), byteOffset);
  }

  async synchronize(): Promise<void> {
    this.checkOpen();
  }

  synchronizeSync(): void {
    this.checkOpen();
  }

  memory(): DeviceMemory {
    return { ...this.#memory, driverBytes: this.#memory.liveBytes };
  }

  emptyCache(): void {
    this.checkOpen();
  }

  dispose(): void {
    this.#open = false;
  }
}

brand(JsDevice, 'x.core.js-device', LINE);
