/** Gradients of matrix products, with any leading dimensions on either side. */
import { elemCount } from '../../shape';
import type { Tensor } from '../../tensor';
import type { Rule } from '../record';
import { sumTo } from './shared';

/**
 * `args` say which operands are transposed views (of weights, mostly). Their gradients are made as transposed views too, so
 * that what is behind the view gets a contiguous gradient without a copy.
 */
export const matmul: Rule<readonly [lhs: boolean, rhs: boolean]> = {
  inputs: 'others',
  backward: (call) => [
    call.needs(0) ? leftGradient(call.grad, call.input(1), call.shape(0), call.args[0]) : null,
    call.needs(1) ? rightGradient(call.input(0), call.grad, call.shape(1), call.args[1]) : null,
  ],
};

/** grad · rhsᵀ, summed over the leading dimensions that the left operand lacks. */
function leftGradient(grad: Tensor, rhs: Tensor, shape: readonly number[], transposed: boolean): Tensor {
  const leading = grad.shape.slice(0, -2);
  if (elemCount(rhs.shape.slice(0, -2)) === 1 && elemCount(leading) === elemCount(shape.slice(0, -2))) {
    // One weight for a whole batch: one product over all rows.
    const weight = rhs.reshape(rhs.shape.slice(-2));
    const rows = grad.reshape([elemCount(grad.shape.slice(0, -1)), grad.dim(-1)]);
    return rows.matmul(weight.t()).reshape(shape);
  }
  return sumTo(transposed ? rhs.broadcastMatmul(grad.t()).t() : grad.broadcastMatmul(rhs.t()), shape);
}

/** lhsᵀ · grad, summed over the leading dimensions that the right operand lacks. */
function rightGradient(lhs: Tensor, grad: Tensor, shape: readonly number[], transposed: boolean): Tensor {
  const leading = lhs.shape.slice(0, -2);
  const sameLeading = elemCount(leading) === elemCount(grad.shape.slice(0, -2));
  if (elemCount(shape.slice(0, -2)) === 1 && leading.length > 0 && sameLeading) {
    // Likewise, instead of one product a batch entry and a sum.
    const rows = elemCount(lhs.shape.slice(0, -1));
    const all = lhs
      .reshape([rows, lhs.dim(-1)])
      .t()
      .matmul(grad.reshape([rows, grad.dim(-1)]));
    return all.reshape(shape);
  }
  return sumTo(transposed ? grad.t().broadcastMatmul(lhs).t() : lhs.t().broadcastMatmul(grad), shape);
}
