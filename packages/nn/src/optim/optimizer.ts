/**
 * What optimisers have in common: candle-nn's `Optimizer` trait (optim.rs).
 *
 * An optimiser takes variables of float dtypes (others are left out), and its state lives on their devices: that of averages of
 * squares in f32 where the variables are of narrow floats, which hold no squares of usual gradients; any other in their dtypes.
 * It owns its state, not the variables: `dispose()` gives the state back.
 */
import { GradStore, isFloat, keep, kinds, noGrad, ShapeError, scope, type Tensor, type Var } from '@x/core';
import { checkParams } from '../check';
import { inWideDType } from '../wide';

/** Tensors that an optimiser keeps for one variable, by name. */
export type VarState = Map<string, Tensor>;

const isVar = (value: unknown) => kinds.TENSOR.test(value) && typeof (value as { set?: unknown }).set === 'function';
const VAR = kinds.kind(isVar, 'give a Var');
const VARS = kinds.kind((value) => Array.isArray(value) && value.every(isVar), 'give a list of Var');

/** Variables, and what is remembered of each from step to step. */
export abstract class Optimizer implements Disposable {
  readonly #vars: Var[] = [];
  readonly #states = new Map<Var, VarState>();

  /** @param vars those of integer dtypes are left out */
  constructor(vars: readonly Var[]) {
    kinds.check(new.target.name, 'vars', vars, VARS);
    for (const variable of vars) this.push(variable);
  }

  /** The variables that are trained. */
  get vars(): readonly Var[] {
    return this.#vars;
  }

  /** Trains one more variable. */
  push(variable: Var): void {
    if (isFloat(variable.dtype)) this.#vars.push(variable);
  }

  /** Step size. Schedules change it between steps. */
  abstract get learningRate(): number;
  abstract set learningRate(value: number);
  /** candle's name for setting it. */
  setLearningRate(value: number): void {
    this.learningRate = value;
  }

  /**
   * Changes every variable that has a gradient. The gradients stay the store's.
   * @throws ShapeError for a gradient of another shape than its variable's, before that variable is changed
   */
  step(grads: GradStore): void {
    noGrad(() => {
      this.beforeStep();
      for (const variable of this.#vars) {
        const grad = grads.get(variable);
        if (!grad) continue;
        checkShape(this, variable, grad);
        scope(() => this.update(variable, grad));
      }
    });
  }

  /** Gradients of a loss, and a step by them. */
  backwardStep(loss: Tensor): void {
    const grads = loss.backward();
    try {
      this.step(grads);
    } finally {
      grads.dispose();
    }
  }

  /** Called once a step. */
  protected beforeStep(): void {}

  /** Gives the variable its next values; runs in a scope. */
  protected update(variable: Var, grad: Tensor): void {
    variable.set(this.next(variable, grad));
  }

  /** The variable's next values; runs in a scope. */
  protected abstract next(variable: Var, grad: Tensor): Tensor;

  /** What was remembered of a variable, if anything. */
  protected state(variable: Var, name: string): Tensor | undefined {
    return this.#states.get(variable)?.get(name);
  }

  /** Remembers a tensor, in place of the one of that name. Returns it. */
  protected remember(variable: Var, name: string, value: Tensor): Tensor {
    const states = this.#states.get(variable) ?? new Map<string, Tensor>();
    this.#states.set(variable, states);
    states.get(name)?.dispose();
    states.set(name, keep(value));
    return value;
  }

  /** decay · remembered + share · value, remembered in its place; before the first, 0 is remembered. */
  protected average(variable: Var, name: string, value: Tensor, decay: number, share = 1 - decay): Tensor {
    const old = this.state(variable, name);
    // What is remembered must be a tensor of its own, not the value itself.
    const news = old && share === 1 ? value : value.affine(share, 0);
    if (!old) return this.remember(variable, name, news);
    old.affineSet(decay, 0);
    old.addSet(news);
    return old;
  }

  /** Forgets everything remembered, as at the start. */
  dispose(): void {
    for (const states of this.#states.values()) for (const tensor of states.values()) tensor.dispose();
    this.#states.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** An optimiser with its numbers in `params`. */
export abstract class OptimizerOf<Params extends { lr: number }> extends Optimizer {
  params: Params;

  constructor(vars: readonly Var[], params: Params) {
    super(vars);
    checkParams(new.target.name, params);
    this.params = params;
  }

  get learningRate(): number {
    return this.params.lr;
  }

  set learningRate(value: number) {
    const params = { ...this.params, lr: value };
    checkParams(this.constructor.name, params);
    this.params = params;
  }
}

/**
 * The next values of a variable whose optimiser remembers squares of gradients: `body` works in f32 where the variable is of a
 * narrow float dtype, and what it gives is rounded once.
 */
export function nextInWideDType(variable: Var, grad: Tensor, body: (value: Tensor, grad: Tensor) => Tensor): Tensor {
  return inWideDType(variable, (value) => body(value, value === variable ? grad : grad.toDtype(value.dtype)));
}

function checkShape(optimizer: Optimizer, { shape }: Var, grad: Tensor): void {
  if (grad.rank === shape.length && grad.shape.every((size, dim) => size === shape[dim])) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${optimizer.constructor.name}.step: a gradient [${grad.shape}] for a variable [${shape}]; give what backward gave, or one of its shape.`,
  );
}

kinds.checkCalls(
  Optimizer.prototype,
  {
    push: { variable: VAR },
    setLearningRate: { value: kinds.FINITE },
    step: { grads: kinds.kind((value) => value instanceof GradStore, 'give what backward gave') },
    backwardStep: { loss: kinds.TENSOR },
  },
  'Optimizer.',
);
