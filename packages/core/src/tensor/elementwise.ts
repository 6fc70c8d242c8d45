/**
 * Arithmetic element by element: the unary functions, affine forms, and two-operand arithmetic on equal shapes, on
 * broadcast shapes (`broadcast...`) or against a number.
 *
 * Differs from candle where candle's shortcut loses exactness: a number against an integer tensor is a real operand, not
 * an `affine` with the number rounded (candle's `t / 2.0` on integers multiplies by 0, `u8 - 1.0` adds 0).
 */
import type { BackendStorage, BinaryOp, UnaryOp } from '../backend';
import { isInt, sizeInBytes } from '../dtype';
import { encodeInput } from '../host-array';
import { Layout } from '../layout';
import { broadcastShapes, type Shape, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, sameDType, shapesDiffer, storageOf, withTemporaries } from './base';
import { TensorJoining } from './joining';

export abstract class TensorElementwise extends TensorJoining {
  exp(this: Tensor): Tensor {
    return unary('exp', this);
  }
  /** Natural logarithm. */
  log(this: Tensor): Tensor {
    return unary('log', this);
  }
  sin(this: Tensor): Tensor {
    return unary('sin', this);
  }
  cos(this: Tensor): Tensor {
    return unary('cos', this);
  }
  tanh(this: Tensor): Tensor {
    return unary('tanh', this);
  }
  abs(this: Tensor): Tensor {
    return unary('abs', this);
  }
  neg(this: Tensor): Tensor {
    return unary('neg', this);
  }
  /** 1 / x. */
  recip(this: Tensor): Tensor {
    return unary('recip', this);
  }
  /** x². */
  sqr(this: Tensor): Tensor {
    return unary('sqr', this);
  }
  sqrt(this: Tensor): Tensor {
    return unary('sqrt', this);
  }
  /** The tanh form, as candle's `gelu`. */
  gelu(this: Tensor): Tensor {
    return unary('gelu', this);
  }
  /** The exact form, x * Φ(x). */
  geluErf(this: Tensor): Tensor {
    return unary('geluErf', this);
  }
  erf(this: Tensor): Tensor {
    return unary('erf', this);
  }
  relu(this: Tensor): Tensor {
    return unary('relu', this);
  }
  /** x * sigmoid(x). */
  silu(this: Tensor): Tensor {
    return unary('silu', this);
  }
  sigmoid(this: Tensor): Tensor {
    return unary('sigmoid', this);
  }
  floor(this: Tensor): Tensor {
    return unary('floor', this);
  }
  ceil(this: Tensor): Tensor {
    return unary('ceil', this);
  }
  /** Halves go away from zero. */
  round(this: Tensor): Tensor {
    return unary('round', this);
  }
  /** -1, 0 or 1. */
  sign(this: Tensor): Tensor {
    return unary('sign', this);
  }

  /** Rounded to a number of decimals, negative ones being powers of ten before the point. */
  roundTo(this: Tensor, decimals: number): Tensor {
    const factor = 10 ** decimals;
    return withTemporaries((temporary) => temporary(temporary(this.mul(factor)).round()).div(factor));
  }

  /** x * mul + add, the numbers rounded to the dtype first. */
  affine(this: Tensor, mul: number, add: number): Tensor {
    return compute('affine', [this], this.shape, this.dtype, () =>
      storageOf('affine', this).affine(this.layout, mul, add),
    );
  }

  /** x raised to a number. */
  powf(this: Tensor, exponent: number): Tensor {
    return compute('powf', [this], this.shape, this.dtype, () => storageOf('powf', this).powf(this.layout, exponent));
  }

  /** x where positive, else alpha * (exp(x) - 1). */
  elu(this: Tensor, alpha = 1): Tensor {
    return compute('elu', [this], this.shape, this.dtype, () => storageOf('elu', this).elu(this.layout, alpha));
  }

  /** Limited to [min, max]; the bounds are numbers or tensors of this shape. */
  clamp(this: Tensor, min: Tensor | number, max: Tensor | number): Tensor {
    return withTemporaries((temporary) => temporary(this.maximum(min)).minimum(max));
  }

  add(this: Tensor, rhs: Tensor | number): Tensor {
    if (typeof rhs !== 'number') return binary('add', this, rhs);
    return isInt(this.dtype) ? binaryScalar('add', this, rhs) : this.affine(1, rhs);
  }
  sub(this: Tensor, rhs: Tensor | number): Tensor {
    if (typeof rhs !== 'number') return binary('sub', this, rhs);
    return isInt(this.dtype) ? binaryScalar('sub', this, rhs) : this.affine(1, -rhs);
  }
  mul(this: Tensor, rhs: Tensor | number): Tensor {
    if (typeof rhs !== 'number') return binary('mul', this, rhs);
    return isInt(this.dtype) ? binaryScalar('mul', this, rhs) : this.affine(rhs, 0);
  }
  /** By a number: times its reciprocal for float dtypes, as candle. Integers truncate towards zero; by 0 they give 0. */
  div(this: Tensor, rhs: Tensor | number): Tensor {
    if (typeof rhs !== 'number') return binary('div', this, rhs);
    const exact = isInt(this.dtype) || sizeInBytes(this.dtype) < 4 || rhs === 0;
    return exact ? binaryScalar('div', this, rhs) : this.affine(1 / rhs, 0);
  }
  /** The larger; NaN if either is. */
  maximum(this: Tensor, rhs: Tensor | number): Tensor {
    return typeof rhs === 'number' ? binaryScalar('maximum', this, rhs) : binary('maximum', this, rhs);
  }
  minimum(this: Tensor, rhs: Tensor | number): Tensor {
    return typeof rhs === 'number' ? binaryScalar('minimum', this, rhs) : binary('minimum', this, rhs);
  }
  /** Elementwise power: `powf` for a number, exp(rhs * log(x)) for a tensor, as candle. */
  pow(this: Tensor, rhs: Tensor | number): Tensor {
    if (typeof rhs === 'number') return this.powf(rhs);
    return withTemporaries((temporary) => temporary(temporary(this.log()).mul(rhs)).exp());
  }

  broadcastAdd(this: Tensor, rhs: Tensor): Tensor {
    return broadcastBinary('add', this, rhs);
  }
  broadcastSub(this: Tensor, rhs: Tensor): Tensor {
    return broadcastBinary('sub', this, rhs);
  }
  broadcastMul(this: Tensor, rhs: Tensor): Tensor {
    return broadcastBinary('mul', this, rhs);
  }
  broadcastDiv(this: Tensor, rhs: Tensor): Tensor {
    return broadcastBinary('div', this, rhs);
  }
  broadcastMaximum(this: Tensor, rhs: Tensor): Tensor {
    return broadcastBinary('maximum', this, rhs);
  }
  broadcastMinimum(this: Tensor, rhs: Tensor): Tensor {
    return broadcastBinary('minimum', this, rhs);
  }
  broadcastPow(this: Tensor, rhs: Tensor): Tensor {
    return withTemporaries((temporary) => temporary(temporary(this.log()).broadcastMul(rhs)).exp());
  }
}

function unary(op: UnaryOp, tensor: Tensor): Tensor {
  return compute(op, [tensor], tensor.shape, tensor.dtype, () => storageOf(op, tensor).unary(op, tensor.layout));
}

function binary(op: BinaryOp, lhs: Tensor, rhs: Tensor): Tensor {
  if (!sameShape(lhs.shape, rhs.shape)) {
    const broadcast = `broadcast${op[0].toUpperCase()}${op.slice(1)}`;
    throw shapesDiffer(op, lhs.shape, rhs.shape, `make them equal, or use ${broadcast}`);
  }
  sameDType(op, lhs, rhs);
  return compute(op, [lhs, rhs], lhs.shape, lhs.dtype, () =>
    storageOf(op, lhs).binary(op, storageOf(op, rhs), lhs.layout, rhs.layout),
  );
}

function broadcastBinary(op: BinaryOp, lhs: Tensor, rhs: Tensor): Tensor {
  const name = `broadcast${op[0].toUpperCase()}${op.slice(1)}`;
  const shape = broadcastShapes(name, lhs.shape, rhs.shape);
  sameDType(name, lhs, rhs);
  return compute(name, [lhs, rhs], shape, lhs.dtype, () =>
    storageOf(name, lhs).binary(op, storageOf(name, rhs), lhs.layout.broadcastAs(shape), rhs.layout.broadcastAs(shape)),
  );
}

function binaryScalar(op: BinaryOp, lhs: Tensor, value: number): Tensor {
  return compute(op, [lhs], lhs.shape, lhs.dtype, () =>
    withScalar(op, lhs, value, (scalar, layout) => storageOf(op, lhs).binary(op, scalar, lhs.layout, layout)),
  );
}

/**
 * Runs `body` with a number as a storage of `like`'s dtype, broadcast to its shape.
 * @throws DTypeError for a number that an integer dtype cannot hold
 */
export function withScalar<T>(
  op: string,
  like: Tensor,
  value: number,
  body: (scalar: BackendStorage, layout: Layout) => T,
): T {
  const scalar = like.device.backend.fromHost(encodeInput(op, like.dtype, [value]), like.dtype);
  try {
    return body(scalar, scalarLayout(like.shape));
  } finally {
    scalar.dispose();
  }
}

function scalarLayout(shape: Shape): Layout {
  return Layout.contiguous([]).broadcastAs(shape);
}
