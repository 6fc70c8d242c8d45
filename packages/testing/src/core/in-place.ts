/**
 * Histories of tensors that are written in place, on one device. That gradients are right is also tested against central
 * differences, in packages/rocm-backend/test/grad.property.test.ts.
 */

import { type Device, type InplaceOp1, noGrad, scope, Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat } from './close';

export function inPlaceSuite(name: string, device: () => Device): void {
  const here = () => ({ device: device() });
  const refused = expect.objectContaining({ code: 'GRADIENT_IN_PLACE' });
  const idsOf = (ids: number[][]) => Tensor.from(ids, { dtype: 'u32', ...here() });

  describe(`writes in place on ${name}`, () => {
    test('a plain tensor gets the history of what is written into it', () => {
      const v = Var.from([1, 2], here());
      const out = Tensor.zeros([2, 2], here());
      for (const row of [0, 1]) out.sliceSet(v.mul(row + 2).unsqueeze(0), 0, row);
      expect(out.trackOp).toBe(true);
      expectFlat(out, [2, 2], [2, 4, 3, 6]);
      expectFlat(out.sumAll().backward().get(v)!, [2], [5, 5]);
    });

    test('what is written over has no gradient any more', () => {
      const [v, w] = [Var.from([1, 2, 3, 4], here()), Var.from([5, 6], here())];
      const out = v.mul(2);
      out.sliceSet(Tensor.from([9], here()), 0, 0);
      out.sliceSet(w, 0, 2);
      const grads = out.mul(10).sumAll().backward();
      expectFlat(grads.get(v)!, [4], [0, 20, 0, 0]);
      expectFlat(grads.get(w)!, [2], [10, 10]);
    });

    test('scatterSet and scatterAddSet carry gradients', () => {
      const [v, w] = [Var.from([[1, 2, 3]], here()), Var.from([[7, 8]], here())];
      const ids = idsOf([[2, 0]]);
      const set = v.mul(3);
      set.scatterSet(ids, w, 1);
      let grads = set.sumAll().backward();
      expectFlat(grads.get(v)!, [1, 3], [0, 3, 0]);
      expectFlat(grads.get(w)!, [1, 2], [1, 1]);
      const added = Tensor.zeros([1, 3], here());
      added.scatterAddSet(idsOf([[1, 1]]), w, 1);
      added.scatterAddSet(ids, w.mul(2), 1);
      grads = added
        .mul(Tensor.from([[1, 10, 100]], here()))
        .sumAll()
        .backward();
      expectFlat(grads.get(w)!, [1, 2], [210, 12]);
    });

    test('a value that the gradient needs and that is overwritten is noticed', () => {
      const v = Var.from([1, 2], here());
      const y = v.exp();
      y.sliceSet(Tensor.zeros([1], here()), 0, 0);
      expect(() => y.sumAll().backward()).toThrow(expect.objectContaining({ code: 'CHANGED_IN_PLACE' }));
    });

    test('a variable is not written to while gradients are recorded', () => {
      const v = Var.from([1, 2], here());
      const one = Tensor.ones([1], here());
      expect(() => v.sliceSet(one, 0, 0)).toThrow(refused);
      expect(() => v.scatterSet(idsOf([[0]]).squeeze(0), one, 0)).toThrow(refused);
      expect(() => v.zeroSet()).toThrow(refused);
      expectFlat(v, [2], [1, 2]);
      noGrad(() => v.sliceSet(one.mul(5), 0, 0));
      expectFlat(v, [2], [5, 2]);
    });

    test('nor a tensor that others see, until they are gone', () => {
      const v = Var.from([1, 2], here());
      const base = Tensor.zeros([2, 2], here());
      const row = base.get(0);
      expect(() => base.sliceSet(v.unsqueeze(0), 0, 0)).toThrow(/1 other live tensor .*copy\(\)/);
      expect(() => row.sliceSet(v, 0, 0)).toThrow(refused);
      expectFlat(base, [2, 2], [0, 0, 0, 0]);
      row.dispose();
      base.sliceSet(v.unsqueeze(0), 0, 0);
      expectFlat(base.sumAll().backward().get(v)!, [2], [1, 1]);
    });

    test('values without gradients are written as ever: views see them', () => {
      const base = Tensor.zeros([2], here());
      const view = base.narrow(0, 0, 1);
      base.sliceSet(Tensor.ones([2], here()), 0, 0);
      noGrad(() => base.sliceSet(Var.from([3], here()).neg(), 0, 0));
      base.sliceSet(Var.from([4], here()).detach(), 0, 1);
      expectFlat(view, [1], [-3]);
      expect([base.trackOp, view.trackOp]).toEqual([false, false]);
    });

    test('constants cut the history', () => {
      const v = Var.from([1, 2], here());
      const y = v.mul(2);
      y.constSet(3);
      expect(y.trackOp).toBe(false);
      expect(() => scope(() => v.mul(2).get(0).zeroSet())).toThrow(refused);
    });

    test('a custom operation in place has no gradient to go through', () => {
      const nothing: InplaceOp1 = { name: 'nothing', fwd: () => {} };
      const v = Var.from([1, 2], here());
      const y = v.mul(2);
      y.inplaceOp1(nothing);
      expect(() => y.sumAll().backward()).toThrow(expect.objectContaining({ code: 'BACKWARD_NOT_SUPPORTED' }));
      expect(() => v.inplaceOp1(nothing)).toThrow(refused);
    });
  });
}
