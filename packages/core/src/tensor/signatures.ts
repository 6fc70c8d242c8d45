/** What the methods of `Tensor` take: checked before they run, so that they need not. See check.ts for the kinds. */
import {
  ANYTHING,
  BOOLEAN,
  COUNT,
  COUNTS,
  DIM,
  DIM_LIST,
  DTYPE,
  dimsOr,
  FILE,
  FINITE,
  fields,
  INDEX,
  type Kind,
  kind,
  NUMBER,
  nullable,
  OBJECT,
  oneOf,
  optional,
  POSITIVE,
  type Refused,
  SCALAR,
  SHAPE,
  SIZE_2D,
  STRING,
  WHOLE,
} from '../check';
import type { MethodsOf, Signature } from '../checked-calls';
import { Device } from '../device';
import { DTYPES, isDType } from '../dtype';
import { UNARY_NAMES, type UnaryOp } from '../elementwise/unary';
import { DeviceError, DTypeError, ShapeError } from '../errors';
import { show } from '../show';
import type { Tensor } from '../tensor';
import { isTensor } from './base';

const tensorFrom = ({ value }: Pick<Refused, 'value'>) =>
  Array.isArray(value) || typeof value === 'number' || ArrayBuffer.isView(value)
    ? `give a tensor: Tensor.from(${ArrayBuffer.isView(value) ? 'values' : show(value)})`
    : 'give a tensor';

export const TENSOR = kind(isTensor, tensorFrom);
export const TENSORS = kind((value) => Array.isArray(value) && value.every(isTensor), 'give an array of tensors');
/** The other side of an operation: a tensor, or a number for every element. */
export const OPERAND = kind(
  (value) => isTensor(value) || typeof value === 'number' || typeof value === 'bigint',
  ({ op, value }) => {
    if (Array.isArray(value) || ArrayBuffer.isView(value)) return tensorFrom({ value });
    const number = typeof value === 'string' && value.trim() !== '' && Number.isFinite(Number(value));
    return `give a tensor or a number, as ${op}(${number ? Number(value) : 1})`;
  },
);

export const DEVICE = kind(
  (value) => value instanceof Device || typeof value === 'string',
  `give a Device or its name, as 'cpu' or 'rocm:0'`,
  (message) => new DeviceError('DEVICE_UNKNOWN', message),
);

/** Tensors by name. */
export const NAMED_TENSORS = kind(
  (value) =>
    value instanceof Map
      ? [...value.values()].every(isTensor)
      : OBJECT.test(value) && !(Symbol.iterator in (value as object)) && Object.values(value as object).every(isTensor),
  'give tensors by name, as { name: tensor } or a Map',
);

const shapeError = (message: string) => new ShapeError('INVALID_SHAPE', message);
/** How many parts, and the size of an image: from 1. */
const PARTS = kind(POSITIVE.test, 'give a whole number from 1', shapeError);
const LOAD_OPTIONS = optional(fields({ dtype: optional(DTYPE) }));
const SINK = kind(
  (value) => typeof (value as { write?: unknown })?.write === 'function',
  'give an object with write(bytes)',
);
const BYTES = kind((value) => ArrayBuffer.isView(value), 'give a typed array or a DataView, as new Uint8Array(buffer)');
const STORAGE = kind(
  (value) => typeof (value as { elemCount?: unknown })?.elemCount === 'number',
  'give a storage of a backend; values become tensors with Tensor.from',
);
const MODULE = kind(
  (value) => typeof value === 'function' || typeof (value as { forward?: unknown })?.forward === 'function',
  'give a function or an object with forward',
);
const MODULE_T = kind(
  (value) => typeof (value as { forwardT?: unknown })?.forwardT === 'function',
  'give an object with forwardT',
);
const CUSTOM_OP = kind(
  (value) => typeof (value as { name?: unknown })?.name === 'string' && typeof value === 'object',
  'give an object with a name and fwd',
);
const CONV_OPTIONS = optional(OBJECT);
const TENSOR_OPTIONS = fields({ dtype: optional(DTYPE), device: nullable(DEVICE) });
/** A dtype, or the options as an object. */
const OPTIONS: Kind = {
  test: (value) => isDType(value as string) || (!(value instanceof Device) && TENSOR_OPTIONS.test(value)),
  refuse: (refused) => {
    const misplaced = refused.value instanceof Device || typeof refused.value === 'string';
    return (misplaced ? NO_DTYPE : TENSOR_OPTIONS).refuse(refused);
  },
};
const NO_DTYPE = kind(
  () => false,
  ({ value }) => `give a dtype of ${DTYPES.join(', ')}, and a device as { device: ${show(`${value}`)} }`,
  (message) => new DTypeError('DTYPE_MISMATCH', message),
);
const POSITION = kind(
  (value) => value === ':' || Number.isSafeInteger(value) || typeof value === 'object',
  'give a whole number, range(start, end), all, newAxis or a tensor of ids',
);
const CREATE = { options: nullable(OPTIONS), device: nullable(DEVICE) } as const;

const none = {} as const;
const operand = { rhs: OPERAND } as const;
const tensor = { rhs: TENSOR } as const;
const one = { dim: DIM } as const;
const EVERY_UNARY = Object.fromEntries(UNARY_NAMES.map((op) => [op, none])) as Record<UnaryOp, typeof none>;
const reduced = (all?: string) => ({ dims: dimsOr(all) }) as const;
const ids = { ids: TENSOR, src: TENSOR, dim: DIM } as const;

export const METHODS = {
  // What a tensor is
  dim: one,
  isContiguous: none,
  isFortranContiguous: none,
  storageAndLayout: none,
  storagePart: none,
  describe: none,
  dims0: none,
  dims1: none,
  dims2: none,
  dims3: none,
  dims4: none,
  dims5: none,
  normalizeAxis: { axis: DIM },
  stridedIndex: none,
  stridedBlocks: none,
  toString: none,
  // Host and devices
  toBytes: none,
  toBytesSync: none,
  toArray: { dtype: optional(DTYPE) },
  toArraySync: { dtype: optional(DTYPE) },
  toVec: none,
  toVecSync: none,
  toScalar: { dtype: optional(DTYPE) },
  toScalarSync: { dtype: optional(DTYPE) },
  toDtype: { dtype: DTYPE },
  toDevice: { device: DEVICE },
  toDeviceSync: { device: DEVICE },
  writeBytes: { sink: SINK },
  writeNpy: { path: STRING },
  saveSafetensors: { name: STRING, path: STRING },
  toShared: none,
  toSharedSync: none,
  // Views
  reshape: { shape: SHAPE },
  transpose: { dim1: DIM, dim2: DIM },
  t: none,
  permute: { dims: DIM_LIST },
  squeeze: one,
  unsqueeze: one,
  narrow: { dim: DIM, start: INDEX, len: INDEX },
  chunk: { chunks: PARTS, dim: DIM },
  flatten: { start: DIM, end: DIM },
  flattenTo: { end: DIM },
  flattenFrom: { start: DIM },
  flattenAll: none,
  broadcastAs: { shape: SHAPE },
  expand: { shape: SHAPE },
  broadcastLeft: { shape: SHAPE },
  get: { index: INDEX },
  getOnDim: { dim: DIM, index: INDEX },
  i: { '...index': POSITION },
  unfold: { dim: DIM, size: INDEX, step: INDEX },
  contiguous: none,
  copy: none,
  forceContiguous: none,
  detach: none,
  broadcastWith: { other: TENSOR },
  // Joining
  repeat: { counts: COUNTS },
  padWithZeros: { dim: DIM, left: COUNT, right: COUNT },
  padWithSame: { dim: DIM, left: COUNT, right: COUNT },
  flip: { dims: DIM_LIST },
  roll: { shift: WHOLE, dim: DIM },
  write: { values: ANYTHING },
  copyFrom: { src: TENSOR },
  addSet: { rhs: TENSOR },
  subSet: { rhs: TENSOR },
  mulSet: { rhs: TENSOR },
  divSet: { rhs: TENSOR },
  affineSet: { mul: NUMBER, add: NUMBER },
  sliceSet: { src: TENSOR, dim: DIM, offset: INDEX },
  sliceScatter0: { src: TENSOR, start: INDEX },
  sliceAssign: { ranges: kind(Array.isArray, 'give an array of ranges, as [range(0, 2), all]'), src: TENSOR },
  sliceScatter: { src: TENSOR, dim: DIM, start: INDEX },
  // Elementwise
  ...EVERY_UNARY,
  roundTo: { decimals: WHOLE },
  affine: { mul: SCALAR, add: SCALAR },
  powf: { exponent: NUMBER },
  elu: { alpha: optional(NUMBER) },
  clamp: { min: nullable(OPERAND), max: nullable(OPERAND) },
  add: operand,
  sub: operand,
  mul: operand,
  div: operand,
  maximum: operand,
  minimum: operand,
  pow: operand,
  broadcastAdd: tensor,
  broadcastSub: tensor,
  broadcastMul: tensor,
  broadcastDiv: tensor,
  broadcastMaximum: tensor,
  broadcastMinimum: tensor,
  broadcastPow: tensor,
  // Comparing
  cmp: { rhs: OPERAND, op: ANYTHING },
  eq: operand,
  ne: operand,
  lt: operand,
  le: operand,
  gt: operand,
  ge: operand,
  broadcastEq: tensor,
  broadcastNe: tensor,
  broadcastLt: tensor,
  broadcastLe: tensor,
  broadcastGt: tensor,
  broadcastGe: tensor,
  whereCond: { onTrue: TENSOR, onFalse: TENSOR },
  // Reducing
  sum: reduced('sumAll'),
  sumKeepdim: reduced(),
  max: reduced('maxAll'),
  maxKeepdim: reduced(),
  min: reduced('minAll'),
  minKeepdim: reduced(),
  argmax: one,
  argmaxKeepdim: one,
  argmin: one,
  argminKeepdim: one,
  mean: reduced('meanAll'),
  meanKeepdim: reduced(),
  var: one,
  varKeepdim: one,
  sumAll: none,
  meanAll: none,
  maxAll: none,
  minAll: none,
  norm: none,
  logSumExp: reduced(),
  cumsum: one,
  // Indexing
  indexSelect: { ids: TENSOR, dim: DIM },
  embedding: { ids: TENSOR },
  gather: { ids: TENSOR, dim: DIM },
  scatterAdd: ids,
  scatter: ids,
  scatterSet: ids,
  scatterAddSet: ids,
  indexAdd: ids,
  constSet: { value: SCALAR },
  zeroSet: none,
  oneSet: none,
  // Products
  matmul: tensor,
  broadcastMatmul: tensor,
  mv: { vector: TENSOR },
  dot: tensor,
  // Fused
  softmaxLastDim: none,
  rmsNorm: { alpha: TENSOR, eps: FINITE },
  layerNorm: { alpha: TENSOR, beta: TENSOR, eps: FINITE },
  rope: { cos: TENSOR, sin: TENSOR, kind: optional(oneOf(['half', 'interleaved', 'thd'])) },
  // Convolution, resampling, sorting
  conv1d: { kernel: TENSOR, options: CONV_OPTIONS },
  conv2d: { kernel: TENSOR, options: CONV_OPTIONS },
  conv1dWithAlgo: { kernel: TENSOR, options: CONV_OPTIONS, algorithm: ANYTHING },
  conv2dWithAlgo: { kernel: TENSOR, options: CONV_OPTIONS, algorithm: ANYTHING },
  convTranspose1d: { kernel: TENSOR, options: CONV_OPTIONS },
  convTranspose2d: { kernel: TENSOR, options: CONV_OPTIONS },
  avgPool2d: { kernel: SIZE_2D, stride: optional(SIZE_2D) },
  maxPool2d: { kernel: SIZE_2D, stride: optional(SIZE_2D) },
  avgPool2dWithStride: { kernel: SIZE_2D, stride: SIZE_2D },
  maxPool2dWithStride: { kernel: SIZE_2D, stride: SIZE_2D },
  interpolate1d: { size: PARTS },
  upsampleNearest1d: { size: PARTS },
  interpolate2d: { height: PARTS, width: PARTS },
  upsampleNearest2d: { height: PARTS, width: PARTS },
  upsampleBilinear2d: { height: PARTS, width: PARTS, alignCorners: BOOLEAN },
  upsampleBilinear2dWithScale: { scaleH: FINITE, scaleW: FINITE, alignCorners: BOOLEAN },
  argSortLastDim: { ascending: BOOLEAN },
  sortLastDim: { ascending: BOOLEAN },
  topk: { k: INDEX, largest: optional(BOOLEAN) },
  // Differentiation and custom operations
  backward: { options: optional(fields({ gradient: optional(TENSOR), createGraph: optional(BOOLEAN) })) },
  sortedNodes: none,
  applyOp1: { op: CUSTOM_OP },
  applyOp1NoBwd: { op: CUSTOM_OP },
  applyOp1Arc: { op: CUSTOM_OP },
  applyOp2: { rhs: TENSOR, op: CUSTOM_OP },
  applyOp2NoBwd: { rhs: TENSOR, op: CUSTOM_OP },
  applyOp2Arc: { rhs: TENSOR, op: CUSTOM_OP },
  applyOp3: { t2: TENSOR, t3: TENSOR, op: CUSTOM_OP },
  applyOp3NoBwd: { t2: TENSOR, t3: TENSOR, op: CUSTOM_OP },
  applyOp3Arc: { t2: TENSOR, t3: TENSOR, op: CUSTOM_OP },
  inplaceOp1: { op: CUSTOM_OP },
  inplaceOp2: { rhs: TENSOR, op: CUSTOM_OP },
  inplaceOp3: { t2: TENSOR, t3: TENSOR, op: CUSTOM_OP },
  // Others
  apply: { module: MODULE },
  applyT: { module: MODULE_T, train: BOOLEAN },
  emptyLike: none,
  zerosLike: none,
  onesLike: none,
  randLike: { lo: FINITE, up: FINITE },
  randnLike: { mean: FINITE, std: FINITE },
} satisfies Record<Exclude<MethodsOf<Tensor>, 'make' | 'dispose'>, Signature>;

/** Of `Tensor` and `Var`: the ways to create one. */
const CREATORS = {
  zeros: { shape: SHAPE, ...CREATE },
  ones: { shape: SHAPE, ...CREATE },
  full: { value: SCALAR, shape: SHAPE, ...CREATE },
  from: {
    data: ANYTHING,
    options: optional(fields({ dtype: optional(DTYPE), device: nullable(DEVICE), shape: nullable(SHAPE) })),
  },
  fromArray: { data: ANYTHING, shape: nullable(SHAPE), ...CREATE },
  rand: { lo: FINITE, up: FINITE, shape: SHAPE, ...CREATE },
  randn: { mean: FINITE, std: FINITE, shape: SHAPE, ...CREATE },
} as const;

export const STATICS = {
  ...CREATORS,
  empty: { shape: SHAPE, ...CREATE },
  fromBytes: { bytes: BYTES, shape: SHAPE, ...CREATE },
  fromStorage: { storage: STORAGE, shape: SHAPE, device: DEVICE },
  arange: { start: FINITE, end: FINITE, ...CREATE },
  arangeStep: { start: FINITE, end: FINITE, step: FINITE, ...CREATE },
  eye: { n: COUNT, ...CREATE },
  tril2: { n: COUNT, ...CREATE },
  triu2: { n: COUNT, ...CREATE },
  cat: { tensors: TENSORS, dim: DIM },
  stack: { tensors: TENSORS, dim: DIM },
  meshgrid: { tensors: TENSORS, xyIndexing: BOOLEAN },
  readNpy: { file: FILE, device: nullable(DEVICE), options: LOAD_OPTIONS },
  readNpySync: { file: FILE, device: nullable(DEVICE), options: LOAD_OPTIONS },
  readNpz: { file: FILE, device: nullable(DEVICE), options: LOAD_OPTIONS },
  readNpzByName: {
    file: FILE,
    names: kind((value) => Array.isArray(value) && value.every(STRING.test), 'give an array of names'),
    device: nullable(DEVICE),
    options: LOAD_OPTIONS,
  },
  writeNpz: { tensors: NAMED_TENSORS, path: STRING, options: optional(fields({ deflate: optional(BOOLEAN) })) },
  fromShared: { shared: OBJECT, device: nullable(DEVICE) },
} satisfies Record<MethodsOf<typeof Tensor>, Signature>;

export const VAR_METHODS = {
  asTensor: none,
  asDetachedTensor: none,
  set: { src: TENSOR },
} as const;

export const VAR_STATICS = {
  ...CREATORS,
  fromTensor: { tensor: TENSOR },
  randF64: CREATORS.rand,
  randnF64: CREATORS.randn,
} as const;
