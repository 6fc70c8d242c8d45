/** Reductions, row ops and matrix products of every device against the TypeScript reference. */
import { DTYPES, type DType, isFloat, Layout, type ReduceOp } from '@x/core';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, FLOAT_DTYPES, operandSpec, pairsOf, runs, shapes, sumError } from '@x/testing/operands';
import fc from 'fast-check';
import { describe, it } from 'vitest';

const REDUCE: readonly ReduceOp[] = ['sum', 'min', 'max', 'argmin', 'argmax'];
const nonEmpty = shapes.filter((shape) => shape.length > 0 && shape.every((size) => size > 0));
/** Middles so long that they are cut into shares. */
const tall = fc
  .tuple(fc.integer({ min: 1, max: 2 }), fc.integer({ min: 500, max: 6000 }), fc.integer({ min: 2, max: 70 }))
  .map((sizes): number[] => sizes);
const rowDtype = fc.constantFrom<DType>(...FLOAT_DTYPES);

describe.each(kernelDevices())('rows on %s', (device) => {
  const withPair = pairsOf(device);

  it('reductions over one dim, sums over any', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...REDUCE),
        fc.constantFrom<DType>(...DTYPES),
        fc.oneof({ weight: 5, arbitrary: nonEmpty }, { weight: 1, arbitrary: tall }),
        operandSpec,
        fc.nat(),
        (op, type, shape, spec, pick) =>
          withPair((pair) => {
            const x = pair.operand(shape, type, spec, op === 'sum');
            const dims =
              op === 'sum' ? shape.map((_, dim) => dim).filter((dim) => (pick >> dim) & 1) : [pick % shape.length];
            if (dims.length === 0) return;
            const terms = dims.reduce((count, dim) => count * shape[dim], 1);
            // Values are up to 4: the reference's exact sum differs by a rounding of each partial sum.
            const scale = op === 'sum' && isFloat(type) ? { absolute: terms * (type === 'f64' ? 1e-15 : 2e-6) } : {};
            expectClose(
              pair.run((side) => x[side].device.ops.reduce(op, at(x[side], x.layout), dims)),
              `${op} ${x.layout} over ${dims}`,
              scale,
            );
          }),
      ),
      runs(400),
    );
  });

  it('softmax', () => {
    fc.assert(
      fc.property(rowDtype, nonEmpty, fc.integer({ min: 1, max: 1e9 }), (type, shape, seed) =>
        withPair((pair) => {
          const x = pair.operand(shape, type, { kind: 'offset', seed }, true);
          expectClose(
            pair.run((side) => x[side].device.fused!.softmaxLastDim!(at(x[side], x.layout))),
            `softmax ${shape}`,
            { relative: type === 'f64' ? 1e-12 : 1e-5, absolute: 1e-7 },
          );
        }),
      ),
      runs(100),
    );
  });

  it('rmsNorm and layerNorm', () => {
    fc.assert(
      fc.property(rowDtype, nonEmpty, fc.integer({ min: 1, max: 1e9 }), (type, shape, seed) =>
        withPair((pair) => {
          const width = [shape[shape.length - 1]];
          const x = pair.operand(shape, type, { kind: 'offset', seed }, true);
          const alpha = pair.operand(width, type, { kind: 'contiguous', seed: seed + 1 }, true);
          const beta = pair.operand(width, type, { kind: 'offset', seed: seed + 2 }, true);
          const scale = type === 'f64' ? { relative: 1e-6, absolute: 1e-6 } : { relative: 3e-5, absolute: 3e-5 };
          expectClose(
            pair.run((side) =>
              x[side].device.fused!.rmsNorm!(at(x[side], x.layout), at(alpha[side], alpha.layout), 1e-5),
            ),
            `rmsNorm ${shape}`,
            scale,
          );
          const normalized = pair.run((side) =>
            x[side].device.fused!.layerNorm!(
              at(x[side], x.layout),
              at(alpha[side], alpha.layout),
              at(beta[side], beta.layout),
              1e-5,
            ),
          );
          // Near-constant rows divide a rounding error by a tiny deviation.
          expectClose(normalized, `layerNorm ${shape}`, width[0] < 3 ? { relative: 0.05, absolute: 0.05 } : scale);
        }),
      ),
      runs(100),
    );
  });

  it('rope', () => {
    const sizes = fc.tuple(
      fc.integer({ min: 1, max: 3 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 1, max: 20 }),
    );
    fc.assert(
      fc.property(
        fc.constantFrom('half' as const, 'interleaved' as const, 'thd' as const),
        rowDtype,
        sizes,
        fc.boolean(),
        (kind, type, [b, h, t, half], perBatch) =>
          withPair((pair) => {
            const shape = kind === 'thd' ? [b, t, h, half * 2] : [b, h, t, half * 2];
            const x = pair.operand(shape, type, { kind: 'offset', seed: t * 31 + half }, true);
            const tableShape = perBatch ? [b, t, half] : [t, half];
            const cos = pair.operand(tableShape, type, { kind: 'contiguous', seed: 5 }, true);
            const sin = pair.operand(tableShape, type, { kind: 'offset', seed: 6 }, true);
            const rotated = pair.run((side) =>
              x[side].device.fused!.rope!(
                kind,
                at(x[side], x.layout),
                at(cos[side], cos.layout),
                at(sin[side], sin.layout),
              ),
            );
            expectClose(rotated, `rope ${kind} ${x.layout}`, {
              absolute: type === 'bf16' ? 0.13 : type === 'f16' ? 0.016 : 1e-5,
            });
          }),
      ),
      runs(80),
    );
  });

  it('matmul of any strides and dtype', () => {
    const sizes = fc.tuple(
      fc.integer({ min: 1, max: 3 }),
      fc.integer({ min: 1, max: 70 }),
      fc.integer({ min: 1, max: 90 }),
      fc.integer({ min: 0, max: 70 }),
    );
    fc.assert(
      fc.property(fc.constantFrom(...DTYPES), sizes, operandSpec, operandSpec, (type, [b, m, n, k], a, c) =>
        withPair((pair) => {
          // Integers of their whole range: products and sums wrap.
          const lhs = pair.operand([b, m, k], type, a, isFloat(type));
          const rhs = pair.operand([b, k, n], type, c, isFloat(type));
          expectClose(
            pair.run((side) =>
              lhs[side].device.ops.matmul(at(lhs[side], lhs.layout), at(rhs[side], rhs.layout), { b, m, n, k }),
            ),
            `matmul ${type} ${lhs.layout} ${rhs.layout}`,
            sumError(type, k),
          );
        }),
      ),
      runs(300),
    );
  });

  it('matmul of batch dims that no single stride walks, and of a transposed weight', () =>
    withPair((pair) => {
      const lhs = pair.operand([2, 3, 5, 7], 'f32', { kind: 'permuted', seed: 3 }, true);
      const rhs = pair.operand([2, 3, 7, 4], 'f32', { kind: 'narrowed', seed: 4 }, true);
      const size = { b: 6, m: 5, n: 4, k: 7 };
      expectClose(
        pair.run((side) => lhs[side].device.ops.matmul(at(lhs[side], lhs.layout), at(rhs[side], rhs.layout), size)),
        'four dims',
        { absolute: 1e-4 },
      );

      const x = pair.operand([1, 300], 'f32', { kind: 'contiguous', seed: 8 }, true);
      const weight = pair.operand([517, 300], 'f32', { kind: 'contiguous', seed: 9 }, true);
      const transposed = Layout.contiguous([517, 300]).transpose(0, 1);
      expectClose(
        pair.run((side) =>
          x[side].device.ops.matmul(at(x[side], x.layout), at(weight[side], transposed), {
            b: 1,
            m: 1,
            n: 517,
            k: 300,
          }),
        ),
        'weight',
        { absolute: 4e-3 },
      );
    }));
});
