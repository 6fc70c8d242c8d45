/**
 * An open GGUF file (candle `gguf_file::Content`, which borrows a reader; here the file is held open by descriptor).
 * The header is parsed once; tensor data is read by position when asked for, in pieces if wanted, and never mapped, so a
 * file that is cut short later gives an error and not a fault.
 */
import { closeSync, openSync, statSync } from 'node:fs';
import { DisposedError } from '@x/core';
import type { BlockFormat } from '../blocks';
import { ByteReader, readFully } from './byte-reader';
import { ggufError } from './error';
import { DEFAULT_LIMITS, type GgufLimits, type GgufTensorInfo, parseHeader } from './header';
import { GgufMetadata } from './metadata';
import { didYouMean } from './near';

export interface GgufOpenOptions {
  /** Bounds on what the header may ask for; each has a default that real files stay far below. */
  limits?: Partial<GgufLimits>;
}

/** A piece of a tensor's data: `bytes` belongs at byte `offset` of it. */
export interface GgufChunk {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

const CHUNK_BYTES = 4 * 2 ** 20;

/** Files forgotten without `close()` give their descriptor back when collected. */
const forgotten = new FinalizationRegistry<number>((fd) => {
  try {
    closeSync(fd);
  } catch {
    // The process may have closed it on its way out.
  }
});

export class GgufFile implements Disposable {
  readonly path: string;
  /** 1, 2 or 3. */
  readonly version: number;
  readonly metadata: GgufMetadata;
  /** In the file's order. */
  readonly tensors: ReadonlyMap<string, GgufTensorInfo>;
  readonly alignment: number;
  /** Where the data section starts in the file. */
  readonly dataOffset: number;
  readonly byteLength: number;
  #fd: number | undefined;

  private constructor(path: string, fd: number, size: number, limits: GgufLimits) {
    const header = parseHeader(new ByteReader(fd, path, size, limits.headerMemory), limits);
    this.path = path;
    this.version = header.version;
    this.metadata = new GgufMetadata(path, header.metadata);
    this.tensors = header.tensors;
    this.alignment = header.alignment;
    this.dataOffset = header.dataOffset;
    this.byteLength = size;
    this.#fd = fd;
    forgotten.register(this, fd, this);
  }

  /**
   * Opens a file and checks its whole header. Raises `FileFormatError` with a code of {@link GgufErrorCode}; see there
   * for what is checked.
   */
  static open(path: string, options: GgufOpenOptions = {}): GgufFile {
    const size = regularFileSize(path);
    let fd: number;
    try {
      fd = openSync(path, 'r');
    } catch (cause) {
      throw ggufError('FILE_UNREADABLE', path, `it cannot be opened (${reason(cause)}). Check its permissions.`, cause);
    }
    try {
      return new GgufFile(path, fd, size, { ...DEFAULT_LIMITS, ...options.limits });
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /** The description of a tensor. `GGUF_MISSING_TENSOR`, with near matches, when there is none of that name. */
  tensor(name: string): GgufTensorInfo {
    const info = this.tensors.get(name);
    if (info === undefined) {
      const parts = this.metadata.get('split.count')?.value;
      const split =
        Number(parts ?? 1) > 1
          ? ` This file is one of ${parts} parts of a split model: merge them with llama.cpp's gguf-split --merge.`
          : ' Check that the file holds the architecture that is being loaded.';
      throw ggufError(
        'GGUF_MISSING_TENSOR',
        this.path,
        `there is no tensor '${name}' among its ${this.tensors.size}.${didYouMean(name, this.tensors.keys())}${split}`,
      );
    }
    return info;
  }

  /** How to read a tensor's values. `GGUF_UNKNOWN_TYPE`, naming tensor and type, when we cannot. */
  format(name: string): BlockFormat {
    const info = this.tensor(name);
    if (info.format === undefined) {
      throw ggufError(
        'GGUF_UNKNOWN_TYPE',
        this.path,
        `tensor '${name}' has type ${info.type} (ggml type id ${info.ggmlType}), whose values cannot be read here. ` +
          'Use a file quantised to a supported type such as q4_K, q6_K or q8_0.',
      );
    }
    return info.format;
  }

  /**
   * A tensor's raw data, into the start of `into` when given (at least as long), else into a new array. For large
   * tensors prefer {@link tensorChunks}.
   */
  readTensorBytes(name: string, into?: Uint8Array): Uint8Array {
    const length = this.#dataLength(name);
    const out = into ?? new Uint8Array(length);
    if (out.byteLength < length) {
      throw new RangeError(
        `readTensorBytes('${name}'): the buffer has ${out.byteLength} bytes and the tensor ${length}. Pass one at least ` +
          'as long, or none.',
      );
    }
    const data = out.subarray(0, length);
    readFully(this.#open(), this.path, data, this.dataOffset + this.tensor(name).offset);
    return data;
  }

  /** Bytes [offset, offset + into.length) of a tensor's data. */
  readTensorSlice(name: string, offset: number, into: Uint8Array): void {
    const length = this.#dataLength(name);
    if (!(offset >= 0 && offset + into.byteLength <= length)) {
      throw new RangeError(
        `readTensorSlice('${name}'): bytes ${offset} to ${offset + into.byteLength} are not inside its ${length}. ` +
          'Ask for less.',
      );
    }
    readFully(this.#open(), this.path, into, this.dataOffset + this.tensor(name).offset + offset);
  }

  /**
   * A tensor's raw data in pieces of whole blocks, about `chunkBytes` each (default 4 MiB). The pieces share one buffer:
   * use each before asking for the next.
   */
  *tensorChunks(name: string, chunkBytes = CHUNK_BYTES): Generator<GgufChunk, void, void> {
    const length = this.#dataLength(name);
    const { format } = this.tensor(name);
    const block = format?.blockBytes ?? 1;
    const size = Math.min(length, Math.max(block, chunkBytes - (chunkBytes % block)));
    const buffer = new Uint8Array(size);
    for (let offset = 0; offset < length; offset += size) {
      const bytes = buffer.subarray(0, Math.min(size, length - offset));
      this.readTensorSlice(name, offset, bytes);
      yield { offset, bytes };
    }
  }

  /** Gives the descriptor back. Metadata and descriptions stay readable; data does not. */
  close(): void {
    if (this.#fd === undefined) return;
    forgotten.unregister(this);
    closeSync(this.#fd);
    this.#fd = undefined;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #open(): number {
    if (this.#fd === undefined) {
      throw new DisposedError(
        'DISPOSED',
        `${this.path}: the file was closed. Read its tensors before close(), or open it again.`,
      );
    }
    return this.#fd;
  }

  #dataLength(name: string): number {
    const info = this.tensor(name);
    // Without the size of a block there is no telling where the data ends: `format` raises the error that says so.
    if (info.byteLength === undefined) this.format(name);
    return info.byteLength ?? 0;
  }
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
    throw ggufError('FILE_UNREADABLE', path, 'it is not a regular file. Give the path of a .gguf file.');
  }
  return stats.size;
}

function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
