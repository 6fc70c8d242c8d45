import type { DType } from '../dtype';
import type { BackendDevice } from './device';

/** Memory of a device that holds elements of one dtype. What is computed of it says {@link BackendDevice.ops}. */
export interface BackendStorage {
  readonly dtype: DType;
  readonly device: BackendDevice;
  /** Elements that the buffer holds (for a quantized weight: bytes, its dtype being u8). */
  readonly elemCount: number;
  /** Gives the memory back. Called once, by the reference count. */
  dispose(): void;
  /** Copies out elements [offset, offset + count), default all, as raw little-endian bytes. */
  toHost(offset?: number, count?: number): Promise<ArrayBuffer>;
  /** As {@link toHost}, blocking the event loop. */
  toHostSync(offset?: number, count?: number): ArrayBuffer;
  /** The bytes themselves, where they are an array of this thread; valid while the storage lives. */
  bytes?(): Uint8Array;
}
