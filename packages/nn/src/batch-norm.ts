/**
 * Normalisation over the batch: candle-nn's `BatchNorm` (batch_norm.rs). Training takes mean and variance of the batch and
 * follows them with running ones, which evaluation uses.
 *
 * Different from candle: the running values are written in place, so whoever shares their memory (a VarMap) sees them
 * without their being variables; nothing is divided by zero for a batch of one value, whose variance is left as it is.
 */
import { CandleError, ShapeError, scope, type Tensor } from '@x/core';
import { checkConfig, checkLayer, checkPositive, checkTensors } from './check';
import { ONE, ZERO } from './init';
import { checkVector, type ModuleT, OwningModule } from './module';
import { wideDType } from './ops';
import type { VarBuilder } from './var-builder';

export interface BatchNormConfig {
  /** Added to the variance. Default 1e-5. */
  eps?: number;
  /** Default true. */
  removeMean?: boolean;
  /** Whether there are a weight and a bias to learn. Default true. */
  affine?: boolean;
  /** Share of a new batch in the running values, 0 to 1. Default 0.1. */
  momentum?: number;
}

export interface BatchNormOptions {
  /** [features], together with `bias`. */
  weight?: Tensor;
  /** [features] */
  bias?: Tensor;
  /** Added to the variance. Default 1e-5. */
  eps?: number;
  /** Share of a new batch in the running values, 0 to 1. Default 0.1. */
  momentum?: number;
  /** Default true. */
  removeMean?: boolean;
}

/** (x - mean) / sqrt(variance + eps) · weight + bias, by feature: dimension 1 of [b, features, ...]. */
export class BatchNorm extends OwningModule implements ModuleT {
  /** [features]; written by {@link forwardTrain}. */
  readonly runningMean: Tensor;
  /** [features]; written by {@link forwardTrain}. */
  readonly runningVar: Tensor;
  /** [features], if the layer has one. */
  readonly weight: Tensor | undefined;
  /** [features], if the layer has one. */
  readonly bias: Tensor | undefined;
  readonly eps: number;
  readonly momentum: number;
  readonly removeMean: boolean;

  /**
   * Owns all tensors.
   * @param runningMean and runningVar: [features], contiguous, for they are written in place
   * @throws ShapeError for other shapes, CandleError INVALID_ARGUMENT for a negative eps or a momentum outside 0 to 1
   */
  constructor(
    readonly numFeatures: number,
    runningMean: Tensor,
    runningVar: Tensor,
    options: BatchNormOptions = {},
  ) {
    super();
    checkConfig('BatchNorm', options);
    const { weight, bias, eps = 1e-5, momentum = 0.1, removeMean = true } = options;
    checkTensors('BatchNorm', { runningMean, runningVar });
    checkPositive('BatchNorm', { numFeatures });
    if (!(eps >= 0) || !(momentum >= 0 && momentum <= 1)) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `BatchNorm: eps ${eps} and momentum ${momentum}; give an eps from 0 and a momentum from 0 to 1.`,
      );
    }
    if ((weight === undefined) !== (bias === undefined)) {
      throw new CandleError('INVALID_ARGUMENT', 'BatchNorm: only one of weight and bias is there; give both or none.');
    }
    checkVector('BatchNorm', 'running mean', runningMean, numFeatures);
    checkVector('BatchNorm', 'running variance', runningVar, numFeatures);
    if (weight) checkVector('BatchNorm', 'weight', weight, numFeatures);
    if (bias) checkVector('BatchNorm', 'bias', bias, numFeatures);
    this.runningMean = this.own(runningMean);
    this.runningVar = this.own(runningVar);
    this.weight = weight && this.own(weight);
    this.bias = bias && this.own(bias);
    this.eps = eps;
    this.momentum = momentum;
    this.removeMean = removeMean;
  }

  /** One without weight and bias. Owns both tensors, [features] each. */
  static newNoBias(numFeatures: number, runningMean: Tensor, runningVar: Tensor, eps: number): BatchNorm {
    return new BatchNorm(numFeatures, runningMean, runningVar, { eps });
  }

  /** Evaluation: [b, features, ...] normalised with the running values. */
  forward(xs: Tensor): Tensor {
    checkTensors('BatchNorm', { xs });
    this.check(xs);
    return scope(() => {
      const byFeature = this.byFeature(xs);
      const mean = this.runningMean.detach().reshape(byFeature);
      const scale = this.runningVar.detach().affine(1, this.eps).sqrt().reshape(byFeature);
      return this.scaled(xs.broadcastSub(mean).broadcastDiv(scale), byFeature);
    });
  }

  /** Training: normalised with the batch's own values, which also go into the running ones, unless the batch is empty. */
  forwardTrain(xs: Tensor): Tensor {
    checkTensors('BatchNorm', { xs });
    this.check(xs);
    for (const [name, running] of Object.entries({ mean: this.runningMean, variance: this.runningVar })) {
      if (running.isContiguous()) continue;
      throw new ShapeError(
        'INVALID_SHAPE',
        `BatchNorm: training writes into the running ${name}, and it is a view whose elements do not follow one another; give a contiguous one.`,
      );
    }
    return scope(() => {
      const byFeature = this.byFeature(xs);
      const others = xs.shape.map((_, i) => i).filter((i) => i !== 1);
      const wide = xs.toDtype(wideDType(xs.dtype));
      const mean = wide.meanKeepdim(others);
      const centred = this.removeMean ? wide.broadcastSub(mean) : wide;
      const variance = centred.sqr().meanKeepdim(others);
      const count = xs.elemCount / this.numFeatures;
      if (this.removeMean && count > 0) this.follow(this.runningMean, mean, 1);
      // The running variance is that of a sample: n / (n - 1) times the batch's.
      if (count > 1) this.follow(this.runningVar, variance, count / (count - 1));
      const normed = centred.broadcastDiv(variance.affine(1, this.eps).sqrt()).toDtype(xs.dtype);
      return this.scaled(normed, byFeature);
    });
  }

  forwardT(xs: Tensor, train: boolean): Tensor {
    checkTensors('BatchNorm', { xs });
    return train ? this.forwardTrain(xs) : this.forward(xs);
  }

  private follow(running: Tensor, batch: Tensor, factor: number): void {
    const { momentum, numFeatures } = this;
    const news = batch
      .detach()
      .reshape([numFeatures])
      .toDtype(running.dtype)
      .affine(momentum * factor, 0);
    const values = running.detach();
    values.sliceSet(values.affine(1 - momentum, 0).add(news), 0, 0);
  }

  private scaled(xs: Tensor, byFeature: number[]): Tensor {
    if (!this.weight || !this.bias) return xs;
    return xs.broadcastMul(this.weight.reshape(byFeature)).broadcastAdd(this.bias.reshape(byFeature));
  }

  private byFeature(xs: Tensor): number[] {
    return xs.shape.map((_, i) => (i === 1 ? this.numFeatures : 1));
  }

  private check(xs: Tensor): void {
    if (xs.rank >= 2 && xs.dim(1) === this.numFeatures) return;
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `BatchNorm: input [${xs.shape}] for ${this.numFeatures} features; give [b, ${this.numFeatures}, ...].`,
    );
  }
}

/** A {@link BatchNorm} from `running_mean`, `running_var`, `weight` and `bias`. @param config a number is its `eps` */
export function batchNorm(numFeatures: number, config: BatchNormConfig | number, vb: VarBuilder): BatchNorm {
  checkLayer('batchNorm', { numFeatures }, vb);
  checkConfig('batchNorm', config);
  const { eps, removeMean, affine = true, momentum } = typeof config === 'number' ? { eps: config } : config;
  const mean = vb.getWithHintsSync([numFeatures], 'running_mean', ZERO);
  const variance = vb.getWithHintsSync([numFeatures], 'running_var', ONE);
  const weight = affine ? vb.getWithHintsSync([numFeatures], 'weight', ONE) : undefined;
  const bias = affine ? vb.getWithHintsSync([numFeatures], 'bias', ZERO) : undefined;
  return new BatchNorm(numFeatures, mean, variance, { weight, bias, eps, removeMean, momentum });
}
