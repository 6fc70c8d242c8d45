/** Storage of the plain TypeScript backend: a typed array. */
import type { BackendStorage, Operand } from '../backend';
import { type DType, sizeInBytes } from '../dtype';
import { DisposedError } from '../errors';
import { bytesOf, type RawArray } from '../host-array';
import type { JsDevice } from './device';

/** An operand of this backend. */
export interface JsOperand extends Operand {
  readonly storage: JsStorage;
}

/** Elements in a typed array: the dtype's own, raw bits for bf16, f16 and f8e4m3. */
export class JsStorage implements BackendStorage {
  readonly dtype: DType;
  readonly device: JsDevice;
  readonly elemCount: number;
  #data: RawArray | null;

  /** Takes over `data`, in the storage form of `dtype`. */
  constructor(device: JsDevice, dtype: DType, data: RawArray) {
    this.device = device;
    this.dtype = dtype;
    this.elemCount = data.length;
    this.#data = data;
    device.track(1, this.byteLength);
  }

  /** Another storage of this device; takes over `data`. The files of families make theirs with it. */
  make(dtype: DType, data: RawArray): JsStorage {
    return new JsStorage(this.device, dtype, data);
  }

  get byteLength(): number {
    return this.elemCount * sizeInBytes(this.dtype);
  }

  /** The elements themselves: raw bits for bf16, f16 and f8e4m3. */
  raw(): RawArray {
    this.device.checkOpen();
    if (this.#data) return this.#data;
    throw new DisposedError(
      'DISPOSED',
      `a ${this.dtype} storage of ${this.elemCount} elements was disposed; dispose it after its last use.`,
    );
  }

  dispose(): void {
    if (!this.#data) return;
    this.#data = null;
    this.device.track(-1, -this.byteLength);
  }

  bytes(): Uint8Array {
    return bytesOf(this.raw());
  }

  async toHost(offset?: number, count?: number): Promise<ArrayBuffer> {
    return this.toHostSync(offset, count);
  }

  toHostSync(offset = 0, count = this.elemCount - offset): ArrayBuffer {
    const part = bytesOf(this.raw().subarray(offset, offset + count));
    const copy = new Uint8Array(part.byteLength);
    copy.set(part);
    return copy.buffer;
  }
}

/** Operands of one op are on one device, so they are of its kind. */
export function js(storage: BackendStorage): JsStorage {
  return storage as JsStorage;
}
