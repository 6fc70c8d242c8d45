/**
 * What every tensor has: a share in a storage, a layout, a device; and the one place ({@link compute}, {@link viewOf})
 * where operations make new tensors. Mirrors candle's `Tensor_` struct (candle-core/src/tensor.rs).
 *
 * The `Tensor` class is a chain, one link a family of operations, so that each file has one subject: base, host, views,
 * joining, writing, elementwise, comparing, reducing, indexing, products, fused, convolution, resampling, sorting, autograd, and
 * `Tensor` itself with the ways to create one.
 * Methods of a link declare `this: Tensor`, because only the last link is ever instantiated.
 */
import { type Rule, record } from '../autograd/record';
import type { BackendDevice, BackendStorage, Operand, StoragePart } from '../backend';
import { noteWrite } from '../capture-state';
import type { Device } from '../device';
import type { DType } from '../dtype';
import { DeviceError, DisposedError, DTypeError, ShapeError } from '../errors';
import { castValues } from '../host-array';
import { Layout } from '../layout';
import { LINE, shared } from '../one-core';
import { elemCount, formatShape, resolveDim, type Shape } from '../shape';
import { releaseWhenCollected, StorageRef, TensorHandle } from '../storage-ref';
import type { Tensor } from '../tensor';

const last = shared('tensors', () => ({ id: 0 }));

/** On the prototype of every tensor: `instanceof` would walk the dozen prototypes of the chain. */
const IS_TENSOR = Symbol.for('x.core.tensor');

export abstract class TensorBase {
  /** Unique in this thread, rising with creation. */
  readonly id: number = ++last.id;
  readonly dtype: DType;
  readonly device: Device;
  /** Shape, strides and offset in the storage. */
  readonly layout: Layout;
  /** This tensor's share in its storage; for scopes and other packages of the family. */
  readonly handle: TensorHandle;
  declare readonly [IS_TENSOR]: string;

  /** @internal Tensors are made by `Tensor.zeros`, `Tensor.from` and so on, and by operations. */
  constructor(ref: StorageRef, layout: Layout) {
    this.dtype = ref.storage.dtype;
    this.device = ref.device;
    this.layout = layout;
    this.handle = new TensorHandle(ref);
    releaseWhenCollected(this);
  }

  /** @internal A plain tensor over a storage, also where this one is a `Var`. */
  abstract make(ref: StorageRef, layout: Layout): Tensor;

  /** Sizes, outermost first. */
  get shape(): Shape {
    return this.layout.shape;
  }

  /** candle's name for {@link shape} as a list. */
  get dims(): Shape {
    return this.layout.shape;
  }

  /** Number of dimensions; 0 for a scalar. */
  get rank(): number {
    return this.layout.shape.length;
  }

  /** Number of elements: the product of the sizes. */
  get elemCount(): number {
    return this.layout.elemCount;
  }

  /** Strides in elements. */
  get stride(): readonly number[] {
    return this.layout.strides;
  }

  /** Size of one dimension, negative from the end. @throws ShapeError `DIM_OUT_OF_RANGE` */
  dim(dim: number): number {
    return this.shape[resolveDim('dim', dim, this.shape)];
  }

  /** Whether the elements lie in row-major order without gaps. */
  isContiguous(): boolean {
    return this.layout.isContiguous();
  }

  /** Whether the elements lie in column-major order without gaps. */
  isFortranContiguous(): boolean {
    return this.layout.isFortranContiguous();
  }

  /** Whether {@link dispose} was called, or the scope of this tensor has ended. */
  get isDisposed(): boolean {
    return this.handle.ref === null;
  }

  /** Gives this tensor's share of the storage back; the memory goes with the last view. Harmless when repeated. */
  dispose(): void {
    this.handle.release();
  }

  /** `using t = ...` disposes at the end of the block. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /**
   * The storage and this tensor's place in it, for code that talks to a backend. The storage stays this tensor's: do not
   * dispose it, and do not use it after the tensor.
   */
  storageAndLayout(): Operand {
    return operandOf('storageAndLayout', this);
  }

  /** The storage from this tensor's first element on, for operations that take contiguous memory or strides of their own. */
  storagePart(): StoragePart {
    const { storage, layout } = this.storageAndLayout();
    return [storage, layout.startOffset];
  }

  /** Shape, dtype and device in one line, without reading the values. */
  describe(): string {
    const state = this.isDisposed ? ', disposed' : '';
    return `Tensor[${formatShape(this.shape)}, ${this.dtype}, ${this.device}${state}]`;
  }
}

type TensorClass = new (ref: StorageRef, layout: Layout) => Tensor;
let tensorClass: TensorClass;

/** @internal `Tensor` names itself, for modules that it stands on make tensors too. */
export function nameTensorClass(own: TensorClass): void {
  tensorClass = own;
}

/** A row-major tensor over the whole of a storage, whose owner it becomes. */
export function tensorOf(storage: BackendStorage, shape: Shape, device: Device): Tensor {
  return new tensorClass(new StorageRef(storage, device), Layout.contiguous(shape));
}

export function isTensor(value: unknown): value is Tensor {
  return typeof value === 'object' && (value as TensorBase | null)?.[IS_TENSOR] === LINE;
}

/** The storage of a live tensor. */
export function storageOf(op: string, tensor: TensorBase): BackendStorage {
  const ref = tensor.handle.ref;
  if (ref === null || ref.device.isDisposed) throw disposed(op, tensor);
  return ref.storage;
}

/** A live tensor as operations of a backend take it, seen through `layout`. */
export function operandOf(op: string, tensor: TensorBase, layout: Layout = tensor.layout): Operand {
  return { storage: storageOf(op, tensor), layout };
}

function disposed(op: string, tensor: TensorBase): DisposedError {
  const what = tensor.isDisposed ? 'a tensor' : `device ${tensor.device} of a tensor`;
  return new DisposedError(
    'DISPOSED',
    `${op}: ${what} of shape ${formatShape(tensor.shape)} and dtype ${tensor.dtype} was disposed; dispose it later, keep() it, or return it from its scope.`,
  );
}

/** All operands alive and on one device. */
export function checkOperands(op: string, inputs: readonly TensorBase[]): Device {
  const device = inputs[0].device;
  for (const input of inputs) {
    storageOf(op, input);
    if (input.device !== device && !input.device.equals(device)) {
      throw new DeviceError(
        'DEVICE_MISMATCH',
        `${op}: operands are on ${device} (shape ${formatShape(inputs[0].shape)}) and ${input.device} (shape ${formatShape(input.shape)}); move one with toDevice.`,
      );
    }
  }
  return device;
}

/** A new storage that `fill` writes; given back when it cannot. */
export function filledBy(storage: BackendStorage, fill: (storage: BackendStorage) => void): BackendStorage {
  try {
    fill(storage);
    return storage;
  } catch (error) {
    storage.dispose();
    throw error;
  }
}

/** A new tensor that owns `storage`, which is contiguous and holds exactly `shape`. */
export function adopt(like: TensorBase, storage: BackendStorage, shape: Shape, device: Device = like.device): Tensor {
  return like.make(new StorageRef(storage, device), Layout.contiguous(shape));
}

/** The layout of a result: the first operand's own where it is the same, since layouts never change. */
function resultLayout({ layout }: TensorBase, shape: Shape): Layout {
  return layout.isFresh && layout.shape === shape ? layout : Layout.contiguous(shape);
}

/**
 * Where every operation that computes goes through: checks the operands, answers results without elements by itself (so a
 * backend never sees one), runs `run` on the operands' device otherwise and wraps what it returns.
 *
 * `rule` says how the operation is differentiated, `args` what the rule needs to know about this call; null stands for a
 * gradient of zero everywhere. An operation without a rule raises an error in `backward`.
 */
export function compute<A = void>(
  op: string,
  inputs: readonly Tensor[],
  shape: Shape,
  dtype: DType,
  run: (backend: BackendDevice) => BackendStorage,
  rule?: Rule<A> | null,
  args?: A,
): Tensor {
  const device = checkOperands(op, inputs);
  const layout = resultLayout(inputs[0], shape);
  const storage = layout.elemCount === 0 ? device.backend.zeros(0, dtype) : run(device.backend);
  return track(op, inputs, inputs[0].make(new StorageRef(storage, device), layout), rule, args);
}

/**
 * Where every operation that only changes the layout goes through: a tensor that shares `input`'s storage. `rule` and
 * `args` as in {@link compute}.
 */
export function viewOf<A = void>(op: string, input: Tensor, layout: Layout, rule?: Rule<A> | null, args?: A): Tensor {
  const ref = input.handle.ref;
  if (ref === null) throw disposed(op, input);
  const view = input.make(ref, layout);
  if (input.handle.record !== null) record(op, [input], view, rule, args);
  return view;
}

/** Records how `output` was made, if a variable is behind any of `inputs`; otherwise this costs one look at each. */
export function track<A>(
  op: string,
  inputs: readonly Tensor[],
  output: Tensor,
  rule: Rule<A> | null | undefined,
  args: A | undefined,
): Tensor {
  for (const input of inputs) {
    if (input.handle.record === null) continue;
    record(op, inputs, output, rule, args);
    break;
  }
  return output;
}

/** Another tensor of the same storage, layout and history, for a second owner. */
export function aliasOf(tensor: Tensor): Tensor {
  const ref = tensor.handle.ref;
  if (ref === null) throw disposed('alias', tensor);
  const alias = tensor.make(ref, tensor.layout);
  if (tensor.handle.record !== null) alias.handle.attach(tensor.handle.record);
  return alias;
}

/** Zeros next to `like`: for gradients. */
export function zerosBy(like: TensorBase, shape: Shape, dtype: DType = like.dtype): Tensor {
  return adopt(like, like.device.backend.zeros(elemCount(shape), dtype), shape);
}

/** Numbers in the dtype of `like`, next to it. */
export function fromValuesBy(like: TensorBase, values: Float64Array, shape: Shape): Tensor {
  return adopt(like, like.device.backend.fromHost(castValues('f64', values, like.dtype), like.dtype), shape);
}

/** Rank-1 u32 ids on the device of `like`. */
export function idsOn(like: TensorBase, ids: Uint32Array): Tensor {
  return adopt(like, like.device.backend.fromHost(ids, 'u32'), [ids.length]);
}

/** After every write in place. */
export function markWritten(tensor: TensorBase): void {
  if (tensor.handle.ref) noteWrite(tensor.handle.ref);
}

/** @throws DTypeError unless all have one dtype */
export function sameDType(op: string, lhs: Tensor, rhs: Tensor): void {
  if (lhs.dtype === rhs.dtype) return;
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: operands are ${lhs.dtype} (shape ${formatShape(lhs.shape)}) and ${rhs.dtype} (shape ${formatShape(rhs.shape)}); convert one with toDtype.`,
  );
}

/** @throws ShapeError unless both shapes are equal */
export function shapesDiffer(op: string, lhs: Shape, rhs: Shape, remedy: string): ShapeError {
  return new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: shapes ${formatShape(lhs)} and ${formatShape(rhs)} do not fit; ${remedy}.`,
  );
}

/** Runs `body` with temporaries that are disposed afterwards, whatever happens. */
export function withTemporaries<T>(body: (temporary: (tensor: Tensor) => Tensor) => T): T {
  const made: Tensor[] = [];
  try {
    return body((tensor) => {
      made.push(tensor);
      return tensor;
    });
  } finally {
    for (const tensor of made) tensor.dispose();
  }
}
