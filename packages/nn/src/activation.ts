/**
 * Activation functions: candle-nn's `Activation` and `PReLU` (activation.rs). Where candle has an enum, here an activation
 * is the name that model configurations give it, or an object for the two that have a number.
 */
import { CandleError, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkLayer, checkTensors } from './check';
import { Init } from './init';
import { OwningModule } from './module';
import { hardSigmoid, leakyRelu, mish, swiglu } from './ops';
import type { VarBuilder } from './var-builder';

const FUNCTIONS = {
  /** With the error function, as PyTorch's default. */
  gelu: (xs: Tensor) => xs.geluErf(),
  /** The tanh approximation. */
  gelu_new: (xs: Tensor) => xs.gelu(),
  gelu_pytorch_tanh: (xs: Tensor) => xs.gelu(),
  relu: (xs: Tensor) => xs.relu(),
  relu2: (xs: Tensor) => scope(() => xs.relu().sqr()),
  relu6: (xs: Tensor) => xs.clamp(0, 6),
  silu: (xs: Tensor) => xs.silu(),
  swish: (xs: Tensor) => xs.silu(),
  sigmoid: (xs: Tensor) => xs.sigmoid(),
  hard_sigmoid: hardSigmoid,
  hard_swish: (xs: Tensor) => scope(() => xs.mul(hardSigmoid(xs))),
  mish,
  tanh: (xs: Tensor) => xs.tanh(),
  elu: (xs: Tensor) => xs.elu(1),
  /** Negative slope 0.01, PyTorch's default. */
  leaky_relu: (xs: Tensor) => leakyRelu(xs, 0.01),
  swiglu,
} satisfies Record<string, (xs: Tensor) => Tensor>;

export type ActivationName = keyof typeof FUNCTIONS;

/** A name, or one of candle's two variants with a number: `{ elu: alpha }`, `{ leaky_relu: negativeSlope }`. */
export type Activation = ActivationName | { elu: number } | { leaky_relu: number };

/** All names that {@link activate} takes. */
export const ACTIVATIONS = Object.keys(FUNCTIONS) as ActivationName[];

/** Whether {@link activate} takes the name, as one from a configuration. */
export function isActivation(name: string): name is ActivationName {
  return Object.hasOwn(FUNCTIONS, name);
}

/**
 * Applies an activation. All but `swiglu` work elementwise.
 * @throws CandleError INVALID_ARGUMENT for an unknown name
 */
export function activate(xs: Tensor, activation: Activation): Tensor {
  checkTensors('activate', { xs });
  if (typeof activation === 'object' && activation !== null) {
    if ('elu' in activation) return xs.elu(activation.elu);
    if ('leaky_relu' in activation) return leakyRelu(xs, activation.leaky_relu);
  } else if (isActivation(activation)) {
    return FUNCTIONS[activation](xs);
  }
  throw new CandleError(
    'INVALID_ARGUMENT',
    `activate: ${kinds.show(activation)} is no activation; use one of ${ACTIVATIONS.join(', ')}.`,
  );
}

/** x where positive, else weight · x, with a weight that is learnt: one for all, or one a channel. */
export class PReLU extends OwningModule {
  /** [channels], of one element when `isScalar`. */
  readonly weight: Tensor;

  /** Owns the weight. */
  constructor(
    weight: Tensor,
    readonly isScalar: boolean,
  ) {
    super();
    checkTensors('PReLU', { weight });
    if (isScalar && weight.elemCount !== 1) {
      throw new ShapeError('INVALID_SHAPE', `PReLU: a scalar weight has shape [${weight.shape}]; give one element.`);
    }
    this.weight = this.own(weight);
  }

  /** [channels], or [b, channels, ...], or of the weight's own shape. */
  forward(xs: Tensor): Tensor {
    checkTensors('PReLU', { xs });
    return scope(() => {
      const isPositive = xs.gt(0);
      // 0 instead of positive values, because their gradients of the weight would be NaN for infinity.
      const negative = isPositive.whereCond(Tensor.zeros([], xs.dtype, xs.device), xs);
      return isPositive.whereCond(xs, negative.broadcastMul(this.weightFor(xs)));
    });
  }

  private weightFor(xs: Tensor): Tensor {
    const count = this.weight.elemCount;
    if (this.isScalar) return this.weight.reshape([]);
    if (xs.rank < 2 || xs.shape.join() === this.weight.shape.join()) return this.weight;
    if (xs.dim(1) !== count) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `PReLU: input [${xs.shape}] for ${count} weights; dimension 1 must be ${count}.`,
      );
    }
    return this.weight.reshape(xs.shape.map((_, i) => (i === 1 ? count : 1)));
  }
}

/** A {@link PReLU} from `weight`, which starts at 0.25. @param numChannels undefined: one weight for all */
export function prelu(numChannels: number | undefined, vb: VarBuilder): PReLU {
  checkLayer('prelu', {}, vb);
  const weight = vb.getWithHintsSync([numChannels ?? 1], 'weight', Init.const(0.25));
  return new PReLU(weight, numChannels === undefined);
}
