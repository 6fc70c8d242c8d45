/** Normalisation over groups of channels: candle-nn's `GroupNorm` (group_norm.rs). */
import { ShapeError, scope, type Tensor } from '@x/core';
import { checkLayer, checkNumbers, checkTensors } from './check';
import { ONE, ZERO } from './init';
import { checkVector, OwningModule } from './module';
import { wideDType } from './ops';
import type { VarBuilder } from './var-builder';

/** (x - mean) / sqrt(variance + eps) within each group of channels, times weight plus bias by channel. */
export class GroupNorm extends OwningModule {
  /** [channels] */
  readonly weight: Tensor;
  /** [channels] */
  readonly bias: Tensor;

  /** Owns both tensors. @throws ShapeError unless `numGroups` divides `numChannels` */
  constructor(
    weight: Tensor,
    bias: Tensor,
    readonly numChannels: number,
    readonly numGroups: number,
    readonly eps: number,
  ) {
    super();
    checkTensors('GroupNorm', { weight, bias });
    checkNumbers('GroupNorm', { numChannels, numGroups, eps });
    if (!(numGroups >= 1) || numChannels % numGroups !== 0) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `GroupNorm: ${numChannels} channels in ${numGroups} groups; the number of groups must divide the channels.`,
      );
    }
    checkVector('GroupNorm', 'weight', weight, numChannels);
    checkVector('GroupNorm', 'bias', bias, numChannels);
    this.weight = this.own(weight);
    this.bias = this.own(bias);
  }

  /** [b, channels, ...] to the same shape, in its dtype, also when it is empty; sums of the narrow floats are made in f32. */
  forward(xs: Tensor): Tensor {
    checkTensors('GroupNorm', { xs });
    const { numChannels, numGroups, eps } = this;
    if (xs.rank < 3 || xs.dim(1) !== numChannels) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `GroupNorm: input [${xs.shape}] for ${numChannels} channels; give [b, ${numChannels}, ...].`,
      );
    }
    const groupSize = xs.shape.slice(2).reduce((count, size) => count * size, numChannels / numGroups);
    return scope(() => {
      const groups = xs.reshape([xs.dim(0), numGroups, groupSize]);
      const wide = groups.toDtype(wideDType(xs.dtype));
      const centred = wide.broadcastSub(wide.meanKeepdim(2));
      const scale = centred.sqr().meanKeepdim(2).affine(1, eps).sqrt();
      const byChannel = xs.shape.map((_, i) => (i === 1 ? numChannels : 1));
      const normed = centred.broadcastDiv(scale).toDtype(xs.dtype).reshape(xs.shape);
      return normed.broadcastMul(this.weight.reshape(byChannel)).broadcastAdd(this.bias.reshape(byChannel));
    });
  }
}

/** A {@link GroupNorm} from `weight` and `bias`. */
export function groupNorm(numGroups: number, numChannels: number, eps: number, vb: VarBuilder): GroupNorm {
  checkLayer('groupNorm', { numGroups, numChannels }, vb);
  checkNumbers('groupNorm', { eps });
  const weight = vb.getWithHintsSync([numChannels], 'weight', ONE);
  const bias = vb.getWithHintsSync([numChannels], 'bias', ZERO);
  return new GroupNorm(weight, bias, numChannels, numGroups, eps);
}
