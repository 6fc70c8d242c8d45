/**
 * Gradients of picking and placing by index tensors: the one is the reverse of the other.
 *
 * Differs from candle: `scatterAdd` hands the whole gradient to what it adds to (candle zeroes it at the ids), `scatter`
 * none of it where it overwrites (candle gives all), and ids may be smaller than the tensor and the source.
 */
import type { Shape } from '../../shape';
import type { Tensor } from '../../tensor';
import { zerosBy } from '../../tensor/base';
import type { Rule } from '../record';

/** Operands: the tensor, the ids (rank 1); `args` is the dimension. */
export const indexSelect: Rule<number> = {
  inputs: [1],
  backward: (call) => [zerosBy(call.grad, call.shape(0)).indexAdd(call.input(1), call.grad, call.args), null],
};

/** Operands: the tensor, the ids (of its rank); `args` is the dimension. */
export const gather: Rule<number> = {
  inputs: [1],
  backward: (call) => [zerosBy(call.grad, call.shape(0)).scatterAdd(call.input(1), call.grad, call.args), null],
};

/** The gradient of a scattered source of this shape: zeros beyond the ids. */
function ofSource(grad: Tensor, ids: Tensor, dim: number, shape: Shape): Tensor {
  let gradient = grad.gather(ids, dim);
  ids.shape.forEach((size, d) => {
    if (size < shape[d]) gradient = gradient.padWithZeros(d, 0, shape[d] - size);
  });
  return gradient;
}

/** Operands: the tensor, the ids, the source; `args` is the dimension. */
export const scatter: Rule<number> = {
  inputs: [1],
  backward(call) {
    const { grad, args: dim } = call;
    const ids = call.input(1);
    return [
      call.needs(0) ? grad.scatter(ids, zerosBy(grad, ids.shape), dim) : null,
      null,
      call.needs(2) ? ofSource(grad, ids, dim, call.shape(2)) : null,
    ];
  },
};

export const scatterAdd: Rule<number> = {
  inputs: [1],
  backward: (call) => [
    call.grad,
    null,
    call.needs(2) ? ofSource(call.grad, call.input(1), call.args, call.shape(2)) : null,
  ],
};

/** Operands: the tensor, the ids (rank 1), the source; `args` is the dimension. */
export const indexAdd: Rule<number> = {
  inputs: [1],
  backward: (call) => [call.grad, null, call.needs(2) ? call.grad.indexSelect(call.input(1), call.args) : null],
};
