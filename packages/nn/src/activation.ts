/** Activation functions by the name that model configurations give them: candle-nn's `Activation` (activation.rs). */
import { CandleError, scope, type Tensor } from '@x/core';
import { swiglu } from './ops';

const FUNCTIONS = {
  /** With the error function, as PyTorch's default. */
  gelu: (xs: Tensor) => xs.geluErf(),
  /** The tanh approximation. */
  gelu_new: (xs: Tensor) => xs.gelu(),
  gelu_pytorch_tanh: (xs: Tensor) => xs.gelu(),
  relu: (xs: Tensor) => xs.relu(),
  relu2: (xs: Tensor) => xs.relu().sqr(),
  silu: (xs: Tensor) => xs.silu(),
  swish: (xs: Tensor) => xs.silu(),
  sigmoid: (xs: Tensor) => xs.sigmoid(),
  tanh: (xs: Tensor) => xs.tanh(),
  elu: (xs: Tensor) => xs.elu(1),
  swiglu,
} satisfies Record<string, (xs: Tensor) => Tensor>;

export type ActivationName = keyof typeof FUNCTIONS;

export const ACTIVATIONS = Object.keys(FUNCTIONS) as ActivationName[];

export function isActivation(name: string): name is ActivationName {
  return Object.hasOwn(FUNCTIONS, name);
}

/**
 * Applies an activation. All but `swiglu` work elementwise.
 * @throws CandleError INVALID_ARGUMENT for an unknown name
 */
export function activate(xs: Tensor, name: ActivationName): Tensor {
  if (!isActivation(name)) {
    throw new CandleError(
      'INVALID_ARGUMENT',
      `activate: "${String(name)}" is no activation; use one of ${ACTIVATIONS.join(', ')}.`,
    );
  }
  return scope(() => FUNCTIONS[name](xs));
}
