/**
 * What every tensor has: a share in a storage, a layout, a device; and the one place ({@link compute}, {@link viewOf})
 * where operations make new tensors. Mirrors candle's `Tensor_` struct (candle-core/src/tensor.rs).
 *
 * The `Tensor` class is a chain, one link a family of operations, so that each file has one subject: base, host, views,
 * joining, elementwise, comparing, reducing, indexing, products, fused, convolution, resampling, sorting, and `Tensor`
 * itself with the ways to create one.
 * Methods of a link declare `this: Tensor`, because only the last link is ever instantiated.
 */
import type { BackendStorage } from '../backend';
import type { Device } from '../device';
import type { DType } from '../dtype';
import { DeviceError, DisposedError, DTypeError, ShapeError } from '../errors';
import { Layout } from '../layout';
import { formatShape, resolveDim, type Shape } from '../shape';
import { releaseWhenCollected, StorageRef, stopWatching, TensorHandle } from '../storage-ref';
import type { Tensor } from '../tensor';

let lastId = 0;

export abstract class TensorBase {
  /** Unique in this thread, rising with creation. */
  readonly id: number = ++lastId;
  readonly dtype: DType;
  readonly device: Device;
  /** Shape, strides and offset in the storage. */
  readonly layout: Layout;
  /** This tensor's share in its storage; for scopes and other packages of the family. */
  readonly handle: TensorHandle;

  /** @internal Tensors are made by `Tensor.zeros`, `Tensor.from` and so on, and by operations. */
  constructor(ref: StorageRef, layout: Layout) {
    this.dtype = ref.storage.dtype;
    this.device = ref.device;
    this.layout = layout;
    this.handle = new TensorHandle(ref);
    releaseWhenCollected(this, this.handle);
  }

  /** Sizes, outermost first. */
  get shape(): Shape {
    return this.layout.shape;
  }

  /** candle's name for {@link shape} as a list. */
  get dims(): Shape {
    return this.layout.shape;
  }

  get rank(): number {
    return this.layout.shape.length;
  }

  get elemCount(): number {
    return this.layout.elemCount;
  }

  /** Strides in elements. */
  get stride(): readonly number[] {
    return this.layout.strides;
  }

  /** Size of one dimension, negative from the end. */
  dim(dim: number): number {
    return this.shape[resolveDim('dim', dim, this.shape)];
  }

  isContiguous(): boolean {
    return this.layout.isContiguous();
  }

  isFortranContiguous(): boolean {
    return this.layout.isFortranContiguous();
  }

  get isDisposed(): boolean {
    return this.handle.ref === null;
  }

  /** Gives this tensor's share of the storage back; the memory goes with the last view. Harmless when repeated. */
  dispose(): void {
    if (this.handle.ref === null) return;
    stopWatching(this.handle);
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
  storageAndLayout(): { storage: BackendStorage; layout: Layout } {
    return { storage: storageOf('storageAndLayout', this), layout: this.layout };
  }

  /** Shape, dtype and device, without reading the values. */
  toString(): string {
    const state = this.isDisposed ? ', disposed' : '';
    return `Tensor[${formatShape(this.shape)}, ${this.dtype}, ${this.device}${state}]`;
  }
}

/** The storage of a live tensor. */
export function storageOf(op: string, tensor: TensorBase): BackendStorage {
  const ref = tensor.handle.ref;
  if (ref === null || ref.device.isDisposed) throw disposed(op, tensor);
  return ref.storage;
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

/** A new tensor that owns `storage`, which is contiguous and holds exactly `shape`. */
export function adopt(like: TensorBase, storage: BackendStorage, shape: Shape, device: Device = like.device): Tensor {
  const make = like.constructor as new (ref: StorageRef, layout: Layout) => Tensor;
  return new make(new StorageRef(storage, device), Layout.contiguous(shape));
}

/**
 * Where every operation that computes goes through: checks the operands, answers results without elements by itself (so a
 * backend never sees one), runs `run` otherwise and wraps what it returns. `op` and `inputs` are what a record for
 * differentiation needs.
 */
export function compute(
  op: string,
  inputs: readonly Tensor[],
  shape: Shape,
  dtype: DType,
  run: () => BackendStorage,
): Tensor {
  const device = checkOperands(op, inputs);
  const layout = Layout.contiguous(shape);
  const storage = layout.elemCount === 0 ? device.backend.zeros(0, dtype) : run();
  return adopt(inputs[0], storage, shape, device);
}

/** Where every operation that only changes the layout goes through: a tensor that shares `input`'s storage. */
export function viewOf(op: string, input: Tensor, layout: Layout): Tensor {
  const ref = input.handle.ref;
  if (ref === null) throw disposed(op, input);
  const make = input.constructor as new (ref: StorageRef, layout: Layout) => Tensor;
  return new make(ref, layout);
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
