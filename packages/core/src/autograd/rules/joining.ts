/** Gradients of putting tensors together. */
import type { Rule } from '../record';

/** `args` is the dimension. */
export const cat: Rule<number> = {
  backward(call) {
    const { grad, args: dim } = call;
    let start = 0;
    return Array.from({ length: call.count }, (_, i) => {
      const length = call.shape(i)[dim];
      start += length;
      return call.needs(i) ? grad.narrow(dim, start - length, length) : null;
    });
  },
};

/** `args` are the dimension and the number of zeros in front. */
export const padWithZeros: Rule<readonly [dim: number, left: number]> = {
  backward: (call) => {
    const [dim, left] = call.args;
    return [call.grad.narrow(dim, left, call.shape(0)[dim])];
  },
};

/** Operands: the tensor and what is written over it; `args` are the dimension and where the writing starts. */
export const sliceScatter: Rule<readonly [dim: number, start: number]> = {
  backward(call) {
    const { grad } = call;
    const [dim, start] = call.args;
    const written = grad.narrow(dim, start, call.shape(1)[dim]);
    return [call.needs(0) ? grad.sliceScatter(written.zerosLike(), dim, start) : null, call.needs(1) ? written : null];
  },
};

/** `args` are the dimensions. */
export const flip: Rule<readonly number[]> = { backward: (call) => [call.grad.flip(call.args)] };
