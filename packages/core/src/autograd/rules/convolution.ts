/**
 * Gradients of convolutions: that of the input is the transposed operation with the same kernel, that of the kernel is a
 * convolution of input and gradient with channels and batch exchanged, and stride and dilation too.
 *
 * Differs from candle: transposed convolutions in one dimension, and axes that need different output padding.
 */
import type { Tensor } from '../../tensor';
import type { Rule } from '../record';

/** The options of one group. */
export interface ConvArgs {
  padding: number;
  stride: number;
  dilation: number;
}

/** Operands: input [b, cIn, ..] and kernel [cOut, cIn, ..]. */
export const convolution: Rule<ConvArgs> = {
  inputs: 'others',
  backward(call) {
    const { grad, args } = call;
    const swapped = { padding: args.padding, stride: args.dilation, dilation: args.stride };
    return [
      call.needs(0) ? inputGradient(grad, call.input(1), args, call.shape(0)) : null,
      call.needs(1)
        ? fitted(forward(call.input(0).transpose(0, 1), grad.transpose(0, 1), swapped).transpose(0, 1), call.shape(1))
        : null,
    ];
  },
};

/** Operands: input [b, cIn, ..] and kernel [cIn, cOut, ..]. */
export const transposed: Rule<ConvArgs> = {
  inputs: 'others',
  backward(call) {
    const { grad, args } = call;
    const swapped = { padding: args.padding, stride: args.dilation, dilation: args.stride };
    return [
      call.needs(0) ? fitted(forward(grad, call.input(1), args), call.shape(0)) : null,
      call.needs(1)
        ? fitted(forward(grad.transpose(0, 1), call.input(0).transpose(0, 1), swapped).transpose(0, 1), call.shape(1))
        : null,
    ];
  },
};

function forward(input: Tensor, kernel: Tensor, { padding, stride, dilation }: ConvArgs): Tensor {
  const options = { padding, stride, dilation };
  return input.rank === 3 ? input.conv1d(kernel, options) : input.conv2d(kernel, options);
}

function inputGradient(grad: Tensor, kernel: Tensor, args: ConvArgs, shape: readonly number[]): Tensor {
  const { padding, stride, dilation } = args;
  // What a stride leaves over at the end of an axis was read by no window; the axes may differ in it.
  const left = shape.slice(2).map((size, i) => {
    const reached = (grad.shape[i + 2] - 1) * stride - 2 * padding + dilation * (kernel.shape[i + 2] - 1) + 1;
    return size - reached;
  });
  const options = { padding, stride, dilation, outputPadding: Math.max(...left) };
  const full = grad.rank === 3 ? grad.convTranspose1d(kernel, options) : grad.convTranspose2d(kernel, options);
  return fitted(full, shape);
}

/** The first elements of every axis, as many as `shape` has. */
function fitted(tensor: Tensor, shape: readonly number[]): Tensor {
  return shape.reduce((part, size, d) => (part.shape[d] === size ? part : part.narrow(d, 0, size)), tensor);
}
