/**
 * `Var`: a tensor whose gradient `backward` computes and whose values can be replaced, after candle's `Var`
 * (candle-core/src/variable.rs). candle's wraps a tensor and dereferences to it; here it is a subclass, so a `Var` goes
 * wherever a tensor goes, and what operations make of it are plain tensors.
 */
import { brand } from '../brand';
import { checkCalls } from '../checked-calls';
import type { DeviceLike } from '../device';
import { type DType, isFloat } from '../dtype';
import { CandleError } from '../errors';
import type { Layout } from '../layout';
import { LINE } from '../one-core';
import { formatShape, type Shape, sameShape } from '../shape';
import type { StorageRef } from '../storage-ref';
import { type FromOptions, Tensor, type TensorOptions } from '../tensor';
import { checkOperands, markWritten, operandOf, sameDType, shapesDiffer } from '../tensor/base';
import type { TensorData } from '../tensor/nested-data';
import { VAR_METHODS, VAR_STATICS } from '../tensor/signatures';
import { markVariable } from './record';

type Options = TensorOptions | DType | undefined;

/** candle's `Var`: a tensor whose gradient `backward` computes, and whose values {@link set} replaces. */
export class Var extends Tensor {
  /** @internal Variables are made by the static methods. */
  constructor(ref: StorageRef, layout: Layout) {
    super(ref, layout);
    // An integer variable can be set and saved with the others; it has no gradient.
    if (isFloat(this.dtype)) markVariable(this);
  }

  override get isVariable(): boolean {
    return true;
  }

  /** A variable with a copy of a tensor's values; a variable is returned as it is. */
  static fromTensor(tensor: Tensor): Var {
    return tensor instanceof Var ? tensor : variable(tensor.copy());
  }

  /** As `Tensor.zeros`, a variable. One of an integer dtype has no gradient. */
  static override zeros(shape: Shape, options?: Options, device?: DeviceLike): Var {
    return variable(Tensor.zeros(shape, options, device));
  }

  /** As `Tensor.ones`, a variable. */
  static override ones(shape: Shape, options?: Options, device?: DeviceLike): Var {
    return variable(Tensor.ones(shape, options, device));
  }

  /** As `Tensor.full`, a variable. */
  static override full(value: number | bigint, shape: Shape, options?: Options, device?: DeviceLike): Var {
    return variable(Tensor.full(value, shape, options, device));
  }

  /** Uniform in [lo, up). */
  static override rand(lo: number, up: number, shape: Shape, options?: Options, device?: DeviceLike): Var {
    return variable(Tensor.rand(lo, up, shape, options, device));
  }

  /** Normal with mean and standard deviation. */
  static override randn(mean: number, std: number, shape: Shape, options?: Options, device?: DeviceLike): Var {
    return variable(Tensor.randn(mean, std, shape, options, device));
  }

  /** candle's name for {@link rand} with a dtype. */
  static randF64(lo: number, up: number, shape: Shape, options?: Options, device?: DeviceLike): Var {
    return Var.rand(lo, up, shape, options, device);
  }

  /** candle's name for {@link randn} with a dtype. */
  static randnF64(mean: number, std: number, shape: Shape, options?: Options, device?: DeviceLike): Var {
    return Var.randn(mean, std, shape, options, device);
  }

  /** From a number, nested arrays or a typed array, as `Tensor.from`; candle's `Var::new`. */
  static override from(data: TensorData, options: FromOptions = {}): Var {
    return variable(Tensor.from(data, options));
  }

  /** candle's `Var::from_slice`. */
  static override fromArray(data: TensorData, shape?: Shape | null, options?: Options, device?: DeviceLike): Var {
    return variable(Tensor.fromArray(data, shape, options, device));
  }

  /** This as a tensor: itself. */
  asTensor(): Tensor {
    return this;
  }

  /** The values without the variable: a plain tensor that shares the memory and sees every {@link set}. */
  asDetachedTensor(): Tensor {
    return this.detach();
  }

  /**
   * Replaces the values, in place: views and every operation from now on see the new ones. A `backward` that still needs
   * the old ones raises an error. This stays a variable: gradients do not go on to what `src` was computed from.
   * @throws CandleError `CANNOT_SET_VAR` for a tensor that shares this one's memory
   */
  set(src: Tensor): void {
    sameDType('set', this, src);
    if (!sameShape(this.shape, src.shape)) {
      throw shapesDiffer('set', this.shape, src.shape, 'the new values must have the shape of the variable');
    }
    checkOperands('set', [this, src]);
    if (this.handle.ref === src.handle.ref) {
      throw new CandleError(
        'CANNOT_SET_VAR',
        `set: the tensor of shape ${formatShape(src.shape)} shares the variable's memory; copy() it first.`,
      );
    }
    if (this.elemCount > 0) this.device.backend.ops.copy(operandOf('set', src), operandOf('set', this));
    markWritten(this);
  }
}

brand(Var, 'x.core.var', LINE);
checkCalls(Var.prototype, VAR_METHODS, 'Var.');
checkCalls(Var, VAR_STATICS, 'Var.');

/** Turns a tensor that nobody else has, contiguous, into a variable; the tensor is disposed. */
function variable(tensor: Tensor): Var {
  const { ref } = tensor.handle;
  try {
    if (ref === null) throw new Error('internal: a disposed tensor cannot become a variable');
    return new Var(ref, tensor.layout);
  } finally {
    tensor.dispose();
  }
}
