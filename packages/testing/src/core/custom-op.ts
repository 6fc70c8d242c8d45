/**
 * Operations and kernels of the user's own: candle's custom_op_tests. The operation is candle's example, ELU; on `js` it is
 * TypeScript over the storage, elsewhere a composition of backend operations, and `ug_op` is HIP source compiled at run
 * time (candle's kernel language `ug` has no counterpart).
 */

import {
  type BackendStorage,
  type CustomOp1,
  type CustomOp2,
  type CustomOp3,
  checkpoint,
  Device,
  type InplaceOp1,
  type InplaceOp2,
  type InplaceOp3,
  JsStorage,
  Layout,
  memoryStats,
  noGrad,
  scope,
  Tensor,
  Var,
} from '@x/core';
import { compilers } from '@x/hip';
import { describe, expect, test } from 'vitest';
import { at } from '../operands';
import { expectClose, expectFlat } from './close';
import { makers } from './makers';

/** candle's values of ELU with alpha 1 at -5, -4, .. 6. */
const ELU = [-0.9933, -0.9817, -0.9502, -0.8647, -0.6321, 0, 1, 2, 3, 4, 5, 6];
/** And of the exponential at 0, 1, .. 11, to two decimals. */
const EXP = [1, 2.72, 7.39, 20.09, 54.6, 148.41, 403.43, 1096.63, 2980.96, 8103.08, 22026.47, 59874.13];

const elu = (v: number, alpha: number) => (v > 0 ? v : (Math.exp(v) - 1) * alpha);

function eluOp(alpha: number): CustomOp1 {
  return {
    name: 'customElu',
    jsFwd(storage, layout) {
      const values = (storage as JsStorage).raw() as Float32Array;
      const out = Float32Array.from(layout.stridedIndices(), (at) => elu(values[at], alpha));
      return [new JsStorage((storage as JsStorage).device, 'f32', out), layout.shape];
    },
    fwd: (storage, layout) => [storage.device.ops.elu(at(storage, layout), alpha), layout.shape],
  };
}

const SOURCE = `
#include "x.h"
KERNEL(exp_in_place, (u64 n, float* values)) {
  X_FOR_EACH(i, n) values[i] = m::exp(values[i]);
}
KERNEL(scaled_sum, (u64 n, const float* a, const float* b, float* out, float scale)) {
  X_FOR_EACH(i, n) out[i] = (a[i] + b[i]) * scale;
}`;

export function customOpSuite(name: string, device: () => Device): void {
  const { from, counted } = makers(device);

  describe(`custom operations on ${name}`, () => {
    test('custom_op_tests::custom_op1_no_backward', () => {
      const t = counted([12], 'f32', -5);
      expectClose(t.applyOp1NoBwd(eluOp(1)), ELU);
      const turned = t.reshape([3, 4]).t();
      expectClose(turned.applyOp1NoBwd(eluOp(1)).t().flattenAll(), ELU);
      const x = Var.from([-1, 1], { device: device() });
      expect(x.applyOp1NoBwd(eluOp(1)).trackOp).toBe(false);
      expect(() => x.applyOp1(eluOp(1)).backward()).toThrow(
        expect.objectContaining({ code: 'BACKWARD_NOT_SUPPORTED', message: expect.stringContaining('customElu') }),
      );
    });

    test('custom_op_tests::custom_op1_with_backward', () => {
      const op: CustomOp1 = {
        ...eluOp(2),
        bwd: (arg, _res, gradRes) => gradRes.mul(arg.ge(0).whereCond(arg.onesLike(), arg.exp().mul(2))),
      };
      const t = Var.from([-2, 0, 2], { device: device() });
      for (const result of [t.applyOp1(op), t.applyOp1Arc(op)]) {
        expectClose(result, [-1.7293, 0, 2]);
        expectClose(result.backward().get(t)!, [0.2707, 1, 1]);
      }
    });

    test('custom_op_tests::inplace_op1', () => {
      const op: InplaceOp1 = {
        name: 'eluInPlace',
        jsFwd(storage, layout) {
          const values = (storage as JsStorage).raw() as Float32Array;
          for (const at of layout.stridedIndices()) values[at] = elu(values[at], 1);
        },
        fwd(storage, layout) {
          replace(storage, layout, storage.device.ops.elu(at(storage, layout), 1));
        },
      };
      const t = counted([12], 'f32', -5);
      t.inplaceOp1(op);
      expectClose(t, ELU);
    });

    test('operations of two and three operands, in place and not', () => {
      const product: CustomOp2 = {
        name: 'product',
        fwd: (s1, l1, s2, l2) => [s1.device.ops.binary('mul', at(s1, l1), at(s2, l2)), l1.shape],
        bwd: (a, b, _res, grad) => [grad.mul(b), grad.mul(a)],
      };
      const choose: CustomOp3 = {
        name: 'choose',
        fwd: (s1, l1, s2, l2, s3, l3) => [s1.device.ops.whereCond(at(s1, l1), at(s2, l2), at(s3, l3)), l1.shape],
        bwd: (mask, _a, _b, _res, grad) => [
          null,
          mask.whereCond(grad, grad.zerosLike()),
          mask.whereCond(grad.zerosLike(), grad),
        ],
      };
      const a = Var.from([1, 2, 3], { device: device() });
      const b = Var.from([4, 5, 6], { device: device() });
      const mask = from([1, 0, 1], 'u8');
      const chosen = mask.applyOp3(a.applyOp2(b, product), b, choose);
      expectFlat(chosen, [3], [4, 5, 18]);
      const grads = chosen.backward();
      expectFlat(grads.get(a)!, [3], [4, 0, 6]);
      expectFlat(grads.get(b)!, [3], [1, 1, 3]);
      expectFlat(mask.applyOp3Arc(a.applyOp2Arc(b, product), b, choose), [3], [4, 5, 18]);
      expect(mask.applyOp3NoBwd(a.applyOp2NoBwd(b, product), b, choose).trackOp).toBe(false);

      const add: InplaceOp2 = {
        name: 'addInPlace',
        fwd: (s1, l1, s2, l2) => replace(s1, l1, s1.device.ops.binary('add', at(s1, l1), at(s2, l2))),
      };
      const pick: InplaceOp3 = {
        name: 'pickInPlace',
        fwd: (s1, l1, s2, l2, s3, l3) => replace(s1, l1, s2.device.ops.whereCond(at(s2, l2), at(s3, l3), at(s1, l1))),
      };
      const t = from([1, 2, 3]);
      t.inplaceOp2(from([10, 20, 30]), add);
      t.inplaceOp3(mask, from([-1, -2, -3]), pick);
      expectFlat(t, [3], [-1, 22, -3]);
    });

    test('what an operation lacks or gets wrong is said', () => {
      const t = Var.from([1, 2], { device: device() });
      expect(() => t.applyOp1({ name: 'nothing' })).toThrow(
        expect.objectContaining({
          code: 'UNSUPPORTED',
          message: expect.stringContaining(`nothing: this custom operation has no forward for ${device()}`),
        }),
      );
      const wrongShape: CustomOp1 = { name: 'wrong', fwd: (s, l) => [s.device.ops.unary('exp', at(s, l)), [5]] };
      expect(() => t.applyOp1(wrongShape)).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
      const wrongGradient: CustomOp1 = {
        name: 'wrongGradient',
        fwd: (s, l) => [s.device.ops.unary('exp', at(s, l)), l.shape],
        bwd: (_arg, _res, grad) => grad.sumAll(),
      };
      expect(() => t.applyOp1(wrongGradient).backward()).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH', message: expect.stringContaining('wrongGradient') }),
      );
      // In place after it was read for a gradient.
      const square = t.mul(t);
      noGrad(() => t.inplaceOp1({ name: 'clear', fwd: (s, l) => s.device.ops.fill(at(s, l), 0) }));
      expect(() => square.backward()).toThrow(expect.objectContaining({ code: 'CHANGED_IN_PLACE' }));
    });

    test('custom_op_tests::ug_op: source compiled at run time', ({ skip }) => {
      if (!device().backend.compile) {
        expect(() => device().compile(SOURCE)).toThrow(
          expect.objectContaining({ code: 'UNSUPPORTED', message: expect.stringContaining('Device.rocm()') }),
        );
        return;
      }
      const { kind } = device().location;
      if (!compilers().find(({ platform }) => platform === (kind === 'cpu' ? 'host' : kind))?.available) {
        expect(() => device().compile(SOURCE)).toThrow(
          expect.objectContaining({
            code: expect.stringMatching(/^(LIBRARY_NOT_FOUND|SYMBOL_MISSING)$/),
            message: expect.stringMatching(/Install|set X_CLANG/),
          }),
        );
        skip('no compiler for the device');
      }
      const program = device().compile(SOURCE);
      const kernel = program.kernel('exp_in_place');
      const op: InplaceOp1 = {
        name: kernel.name,
        fwd: (storage, layout) => kernel.launch(layout.elemCount, [layout.elemCount, [storage, layout.startOffset]]),
      };
      const t = counted([12]);
      t.inplaceOp1(op);
      expectClose(t, EXP, 6e-3);
      // The second half alone, by an offset, and with grid and block chosen by hand.
      const halves = from([0, 0, 1, 1]);
      halves.narrow(0, 2, 2).inplaceOp1(op);
      expectClose(halves, [0, 0, Math.E, Math.E]);
      const sum = program.kernel('scaled_sum');
      const add: CustomOp2 = {
        name: sum.name,
        fwd(a, l, b) {
          const out = a.device.allocUninit(l.elemCount, a.dtype);
          sum.launch({ grid: 2, block: 64 }, [l.elemCount, a, b, out, 0.5]);
          return [out, l.shape];
        },
      };
      expectFlat(
        counted([300]).applyOp2(counted([300]), add),
        [300],
        new Float32Array(300).map((_, i) => i),
      );
      const elsewhere = Tensor.zeros([1], { device: Device.js() }).storageAndLayout().storage;
      expect(() => kernel.launch(1, [1, elsewhere])).toThrow(expect.objectContaining({ code: 'DEVICE_MISMATCH' }));
      expect(() => kernel.launch(1, [1])).toThrow(/exp_in_place/);
      expect(() => program.kernel('absent')).toThrow(/absent/);
      const bad = (message: string) =>
        expect.objectContaining({ code: 'INVALID_ARGUMENT', message: expect.stringContaining(message) });
      const none = null as never;
      expect(() => program.kernel(none)).toThrow(bad('kernel: name is null'));
      expect(() => kernel.launch(none, [])).toThrow(bad('launch of exp_in_place: size is null'));
      expect(() => kernel.launch(1, none)).toThrow(bad('launch of exp_in_place: args is null'));
      expect(() => device().compile(SOURCE, none)).toThrow(bad('compile: options is null'));
      expect(() => device().compile(SOURCE, { flags: '-DX' as never })).toThrow(bad('compile: options.flags is "-DX"'));
      expect(() => device().compile('KERNEL(broken, (')).toThrow(expect.objectContaining({ code: 'COMPILE_FAILED' }));
    });

    test('what an operation returns is checked, and nothing of it stays', () => {
      const x = Var.ones([2], { device: device() });
      const made = () => device().backend.zeros(2, 'f32');
      const error = expect.objectContaining({
        name: expect.stringMatching(/Error$/),
        code: expect.stringMatching(/^[A-Z_]+$/),
      });
      const before = memoryStats().liveStorages;
      for (const result of [undefined, null, 5, [], [null, [2]], [{}, [2]]])
        expect(() => x.applyOp1({ name: 'own', fwd: () => result as never })).toThrow(error);
      for (const shape of [undefined, 'x', [-1], [3], [1.5]])
        expect(() => x.applyOp1({ name: 'own', fwd: () => [made(), shape as never] })).toThrow(error);
      for (const gradient of [5, 'x', {}, [x, x], [5]]) {
        const bad = { name: 'own', fwd: () => [made(), [2]] as const, bwd: () => gradient as never };
        expect(() => scope(() => x.applyOp1(bad).backward())).toThrow(error);
      }
      for (const output of [undefined, 5, [x], Promise.resolve(x)])
        expect(() => checkpoint(() => output as never, [x])).toThrow(error);
      expect(memoryStats().liveStorages).toBe(before);
    });
  });
}

/** Puts what an operation made back into the memory that it was made from, and disposes it. */
function replace(target: BackendStorage, layout: Layout, result: BackendStorage): void {
  result.device.ops.copy(
    at(result, Layout.contiguous(layout.shape)),
    at(target, Layout.contiguous([Layout.contiguous(layout.shape).elemCount], layout.startOffset)),
  );
  result.dispose();
}
