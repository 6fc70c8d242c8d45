/**
 * Gradients of reductions and running sums. mean, var, norm and logSumExp are made of operations that have theirs.
 *
 * Differs from candle: where several elements are the largest or smallest, they share the gradient (candle gives each all
 * of it, which is more than the result's), and the norm of zeros has a gradient of 0, as in PyTorch (candle: NaN).
 */
import type { Shape } from '../../shape';
import type { Tensor } from '../../tensor';
import type { Call, Rule } from '../record';
import { asNumbers } from './shared';

/** `args` is the operand's shape with the reduced dimensions as 1. */
export const sum: Rule<Shape> = {
  backward: (call) => [call.grad.reshape(call.args).broadcastAs(call.shape(0))],
};

/** max and min, `args` as for {@link sum}. */
export const extreme: Rule<Shape> = {
  inputs: [0],
  output: true,
  backward: (call) => [sharedByWinners(call)],
};

function sharedByWinners(call: Call<Shape>): Tensor {
  const kept = call.args;
  const x = call.input(0);
  const winners = asNumbers(x.broadcastEq(call.output.reshape(kept)), call.grad);
  const reduced = x.shape.flatMap((size, d) => (size === kept[d] ? [] : [d]));
  const count = reduced.length === 0 ? winners : winners.sumKeepdim(reduced);
  return call.grad.reshape(kept).div(count).broadcastMul(winners);
}

/** The root of a sum of squares. Where it is 0, so is the slope of each square: the root's, which is infinite, does not count. */
export const rootOfSquares: Rule = {
  output: true,
  backward: (call) => {
    const root = call.output;
    return [call.grad.div(root.add(asNumbers(root.eq(0), root))).affine(0.5, 0)];
  },
};

/** `args` is the dimension: an element is part of its own sum and of all behind it. */
export const cumsum: Rule<number> = {
  backward: (call) => [call.grad.flip([call.args]).cumsum(call.args).flip([call.args])],
};
