/** Gradients between `backward` and a step: clipping and accumulation, as PyTorch's utilities; candle has none. */
import { CandleError, GradStore, kinds, noGrad, type OptimOps, scope, Tensor, type Var } from '@x/core';
import { checkPositive } from '../check';
import { wideDType } from '../ops';
import type { Optimizer } from './optimizer';

const GRADS = kinds.kind((value) => value instanceof GradStore, 'give what backward gave');

/** @throws CandleError INVALID_ARGUMENT for what is no store of gradients, or no list of variables */
export function checkGradients(op: string, grads: unknown, vars: unknown): void {
  kinds.check(op, 'grads', grads, GRADS);
  kinds.check(op, 'vars', vars, kinds.TENSORS);
}

/** Puts in place of each gradient what `change` makes of it. */
function replaceEach(grads: GradStore, vars: readonly Var[], change: (grad: Tensor) => Tensor): void {
  for (const variable of vars) {
    const grad = grads.get(variable);
    if (grad) grads.insert(variable, change(grad))?.dispose();
  }
}

/**
 * Scales all gradients by one factor so that their norm together is `maxNorm` at most. Nothing is read back: the factor is
 * computed where the gradients are, on the device of the first.
 * @param normType 2, or Infinity for the largest element
 * @returns the norm before, a scalar f32 (f64 when all gradients are f64): the caller's to dispose
 */
export function clipGradNorm(grads: GradStore, vars: readonly Var[], maxNorm: number, normType = 2): Tensor {
  checkGradients('clipGradNorm', grads, vars);
  kinds.check('clipGradNorm', 'maxNorm', maxNorm, kinds.NUMBER);
  kinds.check('clipGradNorm', 'normType', normType, kinds.NUMBER);
  if (!(maxNorm >= 0) || (normType !== 2 && normType !== Number.POSITIVE_INFINITY)) {
    throw new CandleError(
      'INVALID_ARGUMENT',
      `clipGradNorm: maxNorm ${maxNorm} and normType ${normType}; give a number from 0, and 2 or Infinity.`,
    );
  }
  const all = vars.map((variable) => grads.get(variable)).filter((grad) => grad !== undefined);
  return noGrad(() => {
    if (all.length === 0) return Tensor.zeros([]);
    const dtype = all.every((grad) => grad.dtype === 'f64') ? 'f64' : 'f32';
    const optim = normType === 2 ? optimOf(all) : undefined;
    const total = scope(() => {
      if (optim) return Tensor.fromStorage(optim.squaredNorm(all.map(operandOf)), [], all[0].device).sqrt();
      const parts = all.map((grad) => {
        const wide = grad.toDtype(wideDType(grad.dtype));
        return (normType === 2 ? wide.sqr().sumAll() : wide.abs().maxAll()).toDtype(dtype);
      });
      const together = Tensor.stack(parts, 0);
      return normType === 2 ? together.sumAll().sqrt() : together.maxAll();
    });
    using factor = scope(() => total.affine(1, 1e-6).recip().affine(maxNorm, 0).minimum(1));
    const part = factor.storagePart();
    replaceEach(grads, vars, (grad) =>
      optim
        ? Tensor.fromStorage(optim.scaleBy(operandOf(grad), part), grad.shape, grad.device)
        : scope(() => grad.broadcastMul(factor.toDtype(grad.dtype))),
    );
    return total;
  });
}

const operandOf = (grad: Tensor) => grad.storageAndLayout();

/** The device's kernels, where they are for all of these at once. */
function optimOf(grads: readonly Tensor[]): OptimOps | undefined {
  const [{ device, dtype }] = grads;
  const alike = grads.every((grad) => grad.device === device && grad.dtype === dtype && grad.isContiguous());
  return alike && (dtype === 'f32' || dtype === 'f64') ? device.backend.optim : undefined;
}

/** Limits every element of every gradient to ±`value`. */
export function clipGradValue(grads: GradStore, vars: readonly Var[], value: number): void {
  checkGradients('clipGradValue', grads, vars);
  kinds.check('clipGradValue', 'value', value, kinds.NUMBER);
  if (!(value >= 0)) {
    throw new CandleError('INVALID_ARGUMENT', `clipGradValue: ${value}; give a number from 0.`);
  }
  noGrad(() => replaceEach(grads, vars, (grad) => grad.clamp(-value, value)));
}

export interface GradAccumulatorOptions {
  /** Clips the norm of the gradients before each step; see {@link clipGradNorm}. Default: no clipping. */
  maxNorm?: number;
}

/** One step of an optimiser for several losses: a large batch in pieces that fit into memory. */
export class GradAccumulator implements Disposable {
  readonly #grads = new GradStore();
  #count = 0;

  /** @param steps losses a step */
  constructor(
    private readonly optimizer: Optimizer,
    readonly steps: number,
    private readonly options: GradAccumulatorOptions = {},
  ) {
    checkPositive('GradAccumulator', { steps });
    kinds.check('GradAccumulator', 'optimizer', optimizer, kinds.OBJECT);
    kinds.check('GradAccumulator', 'options', options, kinds.OBJECT);
    kinds.check('GradAccumulator', 'maxNorm', options.maxNorm, kinds.optional(kinds.NUMBER));
  }

  /** Gradients held, of the losses since the last step. */
  get grads(): GradStore {
    return this.#grads;
  }

  /**
   * Adds the gradients of loss / steps, so that a step is that of the losses' mean.
   * @returns whether this was the last loss of a step, and the step was made
   */
  backwardStep(loss: Tensor): boolean {
    const share = scope(() => loss.affine(1 / this.steps, 0));
    try {
      this.#grads.extend(share.backward());
    } finally {
      share.dispose();
    }
    if (++this.#count < this.steps) return false;
    const { maxNorm } = this.options;
    try {
      if (maxNorm !== undefined) clipGradNorm(this.#grads, this.optimizer.vars, maxNorm).dispose();
      this.optimizer.step(this.#grads);
    } finally {
      // Also of a step that failed: the next one begins with its own losses.
      this.dispose();
    }
    return true;
  }

  /** Forgets the gradients since the last step. */
  dispose(): void {
    this.#grads.dispose();
    this.#count = 0;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
