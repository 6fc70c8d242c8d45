/** RMSProp with PyTorch's formulas and defaults; candle has none. */
import type { Tensor, Var } from '@x/core';
import { nextInWideDType, OptimizerOf } from './optimizer';

export interface RmsPropParams {
  /** Step size. Default 0.01. */
  lr: number;
  /** Decay of the average of squared gradients. Default 0.99. */
  alpha: number;
  /** Added to the root of the squares. Default 1e-8. */
  eps: number;
  /** Times the values, added to the gradient. Default 0. */
  weightDecay: number;
  /** Share of the last step in the next. Default 0. */
  momentum: number;
  /** Whether the squares are those of the distance from the average gradient. Default false. */
  centered: boolean;
}

const DEFAULTS: RmsPropParams = { lr: 0.01, alpha: 0.99, eps: 1e-8, weightDecay: 0, momentum: 0, centered: false };

/** Steps of the gradient over the root of the average of its squares. */
export class RMSProp extends OptimizerOf<RmsPropParams> {
  constructor(vars: readonly Var[], params: Partial<RmsPropParams> = {}) {
    super(vars, { ...DEFAULTS, ...params });
  }

  protected next(variable: Var, grad: Tensor): Tensor {
    const { lr, alpha, eps, weightDecay, momentum, centered } = this.params;
    return nextInWideDType(variable, grad, (value, gradient) => {
      const decayed = weightDecay === 0 ? gradient : gradient.add(value.affine(weightDecay, 0));
      let square = this.average(variable, 'square', decayed.sqr(), alpha);
      if (centered) square = square.sub(this.average(variable, 'mean', decayed, alpha).sqr());
      const step = decayed.div(square.sqrt().affine(1, eps));
      const taken = momentum === 0 ? step : this.average(variable, 'momentum', step, momentum, 1);
      return value.sub(taken.affine(lr, 0));
    });
  }
}
