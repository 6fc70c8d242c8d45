/**
 * Functions on tensors that layers are made of: candle-nn's `ops` (ops.rs). Results belong to the caller's scope; what is
 * made on the way is disposed.
 */
import { ShapeError, scope, type Tensor } from '@x/core';

/** exp(x) normalised to sum 1 over `dim` (negative: from the end); the largest value is subtracted first. */
export function softmax(xs: Tensor, dim: number): Tensor {
  if (dim === -1 || dim === xs.rank - 1) return softmaxLastDim(xs);
  return scope(() => {
    const weights = xs.broadcastSub(xs.maxKeepdim(dim)).exp();
    return weights.broadcastDiv(weights.sumKeepdim(dim));
  });
}

/** {@link softmax} over the last dimension, one kernel. */
export function softmaxLastDim(xs: Tensor): Tensor {
  return xs.softmaxLastDim();
}

/** log(softmax(x)) over `dim`, without the loss of taking the log afterwards. */
export function logSoftmax(xs: Tensor, dim: number): Tensor {
  return scope(() => {
    const shifted = xs.broadcastSub(xs.maxKeepdim(dim));
    return shifted.broadcastSub(shifted.exp().sumKeepdim(dim).log());
  });
}

/** x / sqrt(mean(x²) + eps) · alpha over the last dimension, one kernel. alpha: [size]. */
export function rmsNorm(xs: Tensor, alpha: Tensor, eps: number): Tensor {
  return xs.rmsNorm(alpha, eps);
}

/** x · sigmoid(x). */
export function silu(xs: Tensor): Tensor {
  return xs.silu();
}

/** silu of the first half of the last dimension times the second half: [..., 2n] to [..., n]. */
export function swiglu(xs: Tensor): Tensor {
  const width = xs.dim(-1);
  if (width % 2 !== 0) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `swiglu: the last dimension of [${xs.shape}] is odd; give gate and value side by side.`,
    );
  }
  return scope(() => {
    const gate = xs.narrow(-1, 0, width / 2);
    return gate.silu().mul(xs.narrow(-1, width / 2, width / 2));
  });
}
