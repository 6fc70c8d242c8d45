/** Normalisation over the last dimension: candle-nn's `RmsNorm` and `LayerNorm` (layer_norm.rs). */
import { ShapeError, type Tensor } from '@x/core';
import { OwningModule } from './module';
import { rmsNorm } from './ops';

function checkVector(op: string, name: string, tensor: Tensor): void {
  if (tensor.rank !== 1)
    throw new ShapeError('INVALID_SHAPE', `${op}: the ${name} has shape [${tensor.shape}]; give [size].`);
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
    checkVector('RmsNorm', 'weight', weight);
    this.weight = this.own(weight);
  }

  /** [..., size] to the same shape. */
  forward(xs: Tensor): Tensor {
    return rmsNorm(xs, this.weight, this.eps);
  }
}

/** (x - mean) / sqrt(variance + eps) · weight + bias. */
export class LayerNorm extends OwningModule {
  /** [size] */
  readonly weight: Tensor;
  /** [size]; zeros when the model has none. */
  readonly bias: Tensor;

  /** Owns both tensors. */
  constructor(
    weight: Tensor,
    bias: Tensor | undefined,
    readonly eps: number,
  ) {
    super();
    checkVector('LayerNorm', 'weight', weight);
    if (bias) checkVector('LayerNorm', 'bias', bias);
    this.weight = this.own(weight);
    this.bias = this.own(bias ?? weight.zerosLike());
  }

  /** [..., size] to the same shape. */
  forward(xs: Tensor): Tensor {
    return xs.layerNorm(this.weight, this.bias, this.eps);
  }
}
