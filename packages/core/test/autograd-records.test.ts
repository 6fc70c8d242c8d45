/**
 * How long the records of differentiation live, what they keep, and what `backward` does beside computing gradients. The
 * gradients themselves are in @x/testing's core/grad.ts and in @x/rocm-backend's property test.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expectFlat } from '@x/testing/core/close';
import { at } from '@x/testing/operands';
import { describe, expect } from 'vitest';
import { Device, memoryStats, noGrad, scope, Tensor, Var } from '../src';
import { withTemporaries } from '../src/tensor/base';
import { grown, countedTest as test } from './counting';

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('records', () => {
  test('survive the disposal of everything in between, and go with the last tensor', () => {
    const x = Var.from([1, 2, 3]);
    const loss = scope(() => {
      using square = x.mul(x);
      const sine = withTemporaries((temporary) => temporary(square.exp()).mul(square));
      return sine.sumAll();
    });
    // The result, and what three operations read again: x (the variable's own memory), x², exp(x²).
    expect(grown()).toEqual({ tensors: 2, storages: 4 });
    const grads = loss.backward();
    expectFlat(
      grads.get(x)!,
      [3],
      [1, 2, 3].map((v) => 2 * v * Math.exp(v * v) * (1 + v * v)),
      1e-4,
    );
    grads.dispose();
    loss.dispose();
    expect(grown()).toEqual({ tensors: 1, storages: 1 });
    x.dispose();
    expect(grown()).toEqual({ tensors: 0, storages: 0 });
  });

  test('outlive the variable', () => {
    const x = Var.from([2]);
    const y = x.powf(3);
    const { id } = x;
    x.dispose();
    expectFlat(y.backward().getId(id)!, [1], [12]);
  });

  test('a second backward works, and both keep nothing', () => {
    const x = Var.from([2]);
    const y = x.exp().mul(x);
    const base = memoryStats();
    for (let i = 0; i < 2; i++) y.backward().dispose();
    y.backward({ createGraph: true }).dispose();
    expect(memoryStats()).toEqual(base);
  });

  test('a failing backward leaves nothing behind', () => {
    const x = Var.from([2, 3]);
    const opaque = x.applyOp1({ name: 'opaque', fwd: (s, l) => [s.device.ops.unary('exp', at(s, l)), l.shape] });
    // Made later, so its gradient is in the store when the operation without one is reached.
    const late = Var.from([1, 1]);
    const y = opaque.mul(x).sqr().add(late);
    const base = memoryStats();
    expect(() => y.backward()).toThrow(expect.objectContaining({ code: 'BACKWARD_NOT_SUPPORTED' }));
    expect(memoryStats()).toEqual(base);
  });

  test('long histories are walked and released without recursion', () => {
    const x = Var.from([1]);
    const y = scope(() => {
      let value: Tensor = x;
      for (let i = 0; i < 20_000; i++) value = value.affine(1, 0.5);
      return value;
    });
    expect(y.sortedNodes()).toHaveLength(20_001);
    expectFlat(y.backward().get(x)!, [1], [1]);
    y.dispose();
    // x, and the gradient in its store.
    expect(grown().storages).toBe(2);
  });

  test('are collected with forgotten tensors', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const x = Var.from(new Float32Array(1000));
    const base = memoryStats();
    const forget = () => {
      for (let i = 0; i < 20; i++) x.exp().sqr().sumAll();
    };
    forget();
    expect(memoryStats().liveStorages).toBeGreaterThan(base.liveStorages);
    for (let i = 0; i < 50 && memoryStats().liveStorages > base.liveStorages; i++) {
      collect();
      await tick();
    }
    expect(memoryStats()).toEqual(base);
  });

  test('are made only where a variable is behind an operand', () => {
    const x = Var.from([1.5]);
    const plain = Tensor.from([1.5]);
    expect(plain.exp().add(plain).trackOp).toBe(false);
    for (const untracked of [x.detach(), x.floor(), x.gt(0), x.toDtype('u8'), x.argmax(0), noGrad(() => x.exp())]) {
      expect(untracked.trackOp).toBe(false);
      expect(untracked.sortedNodes()).toEqual([]);
    }
    const y = plain.mul(x);
    expect([y.trackOp, y.isVariable, x.isVariable, x.trackOp, plain.isVariable]).toEqual([
      true,
      false,
      true,
      true,
      false,
    ]);
    expect(y.sortedNodes().map(({ op, isVariable }) => [op, isVariable])).toEqual([
      ['mul', false],
      ['variable', true],
    ]);
    expect([...y.backward().getIds()]).toEqual([x.id]);
  });

  test('a product keeps an operand only for the gradient of the other', () => {
    const x = Var.from([1, 2]);
    const y = scope(() => x.mul(Tensor.from([3, 4])));
    expect(grown().storages, 'x, the constant, the product').toBe(3);
    y.dispose();
    const sum = scope(() => x.add(Tensor.from([3, 4])));
    expect(grown().storages, 'a sum keeps neither').toBe(2);
    sum.dispose();
  });
});

describe('backward', () => {
  test('starts from a given gradient', () => {
    const x = Var.from([1, 2]);
    expectFlat(
      x
        .sqr()
        .backward({ gradient: Tensor.from([10, 1]) })
        .get(x)!,
      [2],
      [20, 4],
    );
    expect(() => x.sqr().backward({ gradient: Tensor.from([1]) })).toThrow(/\[1\].*\[2\]/);
    expect(() => x.sqr().backward({ gradient: Tensor.from([1, 1], { dtype: 'f64' }) })).toThrow(/f64.*f32/);
  });

  test('of a variable itself is one', () => {
    const x = Var.from([1, 2]);
    expectFlat(x.backward().get(x)!, [2], [1, 1]);
  });

  test('says when there is nothing to do', () => {
    const plain = Tensor.from([1]);
    expect(() => plain.exp().backward()).toThrow(expect.objectContaining({ code: 'NO_GRADIENT' }));
    expect(() => plain.toDtype('u32').backward()).toThrow(/u32/);
    const gone = Var.from([1]).exp();
    gone.dispose();
    expect(() => gone.backward()).toThrow(expect.objectContaining({ code: 'DISPOSED' }));
  });

  test('gives gradients in the dtype of each variable', () => {
    for (const dtype of ['f16', 'bf16', 'f32', 'f64'] as const) {
      const x = Var.from([0.5, 2], { dtype });
      const y = x.toDtype('f32').sqr().mean(0);
      const grad = y.backward().get(x)!;
      expect(grad.dtype).toBe(dtype);
      expectFlat(grad, [2], [0.5, 2]);
    }
  });

  test('gives every gradient memory of its own', () => {
    const [x, y] = [Var.from([1, 2]), Var.from([3, 4])];
    const grads = x.add(y).backward();
    grads.get(x)!.constSet(7);
    expectFlat(grads.get(y)!, [2], [1, 1]);
    const seed = Tensor.from([5, 6]);
    const own = x.reshape([2, 1]).squeeze(1).backward({ gradient: seed }).get(x)!;
    own.zeroSet();
    expectFlat(seed, [2], [5, 6]);
  });

  test('refuses values that were overwritten meanwhile', () => {
    const x = Var.from([1, 2]);
    const square = x.mul(x);
    const shifted = x.add(1);
    x.set(Tensor.from([5, 6]));
    expect(() => square.backward()).toThrow(expect.objectContaining({ code: 'CHANGED_IN_PLACE' }));
    expectFlat(shifted.backward().get(x)!, [2], [1, 1]);
    const buffer = Tensor.zeros([2, 2]);
    const product = buffer.get(0).mul(x);
    buffer.sliceSet(Tensor.ones([1, 2]), 0, 1);
    expect(() => product.backward()).toThrow(/written in place/);
  });

  test('shares the gradient among equal winners', () => {
    const x = Var.from([3, 1, 3, 2]);
    expectFlat(x.max(0).backward().get(x)!, [4], [0.5, 0, 0.5, 0]);
    const image = Var.from([1, 1, 0, 1], { shape: [1, 1, 2, 2] });
    const third = 1 / 3;
    expectFlat(image.maxPool2d(2).backward().get(image)!, [1, 1, 2, 2], [third, third, 0, third], 1e-6);
  });

  test('takes derivatives of any order', () => {
    const x = Var.from([2]);
    let y: Tensor = x.powf(4);
    const expected = [32, 48, 48, 24];
    for (const value of expected) {
      y = y.backward({ createGraph: true }).get(x)!;
      expectFlat(y, [1], [value], 1e-5);
    }
    expect(x.exp().backward().get(x)!.trackOp, 'not recorded unless asked for').toBe(false);
  });

  test('crosses devices', async () => {
    const x = Var.from([1, 2], { device: Device.js() });
    const there = await x.sqr().toDevice(Device.cpu());
    const back = there.exp().sumAll().toDeviceSync(Device.js());
    const grad = back.backward().get(x)!;
    expect(grad.device.equals(Device.js())).toBe(true);
    expectFlat(grad, [2], [2 * Math.E, 4 * Math.exp(4)], 1e-4);
  });
});
