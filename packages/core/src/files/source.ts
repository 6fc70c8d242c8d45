/**
 * Bytes read by position, from a file, from memory, or from a part of either: what the readers of safetensors, npy, npz and
 * pth files stand on. candle maps files into memory; Node cannot without native code, so a reader here asks for the pieces
 * it needs when it needs them ("lazy" files), and neither a file nor a tensor has to fit into host memory.
 */
import type { BackendStorage } from '../backend';
import { check, FILE } from '../check';
import { DisposedError, FileFormatError } from '../errors';
import { node } from '../platform';
import { DeviceReads } from './device-reads';

/** A path, or the bytes of a whole file. */
export type FileInput = string | Uint8Array;

export interface ByteSource {
  /** For messages: the path, or what stands for it. */
  readonly path: string;
  readonly size: number;
  /** Whether several reads may be under way, of any places. Default false. */
  readonly concurrent?: boolean;
  /**
   * Fills `target` with the bytes from `offset` on.
   * @throws FileFormatError `FILE_TRUNCATED` when the source ends before, DisposedError once closed
   */
  read(target: Uint8Array, offset: number): Promise<void>;
  /** As {@link read}, blocking the event loop. */
  readSync(target: Uint8Array, offset: number): void;
  /**
   * As {@link read}, over a storage's first bytes, of a device that {@link DeviceReads.on} is true of; memory has no such reads.
   * @throws as {@link read}, and what the device raises
   */
  readOnto?(target: BackendStorage, offset: number, length: number, signal?: AbortSignal): Promise<void>;
  /** Harmless when repeated. */
  close(): void;
}

/**
 * A file that stays open until it is closed, or bytes in memory.
 * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`
 */
export function openSource(input: FileInput): ByteSource {
  check('open', 'file', input, FILE);
  return typeof input === 'string' ? new OpenFile(input) : new BytesSource(input);
}

/** Bytes [offset, offset + length) as a new array; the caller has checked that `length` is below the source's size. */
export function readBlockSync(source: ByteSource, offset: number, length: number): Uint8Array {
  if (offset + length > source.size) throw truncated(source.path, source.size);
  const block = new Uint8Array(length);
  source.readSync(block, offset);
  return block;
}

class OpenFile implements ByteSource {
  readonly path: string;
  readonly size: number;
  readonly concurrent = true;
  readonly #fs = node('fs');
  #fd: number | null;
  /** Reads under way, at the end of which a descriptor is given back that was closed meanwhile. */
  #reading = 0;
  #giveBack = () => {};
  readonly #onto = new DeviceReads();

  constructor(path: string) {
    this.path = path;
    this.#fd = openFile(path);
    this.size = this.#fs.fstatSync(this.#fd).size;
  }

  async read(target: Uint8Array, offset: number): Promise<void> {
    const fd = this.#open();
    this.#reading++;
    try {
      for (let got = 0; got < target.length; ) {
        const bytesRead = await new Promise<number>((resolve, reject) => {
          this.#fs.read(fd, target, got, target.length - got, offset + got, (error, count) =>
            error ? reject(error) : resolve(count),
          );
        });
        if (bytesRead === 0) throw truncated(this.path, offset + got);
        got += bytesRead;
      }
    } finally {
      if (--this.#reading === 0) this.#giveBack();
    }
  }

  readSync(target: Uint8Array, offset: number): void {
    for (let got = 0; got < target.length; ) {
      const bytesRead = this.#fs.readSync(this.#open(), target, got, target.length - got, offset + got);
      if (bytesRead === 0) throw truncated(this.path, offset + got);
      got += bytesRead;
    }
  }

  readOnto(target: BackendStorage, offset: number, length: number, signal?: AbortSignal): Promise<void> {
    return this.#onto.fill(
      target,
      length,
      async (reader, at, bytes) => {
        const got = await reader.read(target, at, this.#open(), offset + at, bytes);
        if (got < bytes) throw truncated(this.path, offset + at + got);
      },
      signal,
    );
  }

  close(): void {
    const fd = this.#fd;
    this.#fd = null;
    if (fd === null) return;
    this.#onto[Symbol.dispose]();
    // A descriptor that is read from must not become another file's.
    if (this.#reading === 0) this.#fs.closeSync(fd);
    else this.#giveBack = () => this.#fs.closeSync(fd);
  }

  #open(): number {
    if (this.#fd === null) throw closed(this.path);
    return this.#fd;
  }
}

class BytesSource implements ByteSource {
  readonly path: string;
  readonly size: number;
  #bytes: Uint8Array | null;

  constructor(bytes: Uint8Array) {
    this.path = `${bytes.byteLength} bytes in memory`;
    this.size = bytes.byteLength;
    this.#bytes = bytes;
  }

  async read(target: Uint8Array, offset: number): Promise<void> {
    this.readSync(target, offset);
  }

  readSync(target: Uint8Array, offset: number): void {
    if (this.#bytes === null) throw closed(this.path);
    if (offset + target.length > this.size) throw truncated(this.path, this.size);
    target.set(this.#bytes.subarray(offset, offset + target.length));
  }

  close(): void {
    this.#bytes = null;
  }
}

/** A part of another source, which stays open when the part is closed. */
export function partOf(source: ByteSource, start: number, size: number, path = source.path): ByteSource {
  const check = (target: Uint8Array, offset: number) => {
    if (offset + target.length > size) throw truncated(path, size);
  };
  return {
    path,
    size,
    concurrent: source.concurrent,
    async read(target, offset) {
      check(target, offset);
      await source.read(target, start + offset);
    },
    readSync(target, offset) {
      check(target, offset);
      source.readSync(target, start + offset);
    },
    close() {},
  };
}

function openFile(path: string): number {
  const { openSync, statSync } = node('fs');
  try {
    // Opening a pipe would wait for a writer, so what it is comes first.
    if (!statSync(path).isFile()) {
      const message = `${path} is no regular file; give the path of a file.`;
      throw new FileFormatError('FILE_UNREADABLE', message, { path });
    }
    return openSync(path, 'r');
  } catch (cause) {
    if (cause instanceof FileFormatError) throw cause;
    const { code, message } = cause as NodeJS.ErrnoException;
    const missing = code === 'ENOENT' || code === 'ENOTDIR';
    throw new FileFormatError(
      missing ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE',
      missing
        ? `${path} does not exist; check the path.`
        : `${path} cannot be opened (${message}); check its permissions.`,
      { path, cause },
    );
  }
}

function closed(path: string): DisposedError {
  return new DisposedError('DISPOSED', `${path} was closed; open it again, or close it after the last load.`);
}

function truncated(path: string, offset: number): FileFormatError {
  const message = `${path}: the file ends at byte ${offset}, before what it says it holds; get it again, and do not change files that are open.`;
  return new FileFormatError('FILE_TRUNCATED', message, { path, offset });
}
