/**
 * Storage of the plain TypeScript backend: a typed array, and every op of the backend interface handed to the file of its
 * family. This backend is what the others are tested against, so it prefers being right and readable to being fast:
 * operands are brought into row-major order first, narrow floats are computed in f32 (sums in f64), integers wrap.
 */
import type {
  BackendDevice,
  BackendStorage,
  BilinearParams,
  BinaryOp,
  CmpOp,
  Conv1dParams,
  Conv2dParams,
  ConvTranspose1dParams,
  ConvTranspose2dParams,
  Copy2d,
  MatmulSize,
  Pool2dParams,
  ReduceOp,
  RopeKind,
  UnaryOp,
} from '../backend';
import { type DType, sizeInBytes } from '../dtype';
import { DisposedError } from '../errors';
import { bytesOf, castValues, type RawArray } from '../host-array';
import type { IdRange } from '../id-range';
import type { Layout } from '../layout';
import * as conv from './conv';
import { constSet, copy2d, copyStridedInto, denseValues } from './copy';
import type { JsDevice } from './device';
import * as elementwise from './elementwise';
import * as fused from './fused';
import * as indexing from './indexing';
import { matmul } from './matmul';
import * as pool from './pool';
import { reduce } from './reduce';
import { argSortLastDim, sortLastDim, topkLastDim } from './sort';
import * as upsample from './upsample';

export class JsStorage implements BackendStorage {
  readonly dtype: DType;
  readonly device: JsDevice;
  readonly elemCount: number;
  #data: RawArray | null;

  /** Takes over `data`, in the storage form of `dtype`. */
  constructor(device: JsDevice, dtype: DType, data: RawArray) {
    this.device = device;
    this.dtype = dtype;
    this.elemCount = data.length;
    this.#data = data;
    device.track(1, this.byteLength);
  }

  /** Another storage of this device; takes over `data`. The files of families make theirs with it. */
  make(dtype: DType, data: RawArray): JsStorage {
    return new JsStorage(this.device, dtype, data);
  }

  get byteLength(): number {
    return this.elemCount * sizeInBytes(this.dtype);
  }

  /** The elements themselves: raw bits for bf16, f16 and f8e4m3. */
  raw(): RawArray {
    this.device.checkOpen();
    if (this.#data) return this.#data;
    throw new DisposedError(
      'DISPOSED',
      `a ${this.dtype} storage of ${this.elemCount} elements was disposed; dispose it after its last use.`,
    );
  }

  dispose(): void {
    if (!this.#data) return;
    this.#data = null;
    this.device.track(-1, -this.byteLength);
  }

  async toHost(offset?: number, count?: number): Promise<ArrayBuffer> {
    return this.toHostSync(offset, count);
  }

  toHostSync(offset = 0, count = this.elemCount - offset): ArrayBuffer {
    const part = bytesOf(this.raw().subarray(offset, offset + count));
    const copy = new Uint8Array(part.byteLength);
    copy.set(part);
    return copy.buffer;
  }

  affine(layout: Layout, mul: number, add: number): JsStorage {
    return elementwise.affine(this, layout, mul, add);
  }
  powf(layout: Layout, exponent: number): JsStorage {
    return elementwise.powf(this, layout, exponent);
  }
  elu(layout: Layout, alpha: number): JsStorage {
    return elementwise.elu(this, layout, alpha);
  }
  unary(op: UnaryOp, layout: Layout): JsStorage {
    return elementwise.unary(op, this, layout);
  }
  binary(op: BinaryOp, rhs: BackendStorage, lhsLayout: Layout, rhsLayout: Layout): JsStorage {
    return elementwise.binary(op, this, js(rhs), lhsLayout, rhsLayout);
  }
  cmp(op: CmpOp, rhs: BackendStorage, lhsLayout: Layout, rhsLayout: Layout): JsStorage {
    return elementwise.compare(op, this, js(rhs), lhsLayout, rhsLayout);
  }
  whereCond(
    layout: Layout,
    onTrue: BackendStorage,
    trueLayout: Layout,
    onFalse: BackendStorage,
    falseLayout: Layout,
  ): JsStorage {
    return elementwise.whereCond(this, layout, js(onTrue), trueLayout, js(onFalse), falseLayout);
  }
  toDtype(layout: Layout, dtype: DType): JsStorage {
    return new JsStorage(this.device, dtype, castValues(this.dtype, denseValues(this, layout), dtype));
  }
  reduce(op: ReduceOp, layout: Layout, dims: readonly number[]): JsStorage {
    return reduce(op, this, layout, dims);
  }
  matmul(rhs: BackendStorage, size: MatmulSize, lhsLayout: Layout, rhsLayout: Layout): JsStorage {
    return matmul(this, js(rhs), size, lhsLayout, rhsLayout);
  }
  conv1d(layout: Layout, kernel: BackendStorage, kernelLayout: Layout, params: Conv1dParams): JsStorage {
    return conv.conv1d(this, layout, js(kernel), kernelLayout, params);
  }
  convTranspose1d(
    layout: Layout,
    kernel: BackendStorage,
    kernelLayout: Layout,
    params: ConvTranspose1dParams,
  ): JsStorage {
    return conv.convTranspose1d(this, layout, js(kernel), kernelLayout, params);
  }
  conv2d(layout: Layout, kernel: BackendStorage, kernelLayout: Layout, params: Conv2dParams): JsStorage {
    return conv.conv2d(this, layout, js(kernel), kernelLayout, params);
  }
  convTranspose2d(
    layout: Layout,
    kernel: BackendStorage,
    kernelLayout: Layout,
    params: ConvTranspose2dParams,
  ): JsStorage {
    return conv.convTranspose2d(this, layout, js(kernel), kernelLayout, params);
  }
  avgPool2d(layout: Layout, params: Pool2dParams): JsStorage {
    return pool.avgPool2d(this, layout, params);
  }
  maxPool2d(layout: Layout, params: Pool2dParams): JsStorage {
    return pool.maxPool2d(this, layout, params);
  }
  upsampleNearest1d(layout: Layout, lOut: number): JsStorage {
    return upsample.upsampleNearest1d(this, layout, lOut);
  }
  upsampleNearest2d(layout: Layout, hOut: number, wOut: number): JsStorage {
    return upsample.upsampleNearest2d(this, layout, hOut, wOut);
  }
  upsampleBilinear2d(layout: Layout, params: BilinearParams): JsStorage {
    return upsample.upsampleBilinear2d(this, layout, params);
  }
  argSortLastDim(layout: Layout, descending: boolean): JsStorage {
    return argSortLastDim(this, layout, descending);
  }
  sortLastDim(layout: Layout, descending: boolean): { values: JsStorage; positions: JsStorage } {
    return sortLastDim(this, layout, descending);
  }
  topkLastDim(layout: Layout, k: number, descending: boolean): JsStorage {
    return topkLastDim(this, layout, k, descending);
  }

  checkIds(op: string, layout: Layout, range: IdRange): void {
    indexing.checkIds(op, this, layout, range);
  }
  indexSelect(layout: Layout, ids: BackendStorage, idsLayout: Layout, dim: number): JsStorage {
    return indexing.indexSelect(this, layout, js(ids), idsLayout, dim);
  }
  gather(layout: Layout, ids: BackendStorage, idsLayout: Layout, dim: number): JsStorage {
    return indexing.gather(this, layout, js(ids), idsLayout, dim);
  }
  indexAdd(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): JsStorage {
    return indexing.indexAdd(this, layout, js(ids), idsLayout, js(src), srcLayout, dim);
  }
  scatterSet(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): void {
    indexing.scatter(this, layout, js(ids), idsLayout, js(src), srcLayout, dim, false);
  }
  scatterAddSet(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): void {
    indexing.scatter(this, layout, js(ids), idsLayout, js(src), srcLayout, dim, true);
  }

  copyStridedInto(dst: BackendStorage, dstOffset: number, layout: Layout): void {
    copyStridedInto(this, js(dst), dstOffset, layout);
  }
  copy2d(dst: BackendStorage, copy: Copy2d): void {
    copy2d(this, js(dst), copy);
  }
  constSet(value: number | bigint, layout: Layout): void {
    constSet(this, value, layout);
  }

  softmaxLastDim(layout: Layout): JsStorage {
    return fused.softmaxLastDim(this, layout);
  }
  rmsNorm(layout: Layout, alpha: BackendStorage, alphaLayout: Layout, eps: number): JsStorage {
    return fused.rmsNorm(this, layout, js(alpha), alphaLayout, eps);
  }
  layerNorm(
    layout: Layout,
    alpha: BackendStorage,
    alphaLayout: Layout,
    beta: BackendStorage,
    betaLayout: Layout,
    eps: number,
  ): JsStorage {
    return fused.layerNorm(this, layout, js(alpha), alphaLayout, js(beta), betaLayout, eps);
  }
  rope(
    kind: RopeKind,
    layout: Layout,
    cos: BackendStorage,
    cosLayout: Layout,
    sin: BackendStorage,
    sinLayout: Layout,
  ): JsStorage {
    return fused.rope(kind, this, layout, js(cos), cosLayout, js(sin), sinLayout);
  }
}

/** Operands of one op are on one device, so they are of its kind. */
export function js(storage: BackendStorage): JsStorage {
  return storage as JsStorage;
}

/** For messages. */
export function deviceName(device: BackendDevice): string {
  return device.location.kind;
}
