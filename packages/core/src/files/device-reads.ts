/** An open file's readers into devices (backend/file-reader.ts), one for each, and tensors read by them. */
import type { BackendDevice, BackendStorage, DeviceFileReader } from '../backend';

/** Reads under way of one tensor: what waits behind a thread's read is read when the JavaScript thread is busy. */
const AHEAD = 8;
/** As many parts a tensor as Node has threads to read with, in these bounds. */
const THREADS = 4;
const LEAST = 512 * 1024;
const MOST = 16 * 2 ** 20;
/** Parts begin where a page does. */
const PAGE = 4096;

/** Reads `byteLength` bytes of a tensor from `at` on, with the error that its file raises. */
export type ReadPart = (reader: DeviceFileReader, at: number, byteLength: number) => Promise<void>;

/** One open file's readers into devices: made when a device is first read into, given back together. */
export class DeviceReads implements Disposable {
  readonly #readers = new Map<BackendDevice, DeviceFileReader>();

  /** Whether the device reads files. */
  static on(device: BackendDevice): boolean {
    return device.openFileReader !== undefined;
  }

  /** Fills a storage of such a device, in parts. Nothing is being read into it any more when the promise settles. */
  async fill(storage: BackendStorage, byteLength: number, read: ReadPart, signal?: AbortSignal): Promise<void> {
    const reader = this.#readerOf(storage.device);
    const part = Math.min(MOST, Math.max(LEAST, Math.ceil(byteLength / THREADS / PAGE) * PAGE));
    const pending: Promise<void>[] = [];
    try {
      for (let at = 0; at < byteLength; at += part) {
        signal?.throwIfAborted();
        if (pending.length === AHEAD) await pending.shift();
        const begun = read(reader, at, Math.min(part, byteLength - at));
        // Of several that fail the first counts.
        begun.catch(() => {});
        pending.push(begun);
      }
      while (pending.length > 0) await pending.shift();
      signal?.throwIfAborted();
    } finally {
      await Promise.allSettled(pending);
    }
  }

  [Symbol.dispose](): void {
    for (const reader of this.#readers.values()) reader.dispose();
    this.#readers.clear();
  }

  #readerOf(device: BackendDevice): DeviceFileReader {
    let reader = this.#readers.get(device);
    if (!reader) {
      reader = device.openFileReader!();
      this.#readers.set(device, reader);
    }
    return reader;
  }
}
