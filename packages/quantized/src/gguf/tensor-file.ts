/**
 * A file of named tensors, open for reading: what GGUF files, split or not, and the formats before it have in common.
 * Descriptions were read when it was opened; data is read by position when asked for, in pieces if wanted, and never
 * mapped, so a file that is cut short later gives an error and not a fault.
 */
import {
  type BackendDevice,
  type BackendStorage,
  Device,
  type DeviceLike,
  type DType,
  didYouMean,
  kinds,
  type LoadOptions,
  ShapeError,
  type Tensor,
} from '@x/core';
import { type ByteSource, DeviceReads, type TensorReader } from '@x/core/files';
import { BYTES } from '../argument-kinds';
import type { BlockFormat } from '../blocks';
import { QTensor } from '../qtensor';
import { swapBlocks } from './endian';
import { ggufError } from './error';

/** A tensor as its file describes it. */
export interface GgufTensorInfo {
  readonly name: string;
  /** The type in candle's spelling (`q4_K`), or `unknown(57)`. */
  readonly type: string;
  /** The type's number in the file. */
  readonly ggmlType: number;
  /** Outermost dimension first, the reverse of the file's order. */
  readonly shape: readonly number[];
  readonly elemCount: number;
  /** Bytes from the start of the data section. */
  readonly offset: number;
  /** Bytes of the data; undefined when the type is unknown. */
  readonly byteLength: number | undefined;
  /** How to read the values; undefined when the type is unknown. */
  readonly format: BlockFormat | undefined;
}

/** A piece of a tensor's data: `bytes` belongs at byte `offset` of it. */
export interface GgufChunk {
  readonly offset: number;
  readonly bytes: Uint8Array;
  /** When `bytes` is there, of pieces that are read ahead. */
  readonly ready?: Promise<void>;
}

/** One file on disk, of a split model one of several. */
export interface FilePart {
  readonly source: ByteSource;
  /** Where the data section starts. */
  readonly dataOffset: number;
  readonly bigEndian: boolean;
  readonly tensors: ReadonlyMap<string, GgufTensorInfo>;
}

const CHUNK_BYTES = 4 * 2 ** 20;
/** Pieces that are read ahead, as many as Node has threads for that, and bytes of each: the first one is waited for. */
const AHEAD = 4;
const AHEAD_BYTES = 2 * 2 ** 20;

/** What {@link GgufFile} and `GgmlFile` have in common. Close it: tensors that were loaded do not need it. */
export abstract class TensorFile implements TensorReader, Disposable {
  /** The path that was opened. */
  readonly path: string;
  /** Bytes of all parts. */
  readonly byteLength: number;
  /** In the file's order; of a split model, part after part. */
  readonly tensors: ReadonlyMap<string, GgufTensorInfo>;
  /** Which part a tensor is in. */
  readonly #partOf = new Map<string, FilePart>();
  readonly #parts: readonly FilePart[];
  /** Buffers of pieces that were read ahead, for the next tensors. */
  readonly #spare: Uint8Array[] = [];

  protected constructor(path: string, parts: readonly FilePart[]) {
    const tensors = new Map<string, GgufTensorInfo>();
    for (const part of parts) {
      for (const [name, info] of part.tensors) {
        if (tensors.has(name)) {
          throw ggufError(
            'GGUF_DUPLICATE_TENSOR',
            part.source.path,
            `tensor '${name}' is in an earlier part of the model too. The parts do not belong together: download them again.`,
          );
        }
        tensors.set(name, info);
        this.#partOf.set(name, part);
      }
    }
    this.path = path;
    this.tensors = tensors;
    this.#parts = parts;
    this.byteLength = parts.reduce((sum, { source }) => sum + source.size, 0);
  }

  /** Paths of the files that hold the model: one, or all parts in order. */
  get paths(): string[] {
    return this.#parts.map(({ source }) => source.path);
  }

  get names(): string[] {
    return [...this.tensors.keys()];
  }

  has(name: string): boolean {
    return this.tensors.has(name);
  }

  /** As {@link tensor}; 0 bytes for a type that is not known. */
  info(name: string): GgufTensorInfo & { readonly byteLength: number } {
    const info = this.tensor(name);
    return { ...info, byteLength: info.byteLength ?? 0 };
  }

  /**
   * A tensor as numbers, which the caller owns: in `dtype`, or in f32 or the half that a plain weight is stored as. Layers
   * that keep their blocks take a `QTensor`.
   * @throws FileFormatError `GGUF_MISSING_TENSOR`, `GGUF_UNKNOWN_TYPE`, `GGUF_TRUNCATED`
   */
  async load(name: string, device?: DeviceLike, { dtype, signal }: LoadOptions = {}): Promise<Tensor> {
    return numbers(await QTensor.load(this, name, Device.of(device), { signal }), dtype);
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, { dtype }: LoadOptions = {}): Tensor {
    return numbers(QTensor.fromGguf(this, name, Device.of(device)), dtype);
  }

  /** The description of a tensor. `GGUF_MISSING_TENSOR`, with near matches, when there is none of that name. */
  tensor(name: string): GgufTensorInfo {
    const info = this.tensors.get(name);
    if (info === undefined) {
      throw ggufError(
        'GGUF_MISSING_TENSOR',
        this.path,
        `there is no tensor '${name}' among its ${this.tensors.size}.${didYouMean(name, this.tensors.keys())} Check that ` +
          'the file holds the architecture that is being loaded.',
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
   * A tensor's raw data, into the start of `into` when given (at least as long), else into a new array. Blocks are
   * little-endian whatever the file is. For large tensors prefer {@link tensorChunks}.
   * @throws ShapeError `INDEX_OUT_OF_RANGE` for a shorter `into`
   */
  readTensorBytes(name: string, into?: Uint8Array): Uint8Array {
    const length = this.#dataLength(name);
    const out = into ?? new Uint8Array(length);
    if (out.byteLength < length) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `readTensorBytes('${name}'): the buffer has ${out.byteLength} bytes and the tensor ${length}. Pass one at least ` +
          'as long, or none.',
      );
    }
    const data = out.subarray(0, length);
    this.#read(name, 0, data);
    return data;
  }

  /**
   * Bytes [offset, offset + into.length) of a tensor's data.
   * @throws ShapeError `INDEX_OUT_OF_RANGE` beyond the tensor
   */
  readTensorSlice(name: string, offset: number, into: Uint8Array): void {
    const length = this.#dataLength(name);
    if (!(offset >= 0 && offset + into.byteLength <= length)) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `readTensorSlice('${name}'): bytes ${offset} to ${offset + into.byteLength} are not inside its ${length}. ` +
          'Ask for less.',
      );
    }
    this.#read(name, offset, into);
  }

  /**
   * A tensor's raw data in pieces of whole blocks, about `chunkBytes` each (default 4 MiB). The pieces share one buffer:
   * use each before asking for the next.
   */
  *tensorChunks(name: string, chunkBytes = CHUNK_BYTES): Generator<GgufChunk, void, void> {
    const length = this.#dataLength(name);
    const block = this.format(name).blockBytes;
    const size = Math.min(length, Math.max(block, chunkBytes - (chunkBytes % block)));
    const buffer = new Uint8Array(size);
    for (let offset = 0; offset < length; offset += size) {
      const bytes = buffer.subarray(0, Math.min(size, length - offset));
      this.#read(name, offset, bytes);
      yield { offset, bytes };
    }
  }

  /**
   * As {@link tensorChunks}, while the next pieces are read on other threads: a piece is there when its `ready` is, and its
   * buffer is read into again when the next one is asked for.
   */
  *tensorChunksAhead(name: string): Generator<GgufChunk, void, void> {
    const part = this.#partOf.get(name);
    const length = this.#dataLength(name);
    if (!part || part.bigEndian) return yield* this.tensorChunks(name);
    const start = part.dataOffset + this.tensor(name).offset;
    const { blockBytes } = this.format(name);
    const size = Math.max(blockBytes, AHEAD_BYTES - (AHEAD_BYTES % blockBytes));
    const buffers: Uint8Array[] = [];
    const begin = (offset: number, buffer: Uint8Array): Required<GgufChunk> => {
      const bytes = buffer.subarray(0, Math.min(size, length - offset));
      const ready = part.source.read(bytes, start + offset);
      // Nobody waits for those behind one that fails.
      ready.catch(() => {});
      return { offset, bytes, ready };
    };
    const pending: Required<GgufChunk>[] = [];
    let next = 0;
    for (; next < length && pending.length < AHEAD; next += size) {
      let buffer = this.#spare.pop();
      if (!buffer || buffer.byteLength < size) buffer = new Uint8Array(Math.max(size, AHEAD_BYTES));
      buffers.push(buffer);
      pending.push(begin(next, buffer));
    }
    for (let turn = 0; pending.length > 0; turn++) {
      yield pending.shift()!;
      const buffer = buffers[turn % AHEAD];
      if (next < length) {
        pending.push(begin(next, buffer));
        next += size;
      } else this.#spare.push(buffer);
    }
  }

  /** Whether a tensor's data can be read straight into memory of a device. */
  readsOnto(name: string, device: BackendDevice): boolean {
    const part = this.#partOf.get(name);
    return part?.source.readOnto !== undefined && !part.bigEndian && DeviceReads.on(device);
  }

  /**
   * A tensor's raw data over a storage's first bytes, where {@link readsOnto} says so. An aborted signal stops it; nothing is being read
   * into the storage any more when the promise settles.
   */
  async readOnto(name: string, target: BackendStorage, signal?: AbortSignal): Promise<void> {
    const { source, dataOffset } = this.#partOf.get(name)!;
    await source.readOnto!(target, dataOffset + this.tensor(name).offset, this.#dataLength(name), signal);
  }

  /** Gives the descriptors back. Metadata and descriptions stay readable; data does not. */
  close(): void {
    for (const { source } of this.#parts) source.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #read(name: string, offset: number, into: Uint8Array): void {
    const part = this.#partOf.get(name)!;
    const start = part.dataOffset + this.tensor(name).offset;
    if (!part.bigEndian) {
      part.source.readSync(into, start + offset);
      return;
    }
    // Numbers are turned round block by block, so whole blocks are read.
    const format = this.format(name);
    const { blockBytes } = format;
    const first = offset - (offset % blockBytes);
    const last = Math.ceil((offset + into.byteLength) / blockBytes) * blockBytes;
    const whole = first === offset && last - first === into.byteLength;
    const blocks = whole ? into : new Uint8Array(last - first);
    part.source.readSync(blocks, start + first);
    swapBlocks(format, blocks);
    if (!whole) into.set(blocks.subarray(offset - first, offset - first + into.byteLength));
  }

  #dataLength(name: string): number {
    const info = this.tensor(name);
    // Without the size of a block there is no telling where the data ends: `format` raises the error that says so.
    if (info.byteLength === undefined) this.format(name);
    return info.byteLength ?? 0;
  }
}

const NAME = { name: kinds.STRING } as const;
const LOAD = { ...NAME, device: kinds.optional(kinds.DEVICE), options: kinds.optional(kinds.OBJECT) } as const;

kinds.checkCalls(
  TensorFile.prototype,
  {
    info: NAME,
    load: LOAD,
    loadSync: LOAD,
    tensor: NAME,
    format: NAME,
    readTensorBytes: { ...NAME, into: kinds.optional(BYTES) },
    readTensorSlice: { ...NAME, offset: kinds.INDEX, into: BYTES },
    tensorChunks: { ...NAME, chunkBytes: kinds.optional(kinds.POSITIVE) },
    tensorChunksAhead: NAME,
  },
  'TensorFile.',
);

/** In `dtype`, or in f32 or what a plain weight is stored as. Disposes the blocks. */
function numbers(blocks: QTensor, dtype: DType | undefined): Tensor {
  try {
    const { type } = blocks;
    const natural = type === 'f16' || type === 'bf16' ? type : 'f32';
    const wanted = dtype === 'f16' || dtype === 'bf16' ? dtype : dtype === undefined ? natural : 'f32';
    const values = blocks.dequantize(wanted);
    if (dtype === undefined || dtype === wanted) return values;
    try {
      return values.toDtype(dtype);
    } finally {
      values.dispose();
    }
  } finally {
    blocks.dispose();
  }
}
