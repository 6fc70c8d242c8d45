/**
 * A linear map by a weight that may be quantized (candle's `QMatMul`): x [..., k] times the transpose of a weight [n, k]
 * is [..., n], in x's dtype.
 *
 * - `quantized`: the device's kernels, or the host in TypeScript where the device has none. Kernels read activations of f32,
 *   f16 and bf16 and sum in f32; the result is rounded to x's dtype on the device.
 * - `dense`: an ordinary product with the weight as numbers, for f32, f16 and bf16 weights and for types that a device
 *   with quantized kernels lacks. As in candle the numbers are f32 unless the `dense` option asks for less. Kernels multiply
 *   f16 and bf16 weights by activations of f32 without converting either, but for many rows on GPUs.
 *
 * Two switches of the environment are candle's: with `X_DEQUANTIZE_ALL=1` every quantized weight is made dense in f32,
 * with `X_DEQUANTIZE_ALL_F16=1` in f16 (candle: CANDLE_DEQUANTIZE_ALL, CANDLE_DEQUANTIZE_ALL_F16).
 */
import {
  DeviceError,
  formatShape,
  isGradEnabled,
  kinds,
  Layout,
  type QuantizedActivations,
  ShapeError,
  settings,
  TENSORS,
  Tensor,
  UnsupportedError,
} from '@x/core';
import { DENSE } from './argument-kinds';
import { matmulRows } from './host-ops';
import { isQTensor } from './is-qtensor';
import type { DenseDType } from './load';
import type { QTensor } from './qtensor';
import { checkActivation, rowsOf, shareOf, withTemporaries } from './tensors';

export interface QMatMulOptions {
  /** Dtype of a dense weight; default `f32`. */
  dense?: DenseDType;
}

/** A linear map without bias (candle's `QMatMul`): {@link forward} gives x [..., k] times the transpose of its weight [n, k]. */
export class QMatMul implements Disposable {
  readonly kind: 'quantized' | 'dense';
  /** [n, k], values given out and taken in. */
  readonly shape: readonly number[];
  /** Blocks, when `kind` is quantized. */
  readonly #blocks: QTensor | undefined;
  /** [n, k] numbers, when it is dense. */
  readonly #dense: Tensor | undefined;

  private constructor(shape: readonly number[], weight: QTensor | Tensor) {
    if (shape.length !== 2) {
      weight.dispose();
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `QMatMul: the weight is ${formatShape(shape)}; it must be [out, in]. Reshape it first.`,
      );
    }
    this.shape = shape;
    this.kind = isQTensor(weight) ? 'quantized' : 'dense';
    if (isQTensor(weight)) this.#blocks = weight;
    else this.#dense = weight;
  }

  /** Shares the weight: it may be disposed afterwards, and must be by whoever made it. */
  static fromQTensor(weight: QTensor, options: QMatMulOptions = {}): QMatMul {
    const dense = weight.kind === 'dense' ? (options.dense ?? 'f32') : everythingDense();
    return new QMatMul(weight.shape, dense === undefined ? weight.share() : weight.dequantize(dense));
  }

  /** The same for a weight that was never quantized, [n, k]; shares it likewise. */
  static fromTensor(weight: Tensor): QMatMul {
    checkActivation('QMatMul.fromTensor', weight);
    return new QMatMul(weight.shape, shareOf(weight));
  }

  /** x [..., k] on the weight's device, f32, f16 or bf16, to [..., n] in the same dtype. */
  forward(x: Tensor): Tensor {
    const weight = this.#blocks ?? this.#dense!;
    const [n, k] = this.shape;
    checkActivation('QMatMul.forward', x);
    const m = rowsOf('QMatMul.forward', x, k);
    checkDevice('QMatMul.forward', x, weight);
    const shape = [...x.shape.slice(0, -1), n];
    if (this.#blocks !== undefined) return blockProduct(this.#blocks, x, { m, n, k }, shape);
    const dense = this.#dense!;
    if (isForHalves(dense, x)) return halfProduct(dense, x, { m, n, k }, shape);
    return withTemporaries((temporary) => {
      const numbers = temporary(x.toDtype(dense.dtype));
      const rows = temporary(temporary(numbers.reshape([m, k])).contiguous());
      const transposed = temporary(dense.t());
      return temporary(temporary(rows.matmul(transposed)).toDtype(x.dtype)).reshape(shape);
    });
  }

  /** As {@link forward}, but [..., n] is in f32 whatever x's dtype, and sums of narrow numbers are not rounded. */
  forwardWide(x: Tensor): Tensor {
    const op = 'QMatMul.forwardWide';
    checkActivation(op, x);
    const dense = this.#dense;
    if (dense && x.dtype === dense.dtype && areForKernels(dense, x)) {
      const [n, k] = this.shape;
      const m = rowsOf(op, x, k);
      checkDevice(op, x, dense);
      return withTemporaries((temporary) =>
        linearProduct(dense, temporary(x.contiguous()), { m, n, k }, [...x.shape.slice(0, -1), n]),
      );
    }
    const weight = this.#blocks;
    if (weight && x.dtype !== 'f32' && weight.device.backend.quantized !== undefined) {
      const [n, k] = this.shape;
      const m = rowsOf(op, x, k);
      checkDevice(op, x, weight);
      return withTemporaries((temporary) =>
        quantized(weight, temporary(x.contiguous()), { m, n, k }, [...x.shape.slice(0, -1), n]),
      );
    }
    return withTemporaries((temporary) => {
      const wide = temporary(x.toDtype('f32'));
      if (!dense || dense.dtype === 'f32' || isForHalves(dense, wide)) return this.forward(wide);
      const numbers = temporary(dense.toDtype('f32'));
      using map = QMatMul.fromTensor(numbers);
      return map.forward(wide);
    });
  }

  /** @internal The weight where {@link takesBlocks}; it stays this object's. */
  get blocks(): QTensor | undefined {
    return this.takesBlocks ? this.#blocks : undefined;
  }

  /** Whether {@link forwardBlocks} works: the weight is in blocks on a device with kernels. */
  get takesBlocks(): boolean {
    return this.#blocks?.device.backend.quantized !== undefined;
  }

  /**
   * The dtype that {@link forwardWide} rounds so many rows of f32 to for its product, and takes them in as well; undefined where it
   * multiplies them as they are.
   */
  roundsTo(rows: number): 'f16' | 'bf16' | undefined {
    const dense = this.#dense;
    const kernels = dense?.device.backend.linear;
    if (!dense || !kernels || !dense.isContiguous()) return undefined;
    if (dense.dtype !== 'f16' && dense.dtype !== 'bf16') return undefined;
    const form = kernels.formOf(dense.dtype, rows);
    return form === 'f32' ? undefined : form;
  }

  /**
   * As {@link forward}, for activations that the device has in blocks already: [rows, n] in f32.
   * @throws ShapeError, DeviceError where they do not fit; UnsupportedError unless {@link takesBlocks}
   */
  forwardBlocks(x: QuantizedActivations): Tensor {
    const weight = this.#blocks;
    const kernels = weight?.device.backend.quantized;
    const [n, k] = this.shape;
    if (weight === undefined || kernels === undefined) {
      throw new UnsupportedError(
        'UNSUPPORTED',
        'QMatMul.forwardBlocks: the weight is not in blocks on a device with kernels for them. Give numbers to forward.',
      );
    }
    if (x.width !== k) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `QMatMul.forwardBlocks: rows of ${x.width} values and a weight with rows of ${k}. Check which layer the input belongs to.`,
      );
    }
    checkDevice('QMatMul.forwardBlocks', x.blocks, weight);
    const { device, blockType } = weight;
    const { storage } = weight.data.storageAndLayout();
    const blocks = x.blocks.storageAndLayout().storage;
    const product = kernels.matmulActivations(storage, blockType, { m: x.rows, n, k }, blocks);
    return Tensor.fromStorage(product, [x.rows, n], device);
  }

  /** The weight as f16 numbers, [n, k], which the caller owns. */
  dequantizeF16(): Tensor {
    return this.#blocks?.dequantizeF16() ?? this.#dense!.toDtype('f16');
  }

  /**
   * As {@link forward}, but the weight is dequantised to f16 for this product, the input is converted to f16, and so are
   * the sums where the device adds in f16 (candle's `forward_via_f16`). Worth it for many rows at once on a device whose
   * f16 products are much faster.
   */
  forwardViaF16(x: Tensor): Tensor {
    checkActivation('QMatMul.forwardViaF16', x);
    return withTemporaries((temporary) => {
      const weight = temporary(this.dequantizeF16());
      const map = temporary(QMatMul.fromTensor(weight));
      const half = temporary(x.toDtype('f16'));
      return temporary(map.forward(half)).toDtype(x.dtype);
    });
  }

  /** Rows of the weight at `ids`, in f32; see `QTensor.embedding`. */
  embedding(ids: Tensor): Tensor {
    if (this.#blocks !== undefined) return this.#blocks.embedding(ids);
    using rows = this.#dense!.embedding(ids);
    return rows.toDtype('f32');
  }

  /** For `scope` of core: the weight goes where this object goes. */
  [TENSORS](): unknown[] {
    return [this.#blocks ?? this.#dense];
  }

  /** Gives back the share of the weight. Harmless when repeated. */
  dispose(): void {
    this.#blocks?.dispose();
    this.#dense?.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

function checkDevice(op: string, x: Tensor, weight: QTensor | Tensor): void {
  if (x.device.equals(weight.device)) return;
  throw new DeviceError(
    'DEVICE_MISMATCH',
    `${op}: the input is on ${x.device} and the weight on ${weight.device}. Move the input with toDevice.`,
  );
}

/** The dtype that the environment asks every weight to have; undefined to keep blocks. */
function everythingDense(): DenseDType | undefined {
  if (settings.dequantizeAll()) return 'f32';
  return settings.dequantizeAllF16() ? 'f16' : undefined;
}

/** Rows of activations, rows of the weight, the length of both, and the weight's row to begin with (default 0). */
interface ProductSize {
  m: number;
  n: number;
  k: number;
  firstRow?: number;
}

/** @internal x (m * k values, f32, f16 or bf16) times the transpose of rows of a weight in blocks, as x's dtype in `shape`. */
export function blockProduct(weight: QTensor, x: Tensor, size: ProductSize, shape: readonly number[]): Tensor {
  // The everyday case makes one tensor: a decoding step on a GPU is short enough for each further one to show.
  if (x.dtype === 'f32' && x.isContiguous()) return quantized(weight, x, size, shape);
  return withTemporaries((temporary) => {
    const numbers = weight.device.backend.quantized === undefined ? temporary(x.toDtype('f32')) : x;
    return temporary(quantized(weight, temporary(numbers.contiguous()), size, shape)).toDtype(x.dtype);
  });
}

/** The product of contiguous `x`, whatever its rank, as an f32 tensor of `shape`; on the host x is f32. */
function quantized(weight: QTensor, x: Tensor, size: ProductSize, shape: readonly number[]): Tensor {
  const { device, blockType } = weight;
  const { backend } = device;
  const blocks = weight.data.storageAndLayout().storage;
  const { storage, layout } = x.storageAndLayout();
  if (size.m * size.n * size.k === 0) {
    return Tensor.fromStorage(backend.zeros(size.m * size.n, 'f32'), shape, device);
  }
  if (backend.quantized !== undefined) {
    const rows = { storage, layout: Layout.contiguous([size.m, size.k], layout.startOffset) };
    return Tensor.fromStorage(backend.quantized.matmul(blocks, blockType, size, rows), shape, device);
  }
  const values = new Float32Array(storage.toHostSync(layout.startOffset, layout.elemCount));
  const product = matmulRows(blocks, weight.format, size, values);
  return Tensor.fromStorage(backend.fromHost(product, 'f32'), shape, device);
}

/** Whether the device has kernels for this weight in f16 or bf16, and nobody wants the gradient of activations. */
function areForKernels(weight: Tensor, x: Tensor): boolean {
  const fits = weight.dtype !== 'f32' && weight.isContiguous() && x.device.backend.linear !== undefined;
  return fits && !(isGradEnabled() && x.trackOp);
}

/** The same for activations of another dtype. */
function isForHalves(weight: Tensor, x: Tensor): boolean {
  return weight.dtype !== x.dtype && areForKernels(weight, x);
}

/** x (m * k values of another dtype) times the transpose of a contiguous weight [n, k] in f16 or bf16, by the device's kernels. */
function halfProduct(weight: Tensor, x: Tensor, size: ProductSize, shape: readonly number[]): Tensor {
  if (x.dtype === 'f32' && x.isContiguous()) return linearProduct(weight, x, size, shape);
  return withTemporaries((temporary) => {
    const rows = temporary(temporary(x.toDtype('f32')).contiguous());
    return temporary(linearProduct(weight, rows, size, shape)).toDtype(x.dtype);
  });
}

/** As {@link halfProduct} for contiguous x in f32 or in the weight's dtype, in f32. */
function linearProduct(weight: Tensor, x: Tensor, size: ProductSize, shape: readonly number[]): Tensor {
  const made = x.device.backend.linear!.matmul(weight.storagePart(), x.storageAndLayout(), size);
  return Tensor.fromStorage(made, shape, x.device);
}

kinds.checkCalls(
  QMatMul,
  {
    fromQTensor: {
      weight: kinds.kind(isQTensor, 'give a QTensor; fromTensor takes a tensor'),
      options: kinds.optional(kinds.fields({ dense: DENSE })),
    },
    fromTensor: { weight: kinds.TENSOR },
  },
  'QMatMul.',
);
kinds.checkCalls(
  QMatMul.prototype,
  { forward: { x: kinds.TENSOR }, forwardWide: { x: kinds.TENSOR }, embedding: { ids: kinds.TENSOR } },
  'QMatMul.',
);
