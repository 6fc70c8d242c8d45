/**
 * What the names in a checkpoint's pickle stand for: storages, tensors, dtypes and a few containers. These lists are the whole
 * of what such a pickle can reach; see pickle.ts. Objects of other classes are left out and take nothing else with them:
 * each is a {@link PickleObject}, an empty thing with the name of its class. Functions outside the lists refuse the file.
 */
import { elemCount } from '../shape';
import { show } from '../show';
import { toLatin1 } from './bytes';
import { type PickleBudget, PickleDict, type PickleGlobal, PickleObject, type PickleReader } from './pickle';
import type { FileType } from './types';
import { FILE_TYPES } from './types';

export interface TorchStorage {
  /** The file's name for its bytes. */
  readonly key: string;
  /** Undefined for types without a counterpart. */
  readonly type: FileType | undefined;
  /** PyTorch's name of the type. */
  readonly typeName: string;
  /** Elements of the whole storage. */
  readonly count: number;
  readonly byteLength: number;
  /** Where in it this storage begins: old files have storages that are parts of others. */
  readonly start: number;
}

export interface TorchTensor {
  readonly storage: TorchStorage;
  /** Of the first element in the storage. */
  readonly offset: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

/** A type with the bytes of its elements; storages of bytes get theirs from the tensor. */
interface ElementType extends PickleGlobal {
  readonly type: FileType | undefined;
  readonly bytes: number;
}

const STORAGES: Readonly<Record<string, FileType | number>> = {
  FloatStorage: 'f32',
  DoubleStorage: 'f64',
  HalfStorage: 'f16',
  BFloat16Storage: 'bf16',
  LongStorage: 'i64',
  IntStorage: 'i32',
  ShortStorage: 'i16',
  CharStorage: 'i8',
  ByteStorage: 'u8',
  BoolStorage: 'bool',
  ComplexFloatStorage: 8,
  ComplexDoubleStorage: 16,
  QInt8Storage: 1,
  QUInt8Storage: 1,
  QInt32Storage: 4,
  UntypedStorage: 1,
};

const DTYPES: Readonly<Record<string, FileType | number>> = {
  float32: 'f32',
  float64: 'f64',
  float16: 'f16',
  bfloat16: 'bf16',
  int64: 'i64',
  int32: 'i32',
  int16: 'i16',
  int8: 'i8',
  uint64: 'u64',
  uint32: 'u32',
  uint16: 'u16',
  uint8: 'u8',
  bool: 'bool',
  float8_e4m3fn: 'f8e4m3',
  float8_e5m2: 'f8e5m2',
  float8_e4m3fnuz: 1,
  float8_e5m2fnuz: 1,
  float8_e8m0fnu: 1,
  complex32: 4,
  complex64: 8,
  complex128: 16,
  qint8: 1,
  quint8: 1,
  qint32: 4,
};

type Call = (args: readonly unknown[], budget: PickleBudget) => unknown;

/** Names that give a container or a plain value. */
const VALUES: Readonly<Record<string, Call>> = {
  'collections.OrderedDict': ([pairs], budget) => dictOf(pairs, budget),
  'collections.defaultdict': ([, pairs], budget) => dictOf(pairs, budget),
  'collections.Counter': ([pairs], budget) => dictOf(pairs, budget),
  'torch.Size': ([sizes]) => sizesOf(sizes),
  'torch.device': ([type, index]) => deviceOf(type, index),
  'builtins.set': ([items], budget) => setOf(items, budget),
  'builtins.frozenset': ([items], budget) => setOf(items, budget),
  'builtins.complex': ([re, im]) => complexOf(re, im),
  '_codecs.encode': ([text], budget) => encoded(text, budget),
};

const TENSORS: Readonly<Record<string, Call>> = {
  'torch._utils._rebuild_tensor': (args) => tensorOf(args),
  'torch._utils._rebuild_tensor_v2': (args) => tensorOf(args),
  'torch._utils._rebuild_tensor_v3': (args) => tensorOf(args, args[6]),
  'torch._utils._rebuild_parameter': ([data]) => data,
  'torch._utils._rebuild_parameter_with_state': ([data]) => data,
  'torch._tensor._rebuild_from_type_v2': ([rebuild, , args], budget) => {
    const { call } = (rebuild ?? {}) as PickleGlobal;
    if (typeof call !== 'function' || !Array.isArray(args))
      throw new Error('a tensor is rebuilt by what is no function');
    return call(args, budget);
  },
};

/** Functions whose results are left out as objects of unknown classes are: other kinds of tensors, numpy's values. */
const LEFT_OUT = new Set([
  'torch.serialization._get_layout',
  'torch.per_tensor_affine',
  'torch.per_channel_affine',
  'torch.per_channel_affine_float_qparams',
  'numpy.dtype',
  'numpy.ndarray',
  'numpy.core.multiarray.scalar',
  'numpy.core.multiarray._reconstruct',
  'numpy._core.multiarray.scalar',
  'numpy._core.multiarray._reconstruct',
  'datetime.datetime',
  'datetime.date',
  'datetime.timedelta',
  'collections.deque',
  ...['bool', 'bytearray', 'dict', 'float', 'int', 'list', 'object', 'range', 'slice', 'str', 'tuple'].map(
    (type) => `builtins.${type}`,
  ),
]);
/** Modules whose classes act on the system; no checkpoint has a use for one. */
const REFUSED =
  /^(builtins|commands|ctypes|importlib|marshal|multiprocessing|nt|os|pickle|posix|pty|runpy|shutil|socket|subprocess|sys|webbrowser)(\.|$)/;

/** Classes by the convention for names, of unknown modules too, and the rebuilding of other tensors. */
function isLeftOut(module: string, name: string): boolean {
  if (LEFT_OUT.has(`${module}.${name}`)) return true;
  if (REFUSED.test(module)) return false;
  if (module === 'torch._utils' || module === 'torch._tensor') return /^_rebuild_\w+$/.test(name);
  return /^(?:\w+\.)*_*[A-Z]\w*$/.test(name);
}

/** Classes that are mentioned and never made. */
const CLASSES = new Set(['torch.Tensor', 'torch.nn.parameter.Parameter', 'torch.nn.parameter.Buffer']);

/**
 * Reads the pickle of a checkpoint: tensors come as {@link TorchTensor}.
 * @param options.check sees every storage; throws an Error for one that is not there
 */
export function torchReader({ check }: { check(storage: TorchStorage): void }): PickleReader {
  const known = new Map<string, TorchStorage>();
  const checkOnce = (storage: TorchStorage) => {
    const other = known.get(storage.key);
    if (other && (other.byteLength !== storage.byteLength || other.typeName !== storage.typeName)) {
      const describe = ({ count, typeName }: TorchStorage) => `${count} elements of ${typeName}`;
      throw new Error(
        `storage "${storage.key}" has ${describe(other)} in one place and ${describe(storage)} in another`,
      );
    }
    known.set(storage.key, storage);
    check(storage);
  };
  return { findGlobal, persistentLoad: (id) => storageOf(id, checkOnce) };
}

function findGlobal(module: string, name: string): PickleGlobal | undefined {
  // Python 2 wrote `__builtin__`.
  const full = `${module === '__builtin__' ? 'builtins' : module}.${name}`;
  const call = own(VALUES, full) ?? own(TENSORS, full);
  if (call) return { name: full, call };
  if (CLASSES.has(full)) return { name: full };
  const isStorage = (module === 'torch' || module === 'torch.storage') && Object.hasOwn(STORAGES, name);
  const type = isStorage ? STORAGES[name] : module === 'torch' ? own(DTYPES, name) : undefined;
  if (type !== undefined) return elementType(full, type);
  return isLeftOut(module === '__builtin__' ? 'builtins' : module, name)
    ? { name: full, call: () => new PickleObject(full) }
    : undefined;
}

function own<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

function elementType(name: string, type: FileType | number): ElementType {
  return typeof type === 'number'
    ? { name, type: undefined, bytes: type }
    : { name, type, bytes: FILE_TYPES[type].bytes };
}

/** `('storage', class, key, device, element count)`, in old files with `(view key, offset, size)` behind. */
function storageOf(id: unknown, check: (storage: TorchStorage) => void): TorchStorage | PickleObject {
  const [kind, type, key, , count, view] = Array.isArray(id) ? id : [];
  if (kind === 'storage' && isGlobal(type) && !isElementType(type)) return new PickleObject(type.name);
  if (kind !== 'storage' || !isElementType(type) || typeof key !== 'string' || !isSize(count))
    throw new Error('a storage is described in an unknown way');
  if (key.length > 100 || /[\\/]/.test(key)) throw new Error(`a storage has the key ${show(key)}`);
  const start = view === null || view === undefined ? 0 : (Array.isArray(view) ? view : [])[1];
  if (!isSize(start)) throw new Error('a part of a storage has no place');
  const byteLength = count * type.bytes;
  const storage = { key, type: type.type, typeName: type.name, count, byteLength, start };
  check(storage);
  return storage;
}

/** `(storage, offset, sizes, strides, ...)`; a storage of bytes takes the element type that comes with the tensor. */
function tensorOf([storage, offset, shape, strides]: readonly unknown[], type?: unknown): TorchTensor | PickleObject {
  if (storage instanceof PickleObject) return storage;
  const given = storage as TorchStorage | undefined;
  if (typeof given !== 'object' || given === null || !('byteLength' in given))
    throw new Error('a tensor has no storage');
  let typed = given;
  if (isElementType(type)) {
    typed = { ...given, type: type.type, typeName: type.name, count: Math.floor(given.byteLength / type.bytes) };
  }
  const sizes = (value: unknown): value is number[] =>
    Array.isArray(value) && value.length <= 64 && value.every(isSize);
  if (!isSize(offset) || !sizes(shape) || !sizes(strides) || shape.length !== strides.length)
    throw new Error('a tensor has no proper offset, shape and strides');
  const elements = elemCount(shape);
  const last = shape.reduce((sum, size, i) => sum + (size - 1) * strides[i], 0);
  const end = elements === 0 ? 0 : typed.start + offset + last + 1;
  if (!Number.isSafeInteger(elements) || !(end <= typed.count)) {
    throw new Error(
      `a tensor of shape [${shape.join(', ')}] and strides [${strides.join(', ')}] ends at element ${end} of a storage of ${typed.count}`,
    );
  }
  // Copies: the pickle may go on changing its lists.
  return { storage: typed, offset, shape: shape.slice(), strides: strides.slice() };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isGlobal(value: unknown): value is PickleGlobal {
  return typeof value === 'object' && value !== null && 'name' in value && typeof value.name === 'string';
}

function isElementType(value: unknown): value is ElementType {
  return isGlobal(value) && 'bytes' in value && 'type' in value;
}

function sizesOf(sizes: unknown): readonly number[] {
  if (Array.isArray(sizes) && sizes.every(isSize)) return sizes;
  throw new Error('a torch.Size is made of what are no sizes');
}

function deviceOf(type: unknown, index: unknown): string {
  if (typeof type === 'string' && type.length <= 100) {
    if (index === undefined || index === null) return type;
    if (isSize(index)) return `${type}:${index}`;
  }
  throw new Error('a torch.device has no proper name');
}

function complexOf(re: unknown, im: unknown = 0): readonly number[] {
  if (typeof re === 'number' && typeof im === 'number') return [re, im];
  throw new Error('a complex number is made of what are no numbers');
}

/** Bytes that Python 2 wrote, as the text of their Latin-1 characters. */
function encoded(text: unknown, budget: PickleBudget): Uint8Array {
  if (typeof text !== 'string') throw new Error('what is no text is encoded');
  budget.take(text.length);
  return toLatin1(text);
}

/** Estimated bytes of an entry of a copied dict or set. */
const ENTRY = 64;

function setOf(items: unknown, budget: PickleBudget): Set<unknown> {
  const list = Array.isArray(items) ? items : [];
  budget.take(list.length * ENTRY);
  return new Set(list);
}

function dictOf(pairs: unknown, budget: PickleBudget): PickleDict {
  if (pairs instanceof PickleDict) {
    budget.take(pairs.size * ENTRY);
    return new PickleDict(pairs);
  }
  const list = Array.isArray(pairs) ? pairs : [];
  budget.take(list.length * ENTRY);
  const dict = new PickleDict();
  for (const pair of list) {
    if (!Array.isArray(pair) || pair.length !== 2) throw new Error('a dict is made of what are no pairs');
    dict.set(pair[0], pair[1]);
  }
  return dict;
}
