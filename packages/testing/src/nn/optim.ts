/**
 * Optimisers on one device: candle-nn's tests/optim.rs; the others against PyTorch's formulas written out in numbers.
 */
import { type Device, GradStore, scope, Tensor, Var } from '@x/core';
import {
  Adam,
  AdamW,
  clipGradNorm,
  clipGradValue,
  GradAccumulator,
  Init,
  Linear,
  Lion,
  loss,
  type Optimizer,
  RMSProp,
  SGD,
  VarMap,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { expectClose } from './close';

/** How numbers are changed by one optimiser: one variable, its gradients one after the other. */
type Formula = (gradients: number[], start: number) => number;

export function optimSuite(name: string, device: () => Device): void {
  const from = (data: Parameters<typeof Tensor.from>[0]) => Tensor.from(data, { device: device(), dtype: 'f32' });
  const variable = (data: Parameters<typeof Tensor.from>[0], dtype: 'f32' | 'f64' = 'f32') =>
    Var.from(data, { device: device(), dtype });
  /** y = 3 x1 + x2 - 2 at four points, and a layer that is to learn it. */
  const regression = (w: Tensor, b: Tensor) => {
    const xs = from([
      [2, 1],
      [7, 4],
      [-4, 12],
      [5, 8],
    ]);
    using generator = new Linear(from([[3, 1]]), from(-2));
    const ys = generator.forward(xs);
    const layer = new Linear(w, b);
    return { layer, lossNow: () => layer.forward(xs).sub(ys).sqr().sumAll() };
  };
  const train = (optimizer: Optimizer, lossNow: () => Tensor, steps: number) => {
    for (let i = 0; i < steps; i++) scope(() => optimizer.backwardStep(lossNow()));
  };

  describe(`optimisers on ${name}`, () => {
    check('optim::sgd_optim', () => {
      const x = variable(0);
      using sgd = new SGD([x], 0.1);
      train(sgd, () => x.sub(4.2).mul(x.sub(4.2)), 100);
      // The last digits are rounding: candle gives 4.199999.
      expect(Math.abs(x.toScalarSync() - 4.199999)).toBeLessThan(1.5e-6);
    });

    check('optim::sgd_linear_regression', () => {
      const [w, b] = [variable([[0, 0]]), variable(0)];
      using sgd = new SGD([w, b], 0.004);
      const { layer, lossNow } = regression(w, b);
      train(sgd, lossNow, 1000);
      expectClose(w, [[2.9983196, 0.99790204]], 1e-5);
      expectClose(b, -1.9796902, 1e-5);
      layer.dispose();
      expect(w.isDisposed).toBe(false);
    });

    check('optim::adamw_linear_regression', () => {
      const [w, b] = [variable([[0, 0]]), variable(0)];
      using adamw = new AdamW([w, b], { lr: 0.1 });
      train(adamw, regression(w, b).lossNow, 100);
      expectClose(w, [[2.7257, 0.7097]]);
      expectClose(b, 0.7873);
    });

    check('optim::adamw_linear_regression_varmap', () => {
      using map = new VarMap();
      const w = map.get([1, 2], 'w', Init.const(0), 'f32', device());
      const b = map.get([], 'b', Init.const(0), 'f32', device());
      using adamw = new AdamW(map.allVars(), { lr: 0.1 });
      const { layer, lossNow } = regression(w, b);
      train(adamw, lossNow, 100);
      expectClose(layer.weight, [[2.7257, 0.7097]]);
      expectClose(layer.bias!, 0.7873);
      map.set([['w', Tensor.zeros([1, 2], 'f32', device())]]);
      map.set({ b: Tensor.ones([], 'f32', device()) });
      expect([layer.weight.toVecSync(), layer.bias!.toVecSync()]).toEqual([[[0, 0]], 1]);
    });

    const gradients = [0.5, -1.5, 2, 0.25, -0.75];
    /** The formula, in f64 on the device, for two elements at once: the second starts elsewhere and has twice the gradient. */
    const compare = (title: string, make: (vars: Var[]) => Optimizer, formula: Formula) => {
      check(title, () => {
        const x = variable([1, -2], 'f64');
        using optimizer = make([x, Var.from([1, 2], { dtype: 'i64', device: device() })]);
        expect(optimizer.vars).toEqual([x]);
        for (const gradient of gradients) {
          using store = new GradStore();
          store.insert(x, Tensor.from([gradient, 2 * gradient], { dtype: 'f64', device: device() }));
          optimizer.step(store);
        }
        const doubled = gradients.map((gradient) => 2 * gradient);
        expectClose(x, [formula(gradients, 1), formula(doubled, -2)], 1e-12);
      });
    };

    compare(
      'SGD with momentum, dampening and weight decay',
      (vars) => new SGD(vars, { lr: 0.1, momentum: 0.9, dampening: 0.2, weightDecay: 0.3 }),
      (gs, x) => {
        let velocity: number | undefined;
        for (const g of gs) {
          const decayed = g + 0.3 * x;
          velocity = velocity === undefined ? decayed : 0.9 * velocity + 0.8 * decayed;
          x -= 0.1 * velocity;
        }
        return x;
      },
    );

    compare(
      'SGD with Nesterov momentum',
      (vars) => new SGD(vars, { lr: 0.1, momentum: 0.8, nesterov: true }),
      (gs, x) => {
        let velocity = 0;
        for (const g of gs) {
          velocity = 0.8 * velocity + g;
          x -= 0.1 * (g + 0.8 * velocity);
        }
        return x;
      },
    );

    const adam =
      (decoupled: boolean): Formula =>
      (gs, x) => {
        let [m, v] = [0, 0];
        gs.forEach((g, i) => {
          const decayed = decoupled ? g : g + 0.2 * x;
          m = 0.8 * m + 0.2 * decayed;
          v = 0.9 * v + 0.1 * decayed ** 2;
          if (decoupled) x -= 0.05 * 0.2 * x;
          x -= (0.05 * (m / (1 - 0.8 ** (i + 1)))) / (Math.sqrt(v / (1 - 0.9 ** (i + 1))) + 1e-3);
        });
        return x;
      };
    const adamParams = { lr: 0.05, beta1: 0.8, beta2: 0.9, eps: 1e-3, weightDecay: 0.2 };
    compare('Adam with weight decay', (vars) => new Adam(vars, adamParams), adam(false));
    compare('AdamW with weight decay', (vars) => new AdamW(vars, adamParams), adam(true));

    compare(
      'RMSProp',
      (vars) => new RMSProp(vars, { lr: 0.1, alpha: 0.9, eps: 1e-4 }),
      (gs, x) => {
        let v = 0;
        for (const g of gs) {
          v = 0.9 * v + 0.1 * g * g;
          x -= (0.1 * g) / (Math.sqrt(v) + 1e-4);
        }
        return x;
      },
    );

    compare(
      'RMSProp, centred, with momentum and weight decay',
      (vars) => new RMSProp(vars, { lr: 0.1, alpha: 0.9, eps: 1e-4, centered: true, momentum: 0.5, weightDecay: 0.1 }),
      (gs, x) => {
        let [v, mean, step] = [0, 0, 0];
        for (const g of gs) {
          const decayed = g + 0.1 * x;
          v = 0.9 * v + 0.1 * decayed ** 2;
          mean = 0.9 * mean + 0.1 * decayed;
          step = 0.5 * step + decayed / (Math.sqrt(v - mean ** 2) + 1e-4);
          x -= 0.1 * step;
        }
        return x;
      },
    );

    compare(
      'Lion',
      (vars) => new Lion(vars, { lr: 0.1, beta1: 0.7, beta2: 0.9, weightDecay: 0.2 }),
      (gs, x) => {
        let m = 0;
        for (const g of gs) {
          const direction = Math.sign(0.7 * m + 0.3 * g);
          x = x * (1 - 0.1 * 0.2) - 0.1 * direction;
          m = 0.9 * m + 0.1 * g;
        }
        return x;
      },
    );

    check('clipping by norm and by value', () => {
      const [a, b] = [variable([1, 2]), variable([[1]])];
      const store = () => {
        const grads = new GradStore();
        grads.insert(a, from([3, 4]));
        grads.insert(b, from([[-12]]));
        return grads;
      };
      const clip = (max: number, type?: number) => {
        const grads = store();
        const norm = clipGradNorm(grads, [a, b], max, type).toScalarSync();
        return [norm, [...grads.get(a)!.toVecSync<number[]>(), ...grads.get(b)!.toVecSync<number[][]>()[0]]] as const;
      };
      const [norm, clipped] = clip(6.5);
      expect(norm).toBeCloseTo(13, 5);
      expectClose(from(clipped), [1.5, 2, -6], 1e-6);
      expect(clip(20)[1]).toEqual([3, 4, -12]);
      const [largest, byLargest] = clip(6, Number.POSITIVE_INFINITY);
      expect(largest).toBe(12);
      expectClose(from(byLargest), [1.5, 2, -6], 1e-6);
      const grads = store();
      clipGradValue(grads, [a, b], 3.5);
      expect([grads.get(a)!.toVecSync(), grads.get(b)!.toVecSync()]).toEqual([[3, 3.5], [[-3.5]]]);
      expect(clipGradNorm(new GradStore(), [a], 1).toScalarSync()).toBe(0);
      expect(() => clipGradNorm(grads, [a], 1, 1)).toThrow(/normType 1/);
    });

    check('steps of several losses are steps of their mean', () => {
      const [a, b] = [variable([2, -1]), variable([2, -1])];
      const targets = [from([1, 1]), from([3, 0]), from([-2, 5]), from([0, 0])];
      using one = new SGD([a], 0.1);
      using other = new SGD([b], 0.1);
      using accumulator = new GradAccumulator(other, 2);
      const steps = targets.map((target) => scope(() => accumulator.backwardStep(loss.mse(b, target))));
      expect(steps).toEqual([false, true, false, true]);
      expect(accumulator.grads.size).toBe(0);
      for (const [x, y] of [targets.slice(0, 2), targets.slice(2)]) {
        scope(() => one.backwardStep(loss.mse(a, x).add(loss.mse(a, y)).mul(0.5)));
      }
      expectClose(b, a.toVecSync(), 1e-6);
      using clipped = new GradAccumulator(other, 1, { maxNorm: 0.001 });
      const before = b.copy();
      scope(() => clipped.backwardStep(loss.mse(b, targets[2])));
      expect(b.sub(before).sqr().sumAll().sqrt().toScalarSync()).toBeCloseTo(0.0001, 7);
      expect(() => new GradAccumulator(other, 0)).toThrow(/steps is 0/);
      // A step that failed leaves nothing to the next one.
      const options = { maxNorm: Number.NaN };
      using failing = new GradAccumulator(other, 1, options);
      expect(() => scope(() => failing.backwardStep(loss.mse(b, targets[2])))).toThrow(/maxNorm/);
      expect(failing.grads.size).toBe(0);
    });

    check('what would make weights NaN is refused', () => {
      const x = variable([2, -1]);
      const wrong: [() => unknown, RegExp][] = [
        [() => new AdamW([x], { beta1: 1 }), /beta1 is 1/],
        [() => new AdamW([x], { beta2: -0.5 }), /beta2 is -0.5/],
        [() => new SGD([x], null as never), /params is null/],
        [() => new SGD([x], {} as never), /lr is undefined/],
        [() => new SGD([x], '0.1' as never), /params is "0.1"/],
        [() => new SGD([x.detach()] as never, 0.1), /give a list of Var/],
        [() => Object.assign(new SGD([x], 0.1), { learningRate: Number.NaN }), /SGD: lr is NaN/],
        [() => Object.assign(new AdamW([x]), { learningRate: Number.NaN }), /lr is NaN/],
        [() => new AdamW([x]).setParams({ lr: 'x' as never }), /lr is "x"/],
        [() => new AdamW([x]).push(x.detach() as never), /give a Var/],
      ];
      for (const [call, message] of wrong) expect(call).toThrow(message);
    });

    check('unknown ways to start are no variables', () => {
      using map = new VarMap();
      for (const init of [{ kind: 'normal' }, {}])
        expect(() => map.get([2], 'w', init as never, 'f32', device())).toThrow(/Init: there is no kind/);
      expect(map.allVars()).toEqual([]);
      expect(map.get([2, 0], 'w', Init.kaiming('normal'), 'f32', device()).shape).toEqual([2, 0]);
    });
  });
}
