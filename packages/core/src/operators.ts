/**
 * Arithmetic with the number on either side, for code that reads like formulas: candle's operators `&a + &b`, `&a * 2.`,
 * `1. - &a`. JavaScript has no operators for objects, so they are functions:
 *
 * ```ts
 * const { add, mul, sub } = operators;
 * sub(1, mul(Tensor.from([1, 2]), 0.5)).toVecSync(); // => [0.5, 0]
 * ```
 * As in candle two tensors must have one shape; for others there are the `broadcast...` methods. A number takes the
 * tensor's dtype, and an integer tensor refuses one that it cannot hold. The caller owns the result.
 */
import { check } from './check';
import { CandleError } from './errors';
import { Tensor } from './tensor';
import type { Operand as TensorOrNumber } from './tensor/elementwise';
import { OPERAND, TENSOR } from './tensor/signatures';

/** A tensor, a number or a bigint; at least one of two is a tensor. An alias: the declarations cannot export a type of another file here. */
export type Operand = TensorOrNumber;

/** lhs + rhs. @throws ShapeError, DTypeError, DeviceError; CandleError `INVALID_ARGUMENT` for two numbers */
export function add(lhs: Operand, rhs: Operand): Tensor {
  if (lhs instanceof Tensor) return lhs.add(rhs);
  check('add', 'lhs', lhs, OPERAND);
  return tensorOf('add', rhs).add(lhs);
}

/** lhs - rhs; errors as {@link add}. */
export function sub(lhs: Operand, rhs: Operand): Tensor {
  return lhs instanceof Tensor ? lhs.sub(rhs) : fromNumber('sub', lhs, rhs, (left, right) => left.broadcastSub(right));
}

/** lhs * rhs; errors as {@link add}. */
export function mul(lhs: Operand, rhs: Operand): Tensor {
  if (lhs instanceof Tensor) return lhs.mul(rhs);
  check('mul', 'lhs', lhs, OPERAND);
  return tensorOf('mul', rhs).mul(lhs);
}

/** lhs / rhs; errors as {@link add}. Integers truncate towards zero. */
export function div(lhs: Operand, rhs: Operand): Tensor {
  return lhs instanceof Tensor ? lhs.div(rhs) : fromNumber('div', lhs, rhs, (left, right) => left.broadcastDiv(right));
}

/** -x. */
export function neg(x: Tensor): Tensor {
  check('neg', 'x', x, TENSOR);
  return x.neg();
}

function tensorOf(op: string, operand: Operand): Tensor {
  if (operand instanceof Tensor) return operand;
  throw new CandleError('INVALID_ARGUMENT', `${op}: neither operand is a tensor; make one with Tensor.from.`);
}

function fromNumber(
  op: string,
  value: number | bigint,
  rhs: Operand,
  body: (lhs: Tensor, rhs: Tensor) => Tensor,
): Tensor {
  check(op, 'lhs', value, OPERAND);
  const tensor = tensorOf(op, rhs);
  const scalar = Tensor.full(value, [], tensor.dtype, tensor.device);
  try {
    return body(scalar, tensor);
  } finally {
    scalar.dispose();
  }
}
