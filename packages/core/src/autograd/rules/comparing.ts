/** Gradients of choosing; comparisons themselves give u8 tensors, through which nothing is differentiated. */
import type { Rule } from '../record';

/** Operands: the condition, the value where it holds, the value where it does not. */
export const whereCond: Rule = {
  inputs: [0],
  backward(call) {
    const condition = call.input(0);
    const zeros = call.grad.zerosLike();
    return [
      null,
      call.needs(1) ? condition.whereCond(call.grad, zeros) : null,
      call.needs(2) ? condition.whereCond(zeros, call.grad) : null,
    ];
  },
};
