/**
 * Between tensors and the host: reading values out, changing dtype and device. candle's `to_vec*`, `to_scalar`,
 * `to_dtype` and `to_device`; each reading method has an async form and one ending in `Sync` that blocks the event loop.
 */

import { toDevice, toDtype } from '../autograd/rules/conversions';
import { identity } from '../autograd/rules/shared';
import type { BackendDevice } from '../backend';
import { refuseInCapture, refuseOtherDevice } from '../capture-state';
import { Device, type DeviceLike } from '../device';
import { type DType, isDType } from '../dtype';
import { DTypeError, ShapeError } from '../errors';
import { decodeRaw, rawFromBytes, type TensorArray, type ValuesOf } from '../host-array';
import { refuseFailedGroup } from '../joined-groups';
import { formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { adopt, aliasOf, compute, operandOf, storageOf, track, viewOf } from './base';
import { TensorDescribing } from './describing';

/** Values nested by dimension; a scalar tensor gives the bare value. */
export type Nested<T> = T | Nested<T>[];

export abstract class TensorHost extends TensorDescribing {
  /**
   * The elements as raw little-endian bytes in row-major order, f16, bf16 and f8e4m3 as their bits. Any shape and dtype.
   * @throws DisposedError; CollectiveError once a group has failed that the device is in (see {@link Communicator.join})
   */
  async toBytes(this: Tensor): Promise<Uint8Array> {
    refuseRead('toBytes', this);
    if (this.elemCount === 0) {
      storageOf('toBytes', this);
      return new Uint8Array(0);
    }
    const dense = this.contiguous();
    try {
      const { storage, layout } = dense.storageAndLayout();
      const bytes = new Uint8Array(await storage.toHost(layout.startOffset, layout.elemCount));
      refuseFailedGroup('toBytes', this.device);
      return bytes;
    } finally {
      dense.dispose();
    }
  }

  /** As {@link toBytes}, blocking the event loop. */
  toBytesSync(this: Tensor): Uint8Array {
    refuseRead('toBytesSync', this);
    if (this.elemCount === 0) {
      storageOf('toBytesSync', this);
      return new Uint8Array(0);
    }
    const dense = this.contiguous();
    try {
      const { storage, layout } = dense.storageAndLayout();
      const bytes = new Uint8Array(storage.toHostSync(layout.startOffset, layout.elemCount));
      refuseFailedGroup('toBytesSync', this.device);
      return bytes;
    } finally {
      dense.dispose();
    }
  }

  /**
   * All values in row-major order: u8 u32 i16 i32 i64 (BigInt64Array) f32 f64 in their own typed array, f16 bf16 f8e4m3
   * widened into a `Float32Array`. Any shape.
   * @param dtype what the tensor is expected to be: names the type of the array, and another one is an error
   * @throws DTypeError for a tensor of another dtype, DisposedError
   * @example
   * ```ts
   * const squares: Float32Array = await Tensor.from([1, 2, 3]).sqr().toArray('f32');
   * squares; // => Float32Array.of(1, 4, 9)
   * ```
   */
  async toArray<D extends DType>(this: Tensor, dtype: D): Promise<ValuesOf[D]>;
  async toArray<T extends TensorArray = TensorArray>(this: Tensor): Promise<T>;
  async toArray(this: Tensor, dtype?: DType): Promise<TensorArray> {
    checkDType('toArray', this, dtype);
    return decodeRaw(this.dtype, rawFromBytes(this.dtype, await this.toBytes()));
  }

  /** As {@link toArray}, blocking the event loop. */
  toArraySync<D extends DType>(this: Tensor, dtype: D): ValuesOf[D];
  toArraySync<T extends TensorArray = TensorArray>(this: Tensor): T;
  toArraySync(this: Tensor, dtype?: DType): TensorArray {
    checkDType('toArraySync', this, dtype);
    return decodeRaw(this.dtype, rawFromBytes(this.dtype, this.toBytesSync()));
  }

  /**
   * Values as nested arrays, one level a dimension; bigints for i64. Name the type: `toVec<number[][]>()`.
   * @throws DisposedError
   * @example
   * ```ts
   * await Tensor.from([[1, 2], [3, 4]]).t().toVec<number[][]>(); // => [[1, 3], [2, 4]]
   * ```
   */
  async toVec<T = Nested<number>>(this: Tensor): Promise<T> {
    return nest(await this.toArray(), this.shape) as T;
  }

  /** As {@link toVec}, blocking the event loop. */
  toVecSync<T = Nested<number>>(this: Tensor): T {
    return nest(this.toArraySync(), this.shape) as T;
  }

  /**
   * The value of a tensor with one element, of any rank; a bigint for i64: `toScalar('i64')` or `toScalar<bigint>()`.
   * @param dtype as for {@link toArray}
   * @throws ShapeError `SHAPE_MISMATCH` when there is not exactly one element, DTypeError, DisposedError
   */
  async toScalar<D extends DType>(this: Tensor, dtype: D): Promise<D extends 'i64' ? bigint : number>;
  async toScalar<T extends number | bigint = number>(this: Tensor): Promise<T>;
  async toScalar(this: Tensor, dtype?: DType): Promise<number | bigint> {
    checkDType('toScalar', this, dtype);
    checkSingle(this);
    return (await this.toArray())[0];
  }

  /** As {@link toScalar}, blocking the event loop. */
  toScalarSync<D extends DType>(this: Tensor, dtype: D): D extends 'i64' ? bigint : number;
  toScalarSync<T extends number | bigint = number>(this: Tensor): T;
  toScalarSync(this: Tensor, dtype?: DType): number | bigint {
    checkDType('toScalarSync', this, dtype);
    checkSingle(this);
    return this.toArraySync()[0];
  }

  /** Values cast as Rust's `as`: floats to integers truncate and saturate (NaN: 0), integers wrap. Same dtype: a view. */
  toDtype(this: Tensor, dtype: DType): Tensor {
    if (!isDType(dtype)) throw new DTypeError('DTYPE_MISMATCH', `toDtype: "${dtype}" is no dtype; use one of DTYPES.`);
    if (dtype === this.dtype) return viewOf('toDtype', this, this.layout, identity);
    const run = ({ ops }: BackendDevice) => ops.toDtype(operandOf('toDtype', this), dtype);
    return compute('toDtype', [this], this.shape, dtype, run, toDtype);
  }

  /**
   * The same values on another device (or its name), contiguous; the same device: a view. Between GPUs of one kind that
   * reach each other's memory they are copied directly (not with `X_PEER=0`), otherwise through the host.
   */
  async toDevice(this: Tensor, device: DeviceLike): Promise<Tensor> {
    const on = Device.of(device);
    if (on.equals(this.device)) return viewOf('toDevice', this, this.layout, identity);
    const copy = copyOfPeer(this, on);
    if (copy) return copy;
    // A second owner: this tensor may be disposed before its bytes have arrived.
    const source = aliasOf(this);
    try {
      return upload(source, on, await source.toBytes());
    } finally {
      source.dispose();
    }
  }

  /** As {@link toDevice}, blocking the event loop. */
  toDeviceSync(this: Tensor, device: DeviceLike): Tensor {
    const on = Device.of(device);
    if (on.equals(this.device)) return viewOf('toDevice', this, this.layout, identity);
    return copyOfPeer(this, on) ?? upload(this, on, this.toBytesSync());
  }
}

/** A copy that goes from device to device; null where there is no such way. */
function copyOfPeer(tensor: Tensor, device: Device): Tensor | null {
  const { backend } = device;
  if (device.kind !== tensor.device.kind || !backend.fromPeer || tensor.elemCount === 0) return null;
  refuseOtherDevice(tensor.device);
  refuseOtherDevice(device);
  const dense = tensor.contiguous();
  try {
    const { storage, layout } = dense.storageAndLayout();
    const copy = backend.fromPeer(storage, layout.startOffset, layout.elemCount);
    return copy && track('toDevice', [tensor], adopt(tensor, copy, tensor.shape, device), toDevice, undefined);
  } finally {
    dense.dispose();
  }
}

function refuseRead(op: string, tensor: Tensor): void {
  refuseInCapture(
    `${op}: values of a tensor of shape ${formatShape(tensor.shape)} cannot be read`,
    'return the tensor from the captured function and read it after replay()',
  );
}

function upload(tensor: Tensor, device: Device, bytes: Uint8Array): Tensor {
  const copy = adopt(tensor, device.backend.fromHost(bytes, tensor.dtype), tensor.shape, device);
  return track('toDevice', [tensor], copy, toDevice, undefined);
}

/** @throws DTypeError when a dtype was expected and the tensor is of another one */
function checkDType(op: string, tensor: Tensor, dtype: DType | undefined): void {
  if (dtype === undefined || dtype === tensor.dtype) return;
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: ${dtype} values are expected and the tensor of shape ${formatShape(tensor.shape)} is ${tensor.dtype}; convert it with toDtype('${dtype}').`,
  );
}

function checkSingle(tensor: Tensor): void {
  if (tensor.elemCount === 1) return;
  const { shape, elemCount } = tensor;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `toScalar: shape ${formatShape(shape)} has ${elemCount} elements, not one; reduce or index it first, or use toArray.`,
  );
}

function nest(values: TensorArray, shape: readonly number[]): unknown {
  let offset = 0;
  const level = (dim: number): unknown => {
    if (dim === shape.length) return values[offset++];
    return Array.from({ length: shape[dim] }, () => level(dim + 1));
  };
  return level(0);
}
