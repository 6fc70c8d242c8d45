/** What training makes small: candle-nn's `loss` (loss.rs). All give a scalar, the mean over the batch. */
import { ShapeError, scope, type Tensor } from '@x/core';
import { checkNumbers, checkTensors } from './check';
import { logSoftmax, softplus } from './ops';
import { inWideDType } from './wide';

function checkPair(op: string, inp: Tensor, target: Tensor): void {
  if (inp.shape.join() === target.shape.join()) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: input [${inp.shape}] and target [${target.shape}]; give them one shape.`,
  );
}

/**
 * Negative log likelihood.
 * @param inp log probabilities [n, classes]
 * @param target the right classes [n], u32 or another integer dtype
 */
export function nll(inp: Tensor, target: Tensor): Tensor {
  checkTensors('nll', { inp, target });
  if (inp.rank !== 2 || target.rank !== 1 || inp.dim(0) !== target.dim(0)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `nll: input [${inp.shape}] and target [${target.shape}]; give [n, classes] and [n].`,
    );
  }
  return scope(() => inp.gather(target.unsqueeze(1), 1).meanAll().neg());
}

/** {@link nll} of logits [n, classes]. Narrow floats go through f32. */
export function crossEntropy(inp: Tensor, target: Tensor): Tensor {
  checkTensors('crossEntropy', { inp, target });
  if (inp.rank !== 2) {
    throw new ShapeError('INVALID_SHAPE', `crossEntropy: logits of shape [${inp.shape}]; give [n, classes].`);
  }
  return scope(() => inWideDType(inp, (wide) => nll(logSoftmax(wide, 1), target)));
}

/** Mean of the squared differences. */
export function mse(inp: Tensor, target: Tensor): Tensor {
  checkTensors('mse', { inp, target });
  checkPair('mse', inp, target);
  return scope(() => inp.sub(target).sqr().meanAll());
}

/**
 * Binary cross-entropy of logits with targets from 0 to 1 of one shape. Computed as softplus(x) - x · target, which stays
 * finite where candle's logarithm of a sigmoid does not.
 */
export function binaryCrossEntropyWithLogit(inp: Tensor, target: Tensor): Tensor {
  checkTensors('binaryCrossEntropyWithLogit', { inp, target });
  checkPair('binaryCrossEntropyWithLogit', inp, target);
  return scope(() => softplus(inp).sub(inp.mul(target)).meanAll());
}

/** Squared (times 1/2) below `delta`, linear from there: 0.5 · d² or delta · (|d| - 0.5 · delta). */
export function huber(inp: Tensor, target: Tensor, delta: number): Tensor {
  checkTensors('huber', { inp, target });
  checkNumbers('huber', { delta });
  checkPair('huber', inp, target);
  return scope(() => {
    const size = inp.sub(target).abs();
    // Limited, because the slope of an infinite square would make the gradient NaN where the square does not count.
    const squared = size.minimum(delta).sqr().affine(0.5, 0);
    const linear = size.affine(delta, -0.5 * delta * delta);
    return size.lt(delta).whereCond(squared, linear).meanAll();
  });
}
