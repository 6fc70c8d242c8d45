/** Reading files into a device's memory on other threads, so that their bytes do not pass through JavaScript. */
import type { BackendStorage } from './storage';

/** What it needs meanwhile, such as page-locked memory, is given back by `dispose`, after the last read under way. */
export interface DeviceFileReader {
  /**
   * Bytes [position, position + byteLength) of an open file over those of a storage from `byteOffset` on. Resolves when they are
   * there, to their number: fewer where the file ends before. Until then the storage must stay; the descriptor may be closed. An error of the
   * system has its `code`, one of the device is a `CandleError`.
   */
  read(dst: BackendStorage, byteOffset: number, fd: number, position: number, byteLength: number): Promise<number>;
  dispose(): void;
}
