/** Where a file's bytes come from: a file on disk, read by position and never mapped, or bytes in memory. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { DisposedError } from '@x/core';
import { ggufError } from './error';

export interface ByteSource {
  /** For messages. */
  readonly path: string;
  /** Bytes in all. */
  readonly size: number;
  /** Fills `into` from `position`; the caller has checked that so much is there. */
  read(into: Uint8Array, position: number): void;
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

export class FileSource implements ByteSource {
  readonly path: string;
  readonly size: number;
  #fd: number | undefined;

  /** Raises `FILE_NOT_FOUND`, or `FILE_UNREADABLE` for what is no regular file or cannot be opened. */
  constructor(path: string) {
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
        got = readSync(this.#fd, into, done, Math.min(into.byteLength - done, 1 << 30), position + done);
      } catch (cause) {
        throw ggufError(
          'FILE_UNREADABLE',
          path,
          `reading ${into.byteLength} bytes at byte ${position} failed: ${reason(cause)}. Check the disk or the mount.`,
        );
      }
      if (got === 0) {
        throw ggufError(
          'GGUF_TRUNCATED',
          path,
          `the file ended at byte ${position + done} while ${into.byteLength} bytes were read at byte ${position}: it ` +
            'became shorter after it was opened. Open it again once nothing writes to it.',
        );
      }
      done += got;
    }
  }

  close(): void {
    if (this.#fd === undefined) return;
    forgotten.unregister(this);
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}

export class MemorySource implements ByteSource {
  readonly path: string;
  readonly size: number;
  #bytes: Uint8Array | undefined;

  constructor(bytes: Uint8Array, name: string) {
    this.path = name;
    this.size = bytes.byteLength;
    this.#bytes = bytes;
  }

  read(into: Uint8Array, position: number): void {
    if (this.#bytes === undefined) throw closed(this.path);
    into.set(this.#bytes.subarray(position, position + into.byteLength));
  }

  close(): void {
    this.#bytes = undefined;
  }
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
