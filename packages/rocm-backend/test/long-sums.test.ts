/**
 * Sums of f32 on devices with kernels against sums in f64: of random shapes, strides and broadcasts through the backend, and
 * by candle's kernels under their own names, whatever grid and block they are launched with.
 */
import { elemCount, Layout } from '@x/core';
import { REDUCE } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { at, generator, runs, viewOf } from '@x/testing/operands';
import { testSettings } from '@x/testing/settings';
import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { RocmDevice } from '../src/index';

/** Of the sum of the absolute values: one rounding of the result, and those of the pairs, which mostly cancel. */
const TOLERANCE = 2e-7;

type Values = 'equal' | 'positive' | 'both signs' | 'alternating' | 'rising';

function values(count: number, kind: Values, seed: number): Float32Array {
  const next = generator(seed);
  const base = 0.05 + next();
  return Float32Array.from({ length: count }, (_, i) => {
    switch (kind) {
      case 'equal':
        return base;
      case 'positive':
        return next() * 10 ** (next() * 3);
      case 'both signs':
        return (next() - 0.5) * 8;
      case 'alternating':
        return i % 2 === 0 ? base : base / 3;
      case 'rising':
        return base * (i + 1);
    }
  });
}

/** For each result of a sum over `dims`: the exact sum, and the sum of the absolute values. */
function exactSums(data: Float32Array, layout: Layout, dims: readonly number[]): { sum: number; size: number }[] {
  const kept = layout.shape.map((_, d) => d).filter((d) => !dims.includes(d));
  const outputs = kept.reduce((count, d) => count * layout.shape[d], 1);
  const results = Array.from({ length: outputs }, () => ({ sum: 0, size: 0 }));
  const at = layout.shape.map(() => 0);
  for (let i = 0, n = layout.elemCount; i < n; i++) {
    let rest = i;
    for (let d = layout.rank - 1; d >= 0; d--) {
      at[d] = rest % layout.shape[d];
      rest = Math.floor(rest / layout.shape[d]);
    }
    const offset = at.reduce((sum, index, d) => sum + index * layout.strides[d], layout.startOffset);
    const result = results[kept.reduce((index, d) => index * layout.shape[d] + at[d], 0)];
    result.sum += data[offset];
    result.size += Math.abs(data[offset]);
  }
  return results;
}

function expectSums(actual: Float32Array, expected: { sum: number; size: number }[], what: string): void {
  expect(actual.length).toBe(expected.length);
  const off = expected.findIndex(({ sum, size }, i) => !(Math.abs(actual[i] - sum) <= TOLERANCE * size + 1e-37));
  if (off >= 0) throw new Error(`${what}: sum ${off} is ${actual[off]}, exactly ${expected[off].sum}`);
}

/** Up to some hundred thousand elements in 1 to 5 dims. */
const longShapes = fc
  .array(fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 10, max: 3000 })), { minLength: 1, maxLength: 5 })
  .filter((shape) => elemCount(shape) <= 300_000 * testSettings.scale);

describe.each(kernelDevices())('long sums on %s', (device) => {
  const backend = device.backend as RocmDevice;

  it('are exact but for a rounding', () => {
    fc.assert(
      fc.property(
        longShapes,
        fc.constantFrom('contiguous', 'offset', 'narrowed', 'permuted', 'broadcast'),
        fc.constantFrom<Values>('equal', 'positive', 'both signs', 'alternating', 'rising'),
        fc.nat(),
        fc.integer({ min: 1, max: 1e9 }),
        (shape, kind, valueKind, pick, seed) => {
          const { layout, bufferElems } = viewOf(shape, kind);
          const data = values(bufferElems, valueKind, seed);
          const dims = shape.map((_, d) => d).filter((d) => (pick >> d) & 1);
          if (dims.length === 0) dims.push(pick % shape.length);
          const storage = backend.fromHost(data, 'f32');
          const result = storage.device.ops.reduce('sum', at(storage, layout), dims);
          expectSums(
            new Float32Array(result.toHostSync()),
            exactSums(data, layout, dims),
            `${valueKind} ${layout} over ${dims}`,
          );
          storage.dispose();
          result.dispose();
        },
      ),
      runs(150),
    );
  });

  // Few threads walk far: 32 threads of a GPU, one of the host.
  const launches = [
    { grid: 1, block: 1 },
    { grid: 1, block: 32 },
    { grid: 1, block: 1000 },
    { grid: 7, block: 64 },
    { grid: 300, block: 128 },
  ];
  const [rows, cols] = [6, 4 * Math.round(25_000 * testSettings.scale)];
  const data = values(rows * cols, 'equal', 3);

  /** Launches with the data and `outputs` zeros. */
  function launch(kernel: string, shape: { grid: number; block: number }, outputs: number, args: Args): Float32Array {
    const [src, out] = [backend.fromHost(data, 'f32'), backend.zeros(outputs, 'f32')];
    backend.launch(REDUCE, kernel, shape, args(src.ptr, out.ptr));
    const result = new Float32Array(out.toHostSync());
    src.dispose();
    out.dispose();
    return result;
  }
  type Args = (src: number, out: number) => (number | bigint)[];

  test.each(launches)('fast_sum_f32 in $grid blocks of $block', (shape) => {
    const whole = Layout.contiguous([rows, cols]);
    const bySteps = backend.infoFor([cols, rows], [1, cols]);
    const byChain = backend.infoFor([rows, 4, cols / 4], [cols, 1, 4]);
    const all = rows * cols;
    for (const [outputs, layout, dims, args] of [
      [rows, whole, [1], (s, o) => [all, cols, 2, 0, s, o]],
      [1, whole, [0, 1], (s, o) => [all, all, 1, 0, s, o]],
      [cols, whole, [0], (s, o) => [all, rows, 2, bySteps.ptr, s, o]],
      [rows, whole, [1], (s, o) => [all, cols, 3, byChain.ptr, s, o]],
    ] as [number, Layout, number[], Args][])
      expectSums(launch('fast_sum_f32', shape, outputs, args), exactSums(data, layout, dims), `over ${dims}`);
  });

  test.each(launches)('sum_f32 in $grid blocks of $block', (shape) => {
    const parts = [rows, 4, cols / 4];
    const layout = Layout.contiguous(parts);
    const strides = [cols, cols / 4, 1];
    for (const dims of [[0], [1], [2], [0, 2], [1, 2], [0, 1, 2]]) {
      const kept = parts.filter((_, d) => !dims.includes(d));
      const pick = (list: readonly number[]) => dims.map((d) => list[d]);
      const info = backend.fromHost(
        BigInt64Array.from([...parts, ...strides, ...pick(parts), ...pick(strides)].map(BigInt)),
        'i64',
      );
      const sums = launch('sum_f32', shape, elemCount(kept), (src, out) => [
        rows * cols,
        3,
        dims.length,
        info.ptr,
        src,
        out,
      ]);
      info.dispose();
      expectSums(sums, exactSums(data, layout, dims), `over ${dims}`);
    }
  });

  // Shares of small floats are f32, on GPUs sums of plain f32 of which none takes many terms.
  test.each(launches)('cols_sum_bf16 in $grid blocks of $block', (shape) => {
    const [parts, right] = [3, 8];
    const each = Math.round(13_000 * testSettings.scale);
    const terms = values(parts * each * right, 'positive', 5);
    const bits = Uint16Array.from(new Uint32Array(terms.buffer), (word) => word >>> 16);
    const kept = new Float32Array(Uint32Array.from(bits, (half) => half << 16).buffer);
    const [src, partial] = [backend.fromHost(bits, 'bf16'), backend.zeros(parts * right, 'f32')];
    backend.launch(REDUCE, 'cols_sum_bf16', shape, [1, parts * each, right, parts, src.ptr, partial.ptr, 0]);
    const sums = new Float32Array(partial.toHostSync());
    exactSums(kept, Layout.contiguous([parts, each, right]), [1]).forEach(({ sum }, i) => {
      expect(Math.abs(sums[i] / sum - 1)).toBeLessThan(4e-6);
    });
    for (const storage of [src, partial]) storage.dispose();
  });

  test('sum_f32 adds to what is there, of a strided source; sum_u32 is exact', () => {
    const source = backend.fromHost(Uint32Array.from([1, 2, 3, 4, 5, 6]), 'u32');
    const out = backend.fromHost(Uint32Array.from([100, 200]), 'u32');
    // [3, 2] that is stored transposed, summed over its first dim.
    const info = backend.fromHost(BigInt64Array.from([3n, 2n, 1n, 3n, 3n, 2n]), 'i64');
    backend.launch(REDUCE, 'sum_u32', { grid: 2, block: 32 }, [6, 2, 1, info.ptr, source.ptr, out.ptr]);
    expect([...new Uint32Array(out.toHostSync())]).toEqual([106, 215]);
    for (const storage of [source, out, info]) storage.dispose();
  });
});
