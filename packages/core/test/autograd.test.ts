/** Modes, gradient stores, variables and checkpoints, and a training loop; records are in autograd-records.test.ts. */

import { expectFlat } from '@x/testing/core/close';
import { describe, expect, test as plainTest } from 'vitest';
import {
  checkpoint,
  Device,
  enableGrad,
  GradStore,
  isGradEnabled,
  keep,
  memoryStats,
  noGrad,
  scope,
  Tensor,
  Var,
} from '../src';
import { countFromHere, grown, countedTest as test } from './counting';

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('modes', () => {
  test('noGrad is async-safe, and enableGrad reopens', async () => {
    const x = Var.from([1]);
    const slow = noGrad(async () => {
      await tick();
      const inside = x.exp().trackOp;
      return [inside, enableGrad(() => x.exp().trackOp), isGradEnabled()];
    });
    expect([isGradEnabled(), x.exp().trackOp]).toEqual([true, true]);
    expect(await slow).toEqual([false, true, false]);
    expect(() =>
      noGrad(() => {
        throw new Error('stop');
      }),
    ).toThrow('stop');
    expect(isGradEnabled()).toBe(true);
  });
});

describe('GradStore', () => {
  test('get, insert, remove, orInsert, ids', () => {
    const [x, y] = [Var.from([1, 2]), Var.from([3])];
    const grads = x.sqr().backward();
    expect(grads.get(y)).toBeUndefined();
    expectFlat(grads.orInsert(y), [1], [0]);
    expect([...grads.getIds()]).toEqual([x.id, y.id]);
    const old = grads.insert(y, Tensor.from([9]));
    expectFlat(old!, [1], [0]);
    expectFlat(grads.getId(y.id)!, [1], [9]);
    expectFlat(grads.insertId(y.id, Tensor.from([8]))!, [1], [9]);
    expectFlat(grads.remove(x)!, [2], [2, 4]);
    expect(grads.removeId(x.id)).toBeUndefined();
    expect(grads.size).toBe(1);
  });

  test('accumulates what scopes compute, and gives it all back', () => {
    const x = Var.from([1, 2]);
    {
      using total = new GradStore();
      for (let batch = 1; batch <= 3; batch++) {
        scope(() => total.extend(x.mul(batch).backward()));
      }
      expectFlat(total.get(x)!, [2], [6, 6]);
      expect(grown(), 'x and the sum').toEqual({ tensors: 2, storages: 2 });
    }
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
  });

  test('is returned from a scope with its gradients', () => {
    const x = Var.from([1, 2]);
    const grads = scope(() => x.sqr().sumAll().backward());
    expectFlat(grads.get(x)!, [2], [2, 4]);
    expect(grown().tensors).toBe(2);
    grads.extend(grads);
    expect(grads.size).toBe(1);
  });
});

describe('Var', () => {
  test('is made in every way that a tensor is', () => {
    const device = Device.js();
    const made = [
      Var.zeros([2], 'f64', device),
      Var.ones([2], { dtype: 'f64' }),
      Var.full(3, [2]),
      Var.rand(0, 1, [2], 'f32', device),
      Var.randn(0, 1, [2]),
      Var.randF64(0, 1, [2], 'f64', device),
      Var.randnF64(0, 1, [2], 'f16'),
      Var.from([[1, 2]]),
      Var.fromArray([1, 2, 3, 4], [2, 2]),
    ];
    for (const variable of made)
      expect([variable instanceof Var, variable.isVariable, variable.trackOp]).toEqual([true, true, true]);
    expect(made.map(({ dtype }) => dtype)).toEqual(['f64', 'f64', 'f32', 'f32', 'f32', 'f64', 'f16', 'f32', 'f32']);
    expectFlat(made[2], [2], [3, 3]);
    expect(made[0].exp() instanceof Var).toBe(false);
    expect(made[0].flip([0]) instanceof Var).toBe(false);
    const counter = Var.from([1n, 2n]);
    expect([counter.isVariable, counter.trackOp, counter.toDtype('f32').trackOp]).toEqual([true, false, false]);
  });

  test('fromTensor copies, a variable is itself', () => {
    const source = Tensor.arange(0, 6).reshape([2, 3]).t();
    const variable = Var.fromTensor(source);
    source.dispose();
    expectFlat(variable, [3, 2], [0, 3, 1, 4, 2, 5]);
    expect(variable.isContiguous()).toBe(true);
    expect(Var.fromTensor(variable)).toBe(variable);
    expect(variable.asTensor()).toBe(variable);
  });

  test('set replaces the values for all who look', () => {
    const x = Var.from([1, 2]);
    const seen = x.asDetachedTensor();
    x.set(Tensor.from([[3], [4]]).squeeze(1));
    expectFlat(seen, [2], [3, 4]);
    expect(seen.trackOp).toBe(false);
    expect(() => x.set(seen)).toThrow(expect.objectContaining({ code: 'CANNOT_SET_VAR' }));
    expect(() => x.set(Tensor.from([1]))).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
    expect(() => x.set(Tensor.from([1, 2], { dtype: 'f64' }))).toThrow(
      expect.objectContaining({ code: 'DTYPE_MISMATCH' }),
    );
  });
});

describe('checkpoint', () => {
  const layer = (w: Tensor) => (x: Tensor) => x.matmul(w).exp().softmaxLastDim().sqr();

  test('gives the same gradients and keeps only the inputs', () => {
    const x = Var.randn(0, 1, [4, 3]);
    const w = Var.randn(0, 1, [3, 5]);
    const direct = layer(w)(x.mul(2)).backward();
    const base = memoryStats();
    const y = scope(() => checkpoint(layer(w), [x.mul(2)]));
    expect(memoryStats().liveStorages - base.liveStorages, 'the result and the input').toBe(2);
    const grads = y.backward();
    for (const variable of [x, w]) {
      expectFlat(grads.get(variable)!, variable.shape, direct.get(variable)!.toArraySync<Float32Array>(), 1e-6);
    }
    grads.dispose();
    y.dispose();
    expect(memoryStats()).toEqual(base);
  });

  test('reaches variables that are no input, and takes a second derivative', () => {
    const w = Var.from([3]);
    const x = Var.from([2]);
    const y = checkpoint((a) => a.mul(a).mul(w), [x.affine(1, 0)]);
    const first = y.backward({ createGraph: true });
    expectFlat(first.get(x)!, [1], [12]);
    expectFlat(first.get(w)!, [1], [4]);
    const second = first.get(x)!.backward();
    expectFlat(second.get(x)!, [1], [6]);
    expectFlat(second.get(w)!, [1], [4]);
    expectFlat(
      checkpoint((a) => a.mul(w), [Tensor.from([5])])
        .backward()
        .get(w)!,
      [1],
      [5],
    );
    expect(noGrad(() => checkpoint((a) => a.mul(w), [x])).trackOp).toBe(false);
  });

  test('draws the same random numbers again, and leaves the stream where it was', () => {
    const x = Var.ones([1000]);
    const dropout = (a: Tensor) => a.mul(a.randLike(0, 1).gt(0.5).toDtype('f32'));
    x.device.setSeed(42);
    const y = checkpoint(dropout, [x]);
    const next = x.randLike(0, 1).toArraySync();
    const grad = y.backward().get(x)!;
    expectFlat(grad, [1000], y.toArraySync<Float32Array>());
    const after = x.randLike(0, 1).toArraySync();
    x.device.setSeed(42);
    x.randLike(0, 1);
    expect(x.randLike(0, 1).toArraySync()).toEqual(next);
    expect(x.randLike(0, 1).toArraySync()).toEqual(after);
  });

  test('of an input or a variable itself', () => {
    const [x, w] = [Var.from([2]), Var.from([3])];
    expectFlat(
      checkpoint((a) => a, [x])
        .backward()
        .get(x)!,
      [1],
      [1],
    );
    expectFlat(
      checkpoint(() => w, [x])
        .backward()
        .get(w)!,
      [1],
      [1],
    );
    expect([x.isDisposed, w.isDisposed]).toEqual([false, false]);
  });
});

describe('training', () => {
  plainTest('steps in a scope leave only the variables', () => {
    const [w, b] = keep([Var.zeros([1, 2]), Var.zeros([1])]);
    const x = Tensor.from([
      [1, 0],
      [2, 3],
      [-1, 4],
      [3, -2],
    ]);
    const target = Tensor.from([[2], [1], [-6], [8]]);
    const before = countFromHere();
    for (let step = 0; step < 300; step++) {
      scope(() => {
        const off = x.matmul(w.t()).broadcastAdd(b).sub(target);
        const grads = off.sqr().sumAll().backward();
        for (const v of [w, b]) v.set(v.detach().sub(grads.get(v)!.mul(0.02)));
      });
    }
    expect(memoryStats()).toEqual(before);
    // y = 2 x₁ - x₂ fits exactly.
    expectFlat(w, [1, 2], [2, -1], 1e-4);
    expectFlat(b, [1], [0], 1e-4);
    for (const tensor of [w, b, x, target]) tensor.dispose();
  });
});
