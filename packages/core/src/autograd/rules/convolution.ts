/**
 * Gradients of convolutions: that of the input is the transposed operation with the same kernel, that of the kernel is a
 * convolution of input and gradient with channels and batch exchanged, and stride and dilation too. Groups stay groups.
 *
 * Differs from candle: transposed convolutions in one dimension, groups, and axes that need different output padding.
 */
import type { Tensor } from '../../tensor';
import type { Rule } from '../record';

export interface ConvArgs {
  padding: number;
  stride: number;
  dilation: number;
  groups: number;
}

/** Operands: input [b, cIn, ..] and kernel [cOut, cIn / groups, ..]. */
export const convolution: Rule<ConvArgs> = {
  inputs: 'others',
  backward(call) {
    const { grad, args } = call;
    return [
      call.needs(0) ? inputGradient(grad, call.input(1), args, call.shape(0)) : null,
      call.needs(1) ? kernelGradient(call.input(0), grad, args, call.shape(1)) : null,
    ];
  },
};

/** Operands: input [b, cIn, ..] and kernel [cIn, cOut / groups, ..]. */
export const transposed: Rule<ConvArgs> = {
  inputs: 'others',
  backward(call) {
    const { grad, args } = call;
    return [
      call.needs(0) ? fitted(forward(grad, call.input(1), args), call.shape(0)) : null,
      call.needs(1) ? kernelGradient(grad, call.input(0), args, call.shape(1)) : null,
    ];
  },
};

function forward(input: Tensor, kernel: Tensor, { padding, stride, dilation, groups }: ConvArgs): Tensor {
  const options = { padding, stride, dilation, groups };
  return input.rank === 3 ? input.conv1d(kernel, options) : input.conv2d(kernel, options);
}

function inputGradient(grad: Tensor, kernel: Tensor, args: ConvArgs, shape: readonly number[]): Tensor {
  const { padding, stride, dilation, groups } = args;
  // What a stride leaves over at the end of an axis was read by no window; the axes may differ in it.
  const left = shape.slice(2).map((size, i) => {
    const reached = (grad.shape[i + 2] - 1) * stride - 2 * padding + dilation * (kernel.shape[i + 2] - 1) + 1;
    return size - reached;
  });
  const options = { padding, stride, dilation, groups, outputPadding: Math.max(...left) };
  const full = grad.rank === 3 ? grad.convTranspose1d(kernel, options) : grad.convTranspose2d(kernel, options);
  return fitted(full, shape);
}

/** Of the convolution that has read `read` [b, groups * c, ..] and made of it what `made` [b, groups * d, ..] belongs to. */
function kernelGradient(read: Tensor, made: Tensor, args: ConvArgs, shape: readonly number[]): Tensor {
  const { padding, stride, dilation, groups } = args;
  const [b, channels, ...sizes] = read.shape;
  const parts = read.reshape([b, groups, channels / groups, ...sizes]).transpose(0, 2);
  const input = parts.reshape([channels / groups, groups * b, ...sizes]);
  const swapped = { padding, stride: dilation, dilation: stride, groups };
  return fitted(forward(input, made.transpose(0, 1), swapped).transpose(0, 1), shape);
}

/** The first elements of every axis, as many as `shape` has. */
function fitted(tensor: Tensor, shape: readonly number[]): Tensor {
  return shape.reduce((part, size, d) => (part.shape[d] === size ? part : part.narrow(d, 0, size)), tensor);
}
