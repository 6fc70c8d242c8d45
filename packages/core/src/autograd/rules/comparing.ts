/** Gradients of choosing; comparisons themselves give u8 tensors, through which nothing is differentiated. */
import type { Rule } from '../record';
import { sumTo } from './shared';

/** Operands: the condition, the value where it holds, the value where it does not. */
export const whereCond: Rule = {
  inputs: [0],
  backward(call) {
    const condition = call.input(0);
    const zeros = call.grad.zerosLike();
    return [
      null,
      call.needs(1) ? sumTo(condition.whereCond(call.grad, zeros), call.shape(1)) : null,
      call.needs(2) ? sumTo(condition.whereCond(zeros, call.grad), call.shape(2)) : null,
    ];
  },
};
