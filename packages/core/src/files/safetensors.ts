/**
 * safetensors files: reading tensors one at a time by positioned reads, and writing. Mirrors candle's safetensors module
 * (candle-core/src/safetensors.rs): {@link SafetensorsFile} is its `MmapedSafetensors` and, given bytes, its
 * `SliceSafetensors`. Node cannot map a file without native code; instead a tensor is streamed to its device in pieces, so
 * neither the file nor a tensor is ever held whole in host memory.
 *
 * Types without a tensor dtype are widened when loaded, see types.ts. F4, F6_*, F8_E8M0 and C64 can be listed but not
 * loaded. Several files that make up one model: safetensors-shards.ts.
 */
import { check, kind, OBJECT, optional } from '../check';
import { Device, type DeviceLike } from '../device';
import { type DType, sizeInBytes } from '../dtype';
import { CandleError, FileFormatError, ShapeError, UnsupportedError } from '../errors';
import { show } from '../show';
import type { Tensor } from '../tensor';
import { NAMED_TENSORS } from '../tensor/signatures';
import {
  headerLength,
  parseHeader,
  type SafetensorsDType,
  type SafetensorsHeader,
  type SafetensorsInfo,
} from './safetensors-header';
import { type ByteSource, type FileInput, openSource, readBlockSync } from './source';
import { STAND_IN_BYTES } from './stand-ins';
import { converted, type FileType, type LoadOptions, readTensor, readTensorSync, writeTensor } from './types';
import { replaceFile } from './write';

const TYPES: Partial<Record<SafetensorsDType, FileType>> = {
  BOOL: 'bool',
  U8: 'u8',
  I8: 'i8',
  U16: 'u16',
  I16: 'i16',
  U32: 'u32',
  I32: 'i32',
  U64: 'u64',
  I64: 'i64',
  F16: 'f16',
  BF16: 'bf16',
  F32: 'f32',
  F64: 'f64',
  F8_E4M3: 'f8e4m3',
  F8_E5M2: 'f8e5m2',
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

/** An open file whose header has been read; tensors are read one at a time, when they are loaded. */
export class SafetensorsFile {
  /** The path, or a description of bytes in memory. */
  readonly path: string;
  /** The strings under `__metadata__`; empty if there are none. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly #tensors: Map<string, SafetensorsInfo>;
  readonly #source: ByteSource;

  private constructor(source: ByteSource, header: SafetensorsHeader) {
    this.path = source.path;
    this.#source = source;
    this.metadata = header.metadata;
    this.#tensors = header.tensors;
  }

  /**
   * Opens a file, or the bytes of one, and reads its header, which is checked completely.
   * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`, `FILE_TRUNCATED` or `FILE_INVALID`
   */
  static open(file: FileInput): SafetensorsFile {
    const source = openSource(file);
    try {
      const { path, size } = source;
      const length = headerLength(path, readBlockSync(source, 0, Math.min(STAND_IN_BYTES, size)), size);
      return new SafetensorsFile(source, parseHeader(path, readBlockSync(source, 8, length), size));
    } catch (error) {
      source.close();
      throw error;
    }
  }

  /** In the order of the header. */
  get names(): string[] {
    return [...this.#tensors.keys()];
  }

  /** Whether {@link names} has it. */
  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  /**
   * The file's own dtype name, shape, position and size of a tensor.
   * @throws FileFormatError `FILE_NO_SUCH_TENSOR`
   */
  info(name: string): SafetensorsInfo {
    return this.#tensors.get(name) ?? noSuchTensor(this.path, name, this.names);
  }

  /** One tensor on a device (default `Device.current()`), streamed there in pieces. */
  async load(name: string, device?: DeviceLike, options: LoadOptions = {}): Promise<Tensor> {
    const { offset, shape } = this.info(name);
    const stored = { type: this.#typeOf(name), offset };
    return converted(await readTensor(this.#source, stored, shape, device, options.signal), options);
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, options: LoadOptions = {}): Tensor {
    const { offset, shape } = this.info(name);
    return converted(readTensorSync(this.#source, { type: this.#typeOf(name), offset }, shape, device), options);
  }

  /**
   * Bytes [offset, offset + into.byteLength) of a tensor as the file holds them, blocking the event loop.
   * @throws ShapeError `INDEX_OUT_OF_RANGE` beyond the tensor
   */
  readPartSync(name: string, offset: number, into: Uint8Array): void {
    const { offset: start, byteLength } = this.info(name);
    if (!(Number.isSafeInteger(offset) && offset >= 0 && offset + into.byteLength <= byteLength)) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `${this.path}: bytes ${offset} to ${offset + into.byteLength} of "${name}", which has ${byteLength}; ask for bytes inside of it.`,
      );
    }
    this.#source.readSync(into, start + offset);
  }

  /** All tensors by name. */
  loadAll(device?: DeviceLike, options: LoadOptions = {}): Promise<Map<string, Tensor>> {
    return loadEach(this, device, options);
  }

  /** Closes the file; tensors already loaded stay. Harmless when repeated. */
  close(): void {
    this.#source.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #typeOf(name: string): FileType {
    const { dtype } = this.info(name);
    const type = TYPES[dtype];
    if (type) return type;
    throw new UnsupportedError(
      'UNSUPPORTED',
      `${this.path}: tensor "${name}" is ${dtype}, for which there is no tensor dtype; convert the file to one of ${Object.keys(TYPES).join(', ')}.`,
    );
  }
}

/** What every reader of a file with named tensors has: safetensors, npz, pth. */
export interface TensorReader {
  /** For messages. */
  readonly path: string;
  readonly names: string[];
  /** Whether {@link load} knows the name. */
  has(name: string): boolean;
  /** Shape of a tensor, and bytes of its elements. @throws FileFormatError `FILE_NO_SUCH_TENSOR` */
  info(name: string): { readonly name: string; readonly shape: readonly number[]; readonly byteLength: number };
  /** One tensor on a device (default `Device.current()`). @throws FileFormatError `FILE_NO_SUCH_TENSOR` */
  load(name: string, device?: DeviceLike, options?: LoadOptions): Promise<Tensor>;
  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, options?: LoadOptions): Tensor;
  /** Bytes of a tensor from `offset` on, as the file holds them; readers of packed files have none. */
  readPartSync?(name: string, offset: number, into: Uint8Array): void;
  /** Closes the file; tensors already loaded stay. Harmless when repeated. */
  close(): void;
}

/** All tensors of a file by name; after an error none is left. */
export async function loadEach(
  file: TensorReader,
  device: DeviceLike | undefined,
  options: LoadOptions,
): Promise<Map<string, Tensor>> {
  const on = Device.of(device);
  const loaded = new Map<string, Tensor>();
  try {
    for (const name of file.names) loaded.set(name, await file.load(name, on, options));
    return loaded;
  } catch (error) {
    for (const tensor of loaded.values()) tensor.dispose();
    throw error;
  }
}

/** @throws FileFormatError `FILE_NO_SUCH_TENSOR`, naming some that there are */
export function noSuchTensor(path: string, name: string, names: readonly string[], hint = ''): never {
  const some = names.slice(0, 5).join(', ') + (names.length > 5 ? ', ...' : '');
  throw new FileFormatError(
    'FILE_NO_SUCH_TENSOR',
    `${path}: there is no tensor ${show(name)} among ${names.length} (${some}); ${hint || 'check the name'}.`,
    { path },
  );
}

const METADATA = optional(
  kind(
    (value) => OBJECT.test(value) && Object.values(value as object).every((text) => typeof text === 'string'),
    "give strings by name, as { format: 'pt' }",
  ),
);

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
  check('saveSafetensors', 'tensors', tensors, NAMED_TENSORS);
  check('saveSafetensors', 'metadata', metadata, METADATA);
  const entries = tensors instanceof Map ? [...tensors] : Object.entries(tensors as Record<string, Tensor>);
  if (entries.some(([name]) => name === '__metadata__')) {
    const message =
      'saveSafetensors: "__metadata__" is the place of the metadata, no tensor can have this name; rename the tensor.';
    throw new CandleError('INVALID_ARGUMENT', message);
  }
  entries.sort(([a, x], [b, y]) => sizeInBytes(y.dtype) - sizeInBytes(x.dtype) || (a < b ? -1 : 1));
  await replaceFile(path, async (sink) => {
    await sink.write(encodeHeader(entries, metadata));
    for (const [, tensor] of entries) await writeTensor(tensor, (bytes) => sink.write(bytes));
  });
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
