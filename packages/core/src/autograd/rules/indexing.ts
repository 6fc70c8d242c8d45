/**
 * Gradients of picking and placing by index tensors: the one is the reverse of the other.
 *
 * Differs from candle: `scatterAdd` hands the whole gradient to what it adds to (candle zeroes it at the ids), `scatter`
 * none of it where it overwrites (candle gives all), and `gather` takes ids that are smaller than the tensor.
 */
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
  backward(call) {
    const shape = call.shape(0);
    const ids = call.input(1);
    const reached = ids.shape.map((size, d) => (d === call.args ? shape[d] : size));
    let gradient: Tensor = zerosBy(call.grad, reached).scatterAdd(ids, call.grad, call.args);
    reached.forEach((size, d) => {
      if (size < shape[d]) gradient = gradient.padWithZeros(d, 0, shape[d] - size);
    });
    return [gradient, null];
  },
};

/** Operands: the tensor, the ids, the source; `args` is the dimension. */
export const scatter: Rule<number> = {
  inputs: [1],
  backward(call) {
    const { grad, args: dim } = call;
    const ids = call.input(1);
    return [
      call.needs(0) ? grad.scatter(ids, zerosBy(grad, ids.shape), dim) : null,
      null,
      call.needs(2) ? grad.gather(ids, dim) : null,
    ];
  },
};

export const scatterAdd: Rule<number> = {
  inputs: [1],
  backward: (call) => [call.grad, null, call.needs(2) ? call.grad.gather(call.input(1), call.args) : null],
};

/** Operands: the tensor, the ids (rank 1), the source; `args` is the dimension. */
export const indexAdd: Rule<number> = {
  inputs: [1],
  backward: (call) => [call.grad, null, call.needs(2) ? call.grad.indexSelect(call.input(1), call.args) : null],
};
