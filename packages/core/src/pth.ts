/**
 * Checkpoints of `torch.save`: candle's `PthTensors` (candle-core/src/pickle.rs). Both forms are read, the zip archive of
 * today and the plain pickles of PyTorch before 1.6, without Python and without running anything: see pickle.ts. The names
 * below are all that a pickle may ask for; they are PyTorch's for state dicts.
 *
 * Differs from candle: any strides are read (candle: contiguous or Fortran order), bool, i8, f8 and the newer unsigned types
 * too, both byte orders, and tensors go to any device. Lists and single tensors can be read besides dicts.
 */
import type { DeviceLike } from './device';
import type { DType } from './dtype';
import { FileFormatError, UnsupportedError } from './errors';
import { type ByteSource, type FileInput, openSource, partOf, readBlockSync } from './file-source';
import { converted, FILE_TYPES, type FileType, type LoadOptions, readTensor, readTensorSync } from './file-types';
import { Layout } from './layout';
import { PickleDict, readPickle } from './pickle';
import { type StoredTensor, type TorchStorage, torchReader } from './pth-objects';
import { loadEach, noSuchTensor, type TensorReader } from './safetensors';
import { elemCount } from './shape';
import type { Tensor } from './tensor';
import { viewOf } from './tensor/base';
import { ZipArchive } from './zip';

export interface PthOptions {
  /**
   * Where in the file the tensors are: `model_state_dict` for a dict under that key, a list of keys for one further down.
   * Default: the top.
   */
  key?: string | readonly string[];
}

/** A tensor of a checkpoint. */
export interface PthInfo {
  readonly name: string;
  /** The file's element type; PyTorch's name for one that cannot be loaded. */
  readonly type: FileType | (string & {});
  /** What it is read as, undefined for a type that cannot be loaded. */
  readonly dtype: DType | undefined;
  readonly shape: readonly number[];
  /** In elements, in the storage that it may share with others. */
  readonly strides: readonly number[];
  /** Bytes of the elements, each counted once. */
  readonly byteLength: number;
}

/** Longest pickle of an archive that is read; that of a hundred thousand tensors has some 15 MB. */
const MAX_PICKLE_BYTES = 256 * 1024 * 1024;

/** A storage's bytes. */
interface Located {
  source: ByteSource;
  offset: number;
}

export class PthFile implements TensorReader {
  readonly path: string;
  readonly #source: ByteSource;
  readonly #tensors: Map<string, StoredTensor>;
  readonly #locate: (storage: TorchStorage) => Located;
  readonly #bigEndian: boolean;
  readonly #hint: string;

  private constructor(source: ByteSource, contents: Contents, key: readonly string[]) {
    this.path = source.path;
    this.#source = source;
    this.#locate = contents.locate;
    this.#bigEndian = contents.bigEndian;
    const level = descend(source.path, contents.value, key);
    this.#tensors = tensorsOf(level);
    this.#hint = hintOf(level);
  }

  /**
   * Opens a checkpoint, which stays open until {@link close}, and reads its structure; tensors are read when loaded.
   * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`, `FILE_TRUNCATED`, `FILE_INVALID`; `PICKLE_REFUSED` for a
   * pickle that asks for anything but tensors and plain values; `FILE_NO_SUCH_KEY`
   */
  static open(file: FileInput, options: PthOptions = {}): PthFile {
    const { key = [] } = options;
    const source = openSource(file);
    try {
      const zipped = source.size >= 4 && readBlockSync(source, 0, 2).every((byte, i) => byte === [0x50, 0x4b][i]);
      return new PthFile(
        source,
        zipped ? readZipped(source) : readLegacy(source),
        typeof key === 'string' ? [key] : key,
      );
    } catch (error) {
      source.close();
      throw error;
    }
  }

  /** In the order of the file. A tensor that was saved by itself is called `tensor`, those of a list `0`, `1`, ... */
  get names(): string[] {
    return [...this.#tensors.keys()];
  }

  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  /** @throws FileFormatError `FILE_NO_SUCH_TENSOR` */
  info(name: string): PthInfo {
    const { storage, shape, strides } = this.#tensor(name);
    const element = storage.type === undefined ? undefined : FILE_TYPES[storage.type];
    const byteLength = elemCount(shape) * (element?.bytes ?? 0);
    return { name, type: storage.type ?? storage.typeName, dtype: element?.dtype, shape, strides, byteLength };
  }

  /**
   * One tensor on a device (default `Device.current()`). Row-major, whatever its strides in the file; only one that repeats
   * elements, as `expand` makes, stays such a view and takes no more memory than in the file.
   */
  async load(name: string, device?: DeviceLike, options: LoadOptions = {}): Promise<Tensor> {
    const { source, stored, span, layout } = this.#plan(name);
    return converted(placed(await readTensor(source, stored, [span], device, options.signal), layout), options);
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, options: LoadOptions = {}): Tensor {
    const { source, stored, span, layout } = this.#plan(name);
    return converted(placed(readTensorSync(source, stored, [span], device), layout), options);
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

  #tensor(name: string): StoredTensor {
    return this.#tensors.get(name) ?? noSuchTensor(this.path, name, this.names, this.#hint);
  }

  /** The elements from the first to the last one of a tensor, and where in them it is. */
  #plan(name: string) {
    const { storage, shape, strides, offset } = this.#tensor(name);
    const { type } = storage;
    if (type === undefined) {
      throw new UnsupportedError(
        'UNSUPPORTED',
        `${this.path}: tensor "${name}" is of ${storage.typeName}, for which there is no tensor dtype; convert it in Python first.`,
      );
    }
    const layout = new Layout(shape, strides, 0);
    const { bytes } = FILE_TYPES[type];
    const located = this.#locate(storage);
    const at = located.offset + (storage.start + offset) * bytes;
    const stored = { type, offset: at, bigEndian: this.#bigEndian };
    return { source: located.source, stored, span: layout.endOffset(), layout };
  }
}

/** The tensor in a span of elements, which is given up. */
function placed(span: Tensor, layout: Layout): Tensor {
  try {
    const view = viewOf('load', span, layout);
    if (layout.isContiguous() || layout.elemCount > span.elemCount) return view;
    try {
      return view.contiguous();
    } finally {
      view.dispose();
    }
  } finally {
    span.dispose();
  }
}

interface Contents {
  value: unknown;
  locate(storage: TorchStorage): Located;
  bigEndian: boolean;
}

function readZipped(source: ByteSource): Contents {
  const zip = new ZipArchive(source);
  const pickles = [...zip.entries.values()].filter(({ name }) => /(^|\/)data\.pkl$/.test(name));
  if (pickles.length !== 1)
    throw invalid(source, `it has ${pickles.length} entries named data.pkl; give a file that torch.save wrote`);
  if (pickles[0].size > MAX_PICKLE_BYTES)
    throw invalid(
      source,
      `its pickle of ${pickles[0].size} bytes is over the limit of ${MAX_PICKLE_BYTES}; save only tensors`,
    );
  const folder = pickles[0].name.slice(0, -'data.pkl'.length);
  const order = zip.entries.get(`${folder}byteorder`);
  const text = order ? Buffer.from(zip.peekSync(order, 16)).toString('latin1') : 'little';
  if (text !== 'little' && text !== 'big') throw invalid(source, `its byte order is "${text}"; save it again`);
  const entryOf = ({ key }: TorchStorage) => zip.entries.get(`${folder}data/${key}`);
  const opened = new Map<string, ByteSource>();
  const { value } = readPickle(
    zip.openSync(pickles[0]),
    0,
    torchReader({
      check: (storage) => {
        const size = entryOf(storage)?.size;
        if (size !== undefined && size >= storage.byteLength) return;
        throw new Error(`storage "${storage.key}" has ${size ?? 'no'} bytes and needs ${storage.byteLength}`);
      },
    }),
  );
  return {
    value,
    bigEndian: text === 'big',
    locate: (storage) => {
      const entry = entryOf(storage)!;
      let part = opened.get(storage.key);
      if (!part) {
        part = zip.openSync(entry);
        // One that had to be inflated is not kept.
        if (!entry.deflated) opened.set(storage.key, part);
      }
      return { source: part, offset: 0 };
    },
  };
}

const LEGACY_MAGIC = 0x1950a86a20f9469cfc6cn;

/** Magic number, version, system, the object, the keys of its storages, then for each its element count and elements. */
function readLegacy(source: ByteSource): Contents {
  const plain = { findGlobal: () => undefined };
  let end = 0;
  const next = (reader: Parameters<typeof readPickle>[2]): unknown => {
    const pickle = readPickle(source, end, reader);
    end = pickle.end;
    return pickle.value;
  };
  if (source.size < 2 || readBlockSync(source, 0, 1)[0] !== 0x80 || next(plain) !== LEGACY_MAGIC)
    throw invalid(
      source,
      'it is neither a zip archive nor begins with the magic number of torch.save; give a file that torch.save wrote',
    );
  const version = next(plain);
  if (version !== 1001) throw invalid(source, `version ${String(version)} of the old format is unknown; save it again`);
  const system = next(plain);
  const bigEndian = system instanceof PickleDict && system.get('little_endian') === false;
  const storages = new Map<string, TorchStorage>();
  const value = next(torchReader({ check: (storage) => void storages.set(storage.key, storage) }));
  const keys = next(plain);
  if (!Array.isArray(keys)) throw invalid(source, 'the list of its storages is missing; get the file again');
  const offsets = new Map<string, number>();
  for (const key of keys) {
    const storage = storages.get(key as string);
    if (!storage)
      throw invalid(source, `storage "${String(key).slice(0, 40)}" belongs to no tensor; get the file again`);
    const count = new DataView(readBlockSync(source, end, 8).buffer).getBigInt64(0, !bigEndian);
    if (count !== BigInt(storage.count) || end + 8 + storage.byteLength > source.size)
      throw invalid(
        source,
        `storage "${key}" of ${storage.count} elements has ${count} in the file of ${source.size} bytes; get it again`,
      );
    offsets.set(storage.key, end + 8);
    end += 8 + storage.byteLength;
  }
  for (const key of storages.keys())
    if (!offsets.has(key)) throw invalid(source, `storage "${key}" is missing; get the file again`);
  return {
    value,
    bigEndian,
    locate: ({ key }) => ({ source: partOf(source, 0, source.size), offset: offsets.get(key)! }),
  };
}

function descend(path: string, root: unknown, keys: readonly string[]): unknown {
  let level = root;
  for (const key of keys) {
    const found = level instanceof PickleDict ? level.get(key) : undefined;
    if (found === undefined) {
      const known = level instanceof PickleDict ? [...level.keys()].slice(0, 8).map(String).join(', ') : 'no dict';
      throw new FileFormatError(
        'FILE_NO_SUCH_KEY',
        `${path}: there is no key "${key}" where it was looked for (${known}); use one of these, or none.`,
        { path },
      );
    }
    level = found;
  }
  return level;
}

function isStored(value: unknown): value is StoredTensor {
  return typeof value === 'object' && value !== null && 'storage' in value;
}

function tensorsOf(level: unknown): Map<string, StoredTensor> {
  if (isStored(level)) return new Map([['tensor', level]]);
  const pairs: [unknown, unknown][] =
    level instanceof PickleDict ? [...level] : Array.isArray(level) ? level.map((item, i) => [String(i), item]) : [];
  return new Map(
    pairs.filter((pair): pair is [string, StoredTensor] => typeof pair[0] === 'string' && isStored(pair[1])),
  );
}

/** Where tensors are when there are none on this level. */
function hintOf(level: unknown): string {
  const pairs = level instanceof PickleDict ? [...level] : [];
  const inner = pairs.filter(([, value]) => tensorsOf(value).size > 0 && !isStored(value)).map(([key]) => String(key));
  return inner.length === 0 ? '' : `check the name, or open the file with the key ${inner.slice(0, 5).join(' or ')}`;
}

function invalid(source: ByteSource, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${source.path}: ${what}.`, { path: source.path });
}
