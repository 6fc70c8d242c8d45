/**
 * Functions on tensors that layers are made of: candle-nn's `ops` (ops.rs). Results belong to the caller's scope; what is
 * made on the way is disposed. `sdpa` is in attention/sdpa.ts and is exported from here too, as in candle.
 */
import { CandleError, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkDimOf, checkNumbers, checkPositive, checkTensors } from './check';
import { type Module, type ModuleT, same } from './module';
import { inWideDType, wideDType } from './wide';

export { type SdpaOptions, sdpa } from './attention/sdpa';
export { wideDType };

/**
 * exp(x) normalised to sum 1 over `dim` (negative: from the end); the largest value is subtracted first. Narrow floats go through
 * f32.
 */
export function softmax(xs: Tensor, dim: number): Tensor {
  checkTensors('softmax', { xs });
  checkDimOf('softmax', xs, dim);
  if (dim === -1 || dim === xs.rank - 1) return softmaxLastDim(xs);
  if (xs.elemCount === 0) return same(xs);
  return scope(() =>
    inWideDType(xs, (wide) => {
      const weights = wide.broadcastSub(wide.maxKeepdim(dim).detach()).exp();
      return weights.broadcastDiv(weights.sumKeepdim(dim));
    }),
  );
}

/** {@link softmax} over the last dimension, one kernel. */
export function softmaxLastDim(xs: Tensor): Tensor {
  checkTensors('softmaxLastDim', { xs });
  return xs.softmaxLastDim();
}

/** log(softmax(x)) over `dim`, without the loss of taking the log afterwards. Narrow floats go through f32. */
export function logSoftmax(xs: Tensor, dim: number): Tensor {
  checkTensors('logSoftmax', { xs });
  checkDimOf('logSoftmax', xs, dim);
  if (xs.elemCount === 0) return same(xs);
  return scope(() =>
    inWideDType(xs, (wide) => {
      const shifted = wide.broadcastSub(wide.maxKeepdim(dim).detach());
      return shifted.broadcastSub(shifted.exp().sumKeepdim(dim).log());
    }),
  );
}

/** x / sqrt(mean(x²) + eps) · alpha over the last dimension, one kernel. alpha: [size]. */
export function rmsNorm(xs: Tensor, alpha: Tensor, eps: number): Tensor {
  checkTensors('rmsNorm', { xs, alpha });
  checkNumbers('rmsNorm', { eps });
  return xs.rmsNorm(alpha, eps);
}

/** {@link rmsNorm} in steps that have gradients of their own. */
export function rmsNormSlow(xs: Tensor, alpha: Tensor, eps: number): Tensor {
  checkTensors('rmsNormSlow', { xs, alpha });
  checkNumbers('rmsNormSlow', { eps });
  return scope(() => {
    const wide = xs.toDtype(wideDType(xs.dtype));
    const scale = wide.sqr().meanKeepdim(-1).affine(1, eps).sqrt();
    return wide.broadcastDiv(scale).toDtype(xs.dtype).broadcastMul(alpha);
  });
}

/** (x - mean) / sqrt(variance + eps) · alpha + beta over the last dimension, one kernel. alpha and beta: [size]. */
export function layerNorm(xs: Tensor, alpha: Tensor, beta: Tensor, eps: number): Tensor {
  checkTensors('layerNorm', { xs, alpha, beta });
  checkNumbers('layerNorm', { eps });
  return xs.layerNorm(alpha, beta, eps);
}

/** {@link layerNorm} in steps that have gradients of their own. */
export function layerNormSlow(xs: Tensor, alpha: Tensor, beta: Tensor, eps: number): Tensor {
  checkTensors('layerNormSlow', { xs, alpha, beta });
  checkNumbers('layerNormSlow', { eps });
  return scope(() => {
    const wide = xs.toDtype(wideDType(xs.dtype));
    const centred = wide.broadcastSub(wide.meanKeepdim(-1));
    const scale = centred.sqr().meanKeepdim(-1).affine(1, eps).sqrt();
    return centred.broadcastDiv(scale).toDtype(xs.dtype).broadcastMul(alpha).broadcastAdd(beta);
  });
}

/** 1 / (1 + exp(-x)). */
export function sigmoid(xs: Tensor): Tensor {
  checkTensors('sigmoid', { xs });
  return xs.sigmoid();
}

/** (x + 3) / 6, limited to [0, 1]. */
export function hardSigmoid(xs: Tensor): Tensor {
  checkTensors('hardSigmoid', { xs });
  return scope(() => xs.add(3).clamp(0, 6).div(6));
}

/** x · sigmoid(x). */
export function silu(xs: Tensor): Tensor {
  checkTensors('silu', { xs });
  return xs.silu();
}

/** silu of the first half of the last dimension times the second half: [..., 2n] to [..., n]. */
export function swiglu(xs: Tensor): Tensor {
  checkTensors('swiglu', { xs });
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

/** log(1 + exp(x)), to the last places for any x: x for large ones and infinity, exp(x) for very negative ones. */
export function softplus(xs: Tensor): Tensor {
  checkTensors('softplus', { xs });
  return xs.softplus();
}

/** x · tanh(softplus(x)). candle's overflows in f16 from x = 12. */
export function mish(xs: Tensor): Tensor {
  checkTensors('mish', { xs });
  return xs.mish();
}

/** x where positive, else `negativeSlope` · x. */
export function leakyRelu(xs: Tensor, negativeSlope: number): Tensor {
  checkTensors('leakyRelu', { xs });
  checkNumbers('leakyRelu', { negativeSlope });
  return scope(() => xs.gt(0).whereCond(xs, xs.mul(negativeSlope)));
}

/** gamma · (x where positive, else alpha · (exp(x) - 1)); the defaults are those of the paper. */
export function selu(xs: Tensor, alpha = 1.6732632423543772, gamma = 1.0507009873554805): Tensor {
  checkTensors('selu', { xs });
  checkNumbers('selu', { alpha, gamma });
  return scope(() => xs.elu(alpha).mul(gamma));
}

/**
 * Zeroes each element with probability `dropP` and scales the others by 1 / (1 - dropP). Numbers come from the device's
 * stream: see `Device.setSeed`.
 */
export function dropout(xs: Tensor, dropP: number): Tensor {
  checkTensors('dropout', { xs });
  checkNumbers('dropout', { dropP });
  if (!(dropP >= 0 && dropP < 1)) {
    throw new CandleError(
      'INVALID_ARGUMENT',
      `dropout: probability ${dropP}; give one from 0 up to, not including, 1.`,
    );
  }
  if (dropP === 0) return same(xs);
  return scope(() => {
    const noise = Tensor.rand(0, 1, xs.shape, wideDType(xs.dtype), xs.device);
    return xs.mul(
      noise
        .ge(dropP)
        .toDtype(xs.dtype)
        .affine(1 / (1 - dropP), 0),
    );
  });
}

/** {@link dropout} while training, nothing otherwise. */
export class Dropout implements ModuleT {
  /** @param dropP probability of a zero, from 0 to below 1, as {@link dropout} checks */
  constructor(readonly dropP: number) {
    checkNumbers('Dropout', { dropP });
  }

  /** Any shape, to the same. @throws CandleError INVALID_ARGUMENT as {@link dropout}, while training */
  forward(xs: Tensor, train: boolean): Tensor {
    checkTensors('Dropout', { xs });
    return train ? dropout(xs, this.dropP) : same(xs);
  }

  forwardT(xs: Tensor, train: boolean): Tensor {
    checkTensors('Dropout', { xs });
    return this.forward(xs, train);
  }
}

/** Gives back what it is given. */
export class Identity implements Module {
  forward(xs: Tensor): Tensor {
    checkTensors('Identity', { xs });
    return same(xs);
  }

  dispose(): void {}

  [Symbol.dispose](): void {}
}

function sizes4(op: string, xs: Tensor): readonly [b: number, c: number, h: number, w: number] {
  if (xs.rank !== 4) {
    throw new ShapeError('INVALID_SHAPE', `${op}: the image has shape [${xs.shape}]; give [b, c, h, w].`);
  }
  const [b, c, h, w] = xs.shape;
  return [b, c, h, w];
}

/** Channels into space: [b, c · f², h, w] to [b, c, h · f, w · f]. */
export function pixelShuffle(xs: Tensor, upscaleFactor: number): Tensor {
  checkTensors('pixelShuffle', { xs });
  checkPositive('pixelShuffle', { upscaleFactor });
  const [b, c, h, w] = sizes4('pixelShuffle', xs);
  const f = upscaleFactor;
  if (c % (f * f) !== 0) {
    throw new ShapeError('INVALID_SHAPE', `pixelShuffle: ${c} channels; give a multiple of ${f * f}.`);
  }
  const out = c / f / f;
  return scope(() =>
    xs
      .reshape([b, out, f, f, h, w])
      .permute([0, 1, 4, 2, 5, 3])
      .reshape([b, out, h * f, w * f]),
  );
}

/** Space into channels: [b, c, h · f, w · f] to [b, c · f², h, w]. */
export function pixelUnshuffle(xs: Tensor, downscaleFactor: number): Tensor {
  checkTensors('pixelUnshuffle', { xs });
  checkPositive('pixelUnshuffle', { downscaleFactor });
  const [b, c, h, w] = sizes4('pixelUnshuffle', xs);
  const f = downscaleFactor;
  if (h % f !== 0 || w % f !== 0) {
    throw new ShapeError('INVALID_SHAPE', `pixelUnshuffle: an image of ${h}x${w}; give multiples of ${f}.`);
  }
  return scope(() =>
    xs
      .reshape([b, c, h / f, f, w / f, f])
      .permute([0, 1, 3, 5, 2, 4])
      .reshape([b, c * f * f, h / f, w / f]),
  );
}

/** Rows and columns at the border of [b, c, h, w] repeated `pad` times outwards; candle knows 0 and 1 only. */
export function replicationPad2d(xs: Tensor, pad: number): Tensor {
  checkTensors('replicationPad2d', { xs });
  kinds.check('replicationPad2d', 'pad', pad, kinds.COUNT);
  sizes4('replicationPad2d', xs);
  if (pad === 0) return same(xs);
  return scope(() => xs.padWithSame(3, pad, pad).padWithSame(2, pad, pad));
}
