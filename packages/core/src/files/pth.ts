/**
 * Checkpoints of `torch.save`: candle's `PthTensors` (candle-core/src/pickle.rs). Both forms are read, the zip archive of
 * today and the plain pickles of PyTorch before 1.6, without Python and without running anything: see pickle.ts. The names
 * below are all that a pickle may ask for; they are PyTorch's for state dicts.
 *
 * Differs from candle: any strides are read (candle: contiguous or Fortran order), bool, i8, f8 and the newer unsigned types
 * too, both byte orders, and tensors go to any device. Lists and single tensors can be read besides dicts.
 */
import type { DeviceLike } from '../device';
import type { DType } from '../dtype';
import { FileFormatError, UnsupportedError } from '../errors';
import { Layout } from '../layout';
import { elemCount } from '../shape';
import type { Tensor } from '../tensor';
import { viewOf } from '../tensor/base';
import { fromLatin1 } from './bytes';
import { PickleBudget, PickleDict, PickleObject, readPickle } from './pickle';
import { type TorchStorage, type TorchTensor, torchReader } from './pth-objects';
import { children, find, isTensor, kindOf, type PthKind, type PthValue, plain } from './pth-tree';
import { loadEach, noSuchTensor, type TensorReader } from './safetensors';
import { type ByteSource, type FileInput, openSource, partOf, readBlockSync } from './source';
import { converted, FILE_TYPES, type FileType, type LoadOptions, readTensor, readTensorSync } from './types';
import { ZipArchive } from './zip';

export interface PthOptions {
  /**
   * Where in the file the tensors are: `model_state_dict` for a dict under that key; `optimizer.state.0`, or a list of keys,
   * for one further down. Whole numbers are keys of dicts and places in lists. Default: the top.
   */
  key?: string | number | readonly (string | number)[];
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

/** A thing on a level of a checkpoint. */
export interface PthEntry {
  readonly name: string;
  readonly kind: PthKind;
}

/** A storage's bytes. */
interface Located {
  source: ByteSource;
  offset: number;
}

/** The tensors of a checkpoint, or of what lies under one of its keys. */
export class PthFile implements TensorReader {
  readonly path: string;
  readonly #source: ByteSource;
  /** Where `key` leads. */
  readonly #level: unknown;
  readonly #tensors: Map<string, TorchTensor>;
  readonly #locate: (storage: TorchStorage) => Located;
  readonly #bigEndian: boolean;
  readonly #hint: string;

  private constructor(source: ByteSource, contents: Contents, key: readonly (string | number)[]) {
    this.path = source.path;
    this.#source = source;
    this.#locate = contents.locate;
    this.#bigEndian = contents.bigEndian;
    this.#level = descend(source.path, contents.value, key);
    this.#tensors = tensorsOf(this.#level);
    this.#hint = hintOf(this.#level);
  }

  /**
   * Opens a checkpoint, which stays open until {@link close}, and reads its structure; tensors are read when loaded. Objects
   * that are no tensors and no plain values, such as sparse tensors, are left out; {@link entries} lists them.
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
        typeof key === 'object' ? key : [key],
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

  /** Whether {@link load} knows the name: one of {@link names}, or that of a tensor further down, `opt.state.0.exp_avg`. */
  has(name: string): boolean {
    return this.#tensors.has(name) || isTensor(find(this.#level, name));
  }

  /**
   * What is on a level, in the order of the file: of the file itself, or of a dict or list further down, `opt.param_groups`.
   * @throws FileFormatError `FILE_NO_SUCH_KEY`
   */
  entries(name = ''): PthEntry[] {
    return children(this.#find(name)).map(([key, value]) => ({ name: key, kind: kindOf(value) }));
  }

  /**
   * A plain value by its dotted name: `epoch`, `opt.param_groups.0.lr`. Lists, tuples and sets of plain values come as
   * arrays, classes and dtypes as their names (`torch.float16`).
   * @throws FileFormatError `FILE_NO_SUCH_KEY` for a name that is not there, or that of a tensor, dict or other object
   */
  value(name: string): PthValue {
    const found = this.#find(name);
    const value = plain(found);
    if (value !== undefined) return value;
    const kind = kindOf(found);
    const what = found instanceof PickleObject ? `an object of ${found.name}, which is not read` : `a ${kind}`;
    const advice = kind === 'tensor' ? 'load it' : 'entries(name) lists what is in dicts and lists';
    const message = `${this.path}: "${name}" is no plain value but ${what}; ${advice}.`;
    throw new FileFormatError('FILE_NO_SUCH_KEY', message, { path: this.path });
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
    try {
      return converted(placed(await readTensor(source, stored, [span], device, options.signal), layout), options);
    } finally {
      source.close();
    }
  }

  /** As {@link load}, blocking the event loop. */
  loadSync(name: string, device?: DeviceLike, options: LoadOptions = {}): Tensor {
    const { source, stored, span, layout } = this.#plan(name);
    try {
      return converted(placed(readTensorSync(source, stored, [span], device), layout), options);
    } finally {
      source.close();
    }
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

  #tensor(name: string): TorchTensor {
    const found = this.#tensors.get(name) ?? find(this.#level, name);
    if (isTensor(found)) return found;
    if (found instanceof PickleObject) {
      throw new UnsupportedError(
        'UNSUPPORTED',
        `${this.path}: "${name}" is made by ${found.name}, which is not read; save it as a dense tensor in Python.`,
      );
    }
    return noSuchTensor(this.path, name, this.names, this.#hint);
  }

  #find(name: string): unknown {
    const found = find(this.#level, name);
    return found === undefined ? noSuchKey(this.path, name, this.#level) : found;
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
  const text = order ? readText(zip.open(order), 16) : 'little';
  if (text !== 'little' && text !== 'big') throw invalid(source, `its byte order is "${text}"; save it again`);
  const entryOf = ({ key }: TorchStorage) => zip.entries.get(`${folder}data/${key}`);
  const { value } = readPickle(
    zip.open(pickles[0]),
    0,
    torchReader({
      check: (storage) => {
        const size = entryOf(storage)?.size;
        if (size !== undefined && size >= storage.byteLength) return;
        throw new Error(`storage "${storage.key}" has ${size ?? 'no'} bytes and needs ${storage.byteLength}`);
      },
    }),
    new PickleBudget(pickles[0].size, pickles[0].packedSize),
  );
  return {
    value,
    bigEndian: text === 'big',
    locate: (storage) => ({ source: zip.open(entryOf(storage)!), offset: 0 }),
  };
}

/** At most `limit` bytes of an entry. */
function readText(source: ByteSource, limit: number): string {
  return fromLatin1(readBlockSync(source, 0, Math.min(source.size, limit)));
}

const LEGACY_MAGIC = 0x1950a86a20f9469cfc6cn;

/** Magic number, version, system, the object, the keys of its storages, then for each its element count and elements. */
function readLegacy(source: ByteSource): Contents {
  const plain = { findGlobal: () => undefined };
  let end = 0;
  const budget = new PickleBudget(source.size);
  const next = (reader: Parameters<typeof readPickle>[2]): unknown => {
    const pickle = readPickle(source, end, reader, budget);
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
    if (offsets.has(storage.key)) throw invalid(source, `storage "${storage.key}" is there twice; get the file again`);
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

function descend(path: string, root: unknown, keys: readonly (string | number)[]): unknown {
  let level = root;
  for (const key of keys) {
    const found = find(level, String(key));
    if (found === undefined) noSuchKey(path, String(key), level);
    level = found;
  }
  return level;
}

function noSuchKey(path: string, key: string, level: unknown): never {
  const some = children(level).slice(0, 8);
  const known = some.length === 0 ? 'nothing has a name there' : some.map(([name]) => name.slice(0, 40)).join(', ');
  throw new FileFormatError(
    'FILE_NO_SUCH_KEY',
    `${path}: there is no key "${key}" where it was looked for (${known}); use one of these, or none.`,
    { path },
  );
}

function tensorsOf(level: unknown): Map<string, TorchTensor> {
  if (isTensor(level)) return new Map([['tensor', level]]);
  return new Map(children(level).filter((pair): pair is [string, TorchTensor] => isTensor(pair[1])));
}

/** Where tensors are when there are none on this level. */
function hintOf(level: unknown): string {
  const holds = (value: unknown) => !isTensor(value) && children(value).some(([, item]) => isTensor(item));
  const inner = children(level)
    .slice(0, 100)
    .filter(([, value]) => holds(value))
    .map(([key]) => key);
  return inner.length === 0 ? '' : `check the name, or open the file with the key ${inner.slice(0, 5).join(' or ')}`;
}

function invalid(source: ByteSource, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${source.path}: ${what}.`, { path: source.path });
}
