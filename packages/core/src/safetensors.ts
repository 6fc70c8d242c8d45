/**
 * safetensors files: reading tensors one at a time by positioned reads, and writing. Mirrors candle's safetensors module
 * (candle-core/src/safetensors.rs); instead of mapping the file, a tensor is streamed to its device in pieces, so neither
 * the file nor a tensor is ever held whole in host memory.
 *
 * Types without a tensor dtype are widened when loaded: U16 to u32 (as candle), I8 to i16, BOOL to u8, U64 to i64 (an error
 * for values from 2^63), F8_E5M2 to f16; all exact. F4, F6_*, F8_E8M0 and C64 can be listed but not loaded.
 */
import { randomUUID } from 'node:crypto';
import { closeSync, fstatSync, openSync, read, readSync, statSync } from 'node:fs';
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { promisify } from 'node:util';
import { Device } from './device';
import { type DType, sizeInBytes } from './dtype';
import { CandleError, DisposedError, DTypeError, FileFormatError, UnsupportedError } from './errors';
import { bytesOf, rawFromBytes } from './host-array';
import {
  headerLength,
  parseHeader,
  type SafetensorsDType,
  type SafetensorsHeader,
  type SafetensorsInfo,
} from './safetensors-header';
import { elemCount } from './shape';
import { Tensor } from './tensor';

const readAt = promisify(read);
/** Bytes moved at once; a multiple of every element size. */
const PIECE = 8 * 1024 * 1024;

interface Loader {
  dtype: DType;
  /** Turns a piece of file bytes into bytes of `dtype`; absent where they are the same. */
  widen?: (bytes: Uint8Array) => ArrayBufferView;
}

const LOADERS: Partial<Record<SafetensorsDType, Loader>> = {
  U8: { dtype: 'u8' },
  U32: { dtype: 'u32' },
  I16: { dtype: 'i16' },
  I32: { dtype: 'i32' },
  I64: { dtype: 'i64' },
  BF16: { dtype: 'bf16' },
  F16: { dtype: 'f16' },
  F32: { dtype: 'f32' },
  F64: { dtype: 'f64' },
  F8_E4M3: { dtype: 'f8e4m3' },
  U16: { dtype: 'u32', widen: (bytes) => Uint32Array.from(rawFromBytes('f16', bytes) as Uint16Array) },
  I8: { dtype: 'i16', widen: (bytes) => Int16Array.from(new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length)) },
  BOOL: { dtype: 'u8', widen: (bytes) => bytes.map((byte) => (byte === 0 ? 0 : 1)) },
  U64: { dtype: 'i64', widen: signed },
  F8_E5M2: { dtype: 'f16', widen: (bytes) => Uint16Array.from(bytes, (byte) => byte << 8) },
};

const NAMES: Record<DType, SafetensorsDType> = {
  u8: 'U8',
  u32: 'U32',
  i16: 'I16',
  i32: 'I32',
  i64: 'I64',
  bf16: 'BF16',
  f16: 'F16',
  f32: 'F32',
  f64: 'F64',
  f8e4m3: 'F8_E4M3',
};

function signed(bytes: Uint8Array): ArrayBufferView {
  const values = rawFromBytes('i64', bytes) as BigInt64Array;
  const over = values.findIndex((value) => value < 0n);
  if (over < 0) return values;
  const value = BigInt.asUintN(64, values[over]);
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `a U64 value, ${value}, is over the largest i64; rewrite the file with I64 or U32 values.`,
  );
}

export interface LoadOptions {
  /** Converts on the device. Default: the file's dtype, see the widenings above. */
  dtype?: DType;
}

export class SafetensorsFile {
  readonly path: string;
  /** The strings under `__metadata__`; empty if there are none. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly #tensors: Map<string, SafetensorsInfo>;
  #fd: number | null;

  private constructor(path: string, fd: number, header: SafetensorsHeader) {
    this.path = path;
    this.#fd = fd;
    this.metadata = header.metadata;
    this.#tensors = header.tensors;
  }

  /**
   * Opens a file and reads its header, which is checked completely.
   * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`, `FILE_TRUNCATED` or `FILE_INVALID`
   */
  static open(path: string): SafetensorsFile {
    const fd = openFile(path);
    try {
      const { size } = fstatSync(fd);
      const length = headerLength(path, readBlock(path, fd, 0, Math.min(8, size)), size);
      return new SafetensorsFile(path, fd, parseHeader(path, readBlock(path, fd, 8, length), size));
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /** In the order of the header. */
  get names(): string[] {
    return [...this.#tensors.keys()];
  }

  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  /**
   * The file's own dtype name, shape, position and size of a tensor.
   * @throws FileFormatError `FILE_NO_SUCH_TENSOR`
   */
  info(name: string): SafetensorsInfo {
    const found = this.#tensors.get(name);
    if (found) return found;
    const some = this.names.slice(0, 5).join(', ');
    throw new FileFormatError(
      'FILE_NO_SUCH_TENSOR',
      `${this.path}: there is no tensor "${name}" among ${this.#tensors.size} (${some}${this.#tensors.size > 5 ? ', ...' : ''}); check the name.`,
      { path: this.path },
    );
  }

  /** One tensor on a device (default `Device.cpu()`), streamed there in pieces. */
  async load(name: string, device: Device = Device.cpu(), options: LoadOptions = {}): Promise<Tensor> {
    const info = this.info(name);
    const target = this.#allocate(info, device);
    try {
      const buffer = new Uint8Array(Math.min(PIECE, info.byteLength));
      for (let done = 0; done < info.byteLength; ) {
        const want = Math.min(PIECE, info.byteLength - done);
        let got = 0;
        while (got < want) {
          const { bytesRead } = await readAt(this.#open(), buffer, got, want - got, info.offset + done + got);
          if (bytesRead === 0) throw truncated(this.path, info.offset + done + got);
          got += bytesRead;
        }
        this.#put(info, target, done, buffer.subarray(0, want));
        done += want;
      }
      return convert(target, options);
    } catch (error) {
      target.dispose();
      throw error;
    }
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device: Device = Device.cpu(), options: LoadOptions = {}): Tensor {
    const info = this.info(name);
    const target = this.#allocate(info, device);
    try {
      for (let done = 0; done < info.byteLength; done += PIECE) {
        const want = Math.min(PIECE, info.byteLength - done);
        this.#put(info, target, done, readBlock(this.path, this.#open(), info.offset + done, want));
      }
      return convert(target, options);
    } catch (error) {
      target.dispose();
      throw error;
    }
  }

  /** All tensors by name. */
  async loadAll(device: Device = Device.cpu(), options: LoadOptions = {}): Promise<Map<string, Tensor>> {
    const loaded = new Map<string, Tensor>();
    for (const name of this.#tensors.keys()) loaded.set(name, await this.load(name, device, options));
    return loaded;
  }

  /** Closes the file; tensors already loaded stay. Harmless when repeated. */
  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #open(): number {
    if (this.#fd !== null) return this.#fd;
    throw new DisposedError('DISPOSED', `${this.path} was closed; open it again, or close it after the last load.`);
  }

  #allocate({ name, dtype, shape }: SafetensorsInfo, device: Device): Tensor {
    this.#open();
    const loader = LOADERS[dtype];
    if (!loader) {
      throw new UnsupportedError(
        'UNSUPPORTED',
        `${this.path}: tensor "${name}" is ${dtype}, for which there is no tensor dtype; convert the file to one of ${Object.keys(LOADERS).join(', ')}.`,
      );
    }
    return Tensor.empty(shape, loader.dtype, device);
  }

  /** Writes a piece that begins `done` bytes into the tensor. */
  #put({ name, shape, byteLength }: SafetensorsInfo, target: Tensor, done: number, piece: Uint8Array): void {
    const { dtype } = this.info(name);
    const widen = LOADERS[dtype]?.widen;
    const start = (done / (byteLength / elemCount(shape))) * sizeInBytes(target.dtype);
    target.device.backend.write(target.storageAndLayout().storage, start, widen ? widen(piece) : piece);
  }
}

function convert(tensor: Tensor, { dtype }: LoadOptions): Tensor {
  if (!dtype || dtype === tensor.dtype) return tensor;
  const converted = tensor.toDtype(dtype);
  tensor.dispose();
  return converted;
}

function openFile(path: string): number {
  try {
    // Opening a pipe would wait for a writer, so what it is comes first.
    if (!statSync(path).isFile()) {
      throw new FileFormatError('FILE_UNREADABLE', `${path} is no regular file; give the path of a safetensors file.`, {
        path,
      });
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

function readBlock(path: string, fd: number, offset: number, length: number): Uint8Array {
  const block = new Uint8Array(length);
  for (let got = 0; got < length; ) {
    const bytesRead = readSync(fd, block, got, length - got, offset + got);
    if (bytesRead === 0) throw truncated(path, offset + got);
    got += bytesRead;
  }
  return block;
}

function truncated(path: string, offset: number): FileFormatError {
  const message = `${path}: the file ended at byte ${offset} while it was read; do not change files that are open.`;
  return new FileFormatError('FILE_TRUNCATED', message, { path, offset });
}

/**
 * Writes tensors to a safetensors file: to a temporary name in the same folder first, renamed when complete, so that a
 * file of this name is never half written. Like the reference, tensors are ordered by element size, then name.
 * @throws FileFormatError `FILE_UNWRITABLE`
 */
export async function saveSafetensors(
  path: string,
  tensors: Readonly<Record<string, Tensor>> | ReadonlyMap<string, Tensor>,
  metadata?: Readonly<Record<string, string>>,
): Promise<void> {
  const entries = tensors instanceof Map ? [...tensors] : Object.entries(tensors as Record<string, Tensor>);
  if (entries.some(([name]) => name === '__metadata__')) {
    const message =
      'saveSafetensors: "__metadata__" is the place of the metadata, no tensor can have this name; rename the tensor.';
    throw new CandleError('INVALID_ARGUMENT', message);
  }
  entries.sort(([a, x], [b, y]) => sizeInBytes(y.dtype) - sizeInBytes(x.dtype) || (a < b ? -1 : 1));
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    const file = await open(temporary, 'wx');
    try {
      await file.write(encodeHeader(entries, metadata));
      for (const [, tensor] of entries) await writeTensor(file, tensor);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (cause) {
    await unlink(temporary).catch(() => undefined);
    if (!(cause as NodeJS.ErrnoException).syscall) throw cause;
    const message = `${path} cannot be written (${(cause as Error).message}); check the folder, its permissions and free space.`;
    throw new FileFormatError('FILE_UNWRITABLE', message, { path, cause });
  }
}

function encodeHeader(entries: [string, Tensor][], metadata?: Readonly<Record<string, string>>): Uint8Array {
  const fields: [string, unknown][] = metadata ? [['__metadata__', metadata]] : [];
  let offset = 0;
  for (const [name, { dtype, shape, elemCount }] of entries) {
    const end = offset + elemCount * sizeInBytes(dtype);
    fields.push([name, { dtype: NAMES[dtype], shape, data_offsets: [offset, end] }]);
    offset = end;
  }
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(fields)));
  const padded = Math.ceil(json.byteLength / 8) * 8;
  const header = new Uint8Array(8 + padded).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(padded), true);
  header.set(json, 8);
  return header;
}

async function writeTensor(file: FileHandle, tensor: Tensor): Promise<void> {
  const dense = tensor.contiguous();
  try {
    const { storage, layout } = dense.storageAndLayout();
    const step = PIECE / sizeInBytes(dense.dtype);
    for (let done = 0; done < layout.elemCount; done += step) {
      const count = Math.min(step, layout.elemCount - done);
      const bytes = bytesOf(new Uint8Array(await storage.toHost(layout.startOffset + done, count)));
      for (let put = 0; put < bytes.byteLength; ) put += (await file.write(bytes, put)).bytesWritten;
    }
  } finally {
    dense.dispose();
  }
}
