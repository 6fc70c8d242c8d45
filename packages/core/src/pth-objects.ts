/**
 * What the names in a checkpoint's pickle stand for: storages, tensors, dtypes and a few containers. This list is the whole
 * of what such a pickle can reach; see pickle.ts.
 */
import type { FileType } from './file-types';
import { FILE_TYPES } from './file-types';
import { PickleDict, type PickleGlobal, type PickleReader } from './pickle';
import { elemCount } from './shape';

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

export interface StoredTensor {
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
  complex64: 8,
  complex128: 16,
};

/** Names that give a container or a plain value. */
const VALUES: Readonly<Record<string, (args: readonly unknown[]) => unknown>> = {
  'collections.OrderedDict': ([pairs]) => dictOf(pairs),
  'collections.defaultdict': ([, pairs]) => dictOf(pairs),
  'collections.Counter': ([pairs]) => dictOf(pairs),
  'torch.Size': ([sizes]) => sizes,
  'torch.device': (args) => args.join(':'),
  'builtins.set': ([items]) => new Set(listOf(items)),
  'builtins.frozenset': ([items]) => new Set(listOf(items)),
  'builtins.complex': (args) => args,
  '_codecs.encode': ([text]) => Uint8Array.from(String(text), (character) => character.charCodeAt(0)),
};

const TENSORS: Readonly<Record<string, (args: readonly unknown[]) => unknown>> = {
  'torch._utils._rebuild_tensor': tensorOf,
  'torch._utils._rebuild_tensor_v2': tensorOf,
  'torch._utils._rebuild_tensor_v3': (args) => tensorOf(args, args[6]),
  'torch._utils._rebuild_parameter': ([data]) => data,
  'torch._utils._rebuild_parameter_with_state': ([data]) => data,
  'torch._tensor._rebuild_from_type_v2': ([rebuild, , args]) => {
    const { call } = (rebuild ?? {}) as PickleGlobal;
    if (!call || !Array.isArray(args)) throw new Error('a tensor is rebuilt by what is no function');
    return call(args);
  },
};

/** Classes that are mentioned and never made. */
const CLASSES = new Set(['torch.Tensor', 'torch.nn.parameter.Parameter', 'torch.nn.parameter.Buffer']);

/**
 * Reads the pickle of a checkpoint: tensors come as {@link StoredTensor}.
 * @param options.check sees every storage; throws an Error for one that is not there
 */
export function torchReader({ check }: { check(storage: TorchStorage): void }): PickleReader {
  return { findGlobal, persistentLoad: (id) => storageOf(id, check) };
}

function findGlobal(module: string, name: string): PickleGlobal | undefined {
  // Python 2 wrote `__builtin__`.
  const full = `${module === '__builtin__' ? 'builtins' : module}.${name}`;
  const call = own(VALUES, full) ?? own(TENSORS, full);
  if (call) return { name: full, call };
  if (CLASSES.has(full)) return { name: full };
  const isStorage = (module === 'torch' || module === 'torch.storage') && Object.hasOwn(STORAGES, name);
  const type = isStorage ? STORAGES[name] : module === 'torch' ? own(DTYPES, name) : undefined;
  return type === undefined ? undefined : elementType(full, type);
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
function storageOf(id: unknown, check: (storage: TorchStorage) => void): TorchStorage {
  const [kind, type, key, , count, view] = Array.isArray(id) ? id : [];
  if (kind !== 'storage' || !isElementType(type) || typeof key !== 'string' || !isSize(count))
    throw new Error('a storage is described in an unknown way');
  if (key.length > 100 || /[\\/]/.test(key))
    throw new Error(`a storage has the key ${JSON.stringify(key.slice(0, 100))}`);
  const start = view === null || view === undefined ? 0 : (view as unknown[])[1];
  if (!isSize(start)) throw new Error('a part of a storage has no place');
  const byteLength = count * type.bytes;
  const storage = { key, type: type.type, typeName: type.name, count, byteLength, start };
  check(storage);
  return storage;
}

/** `(storage, offset, sizes, strides, ...)`; a storage of bytes takes the element type that comes with the tensor. */
function tensorOf([storage, offset, shape, strides]: readonly unknown[], type?: unknown): StoredTensor {
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
  return { storage: typed, offset, shape, strides };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isElementType(value: unknown): value is ElementType {
  return typeof value === 'object' && value !== null && 'bytes' in value && 'type' in value;
}

function listOf(items: unknown): readonly unknown[] {
  return Array.isArray(items) ? items : [];
}

function dictOf(pairs: unknown): PickleDict {
  if (pairs instanceof PickleDict) return new PickleDict(pairs);
  return new PickleDict(
    listOf(pairs).map((pair): [unknown, unknown] => {
      if (!Array.isArray(pair) || pair.length !== 2) throw new Error('a dict is made of what are no pairs');
      return [pair[0], pair[1]];
    }),
  );
}
