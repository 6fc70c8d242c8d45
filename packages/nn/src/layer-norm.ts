/**
 * Normalisation over the last dimension: candle-nn's `LayerNorm` and `RmsNorm` (layer_norm.rs). It is one kernel with or
 * without a bias and whatever the strides; candle has one for contiguous inputs and layers with a bias.
 */
import { scope, type Tensor } from '@x/core';
import { checkConfig, checkLayer, checkNumbers, checkTensors } from './check';
import { ONE, ZERO } from './init';
import { checkVector, OwningModule } from './module';
import type { VarBuilder } from './var-builder';

export interface LayerNormConfig {
  /** Added to the variance. Default 1e-5. */
  eps?: number;
  /** Whether the mean is taken away first; without it this is {@link RmsNorm}. Default true. */
  removeMean?: boolean;
  /** Whether there is a bias. Default true. */
  affine?: boolean;
}

/** (x - mean) / sqrt(variance + eps) · weight + bias. */
export class LayerNorm extends OwningModule {
  /** [size] */
  readonly weight: Tensor;
  /** [size], if the model has one. */
  readonly bias: Tensor | undefined;
  /** What the kernel adds: the bias, or zeros where it wants one and there is none. */
  private readonly shift: Tensor | undefined;

  /** Owns both tensors. */
  constructor(
    weight: Tensor,
    bias: Tensor | undefined,
    readonly eps: number,
    readonly removeMean = true,
  ) {
    super();
    checkTensors('LayerNorm', { weight });
    checkNumbers('LayerNorm', { eps });
    checkVector('LayerNorm', 'weight', weight);
    if (bias) checkVector('LayerNorm', 'bias', bias, weight.dim(0));
    this.weight = this.own(weight);
    this.bias = bias && this.own(bias);
    this.shift = bias ?? (removeMean ? this.own(weight.zerosLike()) : undefined);
  }

  /** One that removes the mean and has no bias. */
  static newNoBias(weight: Tensor, eps: number): LayerNorm {
    return new LayerNorm(weight, undefined, eps);
  }

  /** One that does not remove the mean. */
  static rmsNorm(weight: Tensor, eps: number): LayerNorm {
    return new LayerNorm(weight, undefined, eps, false);
  }

  /** [..., size] to the same shape. */
  forward(xs: Tensor): Tensor {
    checkTensors('LayerNorm', { xs });
    const { weight, shift, eps } = this;
    if (this.removeMean && shift) return xs.layerNorm(weight, shift, eps);
    return scope(() => {
      const scaled = xs.rmsNorm(weight, eps);
      return shift ? scaled.broadcastAdd(shift) : scaled;
    });
  }
}

/** x / sqrt(mean(x²) + eps) · weight. */
export class RmsNorm extends OwningModule {
  /** [size] */
  readonly weight: Tensor;

  /** Owns the weight. */
  constructor(
    weight: Tensor,
    readonly eps: number,
  ) {
    super();
    checkTensors('RmsNorm', { weight });
    checkNumbers('RmsNorm', { eps });
    checkVector('RmsNorm', 'weight', weight);
    this.weight = this.own(weight);
  }

  /** [..., size] to the same shape. */
  forward(xs: Tensor): Tensor {
    checkTensors('RmsNorm', { xs });
    return xs.rmsNorm(this.weight, this.eps);
  }
}

/** A {@link LayerNorm} from `weight` and `bias`. @param config a number is its `eps` */
export function layerNorm(size: number, config: LayerNormConfig | number, vb: VarBuilder): LayerNorm {
  checkLayer('layerNorm', { size }, vb);
  checkConfig('layerNorm', config);
  const { eps = 1e-5, removeMean = true, affine = true } = typeof config === 'number' ? { eps: config } : config;
  const weight = vb.getWithHintsSync([size], 'weight', ONE);
  const bias = affine ? vb.getWithHintsSync([size], 'bias', ZERO) : undefined;
  return new LayerNorm(weight, bias, eps, removeMean);
}

/** As {@link layerNorm}, without a bias. */
export function layerNormNoBias(size: number, eps: number, vb: VarBuilder): LayerNorm {
  checkLayer('layerNormNoBias', { size }, vb);
  checkNumbers('layerNormNoBias', { eps });
  return layerNorm(size, { eps, affine: false }, vb);
}

/** A {@link RmsNorm} from `weight`. */
export function rmsNorm(size: number, eps: number, vb: VarBuilder): RmsNorm {
  checkLayer('rmsNorm', { size }, vb);
  checkNumbers('rmsNorm', { eps });
  return new RmsNorm(vb.getWithHintsSync([size], 'weight', ONE), eps);
}
