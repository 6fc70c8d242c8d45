/**
 * RocmStorage: a buffer on a device and core's `BackendStorage` over it (candle's `CudaStorage`). Each family of ops has
 * a file here; this class only binds them to the interface.
 */
import {
  type BackendDevice,
  type BackendStorage,
  type BilinearParams,
  type BinaryOp,
  type CmpOp,
  type Conv1dParams,
  type Conv2dParams,
  type ConvTranspose1dParams,
  type ConvTranspose2dParams,
  type Copy2d,
  DisposedError,
  type DType,
  type IdRange,
  type Layout,
  type MatmulSize,
  type Pool2dParams,
  type ReduceOp,
  type RopeKind,
  sizeInBytes,
  type UnaryOp,
} from '@x/core';
import type { RocmDevice } from '../device';
import type { RocmGraph } from '../graph';
import type { Operand } from '../kernels';
import { conv1d, conv2d, convTranspose1d, convTranspose2d } from './conv';
import { toDtype } from './conversions';
import { constSet, copy2d, copyStridedInto } from './copy';
import { layerNorm, rmsNorm, rope, softmaxLastDim } from './fused';
import { checkIds, gather, indexAdd, indexSelect, scatter } from './indexing';
import { matmul } from './matmul';
import { affine, binary, cmp, elu, powf, unary, whereCond } from './operations';
import { pool2d, upsampleBilinear2d, upsampleNearest1d, upsampleNearest2d } from './pool';
import { reduce } from './reduce';
import { argSortLastDim, sortLastDim, topkLastDim } from './sort';

export class RocmStorage implements BackendStorage {
  readonly dtype: DType;
  readonly device: RocmDevice;
  readonly elemCount: number;
  readonly #ptr: number;
  #disposed = false;
  /** Captured graphs that read or write it. */
  #graphs: Set<RocmGraph> | undefined;

  constructor(device: RocmDevice, dtype: DType, elemCount: number, ptr: number) {
    this.device = device;
    this.dtype = dtype;
    this.elemCount = elemCount;
    this.#ptr = ptr;
  }

  /** The storage as one of `device`; core has checked that operands share a device. */
  static on(device: BackendDevice, storage: BackendStorage): RocmStorage {
    if (storage instanceof RocmStorage && storage.device === device) return storage;
    throw new Error('internal: an operand lives on another device');
  }

  /** Device address of the first element. */
  get ptr(): number {
    if (this.#disposed)
      throw new DisposedError(
        'DISPOSED',
        'use of a storage after its disposal. Keep the tensor alive until its last use',
      );
    if (this.device.isWatched) this.device.uses(this, this.#ptr);
    return this.#ptr;
  }

  /** Has `graph` told when this storage is disposed. */
  join(graph: RocmGraph): void {
    this.#graphs ??= new Set();
    this.#graphs.add(graph);
  }

  /** Ends {@link join}. */
  leave(graph: RocmGraph): void {
    this.#graphs?.delete(graph);
  }

  get byteLength(): number {
    return this.elemCount * sizeInBytes(this.dtype);
  }

  /** Address and layout of a view, as the launch functions take it. */
  operand(layout: Layout): Operand {
    const itemBytes = sizeInBytes(this.dtype);
    return { ptr: this.ptr + layout.startOffset * itemBytes, layout, itemBytes };
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    if (this.#graphs) for (const graph of this.#graphs) graph.lose(this);
    this.device.free(this.#ptr);
  }

  async toHost(offset = 0, count = this.elemCount - offset): Promise<ArrayBuffer> {
    this.device.recording?.refuse('toHost');
    const bytes = new Uint8Array(count * sizeInBytes(this.dtype));
    const copied =
      count > 0 ? this.device.hip.memcpyDtoH(bytes, this.ptr + offset * sizeInBytes(this.dtype)) : undefined;
    await Promise.all([copied, this.device.idReport?.read()]);
    return bytes.buffer;
  }

  toHostSync(offset = 0, count = this.elemCount - offset): ArrayBuffer {
    this.device.recording?.refuse('toHostSync');
    const bytes = new Uint8Array(count * sizeInBytes(this.dtype));
    if (count > 0) this.device.hip.memcpyDtoHSync(bytes, this.ptr + offset * sizeInBytes(this.dtype));
    this.device.idReport?.readSync();
    return bytes.buffer;
  }

  affine(layout: Layout, mul: number, add: number): RocmStorage {
    return affine(this, layout, mul, add);
  }
  powf(layout: Layout, exponent: number): RocmStorage {
    return powf(this, layout, exponent);
  }
  elu(layout: Layout, alpha: number): RocmStorage {
    return elu(this, layout, alpha);
  }
  unary(op: UnaryOp, layout: Layout): RocmStorage {
    return unary(this, op, layout);
  }
  binary(op: BinaryOp, rhs: BackendStorage, lhsLayout: Layout, rhsLayout: Layout): RocmStorage {
    return binary(this, op, this.#same(rhs), lhsLayout, rhsLayout);
  }
  cmp(op: CmpOp, rhs: BackendStorage, lhsLayout: Layout, rhsLayout: Layout): RocmStorage {
    return cmp(this, op, this.#same(rhs), lhsLayout, rhsLayout);
  }
  toDtype(layout: Layout, dtype: DType): RocmStorage {
    return toDtype(this, layout, dtype);
  }
  reduce(op: ReduceOp, layout: Layout, dims: readonly number[]): RocmStorage {
    return reduce(this, op, layout, dims);
  }
  whereCond(
    layout: Layout,
    onTrue: BackendStorage,
    trueLayout: Layout,
    onFalse: BackendStorage,
    falseLayout: Layout,
  ): RocmStorage {
    return whereCond(this, layout, this.#same(onTrue), trueLayout, this.#same(onFalse), falseLayout);
  }
  matmul(rhs: BackendStorage, size: MatmulSize, lhsLayout: Layout, rhsLayout: Layout): RocmStorage {
    return matmul(this, this.#same(rhs), size, lhsLayout, rhsLayout);
  }
  conv1d(layout: Layout, kernel: BackendStorage, kernelLayout: Layout, params: Conv1dParams): RocmStorage {
    return conv1d(this, layout, this.#same(kernel), kernelLayout, params);
  }
  convTranspose1d(
    layout: Layout,
    kernel: BackendStorage,
    kernelLayout: Layout,
    params: ConvTranspose1dParams,
  ): RocmStorage {
    return convTranspose1d(this, layout, this.#same(kernel), kernelLayout, params);
  }
  conv2d(layout: Layout, kernel: BackendStorage, kernelLayout: Layout, params: Conv2dParams): RocmStorage {
    return conv2d(this, layout, this.#same(kernel), kernelLayout, params);
  }
  convTranspose2d(
    layout: Layout,
    kernel: BackendStorage,
    kernelLayout: Layout,
    params: ConvTranspose2dParams,
  ): RocmStorage {
    return convTranspose2d(this, layout, this.#same(kernel), kernelLayout, params);
  }
  avgPool2d(layout: Layout, params: Pool2dParams): RocmStorage {
    return pool2d('avg', this, layout, params);
  }
  maxPool2d(layout: Layout, params: Pool2dParams): RocmStorage {
    return pool2d('max', this, layout, params);
  }
  upsampleNearest1d(layout: Layout, lOut: number): RocmStorage {
    return upsampleNearest1d(this, layout, lOut);
  }
  upsampleNearest2d(layout: Layout, hOut: number, wOut: number): RocmStorage {
    return upsampleNearest2d(this, layout, hOut, wOut);
  }
  upsampleBilinear2d(layout: Layout, params: BilinearParams): RocmStorage {
    return upsampleBilinear2d(this, layout, params);
  }
  argSortLastDim(layout: Layout, descending: boolean): RocmStorage {
    return argSortLastDim(this, layout, descending);
  }
  sortLastDim(layout: Layout, descending: boolean): { values: RocmStorage; positions: RocmStorage } {
    return sortLastDim(this, layout, descending);
  }
  topkLastDim(layout: Layout, k: number, descending: boolean): RocmStorage {
    return topkLastDim(this, layout, k, descending);
  }
  checkIds(op: string, layout: Layout, range: IdRange): void {
    checkIds(op, this, layout, range);
  }
  indexSelect(layout: Layout, ids: BackendStorage, idsLayout: Layout, dim: number): RocmStorage {
    return indexSelect(this, layout, this.#same(ids), idsLayout, dim);
  }
  gather(layout: Layout, ids: BackendStorage, idsLayout: Layout, dim: number): RocmStorage {
    return gather(this, layout, this.#same(ids), idsLayout, dim);
  }
  indexAdd(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): RocmStorage {
    return indexAdd(this, layout, this.#same(ids), idsLayout, this.#same(src), srcLayout, dim);
  }
  scatterSet(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): void {
    scatter('s', this, layout, this.#same(ids), idsLayout, this.#same(src), srcLayout, dim);
  }
  scatterAddSet(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): void {
    scatter('sa', this, layout, this.#same(ids), idsLayout, this.#same(src), srcLayout, dim);
  }
  copyStridedInto(dst: BackendStorage, dstOffset: number, layout: Layout): void {
    copyStridedInto(this, this.#same(dst), dstOffset, layout);
  }
  copy2d(dst: BackendStorage, copy: Copy2d): void {
    copy2d(this, this.#same(dst), copy);
  }
  constSet(value: number | bigint, layout: Layout): void {
    constSet(this, value, layout);
  }
  softmaxLastDim(layout: Layout): RocmStorage {
    return softmaxLastDim(this, layout);
  }
  rmsNorm(layout: Layout, alpha: BackendStorage, alphaLayout: Layout, eps: number): RocmStorage {
    return rmsNorm(this, layout, this.#same(alpha), alphaLayout, eps);
  }
  layerNorm(
    layout: Layout,
    alpha: BackendStorage,
    alphaLayout: Layout,
    beta: BackendStorage,
    betaLayout: Layout,
    eps: number,
  ): RocmStorage {
    return layerNorm(this, layout, this.#same(alpha), alphaLayout, this.#same(beta), betaLayout, eps);
  }
  rope(
    kind: RopeKind,
    layout: Layout,
    cos: BackendStorage,
    cosLayout: Layout,
    sin: BackendStorage,
    sinLayout: Layout,
  ): RocmStorage {
    return rope(this, kind, layout, this.#same(cos), cosLayout, this.#same(sin), sinLayout);
  }

  #same(storage: BackendStorage): RocmStorage {
    return RocmStorage.on(this.device, storage);
  }
}
