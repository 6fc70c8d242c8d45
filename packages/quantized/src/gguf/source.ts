/** Where a file's bytes come from: a file on disk, read by position and never mapped, or bytes in memory. */
import { closeSync, openSync, readSync, read as readWithCallback, statSync } from 'node:fs';
import { type BackendStorage, CandleError, DisposedError, kinds } from '@x/core';
import { DeviceReads } from '@x/core/files';
import { BYTES } from '../argument-kinds';
import { ggufError } from './error';

export interface ByteSource {
  /** For messages. */
  readonly path: string;
  /** Bytes in all. */
  readonly size: number;
  /** Fills `into` from `position`; the caller has checked that so much is there. */
  read(into: Uint8Array, position: number): void;
  /** The same on another thread. */
  readAsync(into: Uint8Array, position: number): Promise<void>;
  /**
   * As {@link readAsync}, over a storage's first bytes, of a device that `DeviceReads.on` is true of; sources in memory have no
   * such reads.
   */
  readOnto?(target: BackendStorage, position: number, length: number, signal?: AbortSignal): Promise<void>;
  /** What is being read then is lost: `into` may be filled or not. */
  close(): void;
}

/** Files forgotten without `close()` give their descriptor back when collected. */
const forgotten = new FinalizationRegistry<number>((fd) => {
  try {
    closeSync(fd);
  } catch {
    // The process may have closed it on its way out.
  }
});

/** Bytes of a system call. */
const MOST_AT_ONCE = 1 << 30;

export class FileSource implements ByteSource {
  readonly path: string;
  readonly size: number;
  #fd: number | undefined;
  /** Reads under way, at the end of which a descriptor is given back that was closed meanwhile. */
  #reading = 0;
  #giveBack = () => {};
  readonly #onto = new DeviceReads();

  /** Raises `FILE_NOT_FOUND`, or `FILE_UNREADABLE` for what is no regular file or cannot be opened. */
  constructor(path: string) {
    kinds.check('open', 'path', path, kinds.STRING);
    this.path = path;
    this.size = regularFileSize(path);
    try {
      this.#fd = openSync(path, 'r');
    } catch (cause) {
      throw ggufError('FILE_UNREADABLE', path, `it cannot be opened (${reason(cause)}). Check its permissions.`, cause);
    }
    forgotten.register(this, this.#fd, this);
  }

  read(into: Uint8Array, position: number): void {
    if (this.#fd === undefined) throw closed(this.path);
    const { path } = this;
    let done = 0;
    while (done < into.byteLength) {
      let got: number;
      try {
        got = readSync(this.#fd, into, done, Math.min(into.byteLength - done, MOST_AT_ONCE), position + done);
      } catch (cause) {
        throw unreadable(path, into.byteLength, position, cause);
      }
      if (got === 0) throw truncated(path, into.byteLength, position, done);
      done += got;
    }
  }

  async readAsync(into: Uint8Array, position: number): Promise<void> {
    const fd = this.#fd;
    if (fd === undefined) throw closed(this.path);
    const { path } = this;
    this.#reading++;
    try {
      for (let done = 0; done < into.byteLength; ) {
        const length = Math.min(into.byteLength - done, MOST_AT_ONCE);
        const got = await new Promise<number>((resolve, reject) => {
          readWithCallback(fd, into, done, length, position + done, (cause, count) =>
            cause ? reject(unreadable(path, into.byteLength, position, cause)) : resolve(count),
          );
        });
        if (got === 0) throw truncated(path, into.byteLength, position, done);
        done += got;
      }
    } finally {
      if (--this.#reading === 0) this.#giveBack();
    }
  }

  readOnto(target: BackendStorage, position: number, length: number, signal?: AbortSignal): Promise<void> {
    const { path } = this;
    return this.#onto.fill(
      target,
      length,
      async (reader, at, bytes) => {
        if (this.#fd === undefined) throw closed(path);
        const from = position + at;
        const got = await reader.read(target, at, this.#fd, from, bytes).catch((cause) => {
          throw cause instanceof CandleError ? cause : unreadable(path, bytes, from, cause);
        });
        if (got < bytes) throw truncated(path, bytes, from, got);
      },
      signal,
    );
  }

  close(): void {
    const fd = this.#fd;
    if (fd === undefined) return;
    this.#onto[Symbol.dispose]();
    forgotten.unregister(this);
    this.#fd = undefined;
    // A descriptor that is read from must not become another file's.
    if (this.#reading === 0) closeSync(fd);
    else this.#giveBack = () => closeSync(fd);
  }
}

export class MemorySource implements ByteSource {
  readonly path: string;
  readonly size: number;
  #bytes: Uint8Array | undefined;

  constructor(bytes: Uint8Array, name: string) {
    kinds.check('fromBytes', 'bytes', bytes, BYTES);
    kinds.check('fromBytes', 'name', name, kinds.STRING);
    this.path = name;
    this.size = bytes.byteLength;
    this.#bytes = bytes;
  }

  read(into: Uint8Array, position: number): void {
    if (this.#bytes === undefined) throw closed(this.path);
    into.set(this.#bytes.subarray(position, position + into.byteLength));
  }

  async readAsync(into: Uint8Array, position: number): Promise<void> {
    this.read(into, position);
  }

  close(): void {
    this.#bytes = undefined;
  }
}

function unreadable(path: string, length: number, position: number, cause: unknown): Error {
  return ggufError(
    'FILE_UNREADABLE',
    path,
    `reading ${length} bytes at byte ${position} failed: ${reason(cause)}. Check the disk or the mount.`,
  );
}

function truncated(path: string, length: number, position: number, done: number): Error {
  return ggufError(
    'GGUF_TRUNCATED',
    path,
    `the file ended at byte ${position + done} while ${length} bytes were read at byte ${position}: it ` +
      'became shorter after it was opened. Open it again once nothing writes to it.',
  );
}

function closed(path: string): DisposedError {
  return new DisposedError(
    'DISPOSED',
    `${path}: the file was closed. Read its tensors before close(), or open it again.`,
  );
}

function regularFileSize(path: string): number {
  let stats: ReturnType<typeof statSync>;
  try {
    stats = statSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') {
      throw ggufError('FILE_NOT_FOUND', path, 'there is no such file. Check the path.', cause);
    }
    throw ggufError('FILE_UNREADABLE', path, `it cannot be opened (${reason(cause)}). Check its permissions.`, cause);
  }
  // Opening a pipe would wait for a writer, and a device has no size to check a header against.
  if (!stats.isFile()) {
    throw ggufError('FILE_UNREADABLE', path, 'it is not a regular file. Give the path of a model file.');
  }
  return stats.size;
}

function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
