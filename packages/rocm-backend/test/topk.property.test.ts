/** Top-k of every device against the TypeScript reference, and the kernel by itself at odd block sizes and cuts. */
import { DTYPES, type DType, Layout } from '@x/core';
import { SORT } from '@x/kernels';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, operandSpec, type Pair, pairsOf, runs, tiedBytes } from '@x/testing/operands';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

/** Rows and columns: narrow, wider than what one block sorts at once, and wide enough to be cut into parts. */
const sizes = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 130 })) },
  { weight: 3, arbitrary: fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1000, max: 5000 })) },
  { weight: 1, arbitrary: fc.tuple(fc.integer({ min: 1, max: 2 }), fc.integer({ min: 16_000, max: 40_000 })) },
);
const dtype = fc.constantFrom<DType>(...DTYPES);

function expectTopk(pair: Pair, x: ReturnType<Pair['operand']>, k: number, descending: boolean, label: string): void {
  expectClose(
    pair.run((side) => x[side].device.sorting!.topkLastDim!(at(x[side], x.layout), k, descending)),
    label,
  );
}

describe.each(kernelDevices())('top-k on %s', (device) => {
  const withPair = pairsOf(device);

  it('equals the beginning of a sort, NaN and infinities among the values', () => {
    fc.assert(
      fc.property(dtype, sizes, operandSpec, fc.boolean(), fc.nat(), (type, shape, spec, descending, pick) =>
        withPair((pair) => {
          const k = 1 + (pick % Math.min(shape[1], 1500));
          expectTopk(pair, pair.operand(shape, type, spec), k, descending, `top ${k} of ${type} ${shape}`);
        }),
      ),
      runs(150),
    );
  });

  it('takes the lower position of equal elements', () => {
    fc.assert(
      fc.property(dtype, sizes, fc.nat(), fc.boolean(), fc.nat(), (type, shape, seed, descending, pick) =>
        withPair((pair) => {
          const bytes = tiedBytes(type, shape[0] * shape[1], seed);
          const k = 1 + (pick % Math.min(shape[1], 1024));
          expectTopk(pair, pair.from(bytes, type, Layout.contiguous(shape)), k, descending, `top ${k} of ${shape}`);
        }),
      ),
      runs(100),
    );
  });

  it('a vocabulary: k from 1 to the kernel’s limit, past it, and the whole row', () => {
    withPair((pair) => {
      const width = 152_064;
      const x = pair.operand([1, width], 'bf16', { kind: 'offset', seed: 7 });
      for (const k of [1, 40, 1024, 1025, width]) expectTopk(pair, x, k, true, `top ${k} of ${width}`);
    });
  });

  it('rows in order, whose every element is among the first or none after the beginning', () => {
    withPair((pair) => {
      const width = 30_000;
      const rows = new Float32Array(2 * width).map((_, i) => (i < width ? i >> 1 : (2 * width - i) >> 1));
      const x = pair.from(new Uint8Array(rows.buffer), 'f32', Layout.contiguous([2, width]));
      for (const k of [1, 7, 1024])
        for (const descending of [true, false]) expectTopk(pair, x, k, descending, `top ${k}`);
    });
  });

  it('the kernel at any block size and cut, writing nothing beside its result', () => {
    const backend = device.backend as RocmDevice;
    withPair((pair) => {
      const [rows, cols] = [3, 2500];
      const x = pair.from(tiedBytes('f32', rows * cols, 4), 'f32', Layout.contiguous([rows, cols]));
      const source = backend.fromHost(tiedBytes('f32', rows * cols, 4), 'f32');
      for (const [block, parts, k] of [
        [1, 1, 5],
        [33, 2, 64],
        [100, 3, 700],
        [1024, 1, 1024],
      ]) {
        const guard = 16;
        const winners = backend.fromHost(new Uint32Array(rows * parts * k + guard).fill(7), 'u32');
        const out = backend.fromHost(new Uint32Array(rows * k + guard).fill(7), 'u32');
        const kernel = backend.getOrLoadFunc('topk_f32', SORT);
        kernel.launch(rows * parts, block, 0, [rows, cols, cols, k, parts, 0, source.ptr, 0, winners.ptr]);
        kernel.launch(2, block, 0, [rows, cols, parts * k, k, 1, 0, source.ptr, winners.ptr, out.ptr]);
        const reference = x.reference.device.sorting!.topkLastDim!(at(x.reference, x.layout), k, false);
        const actual = new Uint32Array(out.toHostSync());
        expect(actual.subarray(0, rows * k)).toEqual(new Uint32Array(reference.toHostSync()));
        expect([...actual.subarray(rows * k)]).toEqual(new Array(guard).fill(7));
        expect([...new Uint32Array(winners.toHostSync(rows * parts * k))]).toEqual(new Array(guard).fill(7));
        for (const storage of [winners, out, reference]) storage.dispose();
      }
      source.dispose();
    });
  });
});
