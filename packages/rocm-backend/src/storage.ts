/** KernelStorage: a buffer on a device and core's `BackendStorage` over it (candle's `CudaStorage`). */
import { type BackendDevice, type BackendStorage, DisposedError, type DType, type Layout, sizeInBytes } from '@x/core';
import type { KernelDevice } from './device';

/** Address of an operand's first element and how it is laid out. */
export interface View {
  ptr: number;
  layout: Layout;
  /** Size of an element. */
  itemBytes: number;
}

/** Who must know when a storage is gone: captured graphs that read or write it, and what was made of it. */
export interface Dependent {
  /** `storage` is being disposed. */
  lose(storage: KernelStorage): void;
}

/** What a storage is still to become, by work that has not been enqueued or runs beside the device's streams. */
export interface Arrival {
  /** Called before anything else touches the storage: enqueues the work, and puts the streams behind it. */
  wait(): void;
  /** In its place where the storage is given back untouched. */
  drop(): void;
}

/** Memory of a {@link KernelDevice} with elements of one dtype (candle's `CudaStorage`). */
export class KernelStorage implements BackendStorage {
  readonly dtype: DType;
  readonly device: KernelDevice;
  readonly elemCount: number;
  readonly #ptr: number;
  #disposed = false;
  #dependents: Set<Dependent> | undefined;
  #arrival: Arrival | undefined;

  /** @param ptr what `device.malloc` gave: {@link dispose} frees it */
  constructor(device: KernelDevice, dtype: DType, elemCount: number, ptr: number) {
    this.device = device;
    this.dtype = dtype;
    this.elemCount = elemCount;
    this.#ptr = ptr;
  }

  /** The storage as one of `device`; core has checked that operands share a device. */
  static on(device: BackendDevice, storage: BackendStorage): KernelStorage {
    if (storage instanceof KernelStorage && storage.device === device) return storage;
    throw new Error('internal: an operand lives on another device');
  }

  /** Device address of the first element. */
  get ptr(): number {
    if (this.#disposed)
      throw new DisposedError(
        'DISPOSED',
        'use of a storage after its disposal. Keep the tensor alive until its last use',
      );
    if (this.#arrival) this.#arrive();
    if (this.device.isWatched) this.device.uses(this, this.#ptr);
    return this.#ptr;
  }

  /** What `arrival` says is still to be done with this storage, behind what was before. */
  arrivesWith(arrival: Arrival): void {
    this.#arrive();
    this.#arrival = arrival;
  }

  /** What is still to be done with it, for who takes part in that. */
  get arrival(): Arrival | undefined {
    return this.#arrival;
  }

  /** {@link ptr} as it is, for work that knows of its {@link arrival}. */
  get unsettledPtr(): number {
    if (this.device.isWatched) this.device.uses(this, this.#ptr);
    return this.#ptr;
  }

  /** Has `dependent` told when this storage is disposed. */
  join(dependent: Dependent): void {
    this.#dependents ??= new Set();
    this.#dependents.add(dependent);
  }

  /** Ends {@link join}. */
  leave(dependent: Dependent): void {
    this.#dependents?.delete(dependent);
  }

  get hasDependents(): boolean {
    return (this.#dependents?.size ?? 0) > 0;
  }

  get byteLength(): number {
    return this.elemCount * sizeInBytes(this.dtype);
  }

  /** Where a view lies. */
  view(layout: Layout): View {
    const itemBytes = sizeInBytes(this.dtype);
    return { ptr: this.ptr + layout.startOffset * itemBytes, layout, itemBytes };
  }

  /** The address of bytes [byteOffset, byteOffset + byteLength). */
  bytesAt(byteOffset: number, byteLength: number): number {
    if (byteOffset < 0 || byteOffset + byteLength > this.byteLength) {
      throw new RangeError(
        `internal: ${byteLength} bytes at ${byteOffset} pass the end of a storage of ${this.byteLength} bytes`,
      );
    }
    return this.ptr + byteOffset;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#arrival?.drop();
    this.#arrival = undefined;
    this.#disposed = true;
    if (this.#dependents) for (const dependent of this.#dependents) dependent.lose(this);
    this.device.free(this.#ptr);
  }

  #arrive(): void {
    const arrival = this.#arrival;
    this.#arrival = undefined;
    arrival?.wait();
  }

  async toHost(offset = 0, count = this.elemCount - offset): Promise<ArrayBuffer> {
    this.device.recording?.refuse('toHost');
    const bytes = new Uint8Array(count * sizeInBytes(this.dtype));
    const copied =
      count > 0 ? this.device.hip.memcpyDtoH(bytes, this.ptr + offset * sizeInBytes(this.dtype)) : undefined;
    await Promise.all([copied, this.device.idReport?.read()]);
    return bytes.buffer;
  }

  toHostSync(offset = 0, count = this.elemCount - offset): ArrayBuffer {
    this.device.recording?.refuse('toHostSync');
    const bytes = new Uint8Array(count * sizeInBytes(this.dtype));
    if (count > 0) this.device.hip.memcpyDtoHSync(bytes, this.ptr + offset * sizeInBytes(this.dtype));
    this.device.idReport?.readSync();
    return bytes.buffer;
  }
}
