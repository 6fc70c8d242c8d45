/**
 * Every elementwise, indexing, product and convolution kernel in every dtype once, on few elements: the emulated devices check that
 * no kernel of the manifest is left out (tools/test.mjs). Reductions and sorts are in every-reduction.test.ts, quantized
 * kernels in every-block-type.test.ts, sums over ranks in every-collective.test.ts; the property tests go deeper into each family.
 */
import {
  type BackendStorage,
  BINARY_NAMES,
  binaryRow,
  CMP_NAMES,
  DTYPES,
  type DType,
  isFloat,
  isInt,
  Layout,
  sizeInBytes,
  UNARY_NAMES,
  unaryRow,
} from '@x/core';
import { CAST, CONV, FILL, GEMM, UNARY } from '@x/kernels';
import { expectClose, valuesOf } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, type Pair, pairsOf, randomBytes } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import { erf } from '../../core/src/elementwise/numbers';
import type { RocmDevice, RocmStorage } from '../src/index';
import { launchCheckIds } from '../src/launchers/indexing';
import {
  directConv1d,
  directConv2d,
  directConvTranspose1d,
  directConvTranspose2d,
  directGroups,
} from '../src/ops/conv';
import { launchedOn } from './launched';

const COUNT = 37;
const line = Layout.contiguous([COUNT]);
const SHAPE = { grid: 2, block: 64 } as const;

type Side = 'reference' | 'tested';

describe.each(kernelDevices())('every kernel on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const withPair = pairsOf(device);
  const operand = (pair: Pair, dtype: DType, seed: number, count = COUNT) =>
    pair.from(randomBytes(dtype, count, seed, true), dtype, Layout.contiguous([count]));
  const small = (pair: Pair, dtype: DType, count: number) => {
    const made = pair.from(
      new Float64Array(count).map((_, i) => ((i * 5) % 7) + 1),
      'f64',
      Layout.contiguous([count]),
    );
    const to = (side: Side) => made[side].device.ops.toDtype(at(made[side], made.layout), dtype);
    return { layout: made.layout, reference: to('reference'), tested: to('tested') };
  };
  const same = (pair: Pair, label: string, op: (side: Side) => BackendStorage) =>
    expectClose(pair.run(op), label, { relative: 1e-5, absolute: 1e-6 });
  const launched = launchedOn(backend);
  const ptr = (storage: BackendStorage) => (storage as RocmStorage).ptr;

  it.each(DTYPES)('unary, affine and copies of %s', (dtype) => {
    withPair((pair) => {
      const x = operand(pair, dtype, 3);
      for (const op of UNARY_NAMES.filter((op) => isFloat(dtype) || unaryRow(op).integers))
        same(pair, `${op} of ${dtype}`, (side) => x[side].device.ops.unary(op, at(x[side], line)));
      same(pair, `affine of ${dtype}`, (side) => x[side].device.ops.affine(at(x[side], line), 3, -2));
      if (isFloat(dtype)) {
        same(pair, `elu of ${dtype}`, (side) => x[side].device.ops.elu(at(x[side], line), 0.5));
        same(pair, `powf of ${dtype}`, (side) => x[side].device.ops.powf(at(x[side], line), 3));
        const bytes = launched(dtype, COUNT, (out) =>
          backend.launch(UNARY, `unormcdf_${dtype}`, SHAPE, [COUNT, 1, 0, ptr(x.tested), out.ptr]),
        );
        const values = valuesOf(x.reference.toHostSync(), dtype) as ArrayLike<number>;
        const wanted = Float64Array.from(values, (value) => 0.5 * (1 + erf(value * Math.SQRT1_2)));
        const { reference } = pair.from(wanted, 'f64', line);
        const rounded = reference.device.ops.toDtype(at(reference, line), dtype);
        expectClose({ expected: rounded.toHostSync(), actual: bytes, dtype }, `normcdf of ${dtype}`, {
          absolute: 1e-6,
        });
      }
      const copied = launched(dtype, COUNT, (out) =>
        backend.launch(UNARY, `ucopy_${dtype}`, SHAPE, [COUNT, 1, 0, ptr(x.tested), out.ptr]),
      );
      expect(new Uint8Array(copied)).toEqual(new Uint8Array(x.reference.toHostSync(0, COUNT)));
    });
  });

  it.each(DTYPES)('binary operations, comparisons and choices of %s', (dtype) => {
    withPair((pair) => {
      const [a, b] = [operand(pair, dtype, 5), operand(pair, dtype, 6)];
      const base = small(pair, dtype, COUNT);
      for (const op of BINARY_NAMES.filter((op) => isFloat(dtype) || binaryRow(op).integers)) {
        const lhs = op === 'pow' ? base : a;
        same(pair, `${op} of ${dtype}`, (side) =>
          lhs[side].device.ops.binary(op, at(lhs[side], line), at(b[side], line)),
        );
      }
      for (const side of ['reference', 'tested'] as const) base[side].dispose();
      for (const op of CMP_NAMES)
        same(pair, `${op} of ${dtype}`, (side) => a[side].device.ops.cmp(op, at(a[side], line), at(b[side], line)));
      for (const condition of DTYPES.filter(isInt)) {
        const c = pair.from(
          new Float32Array(COUNT).map((_, i) => i % 3),
          'f32',
          line,
        );
        same(pair, `where ${condition} of ${dtype}`, (side) => {
          const chosen = c[side].device.ops.toDtype(at(c[side], line), condition);
          const result = chosen.device.ops.whereCond(at(chosen, line), at(a[side], line), at(b[side], line));
          chosen.dispose();
          return result;
        });
      }
    });
  });

  it.each(DTYPES)('casts of %s', (from) => {
    withPair((pair) => {
      const x = operand(pair, from, 7);
      for (const to of DTYPES) {
        const actual = launched(to, COUNT, (out) =>
          backend.launch(CAST, `cast_${from}_${to}`, SHAPE, [COUNT, 1, 0, ptr(x.tested), out.ptr]),
        );
        const expected = x.reference.device.ops.toDtype(at(x.reference, line), to);
        expectClose({ expected: expected.toHostSync(0, COUNT), actual, dtype: to }, `${from} to ${to}`);
        expected.dispose();
      }
    });
  });

  it.each(DTYPES)('fills and copies of rows of %s', (dtype) => {
    withPair((pair) => {
      const [rows, columns] = [5, 7];
      const x = operand(pair, dtype, 8, rows * columns);
      const bytes = sizeInBytes(dtype);
      const source = new Uint8Array(x.reference.toHostSync());
      const inner = Layout.contiguous([rows, columns]).narrow(1, 2, 3);
      same(pair, `constSet of ${dtype}`, (side) => {
        const target = x[side].device.ops.toDtype(at(x[side], x.layout), dtype);
        target.device.ops.fill(at(target, inner), 3);
        return target;
      });
      const filled = launched(dtype, COUNT, (out) =>
        backend.launch(FILL, `fill_${dtype}`, SHAPE, [out.ptr, value(dtype, 3), COUNT]),
      );
      expect(Array.from(valuesOf(filled, dtype), Number)).toEqual(new Array(COUNT).fill(3));
      const cut = launched(dtype, rows * 4, (out) =>
        backend.launch(FILL, `copy2d_${dtype}`, SHAPE, [ptr(x.tested) + bytes, out.ptr, rows, 4, columns, 4]),
      );
      const wanted = Array.from({ length: rows }, (_, r) => [
        ...source.subarray((r * columns + 1) * bytes, (r * columns + 5) * bytes),
      ]).flat();
      expect([...new Uint8Array(cut)]).toEqual(wanted);
    });
  });

  it.each([
    ['transpose_b8', 'u8'],
    ['transpose_b16', 'i16'],
    ['transpose_b16_wide', 'i16'],
    ['transpose_b32', 'i32'],
    ['transpose_b64', 'i64'],
  ] as const)('%s', (kernel, dtype) => {
    const [rows, cols] = [35, 130];
    const data = randomBytes(dtype, rows * cols, 9, true);
    const src = backend.fromHost(data, dtype);
    // dst[r * row_step + c] = src[r + c * col_step]
    const actual = launched(dtype, rows * cols, (out) =>
      backend.launch(FILL, kernel, { grid: 3, block: 256 }, [1, rows, cols, 0, 0, cols, rows, src.ptr, out.ptr]),
    );
    const values = valuesOf(data.slice().buffer, dtype);
    const expected = Array.from({ length: rows * cols }, (_, i) => values[Math.floor(i / cols) + (i % cols) * rows]);
    expect(Array.from(valuesOf(actual, dtype))).toEqual(expected);
    src.dispose();
  });

  it.each(DTYPES)('indexing %s by every type of id', (dtype) => {
    const table = Layout.contiguous([6, 4]);
    for (const type of DTYPES.filter(isInt)) {
      withPair((pair) => {
        const x = small(pair, dtype, 24);
        const wide = pair.from(Float32Array.of(2, 0, 5, 1), 'f32', Layout.contiguous([4]));
        const typed = (side: Side) => wide[side].device.ops.toDtype(at(wide[side], wide.layout), type);
        const ids: Record<Side, BackendStorage> = { reference: typed('reference'), tested: typed('tested') };
        const four = Layout.contiguous([4]);
        const what = `${type} of ${dtype}`;
        same(pair, `indexSelect ${what}`, (side) =>
          x[side].device.ops.indexSelect(at(x[side], table), at(ids[side], four), 0),
        );
        // Fewer columns than the table has are for the kernels of views.
        const [row, part] = [Layout.contiguous([1, 4]), Layout.contiguous([1, 3])];
        for (const layout of [row, part])
          same(pair, `gather ${what}`, (side) =>
            x[side].device.ops.gather(at(x[side], table), at(ids[side], layout), 0),
          );
        same(pair, `indexAdd ${what}`, (side) =>
          x[side].device.ops.indexAdd(
            at(x[side], table),
            at(ids[side], four),
            at(x[side], Layout.contiguous([4, 4], 5)),
            0,
          ),
        );
        for (const op of ['scatterSet', 'scatterAddSet'] as const) {
          for (const { shape } of [row, part]) {
            same(pair, `${op} ${what}`, (side) => {
              const target = x[side].device.ops.toDtype(at(x[side], table), dtype);
              const from = at(x[side], Layout.contiguous(shape, 5));
              target.device.ops[op](at(target, table), at(ids[side], Layout.contiguous(shape)), from, 0);
              return target;
            });
          }
        }
        for (const side of ['reference', 'tested'] as const) for (const made of [ids, x]) made[side].dispose();
      });
    }
  });

  it.each(DTYPES.filter(isInt))('a look at ids of %s', (dtype) => {
    withPair((pair) => {
      const x = small(pair, dtype, COUNT);
      const found = (size: number) => {
        const report = launched('i64', 6, (out) => {
          const ids = { numel: COUNT, numDims: 1, info: 0, ids: ptr(x.tested) };
          launchCheckIds(backend, `check_ids_${dtype}`, SHAPE, {
            ...ids,
            low: 0,
            size,
            op: 5,
            dim: 3,
            report: out.ptr,
          });
        });
        return Array.from(new BigInt64Array(report), Number);
      };
      expect(found(8)).toEqual([0, 0, 0, 0, 0, 0]);
      // Ids are i * 5 % 7 + 1, of which every seventh is 7.
      const [taken, op, dim, position, id, size] = found(7);
      expect([taken, op, dim, position % 7, id, size]).toEqual([1, 5, 3, 4, 7, 7]);
      for (const side of ['reference', 'tested'] as const) x[side].dispose();
    });
  });

  it.each(DTYPES)('convolutions of %s, one thread a result', (dtype) => {
    withPair((pair) => {
      const x = small(pair, dtype, 72);
      const src = (shape: number[]) => at(x.tested, Layout.contiguous(shape));
      const check = (label: string, expected: BackendStorage, launch: (out: number) => void) => {
        const actual = launched(dtype, expected.elemCount, (out) => launch(out.ptr));
        expectClose({ expected: expected.toHostSync(), actual, dtype }, `${label} of ${dtype}`);
        expected.dispose();
      };
      const steps = { padding: 1, stride: 2, dilation: 1 };
      const line1d = { ...steps, b: 1, cIn: 2, cOut: 2, groups: 1, lIn: 6, k: 3 };
      const [row, weights] = [src([1, 2, 6]), src([2, 2, 3])];
      const forward = { ...line1d, lOut: 3 };
      check(
        'conv1d',
        x.reference.device.conv!.conv1d!(at(x.reference, row.layout), at(x.reference, weights.layout), forward),
        (out) => directConv1d(backend, row, weights, forward, out),
      );
      const back = { ...line1d, lOut: 11, outputPadding: 0 };
      check(
        'convTranspose1d',
        x.reference.device.conv!.convTranspose1d!(at(x.reference, row.layout), at(x.reference, weights.layout), back),
        (out) => directConvTranspose1d(backend, row, weights, back, out),
      );
      const plane = { ...steps, b: 1, cIn: 2, cOut: 2, groups: 1, hIn: 6, wIn: 6, kH: 3, kW: 3 };
      const [image, kernel] = [src([1, 2, 6, 6]), src([2, 2, 3, 3])];
      const forward2d = { ...plane, hOut: 3, wOut: 3 };
      check(
        'conv2d',
        x.reference.device.conv!.conv2d!(at(x.reference, image.layout), at(x.reference, kernel.layout), forward2d),
        (out) => directConv2d(backend, image, kernel, forward2d, out),
      );
      const back2d = { ...plane, hOut: 11, wOut: 11, outputPadding: 0 };
      check(
        'convTranspose2d',
        x.reference.device.conv!.convTranspose2d!(
          at(x.reference, image.layout),
          at(x.reference, kernel.layout),
          back2d,
        ),
        (out) => directConvTranspose2d(backend, image, kernel, back2d, out),
      );
      const axis = (size: number) => ({ ...steps, k: 3, out: size });
      for (const transposed of [false, true]) {
        const size = transposed ? 11 : 3;
        const sizes = { ...plane, transposed, groups: 2, down: axis(size), across: axis(size) };
        const each = at(x.tested, Layout.contiguous([2, 1, 3, 3]));
        const { conv } = x.reference.device;
        const operands = [at(x.reference, image.layout), at(x.reference, each.layout)] as const;
        const groups = { ...plane, groups: 2, hOut: size, wOut: size, outputPadding: 0 };
        check(
          transposed ? 'transposed groups' : 'groups',
          transposed ? conv!.convTranspose2d!(...operands, groups) : conv!.conv2d!(...operands, groups),
          (out) => directGroups(backend, image, each, sizes, out),
        );
      }
      for (const side of ['reference', 'tested'] as const) x[side].dispose();
    });
  });

  it.each(DTYPES)('products of %s', (dtype) => {
    withPair((pair) => {
      const [k, n] = [10, 11];
      const x = small(pair, dtype, 9 * k + k * n);
      const strides = { across: [n, 1], transposed: [1, k] };
      for (const [kernel, m] of [
        ['gemm', 9],
        ['gemv', 1],
        ['gemv', 3],
        ['gemv', 7],
      ] as const) {
        for (const [way, [row, column]] of Object.entries(strides)) {
          const [left, right] = [Layout.contiguous([1, m, k]), new Layout([1, k, n], [0, row, column], m * k)];
          const expected = x.reference.device.ops.matmul(at(x.reference, left), at(x.reference, right), {
            b: 1,
            m,
            n,
            k,
          });
          const rhs = ptr(x.tested) + m * k * sizeInBytes(dtype);
          const actual = launched(dtype, m * n, (out) => {
            const args = [1, m, n, k, ptr(x.tested), 0, k, 1, rhs, 0, row, column, out.ptr];
            backend.launch(GEMM, `${kernel}_${dtype}`, { grid: 2, block: 256 }, args);
          });
          expectClose({ expected: expected.toHostSync(), actual, dtype }, `${kernel}_${dtype} of ${m}, ${way}`);
          expected.dispose();
        }
      }
      for (const side of ['reference', 'tested'] as const) x[side].dispose();
    });
  });

  it.each(DTYPES)('columns of convolutions of %s', (dtype) => {
    withPair((pair) => {
      const [channels, length, k] = [2, 6, 3];
      const x = small(pair, dtype, channels * length * length);
      const values = Array.from(valuesOf(x.reference.toHostSync(), dtype), Number);
      const info = (dims: number[]) => backend.infoFor(dims, [...Layout.contiguous(dims).strides]).ptr;
      const check = (kernel: string, wanted: number[], args: (out: number) => number[]) => {
        const bytes = launched(dtype, wanted.length, (out) =>
          backend.launch(CONV, `${kernel}_${dtype}`, SHAPE, args(out.ptr)),
        );
        expect(Array.from(valuesOf(bytes, dtype), Number), kernel).toEqual(wanted);
      };
      const out = length - k + 1;
      const source = ptr(x.tested);
      // [b, lOut, c, k]
      const at1d = (o: number, c: number, i: number) => values[c * length + o + i];
      const columns1d = grid([out, channels, k], ([o, c, i]) => at1d(o, c, i));
      check('im2col1d', columns1d, (to) => [out * channels, out, k, 1, 0, 1, info([1, channels, length]), source, to]);
      // [b, hOut, wOut, c, kH, kW]
      const columns = grid(
        [out, out, channels, k, k],
        ([h, w, c, i, j]) => values[(c * length + h + i) * length + w + j],
      );
      const dims = info([1, channels, length, length]);
      check('im2col', columns, (to) => [columns.length, out, out, k, k, 1, 0, 1, dims, source, to]);
      // columns [b, lIn, cOut, k] added up to [b, cOut, lOut], stride 2
      const [lIn, cOut] = [4, 2];
      const lOut = (lIn - 1) * 2 + k;
      const image = new Array<number>(cOut * lOut).fill(0);
      for (let l = 0; l < lIn; l++)
        for (let c = 0; c < cOut; c++)
          for (let i = 0; i < k; i++) image[c * lOut + l * 2 + i] += values[(l * cOut + c) * k + i];
      check('col2im1d', image, (to) => [cOut * lOut, lOut, lIn, cOut, k, 2, source, to]);
      for (const side of ['reference', 'tested'] as const) x[side].dispose();
    });
  });
});

/** A number as a kernel's parameter of a dtype. */
function value(dtype: DType, x: number): number | bigint {
  return dtype === 'i64' ? BigInt(x) : x;
}

/** f at every position of a grid, in row-major order. */
function grid(sizes: readonly number[], f: (at: number[]) => number): number[] {
  const count = sizes.reduce((product, size) => product * size, 1);
  return Array.from({ length: count }, (_, i) => {
    const at: number[] = [];
    let rest = i;
    for (const size of [...sizes].reverse()) {
      at.unshift(rest % size);
      rest = Math.floor(rest / size);
    }
    return f(at);
  });
}
