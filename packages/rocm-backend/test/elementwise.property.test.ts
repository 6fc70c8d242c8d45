/** Elementwise ops of every device against the TypeScript reference, on random shapes, strides, broadcasts and values. */
import {
  BINARY_NAMES,
  CMP_NAMES,
  DTYPES,
  type DType,
  isFloat,
  Layout,
  sizeInBytes,
  UNARY_NAMES,
  UnsupportedError,
  unaryRow,
} from '@x/core';
import { FILL } from '@x/kernels';
import { expectClose, type Tolerance } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, FLOAT_DTYPES, operandSpec, pairsOf, randomBytes, runs, shapes } from '@x/testing/operands';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

/** pow has a test of its own, with positive bases. */
const BINARY = BINARY_NAMES.filter((op) => op !== 'pow');
const INDEX_DTYPES: readonly DType[] = ['u8', 'u32', 'i16', 'i32', 'i64'];

/** Vector mathematics on the host is good to a few units in the last place; f64 through libmvec to 4. */
const TRANSCENDENTAL: Record<string, Partial<Tolerance>> = {
  f32: { relative: 1e-5, absolute: 2e-6 },
  f64: { relative: 1e-13, absolute: 1e-14 },
};

const dtype = fc.constantFrom<DType>(...DTYPES);
const floatDtype = fc.constantFrom<DType>(...FLOAT_DTYPES);
const RUNS = runs(150);

describe.each(kernelDevices())('elementwise on %s', (device) => {
  const withPair = pairsOf(device);

  it('unary', () => {
    fc.assert(
      fc.property(fc.constantFrom(...UNARY_NAMES), floatDtype, shapes, operandSpec, (op, type, shape, spec) =>
        withPair((pair) => {
          // Large arguments of sin and cos are a matter of range reduction, which f32 implementations define differently.
          const { domain, exact } = unaryRow(op);
          const x = pair.operand(shape, type, spec, domain === 'small');
          expectClose(
            pair.run((side) => x[side].device.ops.unary(op, at(x[side], x.layout))),
            `${op} ${x.layout}`,
            exact ? {} : TRANSCENDENTAL[type],
          );
        }),
      ),
      runs(400),
    );
  });

  it('unary on integers: what the reference takes the device takes, and no more', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...UNARY_NAMES),
        fc.constantFrom(...INDEX_DTYPES),
        shapes,
        operandSpec,
        (op, type, shape, spec) =>
          withPair((pair) => {
            const x = pair.operand(shape, type, spec);
            if (!unaryRow(op).integers) {
              expect(() => x.reference.device.ops.unary(op, at(x.reference, x.layout))).toThrow(UnsupportedError);
              expect(() => x.tested.device.ops.unary(op, at(x.tested, x.layout))).toThrow(UnsupportedError);
              return;
            }
            expectClose(
              pair.run((side) => x[side].device.ops.unary(op, at(x[side], x.layout))),
              `${op} ${type} ${x.layout}`,
            );
          }),
      ),
      runs(300),
    );
  });

  it('binary', () => {
    fc.assert(
      fc.property(fc.constantFrom(...BINARY), dtype, shapes, operandSpec, operandSpec, (op, type, shape, a, b) =>
        withPair((pair) => {
          const [lhs, rhs] = [pair.operand(shape, type, a), pair.operand(shape, type, b)];
          expectClose(
            pair.run((side) => lhs[side].device.ops.binary(op, at(lhs[side], lhs.layout), at(rhs[side], rhs.layout))),
            `${op} ${lhs.layout} ${rhs.layout}`,
          );
        }),
      ),
      runs(400),
    );
  });

  it('compare', () => {
    fc.assert(
      fc.property(fc.constantFrom(...CMP_NAMES), dtype, shapes, operandSpec, operandSpec, (op, type, shape, a, b) =>
        withPair((pair) => {
          const [lhs, rhs] = [pair.operand(shape, type, a), pair.operand(shape, type, b)];
          expectClose(
            pair.run((side) => lhs[side].device.ops.cmp(op, at(lhs[side], lhs.layout), at(rhs[side], rhs.layout))),
            `${op} ${lhs.layout} ${rhs.layout}`,
          );
        }),
      ),
      RUNS,
    );
  });

  it('affine, powf, elu', () => {
    fc.assert(
      fc.property(
        dtype,
        shapes,
        operandSpec,
        fc.integer({ min: -3, max: 3 }),
        fc.integer({ min: -3, max: 3 }),
        (type, shape, spec, mul, add) =>
          withPair((pair) => {
            const x = pair.operand(shape, type, spec, true);
            // A fused multiply-add rounds once where the reference rounds twice.
            const scale = {
              relative: type === 'f64' ? 1e-13 : 1e-5,
              absolute: isFloat(type) && type !== 'f64' ? 1e-5 : 1e-13,
            };
            expectClose(
              pair.run((side) => x[side].device.ops.affine(at(x[side], x.layout), mul, add)),
              `affine ${mul} ${add}`,
              isFloat(type) ? scale : {},
            );
            if (!isFloat(type)) return;
            expectClose(
              pair.run((side) => x[side].device.ops.powf(at(x[side], x.layout), 2.5)),
              'powf',
              TRANSCENDENTAL[type],
            );
            expectClose(
              pair.run((side) => x[side].device.ops.elu(at(x[side], x.layout), 1.25)),
              'elu',
              TRANSCENDENTAL[type],
            );
          }),
      ),
      RUNS,
    );
  });

  it('casts between all ten dtypes', () => {
    for (const from of DTYPES) {
      for (const to of DTYPES) {
        fc.assert(
          fc.property(shapes, operandSpec, (shape, spec) =>
            withPair((pair) => {
              const x = pair.operand(shape, from, spec);
              expectClose(
                pair.run((side) => x[side].device.ops.toDtype(at(x[side], x.layout), to)),
                `cast ${from} to ${to} ${x.layout}`,
              );
            }),
          ),
          runs(8),
        );
      }
    }
  });

  it('whereCond', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...INDEX_DTYPES),
        dtype,
        shapes,
        fc.tuple(operandSpec, operandSpec, operandSpec),
        (condType, type, shape, specs) =>
          withPair((pair) => {
            const cond = pair.operand(shape, condType, specs[0], true);
            const [a, b] = [pair.operand(shape, type, specs[1]), pair.operand(shape, type, specs[2])];
            expectClose(
              pair.run((side) =>
                cond[side].device.ops.whereCond(
                  at(cond[side], cond.layout),
                  at(a[side], a.layout),
                  at(b[side], b.layout),
                ),
              ),
              `where ${condType} ${type}`,
            );
          }),
      ),
      RUNS,
    );
  });

  it('strided copy, 2-D copy and fill', () => {
    fc.assert(
      fc.property(dtype, shapes, operandSpec, fc.nat({ max: 5 }), (type, shape, spec, offset) =>
        withPair((pair) => {
          const x = pair.operand(shape, type, spec);
          const count = x.layout.elemCount;
          const copied = pair.run((side) => {
            const dst = x[side].device.zeros(count + 8, type);
            x[side].device.ops.copy(at(x[side], x.layout), at(dst, Layout.contiguous([x.layout.elemCount], offset)));
            return dst;
          });
          expectClose(copied, `copy ${x.layout}`);
          const filled = pair.run((side) => {
            const dst = x[side].device.zeros(x[side].elemCount, type);
            // A broadcast layout addresses an element several times with the same value.
            dst.device.ops.fill(at(dst, x.layout), 3);
            return dst;
          });
          expectClose(filled, `constSet ${x.layout}`);
        }),
      ),
      RUNS,
    );
  });

  it('copies of transposed matrices: whole tiles, edges and batches', () => {
    const side = fc.integer({ min: 8, max: 200 });
    fc.assert(
      fc.property(dtype, fc.integer({ min: 1, max: 3 }), side, side, fc.nat({ max: 9 }), (type, b, m, n, offset) =>
        withPair((pair) => {
          const stored = Layout.contiguous([b, m, n], offset);
          const x = pair.from(randomBytes(type, stored.endOffset(), m * n + 1), type, stored);
          for (const order of [
            [0, 2, 1],
            [1, 2, 0],
            [2, 0, 1],
          ]) {
            const layout = x.layout.permute(order);
            const copied = pair.run((on) => {
              const dst = x[on].device.zeros(layout.elemCount + 3, type);
              x[on].device.ops.copy(at(x[on], layout), at(dst, Layout.contiguous([layout.elemCount], offset % 3)));
              return dst;
            });
            expectClose(copied, `copy ${layout}`);
          }
        }),
      ),
      runs(60),
    );
  });

  // With fewer blocks than tiles, NVIDIA's GPUs take larger tiles of two-byte elements.
  it('the kernel of transposed copies by any number of blocks, writing nothing beside its result', () => {
    const backend = device.backend as RocmDevice;
    const size = fc.integer({ min: 1, max: 300 });
    const cell = fc.constantFrom<DType>('u8', 'bf16', 'f32', 'f64');
    const launch = fc.constantFrom([1, 256], [3, 256], [2, 96], [5000, 256]);
    fc.assert(
      fc.property(cell, size, size, fc.nat({ max: 4 }), launch, (type, rows, cols, gap, [grid, block]) => {
        const bytes = sizeInBytes(type);
        const [rowStep, colStep] = [cols + gap, rows + gap];
        const source = randomBytes(type, cols * colStep, rows * 301 + cols);
        const src = backend.fromHost(source, type);
        const dst = backend.zeros(rows * rowStep, type);
        const args = [1, rows, cols, 0, 0, rowStep, colStep, src.ptr, dst.ptr];
        const name = `transpose_b${8 * bytes}`;
        backend.launch(FILL, name, { grid, block: backend.shapes.isHost ? 1 : block }, args);
        const expected = Buffer.alloc(rows * rowStep * bytes);
        const from = Buffer.from(source.buffer, source.byteOffset, source.byteLength);
        for (let r = 0; r < rows; r++)
          for (let c = 0; c < cols; c++)
            from.copy(expected, (r * rowStep + c) * bytes, (c * colStep + r) * bytes, (c * colStep + r + 1) * bytes);
        const got = Buffer.from(dst.toHostSync());
        for (const storage of [src, dst]) storage.dispose();
        expect(got.equals(expected), `${name} ${rows} x ${cols}, grid ${grid}, block ${block}`).toBe(true);
      }),
      runs(60),
    );
  });

  it('2-D copy between row strides', () => {
    fc.assert(
      fc.property(
        dtype,
        fc.integer({ min: 0, max: 9 }),
        fc.integer({ min: 0, max: 70 }),
        fc.nat({ max: 4 }),
        fc.nat({ max: 4 }),
        (type, d1, d2, a, b) =>
          withPair((pair) => {
            const copy = { d1, d2, srcStride: d2 + a, dstStride: d2 + b, srcOffset: a, dstOffset: b };
            const x = pair.operand([Math.max(1, d1 * (d2 + a) + a)], type, {
              kind: 'contiguous',
              seed: d1 * 100 + d2 + 1,
            });
            const copied = pair.run((side) => {
              const dst = x[side].device.zeros(d1 * (d2 + b) + b + 1, type);
              x[side].device.ops.copy2d(x[side], dst, copy);
              return dst;
            });
            expectClose(copied, `copy2d ${JSON.stringify(copy)}`);
          }),
      ),
      RUNS,
    );
  });
});
