/**
 * A fully connected layer, candle-nn's `Linear` (linear.rs): y = x · weightᵀ + bias.
 *
 * Different from candle: leading dimensions are flattened into one product instead of broadcasting the weight over them,
 * so one call does one matrix product whatever the rank.
 */
import { ShapeError, scope, type Tensor } from '@x/core';
import { checkLayer, checkTensors } from './check';
import { DEFAULT_KAIMING_NORMAL, Init } from './init';
import { OwningModule } from './module';
import type { VarBuilder } from './var-builder';

/** x · weightᵀ + bias. */
export class Linear extends OwningModule {
  /** [out, in] */
  readonly weight: Tensor;
  /** [out], or a scalar that is added to every output. */
  readonly bias: Tensor | undefined;

  /** Owns both tensors. @throws ShapeError when the weight is not [out, in] or the bias not [out] */
  constructor(weight: Tensor, bias?: Tensor) {
    super();
    checkTensors('Linear', { weight });
    if (weight.rank !== 2) {
      throw new ShapeError('INVALID_SHAPE', `Linear: the weight has shape [${weight.shape}]; give [out, in].`);
    }
    if (bias !== undefined) checkTensors('Linear', { bias });
    if (bias && bias.rank !== 0 && (bias.rank !== 1 || bias.dim(0) !== weight.dim(0))) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `Linear: bias [${bias.shape}] for a weight of [${weight.shape}]; give [${weight.dim(0)}].`,
      );
    }
    this.weight = this.own(weight);
    this.bias = bias && this.own(bias);
  }

  /** [..., in] to [..., out], in the weight's dtype. */
  forward(xs: Tensor): Tensor {
    checkTensors('Linear', { xs });
    const [out, width] = this.weight.shape;
    if (xs.rank === 0 || xs.dim(-1) !== width) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `Linear: input [${xs.shape}] for a weight of [${this.weight.shape}]; its last dimension must be ${width}.`,
      );
    }
    return scope(() => {
      const rows = xs.rank === 2 ? xs : xs.reshape([xs.elemCount / width, width]);
      let ys = rows.matmul(this.weight.t());
      if (this.bias) ys = ys.broadcastAdd(this.bias);
      return xs.rank === 2 ? ys : ys.reshape([...xs.shape.slice(0, -1), out]);
    });
  }
}

/** A {@link Linear} from `weight` [outDim, inDim], Kaiming normal at first, and `bias`. */
export function linear(inDim: number, outDim: number, vb: VarBuilder): Linear {
  checkLayer('linear', { inDim, outDim }, vb);
  const weight = vb.getWithHintsSync([outDim, inDim], 'weight', DEFAULT_KAIMING_NORMAL);
  const bound = 1 / Math.sqrt(inDim);
  return new Linear(weight, vb.getWithHintsSync([outDim], 'bias', Init.uniform(-bound, bound)));
}

/** As {@link linear}, without a bias. */
export function linearNoBias(inDim: number, outDim: number, vb: VarBuilder): Linear {
  checkLayer('linearNoBias', { inDim, outDim }, vb);
  return new Linear(vb.getWithHintsSync([outDim, inDim], 'weight', DEFAULT_KAIMING_NORMAL));
}

/** {@link linear} or {@link linearNoBias}. */
export function linearB(inDim: number, outDim: number, bias: boolean, vb: VarBuilder): Linear {
  checkLayer('linearB', { inDim, outDim }, vb);
  return bias ? linear(inDim, outDim, vb) : linearNoBias(inDim, outDim, vb);
}
