/** What the rules of several families need. */
import { type Shape, sameShape } from '../../shape';
import type { Tensor } from '../../tensor';
import type { Rule } from '../record';

/** Operations that hand their operand's elements on as they are: contiguous, copy, the identity cases of others. */
export const identity: Rule = { backward: ({ grad }) => [grad] };

/** Operations that keep the elements in row-major order under another shape. */
export const reshaped: Rule = { backward: (call) => [call.grad.reshape(call.shape(0))] };

/** A rule from the slope at the operand's value. */
export const byInput = (gradient: (grad: Tensor, x: Tensor) => Tensor): Rule => ({
  inputs: [0],
  backward: (call) => [gradient(call.grad, call.input(0))],
});

/** A rule from the slope at the result's value. */
export const byOutput = (gradient: (grad: Tensor, y: Tensor) => Tensor): Rule => ({
  output: true,
  backward: (call) => [gradient(call.grad, call.output)],
});

/** The reverse of broadcasting to `from.shape`: the sum over what was repeated. */
export function sumTo(from: Tensor, shape: Shape): Tensor {
  if (sameShape(from.shape, shape)) return from;
  const added = from.rank - shape.length;
  const repeated = from.shape.map((_, d) => d).filter((d) => d < added || shape[d - added] !== from.shape[d]);
  return from.sumKeepdim(repeated).reshape(shape);
}

/** A u8 mask as numbers of `like`'s dtype. */
export function asNumbers(mask: Tensor, like: Tensor): Tensor {
  return mask.toDtype(like.dtype);
}
