/**
 * npy and npz files of numpy: candle's npy module (candle-core/src/npy.rs). Versions 1 to 3, both byte orders, Fortran order,
 * scalars and empty arrays; archives stored or deflated, with zip64. candle reads little-endian row-major arrays of seven
 * types; here all of numpy's numbers but complex and long double ones are read, see types.ts for the widenings.
 */

import { check } from '../check';
import type { DeviceLike } from '../device';
import { type DType, sizeInBytes } from '../dtype';
import { CandleError } from '../errors';
import { Layout } from '../layout';
import { elemCount } from '../shape';
import type { Tensor } from '../tensor';
import { viewOf } from '../tensor/base';
import { NAMED_TENSORS, TENSOR } from '../tensor/signatures';
import { type NpyHeader, npyHeader, readNpyHeader } from './npy-header';
import { loadEach, noSuchTensor, type TensorReader } from './safetensors';
import { type ByteSource, type FileInput, openSource } from './source';
import {
  converted,
  FILE_TYPES,
  type FileType,
  type LoadOptions,
  PIECE,
  readTensor,
  readTensorSync,
  writeTensor,
} from './types';
import { replaceFile } from './write';
import { ZipArchive, type ZipEntry } from './zip';
import { ZipWriter, type ZipWriterOptions } from './zip-writer';

/** An array of an npz file. */
export interface NpzInfo {
  readonly name: string;
  /** The file's element type. */
  readonly type: FileType;
  /** What it is read as. */
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly byteLength: number;
  readonly fortranOrder: boolean;
  readonly bigEndian: boolean;
}

/** Largest entry that is read whole to say why its header is wrong. */
const MOST_CHECKED = 64 * 1024 * 1024;

/**
 * The array of an npy file on a device (default `Device.current()`), row-major.
 * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`, `FILE_TRUNCATED`, `FILE_INVALID`; UnsupportedError
 */
export async function readNpy(file: FileInput, device?: DeviceLike, options: LoadOptions = {}): Promise<Tensor> {
  const source = openSource(file);
  try {
    return converted(await loadArray(source, readNpyHeader(source), device, options), options);
  } finally {
    source.close();
  }
}

/** As {@link readNpy}, blocking the event loop. */
export function readNpySync(file: FileInput, device?: DeviceLike, options: LoadOptions = {}): Tensor {
  const source = openSource(file);
  try {
    return converted(loadArraySync(source, readNpyHeader(source), device), options);
  } finally {
    source.close();
  }
}

/**
 * Writes one array as numpy does, in row-major order; the file is complete or absent. bf16 and f8e4m3 become `V2` and `V1`.
 * @throws FileFormatError `FILE_UNWRITABLE`
 */
export async function writeNpy(path: string, tensor: Tensor): Promise<void> {
  check('writeNpy', 'tensor', tensor, TENSOR);
  await replaceFile(path, async (sink) => {
    await sink.write(npyHeader(tensor.dtype, tensor.shape));
    await writeTensor(tensor, (bytes) => sink.write(bytes));
  });
}

/**
 * Writes named arrays as numpy's `savez` does, or `savez_compressed` with `deflate`; the file is complete or absent.
 * @throws FileFormatError `FILE_UNWRITABLE`
 */
export async function writeNpz(
  path: string,
  tensors: Readonly<Record<string, Tensor>> | ReadonlyMap<string, Tensor>,
  options: ZipWriterOptions = {},
): Promise<void> {
  check('writeNpz', 'tensors', tensors, NAMED_TENSORS);
  const entries = tensors instanceof Map ? [...tensors] : Object.entries(tensors as Record<string, Tensor>);
  if (entries.some(([name]) => name === '' || name.length > 1000)) {
    throw new CandleError('INVALID_ARGUMENT', 'writeNpz: a name has 1 to 1000 characters; rename the tensor.');
  }
  await replaceFile(path, async (sink) => {
    const zip = new ZipWriter(sink, options);
    for (const [name, tensor] of entries) {
      const header = npyHeader(tensor.dtype, tensor.shape);
      const size = header.byteLength + tensor.elemCount * sizeInBytes(tensor.dtype);
      await zip.add(`${name}.npy`, size, async (write) => {
        await write(header);
        await writeTensor(tensor, write);
      });
    }
    await zip.finish();
  });
}

/** A lazily read npz file: candle's `NpzTensors`. Arrays are checked against the archive's checksums when loaded. */
export class NpzFile implements TensorReader {
  readonly path: string;
  readonly #zip: ZipArchive;
  readonly #entries = new Map<string, ZipEntry>();
  readonly #infos = new Map<string, NpzInfo>();

  private constructor(source: ByteSource) {
    this.path = source.path;
    this.#zip = new ZipArchive(source);
    for (const [name, entry] of this.#zip.entries) this.#entries.set(name.replace(/\.npy$/, ''), entry);
  }

  /**
   * Opens an archive, which stays open until {@link close}, and reads its directory.
   * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`, `FILE_TRUNCATED`, `FILE_INVALID`
   */
  static open(file: FileInput): NpzFile {
    const source = openSource(file);
    try {
      return new NpzFile(source);
    } catch (error) {
      source.close();
      throw error;
    }
  }

  /** Without `.npy`, in the order of the archive. */
  get names(): string[] {
    return [...this.#entries.keys()];
  }

  /** Whether {@link names} has it, which leave out `.npy`. */
  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /** Type and shape of an array, from its header alone. @throws FileFormatError `FILE_NO_SUCH_TENSOR`, `FILE_INVALID` */
  info(name: string): NpzInfo {
    const known = this.#infos.get(name);
    if (known) return known;
    const entry = this.#entry(name);
    const { type, shape, fortranOrder, bigEndian } = this.#header(entry, this.#zip.open(entry));
    const { bytes, dtype } = FILE_TYPES[type];
    const info = { name, type, dtype, shape, byteLength: elemCount(shape) * bytes, fortranOrder, bigEndian };
    this.#infos.set(name, info);
    return info;
  }

  /** One array on a device (default `Device.current()`), row-major. */
  async load(name: string, device?: DeviceLike, options: LoadOptions = {}): Promise<Tensor> {
    const entry = this.#entry(name);
    const source = this.#zip.open(entry);
    try {
      const header = this.#header(entry, source);
      const check = this.#checksum(entry, source, header);
      return converted(check.passed(await loadArray(source, header, device, options, check.update)), options);
    } finally {
      source.close();
    }
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, options: LoadOptions = {}): Tensor {
    const entry = this.#entry(name);
    const source = this.#zip.open(entry);
    const header = this.#header(entry, source);
    const check = this.#checksum(entry, source, header);
    return converted(check.passed(loadArraySync(source, header, device, check.update)), options);
  }

  /** All arrays by name. */
  loadAll(device?: DeviceLike, options: LoadOptions = {}): Promise<Map<string, Tensor>> {
    return loadEach(this, device, options);
  }

  /** Closes the file; tensors already loaded stay. Harmless when repeated. */
  close(): void {
    this.#zip.source.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #entry(name: string): ZipEntry {
    return this.#entries.get(name) ?? noSuchTensor(this.path, name, this.names);
  }

  /** The header of an array; where it is wrong, the archive's checksum may say why. */
  #header(entry: ZipEntry, source: ByteSource): NpyHeader {
    try {
      return readNpyHeader(source);
    } catch (error) {
      if (entry.size <= MOST_CHECKED) {
        const checksum = this.#zip.checksum(entry);
        const piece = new Uint8Array(Math.min(PIECE, entry.size));
        for (let at = 0; at < entry.size; at += piece.length) {
          const part = piece.subarray(0, Math.min(piece.length, entry.size - at));
          source.readSync(part, at);
          checksum.update(part);
        }
        checksum.finish();
      }
      throw error;
    }
  }

  #checksum(entry: ZipEntry, source: ByteSource, { dataOffset }: NpyHeader) {
    const checksum = this.#zip.checksum(entry);
    const head = new Uint8Array(dataOffset);
    source.readSync(head, 0);
    checksum.update(head);
    return {
      update: checksum.update,
      passed: (tensor: Tensor): Tensor => {
        try {
          checksum.finish();
          return tensor;
        } catch (error) {
          tensor.dispose();
          throw error;
        }
      },
    };
  }
}

type Observe = (bytes: Uint8Array) => void;

async function loadArray(
  source: ByteSource,
  header: NpyHeader,
  device: DeviceLike | undefined,
  { signal }: LoadOptions,
  observe?: Observe,
): Promise<Tensor> {
  return rowMajor(await readTensor(source, stored(header, observe), [elemCount(header.shape)], device, signal), header);
}

function loadArraySync(source: ByteSource, header: NpyHeader, device?: DeviceLike, observe?: Observe): Tensor {
  return rowMajor(readTensorSync(source, stored(header, observe), [elemCount(header.shape)], device), header);
}

function stored({ type, bigEndian, dataOffset }: NpyHeader, observe?: Observe) {
  return { type, bigEndian, offset: dataOffset, observe };
}

/** The tensor of a flat one, which is given up. */
function rowMajor(flat: Tensor, { shape, fortranOrder }: NpyHeader): Tensor {
  try {
    if (!fortranOrder) return flat.reshape(shape);
    const reversed = Layout.contiguous(shape.slice().reverse()).permute(shape.map((_, i) => shape.length - 1 - i));
    const view = viewOf('readNpy', flat, reversed);
    try {
      return view.contiguous();
    } finally {
      view.dispose();
    }
  } finally {
    flat.dispose();
  }
}
