/** Adam and AdamW: candle-nn's `AdamW` (optim.rs), with PyTorch's formulas and defaults, and Adam by its side. */
import { type AdamProblem, type DType, kinds, refuseInCapture, Tensor, type Var } from '@x/core';
import { checkParams } from '../check';
import { wideDType } from '../wide';
import { nextInWideDType, Optimizer } from './optimizer';

export interface ParamsAdam {
  /** Step size. Default 0.001. */
  lr: number;
  /** Decay of the average of gradients. Default 0.9. */
  beta1: number;
  /** Decay of the average of their squares. Default 0.999. */
  beta2: number;
  /** Added to the root of the squares. Default 1e-8. */
  eps: number;
  /** AdamW: share of the values that a step of size 1 takes away, default 0.01. Adam: times the values, added to the gradient, default 0. */
  weightDecay: number;
}

export type ParamsAdamW = ParamsAdam;

const IN_ONE_KERNEL: ReadonlySet<DType> = new Set(['bf16', 'f16', 'f32', 'f64']);
const SHARE = kinds.kind(
  (value) => kinds.FINITE.test(value) && (value as number) >= 0 && (value as number) < 1,
  'give a number from 0 to below 1',
);
const DEFAULTS = { lr: 0.001, beta1: 0.9, beta2: 0.999, eps: 1e-8 };

/** @throws CandleError INVALID_ARGUMENT for what is no number, and averages that would not fade */
function checkAdam(op: string, params: ParamsAdam): void {
  checkParams(op, params);
  for (const name of ['beta1', 'beta2'] as const) kinds.check(op, name, params[name], SHARE);
}

abstract class AdamBase extends Optimizer {
  /** Steps so far. */
  stepT = 0;
  #params: ParamsAdam;

  constructor(vars: readonly Var[], params: ParamsAdam) {
    super(vars);
    checkAdam(new.target.name, params);
    this.#params = params;
  }

  get params(): ParamsAdam {
    return this.#params;
  }

  /** Changes some numbers for later steps. @throws CandleError INVALID_ARGUMENT for betas outside 0 to below 1 */
  setParams(params: Partial<ParamsAdam>): void {
    const all = { ...this.#params, ...params };
    checkAdam(this.constructor.name, all);
    this.#params = all;
  }

  get learningRate(): number {
    return this.#params.lr;
  }

  set learningRate(value: number) {
    this.setParams({ lr: value });
  }

  /** @throws CaptureError in a captured function, whose replays would correct averages by the number of the captured step */
  protected override beforeStep(): void {
    refuseInCapture(
      `${this.constructor.name}.step: the number of the step, which averages are corrected by, would be the same in each replay`,
      'capture the gradients, and step behind replay()',
    );
    this.stepT++;
  }

  /** What of a variable's values a step leaves, and what share of them it adds to their gradient. */
  protected abstract decayOf(params: ParamsAdam): Pick<AdamProblem, 'keep' | 'decay'>;

  protected override update(variable: Var, grad: Tensor): void {
    const { optim } = variable.device.backend;
    const { dtype, device } = variable;
    const fits = grad.device === device && grad.dtype === dtype && IN_ONE_KERNEL.has(dtype);
    if (!optim || !fits || !variable.isContiguous()) {
      super.update(variable, grad);
      return;
    }
    const [first, second] = ['first', 'second'].map((name) => {
      const known = this.state(variable, name);
      const start = () => Tensor.zeros(variable.shape, wideDType(dtype), device);
      return (known ?? this.remember(variable, name, start())).storagePart();
    });
    const { beta1, beta2 } = this.#params;
    const factors = { beta1, beta2, ...this.factors(), ...this.decayOf(this.#params) };
    variable.inplaceOp2(grad.contiguous(), {
      name: 'adam',
      fwd(value, { startOffset, elemCount: count }, gradient, at) {
        optim.adam({ count, value: [value, startOffset], grad: [gradient, at.startOffset], first, second, ...factors });
      },
    });
  }

  /** Those of the squares' root, of what is added to it, and of the step: see {@link AdamProblem}. */
  protected factors(): Pick<AdamProblem, 'root' | 'eps' | 'rate'> {
    const { lr, beta1, beta2, eps } = this.#params;
    const ofMean = (1 - beta1) / (1 - beta1 ** this.stepT);
    const ofRoot = Math.sqrt((1 - beta2) / (1 - beta2 ** this.stepT));
    return { root: ofRoot / ofMean, eps: eps / ofMean, rate: lr };
  }

  /**
   * Of operations. What is remembered are sums that fade, mean = first · (1 - beta1) and likewise the squares, so that constants
   * (and the factors by which averages that start at 0 are too small) meet in one operation.
   */
  protected next(variable: Var, grad: Tensor): Tensor {
    const { beta1, beta2 } = this.#params;
    const { keep, decay } = this.decayOf(this.#params);
    return nextInWideDType(variable, grad, (value, gradient) => {
      const decayed = decay === 0 ? gradient : gradient.add(value.affine(decay, 0));
      const first = this.average(variable, 'first', decayed, beta1, 1);
      const second = this.average(variable, 'second', decayed.sqr(), beta2, 1);
      const { root, eps, rate } = this.factors();
      const change = first.div(second.sqrt().affine(root, eps)).affine(rate, 0);
      return (keep === 1 ? value : value.affine(keep, 0)).sub(change);
    });
  }

  /** Also counts steps from 0 again. */
  override dispose(): void {
    super.dispose();
    this.stepT = 0;
  }
}

/** Kingma and Ba 2015; weight decay is part of the gradient. */
export class Adam extends AdamBase {
  /** @throws CandleError INVALID_ARGUMENT for betas outside 0 to below 1 */
  constructor(vars: readonly Var[], params: Partial<ParamsAdam> = {}) {
    super(vars, { ...DEFAULTS, weightDecay: 0, ...params });
  }

  protected decayOf({ weightDecay }: ParamsAdam) {
    return { keep: 1, decay: weightDecay };
  }
}

/** Loshchilov and Hutter 2019; weight decay is apart from the gradient. */
export class AdamW extends AdamBase {
  /** As {@link Adam}, with a weight decay of 0.01 by default. */
  constructor(vars: readonly Var[], params: Partial<ParamsAdamW> = {}) {
    super(vars, { ...DEFAULTS, weightDecay: 0.01, ...params });
  }

  /** With default parameters but the learning rate. */
  static newLr(vars: readonly Var[], learningRate: number): AdamW {
    return new AdamW(vars, { lr: learningRate });
  }

  protected decayOf({ lr, weightDecay }: ParamsAdam) {
    return { keep: 1 - lr * weightDecay, decay: 0 };
  }
}
