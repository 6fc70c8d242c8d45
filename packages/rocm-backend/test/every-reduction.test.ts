/** Every kernel of REDUCE and SORT in every dtype once, by its name, on few elements: see every-kernel.test.ts. */
import { DTYPES, type DType, isFloat, Layout, type ReduceOp, sizeInBytes } from '@x/core';
import { REDUCE, SORT } from '@x/kernels';
import { expectClose, valuesOf } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, type Operand, type Pair, pairsOf, tiedBytes } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import type { RocmDevice, RocmStorage } from '../src/index';
import { radixPass, type SortProblem, selectTopk } from '../src/ops/sort-rows';

const OPS: ReduceOp[] = ['sum', 'min', 'max', 'argmin', 'argmax'];
const ROPES = ['interleaved', 'half', 'thd'] as const;
const SUMMED: DType[] = ['bf16', 'f16', 'f32', 'f64', 'u32'];

describe.each(kernelDevices())('every reduction and sort on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const { warpSize } = backend.hip.properties;
  const withPair = pairsOf(device);
  const ptr = (operand: Operand) => (operand.tested as RocmStorage).ptr;

  /** The numbers 1 to 7 in a changing order; no sum of 64 of them leaves a small type. */
  function numbers(pair: Pair, dtype: DType, shape: readonly number[], use: (x: Operand) => void): void {
    const layout = Layout.contiguous(shape);
    const values = new Float64Array(layout.elemCount).map((_, i) => (((i * i + 3 * i) % 11) % 7) + (i % 2));
    const made = pair.from(values, 'f64', layout);
    const x = {
      layout,
      reference: made.reference.device.ops.toDtype(at(made.reference, layout), dtype),
      tested: made.tested.device.ops.toDtype(at(made.tested, layout), dtype),
    };
    use(x);
    x.reference.dispose();
    x.tested.dispose();
  }

  /** The memory of `count` elements of up to 8 bytes, and its first ones of a dtype after `launch`. */
  function launched(dtype: DType, count: number, launch: (out: number) => void): ArrayBuffer {
    const out = backend.zeros(count * 8, 'u8');
    launch(out.ptr);
    const bytes = out.toHostSync().slice(0, count * sizeInBytes(dtype));
    out.dispose();
    return bytes;
  }

  describe.each(OPS)('%s', (op) => {
    const arg = op.startsWith('arg');

    it.each(DTYPES)('of %s', (dtype) => {
      const result = arg ? 'u32' : dtype;
      const launch = (kernel: string, grid: number | [number, number, number], args: number[]) =>
        backend.launch(REDUCE, `${kernel}_${op}_${dtype}`, { grid, block: 64 }, args);
      withPair((pair) => {
        numbers(pair, dtype, [3, 48], (x) => {
          const expected = x.reference.device.ops.reduce(op, at(x.reference, x.layout), [1]);
          const check = (kernel: string, run: (out: number) => void) =>
            expectClose(
              { expected: expected.toHostSync(), actual: launched(result, 3, run), dtype: result },
              `${kernel}_${op}_${dtype}`,
            );
          check('rows', (out) => launch('rows', 2, [3, 48, ptr(x), out]));
          check('fast', (out) => launch('fast', 3, [3 * 48, 48, 1, 0, ptr(x), out]));
          check('part', (out) => {
            launched('f64', 3 * 2, (partial) => {
              launch('part', [2, 3, 1], [3, 48, 2, ptr(x), partial]);
              launch('done', 3, arg ? [3, 48, 2, ptr(x), partial, out] : [3, 2, partial, out]);
            });
          });
          expected.dispose();
        });
        numbers(pair, dtype, [2, 24, 5], (x) => {
          const expected = x.reference.device.ops.reduce(op, at(x.reference, x.layout), [1]);
          const check = (kernel: string, run: (out: number) => void) =>
            expectClose(
              { expected: expected.toHostSync(), actual: launched(result, 10, run), dtype: result },
              `${kernel}_${op}_${dtype}`,
            );
          check('cols', (out) => launch('cols', 3, [2, 24, 5, 1, ptr(x), ...(arg ? [out] : [0, out])]));
          check('cols_done', (out) => {
            launched('f64', 2 * 3 * 5, (partial) => {
              launch('cols', 4, [2, 24, 5, 3, ptr(x), ...(arg ? [partial] : [partial, 0])]);
              launch('cols_done', 1, arg ? [2, 24, 3, 5, ptr(x), partial, out] : [2, 3, 5, partial, out]);
            });
          });
          expected.dispose();
        });
      });
    });
  });

  it.each(SUMMED)("candle's sum_%s", (dtype) => {
    withPair((pair) =>
      numbers(pair, dtype, [4, 6], (x) => {
        const expected = x.reference.device.ops.reduce('sum', at(x.reference, x.layout), [1]);
        // Dims and strides, then size and stride of what is summed.
        const info = backend.infoFor([4, 6], [6, 1], [6], [1]);
        const actual = launched(dtype, 4, (out) =>
          backend.launch(REDUCE, `sum_${dtype}`, { grid: 1, block: 64 }, [24, 2, 1, info.ptr, ptr(x), out]),
        );
        expectClose({ expected: expected.toHostSync(), actual, dtype }, `sum_${dtype}`);
        expected.dispose();
      }),
    );
  });

  it.each(DTYPES)('running sums of %s, by rows and columns and blocks of any size', (dtype) => {
    withPair((pair) => {
      for (const [left, size, right] of [
        [3, 300, 1],
        [2, 24, 5],
      ]) {
        numbers(pair, dtype, [left, size, right], (x) => {
          const expected = x.reference.device.scan!.cumsum!(at(x.reference, x.layout), 1)!.toHostSync();
          for (const block of [48, 256]) {
            const actual = launched(dtype, x.layout.elemCount, (out) =>
              backend.launch(REDUCE, `cumsum_${dtype}`, { grid: 2, block }, [left, size, right, ptr(x), out]),
            );
            expectClose({ expected, actual, dtype }, `cumsum_${dtype} of [${left}, ${size}, ${right}], block ${block}`);
          }
        });
      }
    });
  });

  it.each(DTYPES.filter(isFloat))('softmax, norms and rotations of %s', (dtype) => {
    withPair((pair) => {
      numbers(pair, dtype, [2, 3, 2, 8], (x) => {
        const rows = Layout.contiguous([12, 8]);
        const row = Layout.contiguous([8], 8);
        // The kernels' epsilon is an f32.
        const close = { relative: dtype === 'f64' ? 1e-6 : 0 };
        const check = (label: string, op: Parameters<Pair['run']>[0]) =>
          expectClose(pair.run(op), `${label} of ${dtype}`, close);
        check('softmax', (side) => x[side].device.fused!.softmaxLastDim!(at(x[side], rows)));
        check('rmsNorm', (side) => x[side].device.fused!.rmsNorm!(at(x[side], rows), at(x[side], row), 1e-5));
        check('layerNorm', (side) =>
          x[side].device.fused!.layerNorm!(at(x[side], rows), at(x[side], row), at(x[side], row), 1e-5),
        );
        for (const kind of ROPES) {
          const angles = Layout.contiguous([kind === 'thd' ? 3 : 2, 4]);
          check(kind, (side) =>
            x[side].device.fused!.rope!(kind, at(x[side], x.layout), at(x[side], angles), at(x[side], angles)),
          );
        }
      });
    });
  });

  describe.each(['asc', 'desc'] as const)('%s', (order) => {
    it.each(DTYPES)('sorts of %s', (dtype) => {
      const [rows, cols, k] = [2, 70, 9];
      const layout = Layout.contiguous([rows, cols]);
      const bytes = sizeInBytes(dtype);
      const descending = order === 'desc';
      const down = Number(descending);
      withPair((pair) => {
        const x = pair.from(tiedBytes(dtype, rows * cols, 4), dtype, layout);
        const wanted = x.reference.device.sorting!.argSortLastDim!(at(x.reference, layout), descending);
        const expected = [...new Uint32Array(wanted.toHostSync())];
        wanted.dispose();
        const check = (kernel: string, run: (out: number) => void, of = expected) =>
          expect([...new Uint32Array(launched('u32', of.length, run))], `${kernel} of ${dtype}`).toEqual(of);
        const launch = (kernel: string, block: number, sharedBytes: number, args: number[]) =>
          backend.launch(SORT, `${kernel}_${dtype}`, { grid: rows, block, sharedBytes }, args);
        const values = valuesOf(x.reference.toHostSync(), dtype);
        const sorted = expected.map((column, i) => values[Math.floor(i / cols) * cols + column]);
        /** Positions and values at once. */
        const checkBoth = (kernel: string, run: (out: number, to: number) => void) => {
          const got = launched(dtype, rows * cols, (to) => check(kernel, (out) => run(out, to)));
          expect(Array.from(valuesOf(got, dtype)), `${kernel} of ${dtype}`).toEqual(sorted);
        };
        check('asort', (out) => launch(`asort_${order}`, 64, 128 * 4, [ptr(x), out, cols, 128]));
        checkBoth('sort_chunk', (out, to) =>
          launch('sort_chunk', 64, 128 * 10, [rows, cols, 128, down, ptr(x), out, to]),
        );
        if (bytes < 8)
          checkBoth('sort_warp', (out, to) =>
            launch('sort_warp', 2 * warpSize, 0, [rows, cols, down, ptr(x), out, to]),
          );
        const problem = { descending, dtype, rows, cols, src: ptr(x) };
        check('sort_radix', (out) => sortByDigits(problem, 32, out));
        const first = expected.filter((_, i) => i % cols < k);
        check('topk', (out) => selectTopk(backend, problem, { width: cols, k, parts: 1 }, 0, out), first);
      });
    });
  });

  /** The passes of a radix sort: the last one, which is the only one of one byte, writes to `out`. */
  function sortByDigits({ descending, dtype, rows, cols, src }: SortProblem, part: number, out: number): void {
    const count = rows * cols;
    const bytes = sizeInBytes(dtype);
    const made = [256 * 4 * Math.ceil(cols / part) * rows, ...[8, 4, 8, 4].map((each) => each * count)].map((length) =>
      backend.zeros(length, 'u8'),
    );
    const [counts, ...buffers] = made.map((storage) => storage.ptr);
    const suffix = `b${Math.max(16, bytes * 8)}`;
    for (let pass = 0; pass < bytes; pass++) {
      const [from, to] = [pass + 1, pass].map((side) => buffers.slice((side % 2) * 2, (side % 2) * 2 + 2));
      const source = pass === 0 ? { values: src, descending } : { shift: pass * 8, keys: from[0], positions: from[1] };
      const last = pass === bytes - 1;
      const target = { keys: last ? 0 : to[0], positions: last ? out : to[1] };
      radixPass(backend, pass === 0 ? dtype : suffix, { rows, cols, part }, source, counts, target);
    }
    for (const storage of made) storage.dispose();
  }
});
