/** Memory of the host that a device copies from by itself. */
import type { BackendStorage } from './storage';

/** What `pin` of a device gives; the caller's to dispose. */
export interface PinnedBytes {
  /** Copies bytes [from, from + byteLength) to a storage. They must stay as they are until the device has copied them. */
  write(dst: BackendStorage, byteOffset: number, from: number, byteLength: number): void;
  /** Waits for the device: the memory is the caller's again. */
  dispose(): void;
}
