/** Learning rates by step, with PyTorch's values. */
import { Device, Var } from '@x/core';
import { describe, expect, it } from 'vitest';
import {
  AdamW,
  constantLr,
  cosineAnnealingLr,
  cosineAnnealingWarmRestarts,
  exponentialLr,
  Lion,
  linearLr,
  multiStepLr,
  polynomialLr,
  RMSProp,
  type Schedule,
  Scheduler,
  SGD,
  stepLr,
  warmup,
} from '../src';

function expectRates(schedule: Schedule, expected: Record<number, number>): void {
  for (const [step, rate] of Object.entries(expected)) expect(schedule(Number(step)), step).toBeCloseTo(rate, 10);
}

describe('schedules', () => {
  it('follow the formulas of PyTorch', () => {
    expectRates(constantLr(0.3), { 0: 0.3, 100: 0.3 });
    expectRates(stepLr(0.05, 30), { 0: 0.05, 29: 0.05, 30: 0.005, 60: 0.0005 });
    expectRates(multiStepLr(0.05, [30, 80]), { 29: 0.05, 30: 0.005, 79: 0.005, 80: 0.0005 });
    expectRates(exponentialLr(0.05, 0.9), { 0: 0.05, 1: 0.045, 2: 0.0405 });
    // torch.optim.lr_scheduler.LinearLR(start_factor=0.5, total_iters=4) of 0.05.
    expectRates(linearLr(0.05, 4, 0.5), { 0: 0.025, 1: 0.03125, 2: 0.0375, 3: 0.04375, 4: 0.05, 9: 0.05 });
    // PolynomialLR(total_iters=4, power=1.0) of 0.05.
    expectRates(polynomialLr(0.05, 4), { 0: 0.05, 1: 0.0375, 2: 0.025, 3: 0.0125, 4: 0, 5: 0 });
    expectRates(polynomialLr(1, 4, 2), { 1: 0.5625 });
    expectRates(cosineAnnealingLr(1, 10, 0.1), { 0: 1, 5: 0.55, 10: 0.1, 15: 0.55, 20: 1, 25: 0.55, 30: 0.1 });
    expectRates(cosineAnnealingLr(1, 4), { 1: (1 + Math.SQRT1_2) / 2 });
    expectRates(cosineAnnealingWarmRestarts(1, 2), { 0: 1, 1: 0.5, 2: 1, 3: 0.5 });
    expectRates(cosineAnnealingWarmRestarts(1, 2, 2), { 1: 0.5, 2: 1, 4: 0.5, 6: 1, 10: 0.5, 14: 1 });
    expectRates(warmup(4, stepLr(1, 2, 0.5)), { 0: 0.25, 3: 1, 4: 1, 5: 1, 6: 0.5 });
    expect(() => stepLr(1, 0)).toThrow(/stepSize is 0/);
    expect(() => warmup(0, constantLr(1))).toThrow(/warmupSteps/);
  });

  it('set the rate of an optimiser', () => {
    using x = Var.zeros([1], 'f32', Device.js());
    using optimizer = new AdamW([x]);
    expect(optimizer.learningRate).toBe(0.001);
    const scheduler = new Scheduler(optimizer, exponentialLr(0.8, 0.5));
    expect(optimizer.learningRate).toBe(0.8);
    expect(scheduler.step()).toBe(0.4);
    expect([optimizer.learningRate, optimizer.params.lr, scheduler.stepCount]).toEqual([0.4, 0.4, 1]);
    optimizer.setLearningRate(2);
    expect(optimizer.params).toMatchObject({ lr: 2, beta1: 0.9 });
  });

  it.each([AdamW, Lion, RMSProp, SGD])('set no rate that is no number ($name)', (kind) => {
    using x = Var.zeros([1], 'f32', Device.js());
    using optimizer = new kind([x], { lr: 0.5 } as never);
    for (const rate of [Number.NaN, Number.POSITIVE_INFINITY, '1', undefined])
      expect(() => optimizer.setLearningRate(rate as number), String(rate)).toThrow(
        expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
      );
    expect(optimizer.learningRate).toBe(0.5);
  });
});
