/**
 * Learning rates that change from step to step: PyTorch's `lr_scheduler`, in closed form; candle has none. A schedule is a
 * function of the step, from 0; `Scheduler` sets an optimiser's rate by one.
 */
import { CandleError, kinds } from '@x/core';
import { Optimizer } from './optimizer';

/** The learning rate of a step, counted from 0. */
export type Schedule = (step: number) => number;

function checkCount(op: string, name: string, value: number): void {
  if (Number.isFinite(value) && value >= 1) return;
  throw new CandleError('INVALID_ARGUMENT', `${op}: ${name} is ${kinds.show(value)}; give a number from 1.`);
}

/** Always the same. */
export function constantLr(lr: number): Schedule {
  return () => lr;
}

/** Times `gamma` every `stepSize` steps. */
export function stepLr(lr: number, stepSize: number, gamma = 0.1): Schedule {
  checkCount('stepLr', 'stepSize', stepSize);
  return (step) => lr * gamma ** Math.floor(step / stepSize);
}

/** Times `gamma` at each of the milestones. */
export function multiStepLr(lr: number, milestones: readonly number[], gamma = 0.1): Schedule {
  return (step) => lr * gamma ** milestones.filter((milestone) => step >= milestone).length;
}

/** Times `gamma` every step. */
export function exponentialLr(lr: number, gamma: number): Schedule {
  return (step) => lr * gamma ** step;
}

/** In a straight line from `startFactor` to `endFactor` times the rate, then constant. */
export function linearLr(lr: number, totalSteps: number, startFactor = 1 / 3, endFactor = 1): Schedule {
  checkCount('linearLr', 'totalSteps', totalSteps);
  return (step) => lr * (startFactor + (endFactor - startFactor) * Math.min(1, step / totalSteps));
}

/** To 0 as (1 - step / totalSteps) to a power, then 0. */
export function polynomialLr(lr: number, totalSteps: number, power = 1): Schedule {
  checkCount('polynomialLr', 'totalSteps', totalSteps);
  return (step) => lr * (1 - Math.min(1, step / totalSteps)) ** power;
}

/** A cosine from the rate to `etaMin` in `tMax` steps, back up in the next `tMax`, and so on, as PyTorch's. */
export function cosineAnnealingLr(lr: number, tMax: number, etaMin = 0): Schedule {
  checkCount('cosineAnnealingLr', 'tMax', tMax);
  return (step) => etaMin + ((lr - etaMin) * (1 + Math.cos((Math.PI * step) / tMax))) / 2;
}

/** {@link cosineAnnealingLr} that starts anew after `t0` steps, then `t0 * tMult`, and so on (SGDR). */
export function cosineAnnealingWarmRestarts(lr: number, t0: number, tMult = 1, etaMin = 0): Schedule {
  checkCount('cosineAnnealingWarmRestarts', 't0', t0);
  checkCount('cosineAnnealingWarmRestarts', 'tMult', tMult);
  return (step) => {
    let [length, at] = [t0, step];
    if (tMult === 1) at = step % t0;
    else {
      while (at >= length) {
        at -= length;
        length *= tMult;
      }
    }
    return etaMin + ((lr - etaMin) * (1 + Math.cos((Math.PI * at) / length))) / 2;
  };
}

/** In a straight line up to the start of another schedule in `warmupSteps` steps, the first of them not 0. */
export function warmup(warmupSteps: number, then: Schedule): Schedule {
  checkCount('warmup', 'warmupSteps', warmupSteps);
  return (step) => (step < warmupSteps ? (then(0) * (step + 1)) / warmupSteps : then(step - warmupSteps));
}

const OPTIMIZER = kinds.kind((value) => value instanceof Optimizer, 'give an optimiser, as new AdamW(vars)');

/** Sets the rate of an optimiser: at once for step 0, and for the next one at each call of {@link step}. */
export class Scheduler {
  #step = 0;

  constructor(
    private readonly optimizer: Optimizer,
    private readonly schedule: Schedule,
  ) {
    kinds.check('Scheduler', 'optimizer', optimizer, OPTIMIZER);
    kinds.check('Scheduler', 'schedule', schedule, kinds.FUNCTION);
    optimizer.learningRate = schedule(0);
  }

  /** Steps so far. */
  get stepCount(): number {
    return this.#step;
  }

  /** To be called after each step of the optimiser. Returns the rate of the next one. */
  step(): number {
    const rate = this.schedule(++this.#step);
    this.optimizer.learningRate = rate;
    return rate;
  }
}
