/**
 * New values for a tensor that exists, without allocating: how the inputs of a captured graph are filled between replays.
 * Parts of a tensor are written by `sliceSet`, `scatterSet` and `constSet`.
 */
import { refuseTracked } from '../autograd/in-place';
import { refuseInCapture } from '../capture-state';
import { DTypeError, ShapeError } from '../errors';
import { allocValues, bytesOf, encodeInput, encodeRaw, type TensorArray } from '../host-array';
import { broadcastShapes, formatShape, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { checkOperands, markWritten, operandOf, sameDType, shapesDiffer, storageOf } from './base';
import { requireContiguous, requireSeparate, TensorJoining } from './joining';
import { flatten, type TensorData } from './nested-data';

export abstract class TensorWriting extends TensorJoining {
  /**
   * Overwrites this tensor in place with values of the host; nothing is allocated on the device. As `Tensor.from`: nested
   * arrays of this shape, or the elements in row-major order as a plain array of numbers, bigints or booleans, or as the
   * typed array that `toArray` gives for this dtype. This tensor must be contiguous. Views that share the memory see the
   * change. The data may be reused at once. In a captured function it is refused: write before the replay.
   * @throws ShapeError `SHAPE_MISMATCH` for another number of elements or another nesting; DTypeError for a typed array of
   * another dtype, and for what an integer dtype cannot hold; CandleError `GRADIENT_IN_PLACE` where gradients are recorded
   * and this depends on a variable
   * @example
   * ```ts
   * const ids = Tensor.zeros([2], 'u32');
   * ids.write([5, 7]);
   * ids.toVecSync(); // => [5, 7]
   * ```
   */
  write(this: Tensor, values: TensorData): void {
    const op = 'write';
    const storage = storageOf(op, this);
    refuseInCapture(
      'write: values of the host, which every replay would repeat, cannot be written',
      'write them before replay(), or use copyFrom from a tensor of the device',
    );
    const bytes = encoded(op, this, values);
    requireContiguous(op, this);
    refuseTracked(op, this);
    const { backend } = this.device;
    if (bytes.byteLength > 0)
      backend.write(storage, (this.layout.startOffset * bytes.byteLength) / this.elemCount, bytes);
    markWritten(this);
  }

  /**
   * Overwrites this tensor in place with the values of another one of the same shape, dtype and device: nothing is
   * allocated, and in a captured graph it is repeated. This one must be contiguous; `src` may have any strides.
   * Views that share the memory see the change.
   * @throws ShapeError `SHAPE_MISMATCH`, DTypeError; CandleError `GRADIENT_IN_PLACE` where gradients of either are recorded
   * @example
   * ```ts
   * const total = Tensor.zeros([2]);
   * total.copyFrom(Tensor.from([3, 4]));
   * total.toVecSync(); // => [3, 4]
   * ```
   */
  copyFrom(this: Tensor, src: Tensor): void {
    const op = 'copyFrom';
    checkOperands(op, [this, src]);
    sameDType(op, this, src);
    if (!sameShape(this.shape, src.shape))
      throw shapesDiffer(op, this.shape, src.shape, 'give a tensor of the same shape');
    requireContiguous(op, this);
    requireSeparate(op, this, src);
    refuseTracked(op, this, [src]);
    if (src.elemCount > 0) this.device.backend.ops.copy(operandOf(op, src), operandOf(op, this));
    markWritten(this);
  }

  /**
   * In place: this + rhs, without memory for a result. `rhs` stretches to this shape by numpy's rules; this one must be
   * contiguous. Views that share the memory see the change.
   * @throws ShapeError `SHAPE_MISMATCH`, DTypeError; CandleError `GRADIENT_IN_PLACE` as {@link copyFrom}
   * @example
   * ```ts
   * const total = Tensor.from([1, 2]);
   * total.addSet(Tensor.from([10]));
   * total.toVecSync(); // => [11, 12]
   * ```
   */
  addSet(this: Tensor, rhs: Tensor): void {
    combineInto('add', 'addSet', this, rhs);
  }

  /** In place: this - rhs; shapes, dtypes and errors as {@link addSet}. */
  subSet(this: Tensor, rhs: Tensor): void {
    combineInto('sub', 'subSet', this, rhs);
  }

  /** In place: this * rhs; shapes, dtypes and errors as {@link addSet}. */
  mulSet(this: Tensor, rhs: Tensor): void {
    combineInto('mul', 'mulSet', this, rhs);
  }

  /** In place: this / rhs; shapes, dtypes and errors as {@link addSet}. */
  divSet(this: Tensor, rhs: Tensor): void {
    combineInto('div', 'divSet', this, rhs);
  }

  /** In place: this * mul + add, the numbers rounded to the dtype; errors as {@link addSet}. */
  affineSet(this: Tensor, mul: number, add: number): void {
    const op = 'affineSet';
    const own = operandOf(op, this);
    requireContiguous(op, this);
    refuseTracked(op, this);
    if (this.elemCount > 0) this.device.backend.ops.affine(own, mul, add, own);
    markWritten(this);
  }
}

function combineInto(kernel: 'add' | 'sub' | 'mul' | 'div', op: string, target: Tensor, rhs: Tensor): void {
  const { backend } = checkOperands(op, [target, rhs]);
  sameDType(op, target, rhs);
  if (!sameShape(broadcastShapes(op, target.shape, rhs.shape), target.shape)) {
    throw shapesDiffer(op, target.shape, rhs.shape, 'give an operand that stretches to the shape of the target');
  }
  requireContiguous(op, target);
  requireSeparate(op, target, rhs);
  refuseTracked(op, target, [rhs]);
  const own = operandOf(op, target);
  if (target.elemCount > 0) {
    backend.ops.binary(kernel, own, operandOf(op, rhs, rhs.layout.broadcastAs(target.shape)), own);
  }
  markWritten(target);
}

/** The bytes of values that fit a tensor. */
function encoded(op: string, tensor: Tensor, data: TensorData): Uint8Array {
  const { values, shape } = flatten(data, op);
  const flat = shape.length <= 1 && values.length === tensor.elemCount;
  if (!flat && !sameShape(shape, tensor.shape)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: the values have shape ${formatShape(shape)} and the tensor ${formatShape(tensor.shape)}; give ${tensor.elemCount} values, flat or nested like the tensor.`,
    );
  }
  if (!ArrayBuffer.isView(values)) return bytesOf(encodeInput(op, tensor.dtype, values));
  const wanted = allocValues(tensor.dtype, 0).constructor;
  if (values.constructor === wanted) return bytesOf(encodeRaw(tensor.dtype, values as unknown as TensorArray));
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: a ${values.constructor.name} is written to a tensor of ${tensor.dtype}; give a ${wanted.name} or a plain array of numbers.`,
  );
}
