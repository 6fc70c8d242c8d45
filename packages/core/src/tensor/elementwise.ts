/**
 * Arithmetic element by element: the unary functions, affine forms, and two-operand arithmetic on tensors, whose shapes
 * broadcast by numpy's rules, or against a number.
 *
 * Differs from candle: `add` and its like broadcast as PyTorch's and numpy's do, so that candle's `broadcastAdd` and its
 * like are other names for them. And where candle's shortcut loses exactness: a number against an integer tensor is a real operand, not
 * an `affine` with the number rounded (candle's `t / 2.0` on integers multiplies by 0, `u8 - 1.0` adds 0).
 */
import * as rules from '../autograd/rules/elementwise';
import type { BackendDevice, Operand as BackendOperand } from '../backend';
import { type DType, isFloat, isInt } from '../dtype';
import { type BinaryOp, binaryRow } from '../elementwise/binary';
import { type UnaryOp, unaryRow } from '../elementwise/unary';
import { CandleError, DTypeError } from '../errors';
import { heldScalar, isNarrowFloat, roundScalar, toInt64 } from '../host-array';
import { Layout } from '../layout';
import { broadcastShapes, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, operandOf, sameDType, withTemporaries } from './base';
import { TensorWriting } from './writing';

/** The other side of an operation: a tensor, or a number for every element; a bigint is exact or an error. */
export type Operand = Tensor | number | bigint;

export abstract class TensorElementwise extends TensorWriting {
  /**
   * eˣ. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   * @example
   * ```ts
   * Tensor.from([0, 1]).exp().toVecSync(); // => [1, Math.fround(Math.E)]
   * ```
   */
  exp(this: Tensor): Tensor {
    return unary('exp', this);
  }

  /**
   * eˣ - 1, exact to the last digits near 0 too. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   * @example
   * ```ts
   * Tensor.from([0, 1e-10], { dtype: 'f64' }).expm1().toVecSync(); // => [0, 1.00000000005e-10]
   * ```
   */
  expm1(this: Tensor): Tensor {
    return unary('expm1', this);
  }

  /**
   * Natural logarithm: NaN below 0, -Infinity at 0. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   */
  log(this: Tensor): Tensor {
    return unary('log', this);
  }

  /** Sine of radians. Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  sin(this: Tensor): Tensor {
    return unary('sin', this);
  }

  /** Cosine of radians. Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  cos(this: Tensor): Tensor {
    return unary('cos', this);
  }

  /** Hyperbolic tangent. Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  tanh(this: Tensor): Tensor {
    return unary('tanh', this);
  }

  /**
   * |x|. Any dtype and shape; the least integer of a dtype stays as it is.
   * @example
   * ```ts
   * Tensor.from([-2, 3]).abs().toVecSync(); // => [2, 3]
   * ```
   */
  abs(this: Tensor): Tensor {
    return unary('abs', this);
  }

  /** -x. Any dtype and shape; integers wrap, also unsigned ones. */
  neg(this: Tensor): Tensor {
    return unary('neg', this);
  }

  /** 1 / x. Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  recip(this: Tensor): Tensor {
    return unary('recip', this);
  }

  /** x². Any dtype and shape; integers wrap. */
  sqr(this: Tensor): Tensor {
    return unary('sqr', this);
  }

  /** Square root, NaN below 0. Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  sqrt(this: Tensor): Tensor {
    return unary('sqrt', this);
  }

  /**
   * The Gaussian error linear unit in its tanh form, as candle's `gelu`. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   */
  gelu(this: Tensor): Tensor {
    return unary('gelu', this);
  }

  /**
   * The Gaussian error linear unit in its exact form, x * Φ(x). Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   */
  geluErf(this: Tensor): Tensor {
    return unary('geluErf', this);
  }

  /** The error function. Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  erf(this: Tensor): Tensor {
    return unary('erf', this);
  }

  /**
   * x where positive, else 0. Any dtype and shape.
   * @example
   * ```ts
   * Tensor.from([-1, 2]).relu().toVecSync(); // => [0, 2]
   * ```
   */
  relu(this: Tensor): Tensor {
    return unary('relu', this);
  }

  /** x * sigmoid(x). Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  silu(this: Tensor): Tensor {
    return unary('silu', this);
  }

  /**
   * 1 / (1 + e⁻ˣ). Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   * @example
   * ```ts
   * Tensor.from([0]).sigmoid().toVecSync(); // => [0.5]
   * ```
   */
  sigmoid(this: Tensor): Tensor {
    return unary('sigmoid', this);
  }

  /**
   * ln(1 + eˣ), which does not overflow: x itself for large x. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   * @example
   * ```ts
   * Tensor.from([-Infinity, 1000]).softplus().toVecSync(); // => [0, 1000]
   * ```
   */
  softplus(this: Tensor): Tensor {
    return unary('softplus', this);
  }

  /**
   * x * tanh(softplus(x)); NaN at -Infinity, as {@link silu}. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   */
  mish(this: Tensor): Tensor {
    return unary('mish', this);
  }

  /** The largest whole number that is not larger. Any shape; float dtypes, and integers, which it leaves as they are. */
  floor(this: Tensor): Tensor {
    return unary('floor', this);
  }

  /** The smallest whole number that is not smaller. Any shape; float dtypes, and integers, which it leaves as they are. */
  ceil(this: Tensor): Tensor {
    return unary('ceil', this);
  }

  /**
   * The nearest whole number; halves go away from zero. Any shape; float dtypes, and integers, which it leaves as they
   * are.
   * @example
   * ```ts
   * Tensor.from([0.5, -1.5, 2.4]).round().toVecSync(); // => [1, -2, 2]
   * ```
   */
  round(this: Tensor): Tensor {
    return unary('round', this);
  }

  /** -1, 0 or 1. Any dtype and shape. */
  sign(this: Tensor): Tensor {
    return unary('sign', this);
  }

  /**
   * Rounded to a number of decimals, negative ones being powers of ten before the point. Any shape; float dtypes. Narrow
   * floats are rounded in f32. Elements too large to have so many decimals stay as they are.
   * @throws DTypeError for integer dtypes, CandleError `INVALID_ARGUMENT` for decimals that are no whole number
   * @example
   * ```ts
   * Tensor.from([1234.567], { dtype: 'f64' }).roundTo(-2).toVecSync(); // => [1200]
   * ```
   */
  roundTo(this: Tensor, decimals: number): Tensor {
    if (!isFloat(this.dtype)) {
      throw new DTypeError(
        'DTYPE_MISMATCH',
        `roundTo: needs a float dtype, the tensor is ${this.dtype}; convert it with toDtype('f32').`,
      );
    }
    if (!Number.isInteger(decimals)) {
      throw new CandleError('INVALID_ARGUMENT', `roundTo: decimals is ${decimals}; give a whole number.`);
    }
    return withTemporaries((temporary) => {
      if (!isNarrowFloat(this.dtype)) return roundTo(this, decimals);
      return temporary(roundTo(temporary(this.toDtype('f32')), decimals)).toDtype(this.dtype);
    });
  }

  /**
   * x * mul + add, the numbers rounded to the dtype first. Any dtype and shape; integers wrap. Bigints are exact. Adding 0
   * turns -0 into 0; adding -0 changes nothing.
   * @throws DTypeError for a bigint that the dtype does not hold
   * @example
   * ```ts
   * Tensor.from([1, 2]).affine(10, 1).toVecSync(); // => [11, 21]
   * ```
   */
  affine(this: Tensor, mul: number | bigint, add: number | bigint): Tensor {
    if (isInt(this.dtype) && (typeof mul === 'bigint' || typeof add === 'bigint')) {
      const [factor, term] = [mul, add].map((value) => (typeof value === 'number' ? toInt64(value) : value));
      return withTemporaries((temporary) => temporary(this.mul(factor)).add(term));
    }
    const [factor, term] = [floatOf('affine', this, mul), floatOf('affine', this, add)];
    const run = ({ ops }: BackendDevice) => ops.affine(operandOf('affine', this), factor, term);
    return compute('affine', [this], this.shape, this.dtype, run, rules.affine, factor);
  }

  /**
   * x raised to a number. Float dtypes; any shape.
   * @throws UnsupportedError for integer dtypes
   * @example
   * ```ts
   * Tensor.from([4, 9]).powf(0.5).toVecSync(); // => [2, 3]
   * ```
   */
  powf(this: Tensor, exponent: number): Tensor {
    const run = ({ ops }: BackendDevice) => ops.powf(operandOf('powf', this), exponent);
    return compute('powf', [this], this.shape, this.dtype, run, rules.powf, exponent);
  }

  /** x where positive, else alpha * (eˣ - 1). Float dtypes; any shape. @throws UnsupportedError for integer dtypes */
  elu(this: Tensor, alpha = 1): Tensor {
    const run = ({ ops }: BackendDevice) => ops.elu(operandOf('elu', this), alpha);
    return compute('elu', [this], this.shape, this.dtype, run, rules.elu, alpha);
  }

  /**
   * Limited to [min, max]; the bounds are numbers or tensors of this shape and dtype, and one may be missing (null or
   * undefined). Any dtype.
   * @throws ShapeError, DTypeError; CandleError `INVALID_ARGUMENT` without any bound
   * @example
   * ```ts
   * Tensor.from([-2, 0.5, 3]).clamp(-1, 1).toVecSync(); // => [-1, 0.5, 1]
   * ```
   */
  clamp(this: Tensor, min?: Operand | null, max?: Operand | null): Tensor {
    const [least, most] = [min ?? null, max ?? null];
    if (least === null && most === null) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        'clamp: there is no bound; give clamp(min, max), or null for one of them.',
      );
    }
    if (least === null) return this.minimum(most!);
    if (most === null) return this.maximum(least);
    return withTemporaries((temporary) => temporary(this.maximum(least)).minimum(most));
  }

  /**
   * This + rhs: a tensor of this dtype, or a number. Both are stretched to their common shape by numpy's rules. Any dtype;
   * integers wrap.
   * @throws ShapeError `SHAPE_MISMATCH` for shapes that do not stretch; DTypeError, also for a number that an integer dtype
   *   cannot hold
   * @example
   * ```ts
   * Tensor.from([1, 2]).add(Tensor.from([10, 20])).toVecSync(); // => [11, 22]
   * Tensor.from([[1], [2]]).add(Tensor.from([10, 20])).toVecSync(); // => [[11, 21], [12, 22]]
   * Tensor.from([1, 2]).add(0.5).toVecSync(); // => [1.5, 2.5]
   * ```
   */
  add(this: Tensor, rhs: Operand): Tensor {
    if (typeof rhs === 'object') return binary('add', this, rhs);
    return isInt(this.dtype) ? binaryScalar('add', this, rhs) : this.affine(1, floatOf('add', this, rhs));
  }

  /** This - rhs; shapes, dtypes and errors as {@link add}. */
  sub(this: Tensor, rhs: Operand): Tensor {
    if (typeof rhs === 'object') return binary('sub', this, rhs);
    return isInt(this.dtype) ? binaryScalar('sub', this, rhs) : this.affine(1, -floatOf('sub', this, rhs));
  }

  /**
   * This * rhs, element by element; shapes, dtypes and errors as {@link add}.
   * @example
   * ```ts
   * Tensor.from([1, 2]).mul(3).toVecSync(); // => [3, 6]
   * ```
   */
  mul(this: Tensor, rhs: Operand): Tensor {
    if (typeof rhs === 'object') return binary('mul', this, rhs);
    return isInt(this.dtype) ? binaryScalar('mul', this, rhs) : this.affine(floatOf('mul', this, rhs), -0);
  }

  /**
   * This / rhs; shapes, dtypes and errors as {@link add}. A number is rounded to the dtype, then divided by exactly as a
   * tensor of it would be (candle multiplies by the reciprocal). Integers truncate towards zero; by 0 they give 0.
   * @example
   * ```ts
   * Tensor.from([0, 3]).div(1e-40).toVecSync(); // => [0, Infinity]
   * ```
   */
  div(this: Tensor, rhs: Operand): Tensor {
    if (typeof rhs === 'object') return binary('div', this, rhs);
    if (isInt(this.dtype)) return binaryScalar('div', this, rhs);
    const value = floatOf('div', this, rhs);
    return hasExactReciprocal(this.dtype, value) ? this.affine(1 / value, -0) : binaryScalar('div', this, value);
  }

  /**
   * The larger of both; NaN if either is. Shapes, dtypes and errors as {@link add}.
   * @example
   * ```ts
   * Tensor.from([1, 5]).maximum(3).toVecSync(); // => [3, 5]
   * ```
   */
  maximum(this: Tensor, rhs: Operand): Tensor {
    return typeof rhs === 'object' ? binary('maximum', this, rhs) : binaryScalar('maximum', this, rhs);
  }

  /** The smaller of both; NaN if either is. Shapes, dtypes and errors as {@link add}. */
  minimum(this: Tensor, rhs: Operand): Tensor {
    return typeof rhs === 'object' ? binary('minimum', this, rhs) : binaryScalar('minimum', this, rhs);
  }

  /**
   * This to the power of rhs, element by element: a tensor of this dtype, or a number ({@link powf}). As C's
   * pow: a negative base has real powers for whole exponents and NaN for others, and x to the 0 is 1 for every x. Float
   * dtypes.
   * @throws ShapeError, DTypeError, UnsupportedError for integers
   * @example
   * ```ts
   * Tensor.from([-2, -2, 0]).pow(Tensor.from([3, 0.5, 0])).toVecSync(); // => [-8, NaN, 1]
   * ```
   */
  pow(this: Tensor, rhs: Operand): Tensor {
    return typeof rhs === 'object' ? binary('pow', this, rhs) : this.powf(floatOf('pow', this, rhs));
  }

  /**
   * candle's name for {@link add} of two tensors.
   * @throws ShapeError `SHAPE_MISMATCH` for shapes that do not stretch, DTypeError for different dtypes
   * @example
   * ```ts
   * Tensor.from([[1], [2]]).broadcastAdd(Tensor.from([10, 20])).toVecSync(); // => [[11, 21], [12, 22]]
   * ```
   */
  broadcastAdd(this: Tensor, rhs: Tensor): Tensor {
    return binary('add', this, rhs);
  }

  /** candle's name for {@link sub} of two tensors. */
  broadcastSub(this: Tensor, rhs: Tensor): Tensor {
    return binary('sub', this, rhs);
  }

  /** candle's name for {@link mul} of two tensors. */
  broadcastMul(this: Tensor, rhs: Tensor): Tensor {
    return binary('mul', this, rhs);
  }

  /** candle's name for {@link div} of two tensors. */
  broadcastDiv(this: Tensor, rhs: Tensor): Tensor {
    return binary('div', this, rhs);
  }

  /** candle's name for {@link maximum} of two tensors. */
  broadcastMaximum(this: Tensor, rhs: Tensor): Tensor {
    return binary('maximum', this, rhs);
  }

  /** candle's name for {@link minimum} of two tensors. */
  broadcastMinimum(this: Tensor, rhs: Tensor): Tensor {
    return binary('minimum', this, rhs);
  }

  /** candle's name for {@link pow} of two tensors. */
  broadcastPow(this: Tensor, rhs: Tensor): Tensor {
    return binary('pow', this, rhs);
  }
}

function unary(op: UnaryOp, tensor: Tensor): Tensor {
  const run = ({ ops }: BackendDevice) => ops.unary(op, operandOf(op, tensor));
  return compute(op, [tensor], tensor.shape, tensor.dtype, run, unaryRow(op).gradient);
}

function binary(op: BinaryOp, lhs: Tensor, rhs: Tensor): Tensor {
  const same = sameShape(lhs.shape, rhs.shape);
  const shape = same ? lhs.shape : broadcastShapes(op, lhs.shape, rhs.shape);
  sameDType(op, lhs, rhs);
  const run = ({ ops }: BackendDevice) => {
    if (same) return ops.binary(op, operandOf(op, lhs), operandOf(op, rhs));
    const a = operandOf(op, lhs, lhs.layout.broadcastAs(shape));
    return ops.binary(op, a, operandOf(op, rhs, rhs.layout.broadcastAs(shape)));
  };
  return compute(op, [lhs, rhs], shape, lhs.dtype, run, binaryRow(op).gradient);
}

function binaryScalar(op: BinaryOp, lhs: Tensor, value: number | bigint): Tensor {
  const run = ({ ops }: BackendDevice) =>
    withScalar(op, lhs, value, (scalar) => ops.binary(op, operandOf(op, lhs), scalar));
  return compute(op, [lhs], lhs.shape, lhs.dtype, run, binaryRow(op).scalarGradient, Number(value));
}

/**
 * Whether multiplying by 1 / value is dividing by it in a float dtype: for powers of two whose reciprocal the dtype holds (also 0 and
 * infinity). It is one kernel, and division with a number as an operand two.
 */
function hasExactReciprocal(dtype: DType, value: number): boolean {
  const [size, factor] = [Math.abs(value), 1 / value];
  const power = 2 ** Math.round(Math.log2(size)) === size;
  if (!power || 1 / factor !== value) return false;
  return roundScalar(dtype, value) === value && roundScalar(dtype, factor) === factor;
}

/** For f32 and f64. */
function roundTo(x: Tensor, decimals: number): Tensor {
  const power = 10 ** Math.abs(decimals);
  return withTemporaries((temporary) => {
    if (decimals < 0) {
      // Where the power is infinite in the dtype, every number is rounded to 0, and 0 stays 0.
      const largest = x.dtype === 'f32' ? LARGEST_F32 : Number.MAX_VALUE;
      return temporary(temporary(x.div(power)).round()).mul(Math.min(power, largest));
    }
    const scaled = temporary(x.mul(power));
    const rounded = temporary(temporary(scaled.round()).div(power));
    const hasDecimals = temporary(temporary(scaled.abs()).lt(x.dtype === 'f32' ? 2 ** 24 : 2 ** 53));
    return hasDecimals.whereCond(rounded, temporary(x.detach()));
  });
}

const LARGEST_F32 = (2 - 2 ** -23) * 2 ** 127;

/**
 * Runs `body` with a number as a storage of `like`'s dtype, broadcast to its shape.
 * @throws DTypeError for a number that an integer dtype cannot hold, and a bigint that the dtype cannot
 */
export function withScalar<T>(
  op: string,
  like: Tensor,
  value: number | bigint,
  body: (scalar: BackendOperand) => T,
): T {
  const held = heldScalar(op, like.dtype, value);
  // Set by a kernel: an upload would wait in the driver, and could not be captured.
  const { backend } = like.device;
  const storage = backend.allocUninit(1, like.dtype);
  try {
    backend.ops.fill({ storage, layout: SCALAR }, held);
    return body({ storage, layout: SCALAR.broadcastAs(like.shape) });
  } finally {
    storage.dispose();
  }
}

/** A number for a float tensor. @throws DTypeError for a bigint that its dtype does not hold */
function floatOf(op: string, like: Tensor, value: number | bigint): number {
  return typeof value === 'number' ? value : Number(heldScalar(op, like.dtype, value));
}

const SCALAR = Layout.contiguous([]);
