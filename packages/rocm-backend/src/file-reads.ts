/** The device's reader of files: one for all files that are open, so that together they take no more page-locked memory. */
import type { BackendStorage, DeviceFileReader } from '@x/core';
import type { HipFileReader } from '@x/hip';
import type { KernelDevice } from './device';
import { KernelStorage } from './storage';

export class FileReads {
  #shared: HipFileReader | undefined;
  #users = 0;

  constructor(private readonly device: KernelDevice) {}

  open(): DeviceFileReader {
    this.#shared ??= this.device.hip.openFileReader();
    const shared = this.#shared;
    this.#users++;
    let isOpen = true;
    return {
      read: (dst, byteOffset, fd, position, byteLength) =>
        shared.read(fd, position, this.#target(dst, byteOffset, byteLength), byteLength),
      dispose: () => {
        if (!isOpen) return;
        isOpen = false;
        if (--this.#users > 0) return;
        this.#shared = undefined;
        shared.dispose();
      },
    };
  }

  /** The address, which is inside of the storage. */
  #target(dst: BackendStorage, byteOffset: number, byteLength: number): number {
    this.device.recording?.refuse('reading a file');
    return KernelStorage.on(this.device, dst).bytesAt(byteOffset, byteLength);
  }
}
