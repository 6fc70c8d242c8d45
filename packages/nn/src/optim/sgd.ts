/** Gradient descent: candle-nn's `SGD` (optim.rs), with PyTorch's momentum and weight decay, which candle lacks. */
import { CandleError, type Tensor, type Var } from '@x/core';
import { checkNumbers, checkObjects } from '../check';
import { OptimizerOf } from './optimizer';

export interface SgdParams {
  /** Step size. */
  lr: number;
  /** Share of the last step in the next. Default 0. */
  momentum?: number;
  /** Takes from the gradient's share in the momentum. Default 0. */
  dampening?: number;
  /** Looks one step of momentum ahead; needs momentum and no dampening. Default false. */
  nesterov?: boolean;
  /** Times the values, added to the gradient. Default 0. */
  weightDecay?: number;
}

/** Steps of the gradient, or of its momentum, times the learning rate. */
export class SGD extends OptimizerOf<Required<SgdParams>> {
  /** @param params a number is the learning rate, as in candle */
  constructor(vars: readonly Var[], params: SgdParams | number) {
    if (typeof params !== 'number') checkObjects('SGD', { params });
    const given = typeof params === 'number' ? { lr: params } : params;
    checkNumbers('SGD', { lr: given.lr });
    super(vars, { momentum: 0, dampening: 0, nesterov: false, weightDecay: 0, ...given });
    const { nesterov, momentum, dampening } = this.params;
    if (nesterov && (momentum <= 0 || dampening !== 0)) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `SGD: nesterov with momentum ${momentum} and dampening ${dampening}; give a positive momentum and no dampening.`,
      );
    }
  }

  protected next(variable: Var, grad: Tensor): Tensor {
    return variable.sub(this.direction(variable, grad).affine(this.params.lr, 0));
  }

  private direction(variable: Var, grad: Tensor): Tensor {
    const { momentum, dampening, nesterov, weightDecay } = this.params;
    const decayed = weightDecay === 0 ? grad : grad.add(variable.affine(weightDecay, 0));
    if (momentum === 0) return decayed;
    // The first step has no dampening, as in PyTorch.
    const first = this.state(variable, 'momentum') === undefined;
    const velocity = this.average(variable, 'momentum', decayed, momentum, first ? 1 : 1 - dampening);
    return nesterov ? decayed.add(velocity.affine(momentum, 0)) : velocity;
  }
}
