/** Convolution layers: candle-nn's `Conv1d`, `Conv2d` and their transposed forms (conv.rs). */
import {
  CandleError,
  type ConvOptions,
  type ConvTransposeOptions,
  kinds,
  ShapeError,
  scope,
  type Tensor,
} from '@x/core';
import { BatchNorm } from './batch-norm';
import { checkConfig, checkLayer, checkTensors } from './check';
import { DEFAULT_KAIMING_NORMAL, Init } from './init';
import { checkVector, OwningModule } from './module';
import type { VarBuilder } from './var-builder';

/** Defaults: padding 0, stride 1, dilation 1, groups 1. */
export type Conv1dConfig = ConvOptions;
/** As {@link Conv1dConfig}, for both axes. */
export type Conv2dConfig = ConvOptions;
/** Defaults as {@link Conv1dConfig}, outputPadding 0. */
export type ConvTranspose1dConfig = ConvTransposeOptions;
/** As {@link ConvTranspose1dConfig}, for both axes. */
export type ConvTranspose2dConfig = ConvTransposeOptions;

const BATCH_NORM = kinds.kind((value) => value instanceof BatchNorm, 'give a BatchNorm');

abstract class Convolution<Config extends ConvOptions> extends OwningModule {
  readonly weight: Tensor;
  readonly bias: Tensor | undefined;
  readonly config: Config;

  /** Owns both tensors. */
  constructor(weight: Tensor, bias: Tensor | undefined, config: Config, rank: number, transposed = false) {
    super();
    const { name } = new.target;
    checkTensors(name, { weight });
    checkConfig(name, config);
    if (weight.rank !== rank) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `${name}: the weight has shape [${weight.shape}]; it must have ${rank} dimensions.`,
      );
    }
    const outDim = transposed ? weight.dim(1) * (config.groups ?? 1) : weight.dim(0);
    if (bias !== undefined) checkVector(name, 'bias', bias, outDim);
    this.weight = this.own(weight);
    this.bias = bias && this.own(bias);
    this.config = config;
  }

  protected abstract convolve(xs: Tensor): Tensor;

  /** [b, cIn, ...space] to [b, cOut, ...space]. */
  forward(xs: Tensor): Tensor {
    checkTensors(this.constructor.name, { xs });
    return scope(() => {
      const ys = this.convolve(xs);
      if (!this.bias) return ys;
      return ys.broadcastAdd(this.bias.reshape(ys.shape.map((size, i) => (i === 1 ? size : 1))));
    });
  }
}

/** Weight [cOut, cIn / groups, k]. */
export class Conv1d extends Convolution<Conv1dConfig> {
  /** Owns both tensors. @throws ShapeError unless the weight has 3 dimensions and the bias is [cOut] */
  constructor(weight: Tensor, bias?: Tensor, config: Conv1dConfig = {}) {
    super(weight, bias, config, 3);
  }

  protected override convolve(xs: Tensor): Tensor {
    return xs.conv1d(this.weight, this.config);
  }
}

/** Weight [cOut, cIn / groups, kH, kW]. */
export class Conv2d extends Convolution<Conv2dConfig> {
  /** Owns both tensors. @throws ShapeError unless the weight has 4 dimensions and the bias is [cOut] */
  constructor(weight: Tensor, bias?: Tensor, config: Conv2dConfig = {}) {
    super(weight, bias, config, 4);
  }

  protected override convolve(xs: Tensor): Tensor {
    return xs.conv2d(this.weight, this.config);
  }

  /**
   * A new layer that does what this one followed by `bn` in evaluation does; both stay as they are.
   * @throws CandleError INVALID_ARGUMENT when `bn` has no weight and bias
   */
  absorbBn(bn: BatchNorm): Conv2d {
    kinds.check('absorbBn', 'bn', bn, BATCH_NORM);
    const { weight: scale, bias: shift } = bn;
    if (!scale || !shift) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        'absorbBn: the batch norm has no weight and bias; make it with affine: true.',
      );
    }
    checkVector('absorbBn', 'batch norm', scale, this.weight.dim(0));
    const [weight, bias] = scope(() => {
      const std = scale.div(bn.runningVar.affine(1, bn.eps).sqrt());
      const centre = this.bias ? this.bias.sub(bn.runningMean) : bn.runningMean.neg();
      return [this.weight.broadcastMul(std.reshape([std.dim(0), 1, 1, 1])), shift.add(std.mul(centre))];
    });
    return new Conv2d(weight, bias, this.config);
  }
}

/** Weight [cIn, cOut / groups, k]. */
export class ConvTranspose1d extends Convolution<ConvTranspose1dConfig> {
  /** Owns both tensors. @throws ShapeError unless the weight has 3 dimensions and the bias is [cOut] */
  constructor(weight: Tensor, bias?: Tensor, config: ConvTranspose1dConfig = {}) {
    super(weight, bias, config, 3, true);
  }

  protected override convolve(xs: Tensor): Tensor {
    return xs.convTranspose1d(this.weight, this.config);
  }
}

/** Weight [cIn, cOut / groups, kH, kW]; candle's has no groups. */
export class ConvTranspose2d extends Convolution<ConvTranspose2dConfig> {
  /** Owns both tensors. @throws ShapeError unless the weight has 4 dimensions and the bias is [cOut] */
  constructor(weight: Tensor, bias?: Tensor, config: ConvTranspose2dConfig = {}) {
    super(weight, bias, config, 4, true);
  }

  protected override convolve(xs: Tensor): Tensor {
    return xs.convTranspose2d(this.weight, this.config);
  }
}

function convTensors(
  inChannels: number,
  outChannels: number,
  taps: number[],
  { groups = 1 }: ConvOptions,
  vb: VarBuilder,
  withBias: boolean,
): [Tensor, Tensor | undefined] {
  const weight = vb.getWithHintsSync([outChannels, inChannels / groups, ...taps], 'weight', DEFAULT_KAIMING_NORMAL);
  const bound = 1 / Math.sqrt(inChannels);
  return [weight, withBias ? vb.getWithHintsSync([outChannels], 'bias', Init.uniform(-bound, bound)) : undefined];
}

function convTransposeTensors(
  inChannels: number,
  outChannels: number,
  taps: number[],
  { groups = 1 }: ConvTransposeOptions,
  vb: VarBuilder,
  withBias: boolean,
): [Tensor, Tensor | undefined] {
  const bound = 1 / Math.sqrt(outChannels * taps.reduce((a, b) => a * b, 1));
  const init = Init.uniform(-bound, bound);
  const weight = vb.getWithHintsSync([inChannels, outChannels / groups, ...taps], 'weight', init);
  return [weight, withBias ? vb.getWithHintsSync([outChannels], 'bias', init) : undefined];
}

/** A {@link Conv1d} from `weight` and `bias`, Kaiming normal at first. */
export function conv1d(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: Conv1dConfig,
  vb: VarBuilder,
): Conv1d {
  checkLayer('conv1d', { inChannels, outChannels, kernelSize }, vb);
  return new Conv1d(...convTensors(inChannels, outChannels, [kernelSize], cfg, vb, true), cfg);
}

/** As {@link conv1d}, without a bias. */
export function conv1dNoBias(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: Conv1dConfig,
  vb: VarBuilder,
): Conv1d {
  checkLayer('conv1dNoBias', { inChannels, outChannels, kernelSize }, vb);
  return new Conv1d(...convTensors(inChannels, outChannels, [kernelSize], cfg, vb, false), cfg);
}

/** A {@link Conv2d} from `weight` and `bias`, Kaiming normal at first. */
export function conv2d(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: Conv2dConfig,
  vb: VarBuilder,
): Conv2d {
  checkLayer('conv2d', { inChannels, outChannels, kernelSize }, vb);
  return new Conv2d(...convTensors(inChannels, outChannels, [kernelSize, kernelSize], cfg, vb, true), cfg);
}

/** As {@link conv2d}, without a bias. */
export function conv2dNoBias(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: Conv2dConfig,
  vb: VarBuilder,
): Conv2d {
  checkLayer('conv2dNoBias', { inChannels, outChannels, kernelSize }, vb);
  return new Conv2d(...convTensors(inChannels, outChannels, [kernelSize, kernelSize], cfg, vb, false), cfg);
}

/** A {@link ConvTranspose1d} from `weight` and `bias`, uniform at first. */
export function convTranspose1d(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: ConvTranspose1dConfig,
  vb: VarBuilder,
): ConvTranspose1d {
  checkLayer('convTranspose1d', { inChannels, outChannels, kernelSize }, vb);
  return new ConvTranspose1d(...convTransposeTensors(inChannels, outChannels, [kernelSize], cfg, vb, true), cfg);
}

/** As {@link convTranspose1d}, without a bias. */
export function convTranspose1dNoBias(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: ConvTranspose1dConfig,
  vb: VarBuilder,
): ConvTranspose1d {
  checkLayer('convTranspose1dNoBias', { inChannels, outChannels, kernelSize }, vb);
  return new ConvTranspose1d(...convTransposeTensors(inChannels, outChannels, [kernelSize], cfg, vb, false), cfg);
}

/** A {@link ConvTranspose2d} from `weight` and `bias`, uniform at first. */
export function convTranspose2d(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: ConvTranspose2dConfig,
  vb: VarBuilder,
): ConvTranspose2d {
  checkLayer('convTranspose2d', { inChannels, outChannels, kernelSize }, vb);
  const taps = [kernelSize, kernelSize];
  return new ConvTranspose2d(...convTransposeTensors(inChannels, outChannels, taps, cfg, vb, true), cfg);
}

/** As {@link convTranspose2d}, without a bias. */
export function convTranspose2dNoBias(
  inChannels: number,
  outChannels: number,
  kernelSize: number,
  cfg: ConvTranspose2dConfig,
  vb: VarBuilder,
): ConvTranspose2d {
  checkLayer('convTranspose2dNoBias', { inChannels, outChannels, kernelSize }, vb);
  const taps = [kernelSize, kernelSize];
  return new ConvTranspose2d(...convTransposeTensors(inChannels, outChannels, taps, cfg, vb, false), cfg);
}
