/** The arguments of `VarBuilder`'s methods. */
import { kinds } from '@x/core';

const OPTIONS = kinds.optional(kinds.fields({ dtype: kinds.optional(kinds.DTYPE) }));
const PREFIX = kinds.kind(
  (value) => typeof value === 'string' || typeof value === 'number',
  'give a string or a number',
);
const PATHS = kinds.kind(
  (value) => typeof value === 'string' || (Array.isArray(value) && value.every((path) => typeof path === 'string')),
  'give a path or an array of paths',
);
const BYTES = kinds.kind((value) => value instanceof Uint8Array, 'give the bytes of a file as a Uint8Array');
const NAME = { name: kinds.STRING } as const;
const GET = { shape: kinds.SHAPE, name: kinds.STRING, options: OPTIONS } as const;
const GET_WITH_HINTS = { shape: kinds.SHAPE, name: kinds.STRING, init: kinds.OBJECT, options: OPTIONS } as const;
const GET_UNCHECKED = { name: kinds.STRING, options: OPTIONS } as const;
const SHARD = kinds.fields({ dim: kinds.DIM, rank: kinds.NUMBER, worldSize: kinds.NUMBER });
const GET_SHARD = { name: kinds.STRING, shard: SHARD, options: OPTIONS } as const;

/** An object known by one of its methods, for there may be several copies of its class. */
function objectWith(method: string, remedy: string): kinds.Kind {
  return kinds.kind(
    (value) => typeof (value as Record<string, unknown> | null | undefined)?.[method] === 'function',
    remedy,
  );
}

export const STATICS: Readonly<Record<string, kinds.Signature>> = {
  fromTensors: { tensors: kinds.NAMED_TENSORS, options: OPTIONS },
  fromSafetensors: { files: PATHS, options: OPTIONS },
  fromBufferedSafetensors: { data: BYTES, options: OPTIONS },
  fromNpz: { file: kinds.FILE, options: OPTIONS },
  fromPth: { file: kinds.FILE, options: OPTIONS },
  fromBackend: { source: objectWith('shapeOf', 'give a VarSource'), options: OPTIONS },
  zeros: { options: OPTIONS },
  fromVarMap: { map: objectWith('allVars', 'give a VarMap'), options: OPTIONS },
  fromGguf: { file: objectWith('loadSync', 'give an open GgufFile'), options: OPTIONS },
};

export const METHODS: Readonly<Record<string, kinds.Signature>> = {
  pp: { part: PREFIX },
  pushPrefix: { part: PREFIX },
  setPrefix: { prefix: kinds.STRING },
  toDtype: { dtype: kinds.DTYPE },
  setDtype: { dtype: kinds.DTYPE },
  setDevice: { device: kinds.DEVICE },
  renameF: { rename: kinds.FUNCTION },
  path: NAME,
  containsTensor: NAME,
  byteLength: NAME,
  get: GET,
  getSync: GET,
  getWithHints: GET_WITH_HINTS,
  getWithHintsSync: GET_WITH_HINTS,
  getUnchecked: GET_UNCHECKED,
  getUncheckedSync: GET_UNCHECKED,
  getShard: GET_SHARD,
  getShardSync: GET_SHARD,
};
