/**
 * Gradients of pooling and resizing, for every window, stride and size (candle: windows as wide as their stride, whole
 * factors, nothing bilinear). They are made of windows, index additions and matrix products, which every device has.
 */
import type { BackendDevice, BilinearParams, Pool2dParams } from '../../backend';
import type { Tensor } from '../../tensor';
import { compute, fromValuesBy, idsOn, operandOf, zerosBy } from '../../tensor/base';
import { between, nearest as nearestOf } from '../../windows';
import { isGradEnabled } from '../mode';
import type { Call, Rule } from '../record';
import { asNumbers } from './shared';
import { fold } from './views';

/** Windows [b, c, hOut, wOut, kH, kW] added back into the image. */
function foldWindows(windows: Tensor, params: Pool2dParams, shape: readonly number[]): Tensor {
  const { kH, kW, strideH, strideW } = params;
  const rows = fold(windows, { dim: 3, size: kW, step: strideW }, shape[3]);
  return fold(rows, { dim: 2, size: kH, step: strideH }, shape[2]);
}

/** A value for every window repeated over its elements. */
function overWindows(values: Tensor, { kH, kW }: Pool2dParams): Tensor {
  return values.reshape([...values.shape, 1, 1]).broadcastAs([...values.shape, kH, kW]);
}

export const avgPool2d: Rule<Pool2dParams> = {
  backward(call) {
    const { args } = call;
    const each = call.grad.div(args.kH * args.kW);
    return [foldWindows(overWindows(each, args), args, call.shape(0))];
  },
};

/** Elements of a window that are equally large share its gradient. */
export const maxPool2d: Rule<Pool2dParams> = {
  inputs: [0],
  output: true,
  backward(call) {
    const { args, grad } = call;
    const made = inOneKernel(call);
    if (made) return [made];
    const windows = call.input(0).unfold(2, args.kH, args.strideH).unfold(3, args.kW, args.strideW);
    const winners = asNumbers(windows.eq(overWindows(call.output, args)), grad);
    const each = grad.div(winners.sum([4, 5]));
    return [foldWindows(winners.mul(overWindows(each, args)), args, call.shape(0))];
  },
};

/** By the device's kernel, whose result has no gradient of its own. */
function inOneKernel(call: Call<Pool2dParams>): Tensor | undefined {
  const x = call.input(0);
  const fits = ['f32', 'f16', 'bf16'].includes(x.dtype);
  if (isGradEnabled() || !fits || !x.device.backend.resampling?.maxPool2dBackward) return undefined;
  const [op, parts] = ['maxPool2dBackward', [call.output.contiguous(), call.grad.contiguous()]];
  const [maxima, grad] = parts.map((part) => operandOf(op, part));
  const run = ({ resampling }: BackendDevice) =>
    resampling!.maxPool2dBackward!(operandOf(op, x), maxima, grad, call.args);
  return compute(op, [x, ...parts], x.shape, x.dtype, run);
}

/** Nearest elements, over the last axis or the last two: each position of the result goes back to where it came from. */
export const nearest: Rule = {
  backward(call) {
    const shape = call.shape(0);
    let gradient = call.grad;
    for (let d = shape.length - 1; d >= 2; d--) gradient = addNearest(gradient, d, shape[d]);
    return [gradient];
  },
};

function addNearest(grad: Tensor, dim: number, size: number): Tensor {
  const out = grad.dim(dim);
  if (out === size) return grad;
  const zeros = zerosBy(
    grad,
    grad.shape.map((n, d) => (d === dim ? size : n)),
  );
  return zeros.indexAdd(idsOn(grad, nearestOf(size, out)), grad, dim);
}

/** Resizing is a product with a matrix on either side, so its gradient is one with their transposes. */
export const bilinear: Rule<BilinearParams> = {
  backward(call) {
    const { hOut, wOut, alignCorners, scaleH, scaleW } = call.args;
    const [, , h, w] = call.shape(0);
    const rows = weights(call, h, hOut, alignCorners, scaleH);
    const columns = weights(call, w, wOut, alignCorners, scaleW);
    return [rows.t().broadcastMatmul(call.grad.broadcastMatmul(columns))];
  },
};

/** [out, size], how much each input position has in each output position. */
function weights(
  call: Call<BilinearParams>,
  size: number,
  out: number,
  alignCorners: boolean,
  factor?: number,
): Tensor {
  const matrix = new Float64Array(out * size);
  between(size, out, alignCorners, factor).forEach(({ low, high, weight }, i) => {
    matrix[i * size + low] += 1 - weight;
    matrix[i * size + high] += weight;
  });
  return fromValuesBy(call.grad, matrix, [out, size]);
}
