/**
 * Between tensors and the host: reading values out, changing dtype and device. candle's `to_vec*`, `to_scalar`,
 * `to_dtype` and `to_device`; each reading method has an async form and one ending in `Sync` that blocks the event loop.
 */
import type { Device } from '../device';
import { type DType, isDType } from '../dtype';
import { DTypeError, ShapeError } from '../errors';
import { decodeRaw, rawFromBytes, type TensorArray } from '../host-array';
import { formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { adopt, compute, storageOf, TensorBase, viewOf } from './base';

/** Values nested by dimension; a scalar tensor gives the bare value. */
export type Nested<T> = T | Nested<T>[];

export abstract class TensorHost extends TensorBase {
  /** Raw little-endian bytes in row-major order. */
  async toBytes(this: Tensor): Promise<Uint8Array> {
    if (this.elemCount === 0) {
      storageOf('toBytes', this);
      return new Uint8Array(0);
    }
    const dense = this.contiguous();
    try {
      const { storage, layout } = dense.storageAndLayout();
      return new Uint8Array(await storage.toHost(layout.startOffset, layout.elemCount));
    } finally {
      dense.dispose();
    }
  }

  toBytesSync(this: Tensor): Uint8Array {
    if (this.elemCount === 0) {
      storageOf('toBytesSync', this);
      return new Uint8Array(0);
    }
    const dense = this.contiguous();
    try {
      const { storage, layout } = dense.storageAndLayout();
      return new Uint8Array(storage.toHostSync(layout.startOffset, layout.elemCount));
    } finally {
      dense.dispose();
    }
  }

  /**
   * All values in row-major order: u8 u32 i16 i32 i64 (BigInt64Array) f32 f64 in their own typed array, f16 bf16 f8e4m3
   * widened into a `Float32Array`.
   */
  async toArray<T extends TensorArray = TensorArray>(this: Tensor): Promise<T> {
    return decodeRaw(this.dtype, rawFromBytes(this.dtype, await this.toBytes())) as T;
  }

  toArraySync<T extends TensorArray = TensorArray>(this: Tensor): T {
    return decodeRaw(this.dtype, rawFromBytes(this.dtype, this.toBytesSync())) as T;
  }

  /** Values as nested arrays, e.g. `[[1, 2], [3, 4]]`; bigints for i64. Name the type: `toVec<number[][]>()`. */
  async toVec<T = Nested<number>>(this: Tensor): Promise<T> {
    return nest(await this.toArray(), this.shape) as T;
  }

  toVecSync<T = Nested<number>>(this: Tensor): T {
    return nest(this.toArraySync(), this.shape) as T;
  }

  /**
   * The value of a tensor with one element; a bigint for i64: `toScalar<bigint>()`.
   * @throws ShapeError when there is not exactly one
   */
  async toScalar<T extends number | bigint = number>(this: Tensor): Promise<T> {
    checkSingle(this);
    return (await this.toArray())[0] as T;
  }

  toScalarSync<T extends number | bigint = number>(this: Tensor): T {
    checkSingle(this);
    return this.toArraySync()[0] as T;
  }

  /** Values cast as Rust's `as`: floats to integers truncate and saturate (NaN: 0), integers wrap. Same dtype: a view. */
  toDtype(this: Tensor, dtype: DType): Tensor {
    if (!isDType(dtype)) throw new DTypeError('DTYPE_MISMATCH', `toDtype: "${dtype}" is no dtype; use one of DTYPES.`);
    if (dtype === this.dtype) return viewOf('toDtype', this, this.layout);
    return compute('toDtype', [this], this.shape, dtype, () => storageOf('toDtype', this).toDtype(this.layout, dtype));
  }

  /** The same values on another device, contiguous; the same device: a view. Between devices the copy goes through the host. */
  async toDevice(this: Tensor, device: Device): Promise<Tensor> {
    if (device.equals(this.device)) return viewOf('toDevice', this, this.layout);
    return upload(this, device, await this.toBytes());
  }

  toDeviceSync(this: Tensor, device: Device): Tensor {
    if (device.equals(this.device)) return viewOf('toDevice', this, this.layout);
    return upload(this, device, this.toBytesSync());
  }
}

function upload(tensor: Tensor, device: Device, bytes: Uint8Array): Tensor {
  return adopt(tensor, device.backend.fromHost(bytes, tensor.dtype), tensor.shape, device);
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
