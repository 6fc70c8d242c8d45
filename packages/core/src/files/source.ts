/**
 * Bytes read by position, from a file, from memory, or from a part of either: what the readers of safetensors, npy, npz, pth
 * and GGUF files stand on. candle maps files into memory; Node cannot without native code, so a reader here asks for the
 * pieces it needs when it needs them ("lazy" files), and neither a file nor a tensor has to fit into host memory.
 */
import type { BackendStorage } from '../backend';
import { check, FILE } from '../check';
import { CandleError, DisposedError, FileFormatError } from '../errors';
import { node } from '../platform';
import { DeviceReads } from './device-reads';

/** A path, or the bytes of a whole file. */
export type FileInput = string | Uint8Array;

/** Bytes that are read by their position; {@link openSource} makes one. */
export interface ByteSource {
  /** For messages: the path, or what stands for it. */
  readonly path: string;
  readonly size: number;
  /** Whether several reads may be under way, of any places. Default false. */
  readonly concurrent?: boolean;
  /**
   * Fills `target` with the bytes from `offset` on.
   * @throws FileFormatError `FILE_TRUNCATED` when the source ends before, `FILE_UNREADABLE`; DisposedError once closed
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

/** Errors whose code or words a format has of its own. */
export interface SourceErrors {
  /** There is no such file. */
  missing(path: string, cause: unknown): Error;
  /** The source ended after `got` of the `length` bytes from `offset` on. */
  truncated(path: string, offset: number, length: number, got: number): Error;
}

export interface SourceOptions {
  /** In messages, the path of bytes in memory. */
  name?: string;
  errors?: SourceErrors;
}

/**
 * A file that stays open until it is closed or collected, or bytes in memory; for the packages on top of this one too.
 * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`
 */
export function openSource(input: FileInput, options: SourceOptions = {}): ByteSource {
  check('open', 'file', input, FILE);
  const { errors = ERRORS } = options;
  if (typeof input === 'string') return new OpenFile(input, errors);
  return new BytesSource(input, options.name ?? `${input.byteLength} bytes in memory`, errors);
}

/** Bytes [offset, offset + length) as a new array; the caller has checked that `length` is below the source's size. */
export function readBlockSync(source: ByteSource, offset: number, length: number): Uint8Array {
  if (offset + length > source.size) throw truncated(source.path, source.size);
  const block = new Uint8Array(length);
  source.readSync(block, offset);
  return block;
}

/** Bytes of a system call: Node refuses 2 GiB. */
const MOST_AT_ONCE = 2 ** 30;

/** Files that were collected before they were closed. */
const forgotten = new FinalizationRegistry<number>((fd) => {
  try {
    node('fs').closeSync(fd);
  } catch {
    // The process may have closed it on its way out.
  }
});

class OpenFile implements ByteSource {
  readonly path: string;
  readonly size: number;
  readonly concurrent = true;
  readonly #fs = node('fs');
  readonly #errors: SourceErrors;
  #fd: number | null;
  /** Reads under way, at the end of which a descriptor is given back that was closed meanwhile. */
  #reading = 0;
  #giveBack = () => {};
  readonly #onto = new DeviceReads();

  constructor(path: string, errors: SourceErrors) {
    this.path = path;
    this.#errors = errors;
    this.#fd = openFile(path, errors);
    forgotten.register(this, this.#fd, this);
    this.size = this.#fs.fstatSync(this.#fd).size;
  }

  async read(target: Uint8Array, offset: number): Promise<void> {
    const fd = this.#open();
    const { length } = target;
    this.#reading++;
    try {
      for (let got = 0; got < length; ) {
        const bytesRead = await new Promise<number>((resolve, reject) => {
          this.#fs.read(fd, target, got, Math.min(length - got, MOST_AT_ONCE), offset + got, (error, count) =>
            error ? reject(unreadable(this.path, offset, length, error)) : resolve(count),
          );
        });
        if (bytesRead === 0) throw this.#errors.truncated(this.path, offset, length, got);
        got += bytesRead;
      }
    } finally {
      if (--this.#reading === 0) this.#giveBack();
    }
  }

  readSync(target: Uint8Array, offset: number): void {
    const fd = this.#open();
    const { length } = target;
    for (let got = 0; got < length; ) {
      let bytesRead: number;
      try {
        bytesRead = this.#fs.readSync(fd, target, got, Math.min(length - got, MOST_AT_ONCE), offset + got);
      } catch (cause) {
        throw unreadable(this.path, offset, length, cause);
      }
      if (bytesRead === 0) throw this.#errors.truncated(this.path, offset, length, got);
      got += bytesRead;
    }
  }

  readOnto(target: BackendStorage, offset: number, length: number, signal?: AbortSignal): Promise<void> {
    return this.#onto.fill(
      target,
      length,
      async (reader, at, bytes) => {
        const from = offset + at;
        const got = await reader.read(target, at, this.#open(), from, bytes).catch((cause) => {
          throw cause instanceof CandleError ? cause : unreadable(this.path, from, bytes, cause);
        });
        if (got < bytes) throw this.#errors.truncated(this.path, from, bytes, got);
      },
      signal,
    );
  }

  close(): void {
    const fd = this.#fd;
    this.#fd = null;
    if (fd === null) return;
    this.#onto[Symbol.dispose]();
    forgotten.unregister(this);
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
  readonly #errors: SourceErrors;
  #bytes: Uint8Array | null;

  constructor(bytes: Uint8Array, name: string, errors: SourceErrors) {
    this.path = name;
    this.#errors = errors;
    this.size = bytes.byteLength;
    this.#bytes = bytes;
  }

  async read(target: Uint8Array, offset: number): Promise<void> {
    this.readSync(target, offset);
  }

  readSync(target: Uint8Array, offset: number): void {
    if (this.#bytes === null) throw closed(this.path);
    const { length } = target;
    if (offset + length > this.size) throw this.#errors.truncated(this.path, offset, length, this.size - offset);
    target.set(this.#bytes.subarray(offset, offset + length));
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

function openFile(path: string, errors: SourceErrors): number {
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
    if (code === 'ENOENT' || code === 'ENOTDIR') throw errors.missing(path, cause);
    throw new FileFormatError('FILE_UNREADABLE', `${path} cannot be opened (${message}); check its permissions.`, {
      path,
      cause,
    });
  }
}

function closed(path: string): DisposedError {
  return new DisposedError('DISPOSED', `${path} was closed; open it again, or close it after the last load.`);
}

function unreadable(path: string, offset: number, length: number, cause: unknown): FileFormatError {
  const message = `${path}: reading ${length} bytes at byte ${offset} failed (${(cause as Error).message}); check the disk or the mount.`;
  return new FileFormatError('FILE_UNREADABLE', message, { path, offset, cause });
}

function truncated(path: string, offset: number): FileFormatError {
  const message = `${path}: the file ends at byte ${offset}, before what it says it holds; get it again, and do not change files that are open.`;
  return new FileFormatError('FILE_TRUNCATED', message, { path, offset });
}

const ERRORS: SourceErrors = {
  missing: (path, cause) =>
    new FileFormatError('FILE_NOT_FOUND', `${path} does not exist; check the path.`, { path, cause }),
  truncated: (path, offset, _length, got) => truncated(path, offset + got),
};
