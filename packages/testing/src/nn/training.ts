/** Whole trainings on one device: that losses fall, and that a step leaves nothing behind. */
import { type Device, memoryStats, scope, Tensor } from '@x/core';
import {
  Adam,
  batchNorm,
  clipGradNorm,
  conv2d,
  cosineAnnealingLr,
  Dropout,
  linear,
  loss,
  lstm,
  type Optimizer,
  Scheduler,
  SGD,
  seq,
  VarBuilder,
  VarMap,
  warmup,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { values } from './helpers';

export function trainingSuite(name: string, device: () => Device): void {
  /** Trains, and checks that from the third step on each step leaves as much as the one before: nothing. */
  const train = (optimizer: Optimizer, steps: number, lossNow: () => Tensor, afterStep = () => {}): number => {
    let last = Number.NaN;
    let held = 0;
    for (let step = 0; step < steps; step++) {
      scope(() => {
        const now = lossNow();
        optimizer.backwardStep(now);
        if (step === steps - 1) last = now.toScalarSync();
      });
      afterStep();
      const { liveTensors } = memoryStats();
      if (step === 2) held = liveTensors;
      else if (step > 2) expect(liveTensors).toBe(held);
    }
    return last;
  };
  const setUp = (seed: number) => {
    device().setSeed(seed);
    const map = new VarMap();
    return { map, vb: VarBuilder.fromVarMap(map, { device: device() }) };
  };

  describe(`training on ${name}`, () => {
    check('two layers learn exclusive or', () => {
      const { map, vb } = setUp(1);
      using _map = map;
      const first = linear(2, 8, vb.pp('first'));
      using model = seq()
        .add(first)
        .addFn((xs) => xs.tanh())
        .add(linear(8, 1, vb.pp('second')));
      const xs = Tensor.from([0, 0, 0, 1, 1, 0, 1, 1], { shape: [4, 2], device: device() });
      const ys = Tensor.from([0, 1, 1, 0], { shape: [4, 1], device: device() });
      using optimizer = new Adam(map.allVars(), { lr: 0.05 });
      const scheduler = new Scheduler(optimizer, warmup(10, cosineAnnealingLr(0.1, 190)));
      const final = train(
        optimizer,
        200,
        () => loss.binaryCrossEntropyWithLogit(model.forward(xs), ys),
        () => scheduler.step(),
      );
      expect(final).toBeLessThan(0.05);
      expect(model.forward(xs).gt(0).flattenAll().toVecSync()).toEqual([0, 1, 1, 0]);
    });

    check('a convolution with batch norm and dropout tells rows from columns', () => {
      const { map, vb } = setUp(2);
      using _map = map;
      using conv = conv2d(1, 4, 3, { padding: 1 }, vb.pp('conv'));
      using norm = batchNorm(4, {}, vb.pp('norm'));
      using head = linear(4, 2, vb.pp('head'));
      const dropout = new Dropout(0.1);
      const size = 6;
      const images = new Float32Array(12 * size * size);
      const labels = new Uint32Array(12);
      for (let i = 0; i < 12; i++) {
        labels[i] = i % 2;
        const line = i >> 1;
        for (let at = 0; at < size; at++) {
          images[i * size * size + (labels[i] === 0 ? line * size + at : at * size + line)] = 1;
        }
      }
      const xs = Tensor.from(images, { shape: [12, 1, size, size], device: device() });
      const ys = Tensor.from(labels, { device: device() });
      const forward = (isTraining: boolean) =>
        scope(() => {
          const features = norm.forwardT(conv.forward(xs), isTraining).relu().mean([2, 3]);
          return head.forward(dropout.forward(features, isTraining));
        });
      using optimizer = new SGD(map.allVars(), { lr: 0.3, momentum: 0.9 });
      train(optimizer, 80, () => loss.crossEntropy(forward(true), ys));
      expect(loss.crossEntropy(forward(false), ys).toScalarSync()).toBeLessThan(0.2);
      expect(forward(false).argmax(1).toVecSync()).toEqual(Array.from(labels));
      expect(map.data.get('norm.running_mean')!.abs().maxAll().toScalarSync()).toBeGreaterThan(0);
    });

    check('an LSTM adds up a sequence, with clipped gradients', () => {
      const { map, vb } = setUp(3);
      using _map = map;
      using layer = lstm(1, 6, {}, vb.pp('lstm'));
      using head = linear(6, 1, vb.pp('head'));
      const data = values(16 * 4, 5);
      const sums = Float32Array.from(
        { length: 16 },
        (_, i) => data.subarray(i * 4, i * 4 + 4).reduce((a, b) => a + b, 0) / 4,
      );
      const xs = Tensor.from(data, { shape: [16, 4, 1], device: device() });
      const ys = Tensor.from(sums, { shape: [16, 1], device: device() });
      using optimizer = new Adam(map.allVars(), { lr: 0.03 });
      const lossNow = () => scope(() => loss.mse(head.forward(layer.seq(xs)[3].h), ys));
      const first = scope(() => lossNow().toScalarSync());
      for (let step = 0; step < 60; step++) {
        scope(() => {
          const grads = lossNow().backward();
          const norm = clipGradNorm(grads, optimizer.vars, 0.5).toScalarSync();
          expect(Number.isFinite(norm)).toBe(true);
          optimizer.step(grads);
        });
      }
      expect(scope(() => lossNow().toScalarSync())).toBeLessThan(first / 20);
    });
  });
}
