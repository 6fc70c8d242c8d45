/**
 * A weight in a block format on a device (candle's `QTensor`). Its blocks lie in a u8 tensor, so they are counted, scoped
 * and disposed like any tensor's memory.
 *
 * Where it differs: candle has a storage type for each device; here one rule decides, at loading, what a device gets.
 * - f32, f16 and bf16 weights are dense tensors of that dtype (`kind` is `dense`).
 * - A device with kernels for the type keeps the blocks (`kind` is `blocks`), and so does a device without any quantized
 *   kernels, for which this package computes on the host.
 * - What is left becomes numbers, converted on the host while loading, in f32 or the dtype that `dense` names: plain f64
 *   and integers, and blocks of a type for which a backend has no kernels (ours have them for all). `kind` says so, and
 *   `QMatMul.kind` too.
 */
import {
  type BlockType,
  Device,
  type DeviceLike,
  DisposedError,
  type DType,
  elemCount,
  formatShape,
  ShapeError,
  sizeInBytes,
  type Tensor,
  UnsupportedError,
} from '@x/core';
import type { TensorReader } from '@x/core/files';
import { type BlockFormat, blockFormat, byteLengthOf, type QuantType } from './blocks';
import type { ExpertOrder } from './expert-order';
import { hasBlocks, type TensorFile } from './gguf/has-blocks';
import { QTENSOR } from './is-qtensor';
import { type DenseDType, finish, finishAsync, loadDirect } from './load';
import {
  canStayUnread,
  checkIndexed,
  checkIndexedHost,
  expertOf,
  groupedMoe,
  indexedMoe,
  indexedUnread,
  isGrouped,
} from './moe';
import type { PartReader } from './mxfp4';
import { partPieces, partShape, type TensorPart } from './part';
import { checkArguments } from './qtensor-arguments';
import { checkedFormat, prepare, prepareMxfp4, quantizable } from './qtensor-load';
import type {
  AsyncQuantizeTensorOptions,
  IndexedMoeOptions,
  Mxfp4LoadOptions,
  QTensorLoadOptions,
  QTensorOptions,
  QuantizeTensorOptions,
} from './qtensor-options';
import { partOf, stacked } from './qtensor-parts';
import { dequantized, rowsAt } from './qtensor-values';
import { quantizeBlocks, quantizedPieces } from './quantize';
import { checkActivation, idsInside, shareOf } from './tensors';

/** A weight of any {@link QuantType} on a device (candle's `QTensor`), in blocks or as numbers: {@link kind}. */
export class QTensor implements Disposable {
  /** The type in the file or that was asked for, whatever the device made of it. */
  readonly type: QuantType;
  /** Outermost dimension first; a weight of a linear layer is [out, in]. */
  readonly shape: readonly number[];
  readonly #data: Tensor;

  private constructor(type: QuantType, shape: readonly number[], data: Tensor) {
    this.type = type;
    this.shape = shape;
    this.#data = data;
  }

  /**
   * A tensor of a GGUF (or older GGML) file, streamed to the device in pieces. Blocks the event loop while it reads; {@link load} does not.
   * Raises `FileFormatError` when there is no such tensor or its type cannot be read.
   */
  static fromGguf(file: TensorFile, name: string, device: DeviceLike, options: QTensorOptions = {}): QTensor {
    const format = file.format(name);
    const { shape } = file.tensor(name);
    const { loader, make } = prepare(format, shape, device, file.tensorChunks(name), options);
    return QTensor.wrap(...make(finish(loader)));
  }

  /**
   * A tensor of any file of tensors, giving way to other work after every piece of some MiB: blocks of a GGUF file as they
   * are, numbers of other files (safetensors, npz, pth) as they are when f32, f16 or bf16, and else as `dense`.
   */
  static async load(
    file: TensorReader,
    name: string,
    device: DeviceLike,
    options: QTensorLoadOptions = {},
  ): Promise<QTensor> {
    if (options.part) return loadPart(file, name, device, options.part, options);
    if (!hasBlocks(file)) {
      const { signal, dense = 'f32' } = options;
      using numbers = await file.load(name, device, { signal });
      using weight = isPlain(numbers.dtype) ? numbers.detach() : numbers.toDtype(dense);
      return QTensor.fromTensor(weight);
    }
    const format = file.format(name);
    const { shape } = file.tensor(name);
    const { loader, allocate, make } = prepare(format, shape, device, file.tensorChunksAhead(name), options);
    if (allocate && file.readsOnto?.(name, Device.of(device).backend))
      return QTensor.wrap(...make(await loadDirect(file, name, allocate, options.signal)));
    return QTensor.wrap(...make(await finishAsync(loader, options.signal)));
  }

  /**
   * A weight that a checkpoint holds in MXFP4 as `NAME_blocks` and `NAME_scales` (gpt-oss), or a part of its rows, as blocks of
   * type `mxfp4` of the same values: u8 [..., rows, groups, 16] and u8 [..., rows, groups] become [..., rows, 32 · groups].
   * Raises `FileFormatError` where the two do not belong together.
   */
  static async loadMxfp4(
    file: PartReader,
    name: string,
    device: DeviceLike,
    options: Mxfp4LoadOptions = {},
  ): Promise<QTensor> {
    const { loader, make } = prepareMxfp4(file, name, device, options);
    return QTensor.wrap(...make(await finishAsync(loader, options.signal)));
  }

  /** As {@link loadMxfp4}, blocking the event loop. */
  static loadMxfp4Sync(
    file: PartReader,
    name: string,
    device: DeviceLike,
    options: Omit<Mxfp4LoadOptions, 'signal'> = {},
  ): QTensor {
    const { loader, make } = prepareMxfp4(file, name, device, options);
    return QTensor.wrap(...make(finish(loader)));
  }

  /** Numbers as a weight of kind `dense`; shares the tensor, which is f32, f16 or bf16. */
  static fromTensor(tensor: Tensor): QTensor {
    checkActivation('QTensor.fromTensor', tensor);
    using contiguous = tensor.contiguous();
    return QTensor.wrap(tensor.dtype as DenseDType, tensor.shape, contiguous.detach());
  }

  /**
   * The rows of weights of one type, dtype and width one below the other, in memory of their own: [n, k] and [m, k] to
   * [n + m, k]. Raises `ShapeError` where types or widths differ.
   */
  static stack(parts: readonly QTensor[]): QTensor {
    return stacked(parts);
  }

  /** Blocks that are in memory: `bytes` holds exactly `shape` in `type`. */
  static fromBytes(
    type: QuantType,
    shape: readonly number[],
    bytes: Uint8Array,
    device: DeviceLike,
    options: QTensorOptions = {},
  ): QTensor {
    const format = checkedFormat('QTensor.fromBytes', type, shape);
    const length = byteLengthOf(format, elemCount(shape));
    if (bytes.byteLength !== length) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `QTensor.fromBytes: ${type} ${formatShape(shape)} takes ${length} bytes, not ${bytes.byteLength}. Check shape and type.`,
      );
    }
    const { loader, make } = prepare(format, shape, device, [{ offset: 0, bytes }], options);
    return QTensor.wrap(...make(finish(loader)));
  }

  /**
   * Quantises a tensor of any dtype; rows must be whole blocks. The work is done on the host, as in candle, on several
   * threads for a large tensor, and the blocks are bit for bit those of ggml's reference quantisers. Raises errors as
   * `quantizeBlocks`.
   */
  static async quantize(tensor: Tensor, type: QuantType, options: AsyncQuantizeTensorOptions = {}): Promise<QTensor> {
    const { format, rows, k } = quantizable('QTensor.quantize', tensor, type, options);
    const x = Float32Array.from((await tensor.toArray()) as ArrayLike<number>, Number);
    const bytes = rows * k === 0 ? new Uint8Array(0) : await quantizeBlocks(type, x, k, options);
    const device = options.device ?? tensor.device;
    const { loader, make } = prepare(format, tensor.shape, device, [{ offset: 0, bytes }], options);
    return QTensor.wrap(...make(await finishAsync(loader, options.signal)));
  }

  /** As {@link quantize} in this thread, blocking the event loop. */
  static quantizeSync(tensor: Tensor, type: QuantType, options: QuantizeTensorOptions = {}): QTensor {
    const { format, k } = quantizable('QTensor.quantizeSync', tensor, type, options);
    const x = Float32Array.from(tensor.toArraySync() as ArrayLike<number>, Number);
    const pieces = quantizedPieces(format, x, k, options);
    const { loader, make } = prepare(format, tensor.shape, options.device ?? tensor.device, pieces, options);
    return QTensor.wrap(...make(finish(loader)));
  }

  /** candle's name for `quantize` with the `device` option. */
  static async quantizeOnto(tensor: Tensor, type: QuantType, device: DeviceLike): Promise<QTensor> {
    return QTensor.quantize(tensor, type, { device });
  }

  /** candle's name for `quantize` with the `importance` option. */
  static async quantizeImatrix(tensor: Tensor, importance: Float32Array, type: QuantType): Promise<QTensor> {
    return QTensor.quantize(tensor, type, { importance });
  }

  /** candle's name for `quantize` with both. */
  static async quantizeImatrixOnto(
    tensor: Tensor,
    importance: Float32Array,
    type: QuantType,
    device: DeviceLike,
  ): Promise<QTensor> {
    return QTensor.quantize(tensor, type, { importance, device });
  }

  /** @internal Takes over `data`: u8 blocks, or numbers. */
  static wrap(type: QuantType, shape: readonly number[], data: Tensor): QTensor {
    return new QTensor(type, [...shape], data);
  }

  /** @internal A tensor of this type that takes over `data`. */
  withData(shape: readonly number[], data: Tensor): QTensor {
    return QTensor.wrap(this.type, shape, data);
  }

  get device(): Device {
    return this.#data.device;
  }

  get rank(): number {
    return this.shape.length;
  }

  get elemCount(): number {
    return elemCount(this.shape);
  }

  /** Whether the device holds blocks or numbers; see the head of this file. */
  get kind(): 'blocks' | 'dense' {
    return this.#data.dtype === 'u8' ? 'blocks' : 'dense';
  }

  /** Bytes on the device, padding included. */
  get storageSizeInBytes(): number {
    const { storage } = this.data.storageAndLayout();
    return storage.elemCount * sizeInBytes(storage.dtype);
  }

  /** @internal {@link type}, where {@link kind} is `blocks`. */
  get blockType(): BlockType {
    return this.type as BlockType;
  }

  /** How {@link type} lays values out in blocks, whatever {@link kind} says of the device. */
  get format(): BlockFormat {
    return blockFormat(this.type);
  }

  /** The share in the device memory, as a tensor's; for `scope` and `keep` of core. */
  get handle(): Tensor['handle'] {
    return this.#data.handle;
  }

  /** What lies on the device: u8 blocks in one dimension, or numbers in `shape`. It stays this object's: do not dispose it. */
  get data(): Tensor {
    if (this.#data.isDisposed) {
      throw new DisposedError(
        'DISPOSED',
        `QTensor: a ${this.type} weight ${formatShape(this.shape)} was disposed. Dispose it later, or return it from its scope.`,
      );
    }
    return this.#data;
  }

  /** Another owner of the same memory, which goes when both are disposed. */
  share(): QTensor {
    return new QTensor(this.type, this.shape, shareOf(this.data));
  }

  /** The same rows in other leading dimensions, such as [experts * n, k] as [experts, n, k]; another owner of the memory. */
  reshape(shape: readonly number[]): QTensor {
    if (shape.at(-1) !== this.shape.at(-1) || elemCount(shape) !== this.elemCount) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `QTensor.reshape: rows of ${formatShape(this.shape)} do not make ${formatShape(shape)}. Keep the last dimension.`,
      );
    }
    return this.withData(shape, this.kind === 'dense' ? this.data.reshape(shape) : shareOf(this.data));
  }

  /** A part in memory of its own. @throws ShapeError `SHAPE_MISMATCH` for ranges outside of the dimension, and parts of blocks */
  part(part: TensorPart): QTensor {
    return partOf(this, part);
  }

  /** All values as numbers, [shape] in `dtype`; a tensor of its own, also where the weight is dense already. */
  dequantize(dtype: DenseDType = 'f32'): Tensor {
    return dequantized(this, dtype);
  }

  /** candle's name for `dequantize('f16')`. */
  dequantizeF16(): Tensor {
    return this.dequantize('f16');
  }

  /**
   * Rows of a [rows, k] weight at integer `ids` of any shape: [...ids, k] in f32. An id out of range raises
   * `INDEX_OUT_OF_RANGE` where `Tensor.embedding` does.
   */
  embedding(ids: Tensor): Tensor {
    return rowsAt(this, ids);
  }

  /** The weight [n, k] of one expert of a weight [experts, n, k]: a copy on the device, which the caller owns. */
  expert(index: number): QTensor {
    return expertOf(this, index);
  }

  /**
   * As {@link indexedMoeForward}, with ids that are on the host, in the order of their pairs: nothing is read. Raises
   * `ShapeError` for other shapes, and `INDEX_OUT_OF_RANGE` for an expert that is not there.
   */
  indexedMoe(x: Tensor, ids: ArrayLike<number | bigint>): Tensor {
    checkIndexedHost(this, x, ids);
    return indexedMoe(this, x, ids);
  }

  /**
   * Products with the weights of chosen experts, for every type and device: x [tokens, topk or 1, k] in f32, f16 or bf16,
   * integer ids [tokens, topk], this weight [experts, n, k]; the result is [tokens, topk, n] in x's dtype. The ids are read
   * without blocking. Raises `ShapeError` for other shapes, and `INDEX_OUT_OF_RANGE` for an expert that is not there: with
   * `readIds: false` where `Tensor.embedding` does.
   */
  async indexedMoeForward(x: Tensor, ids: Tensor, options: IndexedMoeOptions = {}): Promise<Tensor> {
    checkIndexed(this, x, ids);
    if (this.#unread(ids, options)) return this.#indexedUnread(x, ids, options);
    return indexedMoe(this, x, await ids.toArray());
  }

  /**
   * Products of rows x [pairs, k], in the order of `order` (`x.indexSelect(order.sources, 0)`), with the weights of their experts,
   * this weight being [experts, n, k]: [pairs, n] in x's dtype. One launch for all experts, straight from blocks or numbers.
   */
  groupedMoe(x: Tensor, order: ExpertOrder): Tensor {
    return groupedMoe(this, x, order);
  }

  /**
   * Whether {@link groupedMoe} is the faster way for so many tokens, and the device has it; else {@link indexedMoeForward} is.
   * @param experts as in {@link IndexedMoeOptions}
   */
  prefersGroups(tokens: number, chosen: number, experts = this.shape[0]): boolean {
    return isGrouped(this, tokens, tokens * chosen, experts);
  }

  /** As {@link indexedMoeForward}, blocking the event loop while the ids are read. */
  indexedMoeForwardSync(x: Tensor, ids: Tensor, options: IndexedMoeOptions = {}): Tensor {
    checkIndexed(this, x, ids);
    if (this.#unread(ids, options)) return this.#indexedUnread(x, ids, options);
    return indexedMoe(this, x, ids.toArraySync());
  }

  #unread(ids: Tensor, { readIds = true, experts = this.shape[0] }: IndexedMoeOptions): boolean {
    return !readIds && ids.elemCount > 0 && canStayUnread(this, ids.dim(0), ids.elemCount, experts);
  }

  #indexedUnread(x: Tensor, ids: Tensor, { areInside = false }: IndexedMoeOptions): Tensor {
    if (areInside && ids.dtype === 'u32' && ids.isContiguous()) return indexedUnread(this, x, ids);
    using inside = idsInside('QTensor.indexedMoeForward', ids, this.shape[0]);
    return indexedUnread(this, x, inside);
  }

  /**
   * Address of the blocks in the device's memory, for kernels of your own; valid while this tensor lives. Raises
   * `UnsupportedError` where memory has no addresses (`Device.js()`).
   */
  get devicePtr(): number {
    const { storage } = this.data.storageAndLayout();
    if ('ptr' in storage && typeof storage.ptr === 'number') return storage.ptr;
    throw new UnsupportedError(
      'UNSUPPORTED',
      `QTensor.devicePtr: memory of ${this.device} has no address. Use a device with kernels, or toBytes.`,
    );
  }

  /** The blocks as the file held them. Raises `UnsupportedError` where the device holds numbers instead. */
  async toBytes(): Promise<Uint8Array> {
    this.#checkBlocks();
    return this.data.toBytes();
  }

  /** As {@link toBytes}, blocking the event loop. */
  toBytesSync(): Uint8Array {
    this.#checkBlocks();
    return this.data.toBytesSync();
  }

  get isDisposed(): boolean {
    return this.#data.isDisposed;
  }

  /** Gives this owner's share of the memory back. Harmless when repeated. */
  dispose(): void {
    this.#data.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** `QTensor[[4096, 4096], q4_K, blocks, cuda:0]`; no values are read. */
  toString(): string {
    return `QTensor[${formatShape(this.shape)}, ${this.type}, ${this.kind}, ${this.device}]`;
  }

  #checkBlocks(): void {
    if (this.kind === 'blocks' || this.#data.dtype === this.type) return;
    throw new UnsupportedError(
      'UNSUPPORTED',
      `QTensor.toBytes: ${this.device} has no kernels for ${this.type}, so it holds ${this.#data.dtype} numbers. Read the ` +
        'blocks from the file, or load the tensor on Device.js().',
    );
  }
}

function isPlain(dtype: DType): dtype is DenseDType {
  return dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';
}

/** A part of a weight of any file. Numbers that files keep in other types than they become are read as a whole. */
async function loadPart(
  file: TensorReader,
  name: string,
  device: DeviceLike,
  part: TensorPart,
  { part: _, ...options }: QTensorLoadOptions,
): Promise<QTensor> {
  const info = file.info(name) as ReturnType<TensorReader['info']> & { dtype?: string };
  const plain = { F32: 'f32', F16: 'f16', BF16: 'bf16' }[info.dtype ?? ''] as DenseDType | undefined;
  const isReadable = hasBlocks(file) || (file.readPartSync !== undefined && plain !== undefined);
  if (!isReadable) {
    using whole = await QTensor.load(file, name, device, options);
    return whole.part(part);
  }
  const format = hasBlocks(file) ? file.format(name) : blockFormat(plain!);
  const shape = hasBlocks(file) ? file.tensor(name).shape : info.shape;
  const read = (offset: number, into: Uint8Array) =>
    hasBlocks(file) ? file.readTensorSlice(name, offset, into) : file.readPartSync!(name, offset, into);
  const pieces = partPieces(read, format, shape, part);
  const { loader, make } = prepare(format, partShape(format, shape, part), device, pieces, options);
  return QTensor.wrap(...make(await finishAsync(loader, options.signal)));
}

Object.defineProperty(QTensor.prototype, QTENSOR, { value: true });
checkArguments(QTensor);
