/** Gradients of the functions of one element and a number; those without are rows of elementwise/unary.ts and binary.ts. */
import type { Rule } from '../record';

/** `args` is the factor. */
export const affine: Rule<number> = { backward: ({ grad, args: mul }) => [grad.mul(mul)] };

/** `args` is the exponent. */
export const powf: Rule<number> = {
  inputs: [0],
  backward(call) {
    const exponent = call.args;
    // 0 · x⁻¹ would be NaN at 0, where the slope of a constant is 0.
    if (exponent === 0) return [call.grad.zerosLike()];
    return [
      call.grad.mul(
        call
          .input(0)
          .powf(exponent - 1)
          .affine(exponent, 0),
      ),
    ];
  },
};

/** `args` is alpha. */
export const elu: Rule<number> = {
  inputs: [0],
  backward(call) {
    const x = call.input(0);
    const positive = x.gt(0);
    // The exponential of large positive elements, which are not used, must not become infinite.
    const steep = positive.whereCond(x.zerosLike(), x).exp().affine(call.args, 0);
    return [call.grad.mul(positive.whereCond(x.onesLike(), steep))];
  },
};
