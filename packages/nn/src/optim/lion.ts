/** Lion (Chen et al. 2023): steps of one size in the direction of a sign; candle has none. */
import type { Tensor, Var } from '@x/core';
import { OptimizerOf } from './optimizer';

export interface LionParams {
  /** Step size, 3 to 10 times smaller than for AdamW. Default 1e-4. */
  lr: number;
  /** Share of the momentum in the direction. Default 0.9. */
  beta1: number;
  /** Decay of the momentum. Default 0.99. */
  beta2: number;
  /** Share of the values that a step of size 1 takes away. Default 0. */
  weightDecay: number;
}

const DEFAULTS: LionParams = { lr: 1e-4, beta1: 0.9, beta2: 0.99, weightDecay: 0 };

/** Chen et al. 2023; weight decay is apart from the gradient. */
export class Lion extends OptimizerOf<LionParams> {
  constructor(vars: readonly Var[], params: Partial<LionParams> = {}) {
    super(vars, { ...DEFAULTS, ...params });
  }

  protected next(variable: Var, grad: Tensor): Tensor {
    const { lr, beta1, beta2, weightDecay } = this.params;
    const momentum = this.state(variable, 'momentum');
    const news = grad.affine(1 - beta1, 0);
    const direction = (momentum ? momentum.affine(beta1, 0).add(news) : news).sign();
    this.average(variable, 'momentum', grad, beta2);
    return variable.affine(1 - lr * weightDecay, 0).sub(direction.affine(lr, 0));
  }
}
