/** Arg-sort of every device against the TypeScript reference, and the radix kernels by themselves at odd cuts of a row. */
import { type BackendStorage, DTYPES, type DType, Layout, sizeInBytes } from '@x/core';
import { SORT } from '@x/kernels';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, generator, operandSpec, type Pair, pairsOf, randomBytes, runs, tiedBytes } from '@x/testing/operands';
import { testSettings } from '@x/testing/settings';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RocmDevice, RocmStorage } from '../src/index';
import { radixPass } from '../src/ops/sort-rows';

const dtype = fc.constantFrom<DType>(...DTYPES);

/** Rows and columns on both sides of where the ways of sorting part: 256 on the host, 256, 1024 and 4096 on GPUs; many rows. */
const sizes = fc.oneof(
  fc.tuple(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 257, max: 1024 })),
  fc.tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 300 })),
  fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1000, max: 9000 })),
  fc.tuple(fc.integer({ min: 1, max: 2 }), fc.integer({ min: 16_000, max: 40_000 })),
  fc.tuple(fc.integer({ min: 300, max: 700 }), fc.integer({ min: 1, max: 40 })),
);

/** Integers of all bits, floats over their whole range, every special value among them. */
function wideBytes(type: DType, count: number, seed: number): Uint8Array {
  const next = generator(seed);
  return new Uint8Array(count * sizeInBytes(type)).map(() => next() * 256);
}

/** Positions as the reference has them, alone and beside the values. */
function expectSorted(pair: Pair, x: ReturnType<Pair['operand']>, descending: boolean, label: string): void {
  expectClose(
    pair.run((side) => x[side].device.sorting!.argSortLastDim!(at(x[side], x.layout), descending)),
    label,
  );
  const values: Partial<Record<'reference' | 'tested', BackendStorage>> = {};
  expectClose(
    pair.run((side) => {
      const sorted = x[side].device.sorting!.sortLastDim!(at(x[side], x.layout), descending);
      values[side] = sorted.values;
      return sorted.positions;
    }),
    `${label} with values`,
  );
  expectClose(
    pair.run((side) => values[side]!),
    `values of ${label}`,
  );
}

/** The elements of rows of `cols` at these positions, bit by bit. */
function pick(bytes: Uint8Array, size: number, cols: number, positions: Uint32Array): Uint8Array {
  const picked = new Uint8Array(positions.length * size);
  positions.forEach((position, i) => {
    const at = (i - (i % cols) + position) * size;
    picked.set(bytes.subarray(at, at + size), i * size);
  });
  return picked;
}

describe.each(kernelDevices())('arg-sort on %s', (device) => {
  const withPair = pairsOf(device);
  const backend = device.backend as RocmDevice;

  it('of any view, NaN and infinities among the values', () => {
    fc.assert(
      fc.property(dtype, sizes, operandSpec, fc.boolean(), (type, shape, spec, descending) =>
        withPair((pair) => expectSorted(pair, pair.operand(shape, type, spec), descending, `${type} ${shape}`)),
      ),
      runs(80),
    );
  });

  it('keeps the order of equal elements', () => {
    fc.assert(
      fc.property(dtype, sizes, fc.nat(), fc.boolean(), (type, shape, seed, descending) =>
        withPair((pair) => {
          const bytes = tiedBytes(type, shape[0] * shape[1], seed);
          expectSorted(pair, pair.from(bytes, type, Layout.contiguous(shape)), descending, `${type} ${shape}`);
        }),
      ),
      runs(60),
    );
  });

  it.each(DTYPES)('%s in all its bits, of every width about a tile', (type) => {
    for (const [rows, cols] of [
      [3, 4095],
      [2, 4097],
      [1, 8192],
      [2, 12_289],
      [Math.ceil(70 * testSettings.scale ** 2), 4100],
      [1, Math.round(70_001 * testSettings.scale)],
    ]) {
      for (const descending of [false, true]) {
        withPair((pair) => {
          const bytes = wideBytes(type, rows * cols, rows + cols);
          expectSorted(pair, pair.from(bytes, type, Layout.contiguous([rows, cols])), descending, `${type} ${cols}`);
        });
      }
    }
  });

  it.each<DType>(['f32', 'bf16', 'u8', 'i64'])('a vocabulary of %s', (type) => {
    withPair((pair) => {
      const x = pair.operand([2, Math.round(152_064 * testSettings.scale)], type, { kind: 'offset', seed: 3 });
      for (const descending of [false, true]) expectSorted(pair, x, descending, `vocabulary of ${type}`);
    });
  });

  it.each<[DType, string]>([
    ['u8', ''],
    ['f8e4m3', ''],
    ['i16', 'b16'],
    ['f16', 'b16'],
    ['bf16', 'b16'],
    ['u32', 'b32'],
    ['i32', 'b32'],
    ['f32', 'b32'],
    ['i64', 'b64'],
    ['f64', 'b64'],
  ])('the radix kernels on %s at any cut, writing nothing beside their results', (type, later) => {
    const passes = sizeInBytes(type);
    for (const [rows, cols, part] of [
      [1, 1, 1],
      [3, 255, 255],
      [2, 256, 100],
      [2, 67, 1],
      [2, 4097, 4096],
      [2, 4097, 2 ** 33],
      [1, 9001, 5000],
      [40, 7, 8],
    ]) {
      for (const order of ['asc', 'desc'] as const) {
        const total = rows * cols;
        const bytes = cols % 2 === 0 ? tiedBytes(type, total, 4) : randomBytes(type, total, cols);
        const guard = 16;
        const buffer = (bytesEach: number, elements: number) =>
          backend.fromHost(new Uint8Array((elements + guard) * bytesEach).fill(7), 'u8');
        const source = backend.fromHost(bytes, type);
        const counts = buffer(4, rows * Math.ceil(cols / part) * 256);
        const keys = [0, 1].map(() => buffer(Math.max(2, passes), total));
        const positions = [0, 1].map(() => buffer(4, total));
        for (let pass = 0; pass < passes; pass++) {
          const [from, to] = [(pass + 1) % 2, pass % 2];
          radixPass(
            backend,
            pass === 0 ? type : later,
            { rows, cols, part },
            pass === 0
              ? { values: source.ptr, descending: order === 'desc' }
              : { shift: 8 * pass, keys: keys[from].ptr, positions: positions[from].ptr },
            counts.ptr,
            { keys: pass === passes - 1 ? 0 : keys[to].ptr, positions: positions[to].ptr },
          );
        }
        withPair((pair) => {
          const x = pair.from(bytes, type, Layout.contiguous([rows, cols]));
          const reference = x.reference.device.sorting!.argSortLastDim!(at(x.reference, x.layout), order === 'desc');
          const actual = new Uint32Array(positions[(passes - 1) % 2].toHostSync());
          expect(actual.subarray(0, total), `${order} ${rows} x ${cols} by ${part}`).toEqual(
            new Uint32Array(reference.toHostSync()),
          );
          reference.dispose();
        });
        for (const [storage, used] of [
          [counts, rows * Math.ceil(cols / part) * 1024],
          ...keys.map((one) => [one, total * Math.max(2, passes)] as const),
          ...positions.map((one) => [one, total * 4] as const),
        ] as const) {
          expect(new Set(new Uint8Array(storage.toHostSync()).subarray(used))).toEqual(new Set([7]));
        }
        for (const storage of [source, counts, ...keys, ...positions]) storage.dispose();
      }
    }
  });

  it.each(DTYPES)('%s: values have the bits of the elements, at every width where a kernel ends', (type) => {
    const size = sizeInBytes(type);
    for (const cols of [1, 31, 256, 257, 512, 513, 768, 769, 1023, 1024, 1025, 2048, 4095, 4096, 4097]) {
      const rows = cols < 1500 ? 5 : 2;
      for (const bytes of [wideBytes(type, rows * cols, cols), tiedBytes(type, rows * cols, cols)]) {
        for (const descending of [false, true]) {
          withPair((pair) => {
            const x = pair.from(bytes, type, Layout.contiguous([rows, cols]));
            const sorted = x.tested.device.sorting!.sortLastDim!(at(x.tested, x.layout), descending);
            const values = pair.run((side) => (side === 'tested' ? sorted.values : backend.zeros(rows * cols, type)));
            const positions = pair.run((side) =>
              side === 'tested'
                ? sorted.positions
                : x.reference.device.sorting!.argSortLastDim!(at(x.reference, x.layout), descending),
            );
            expectClose(positions, `${type} ${cols}`);
            const expected = pick(bytes, size, cols, new Uint32Array(positions.expected));
            expect(Buffer.compare(new Uint8Array(values.actual), expected), `${type} ${cols}`).toBe(0);
          });
        }
      }
    }
  });

  it.each<DType>(['u8', 'f16', 'i32', 'f32'])(
    'the kernels of rows in any grid, with values of %s and without',
    (type) => {
      const size = sizeInBytes(type);
      const { warpSize } = backend.hip.properties;
      for (const [kernel, rows, cols] of [
        ['sort_warp', 7, 1],
        ['sort_warp', 7, 100],
        ['sort_warp', 9, 300],
        ['sort_warp', 5, 1024],
        ['sort_warp', 3, 1025],
        ['sort_chunk', 3, 5000],
      ] as const) {
        for (const [grid, warps] of [
          [1, 1],
          [1, 128 / warpSize],
          [3, 2],
          [[2, 2, 2], 2],
        ] as const) {
          const bytes = randomBytes(type, rows * cols, cols);
          const total = rows * cols;
          const chunk = kernel === 'sort_warp' ? cols : 4096;
          // Chunks are rows by themselves; a row too wide for a warp is not touched.
          const chunks = Array.from({ length: rows * Math.ceil(cols / chunk) }, (_, i) => {
            const across = Math.ceil(cols / chunk);
            const start = Math.floor(i / across) * cols + (i % across) * chunk;
            return [start, Math.min(chunk, cols - (i % across) * chunk), (i % across) * chunk] as const;
          });
          withPair((pair) => {
            const expected = new Uint32Array(total);
            for (const [start, count, offset] of chunks) {
              const part = pair.from(
                bytes.slice(start * size, (start + count) * size),
                type,
                Layout.contiguous([count]),
              );
              const { expected: positions } = pair.run((side) =>
                part[side].device.sorting!.argSortLastDim!(at(part[side], part.layout), true),
              );
              expected.set(
                new Uint32Array(positions).map((position) => position + offset),
                start,
              );
            }
            const untouched = kernel === 'sort_warp' && cols > 1024;
            for (const withValues of [true, false]) {
              const guard = 16;
              const source = pair.from(bytes, type, Layout.contiguous([rows, cols])).tested as RocmStorage;
              const made = [4, size].map((each) =>
                backend.fromHost(new Uint8Array((total + guard) * each).fill(7), 'u8'),
              );
              const [index, values] = made;
              const block = warpSize === 1 ? 1 : warps * warpSize;
              const words = kernel === 'sort_chunk' ? [4096] : [];
              const shared = kernel === 'sort_chunk' ? 4096 * 10 : 0;
              backend
                .getOrLoadFunc(`${kernel}_${type}`, SORT)
                .launch(grid, block, shared, [
                  rows,
                  cols,
                  ...words,
                  1,
                  source.ptr,
                  index.ptr,
                  withValues ? values.ptr : 0,
                ]);
              const [positions, picked] = made.map((storage) => new Uint8Array(storage.toHostSync()));
              const label = `${kernel} ${rows} x ${cols} in ${grid} of ${warps}`;
              const at = new Uint32Array(positions.buffer).subarray(0, total);
              if (untouched) expect(new Set(positions), label).toEqual(new Set([7]));
              else
                expect(Buffer.compare(new Uint8Array(at.slice().buffer), new Uint8Array(expected.buffer)), label).toBe(
                  0,
                );
              if (untouched || !withValues) expect(new Set(picked), label).toEqual(new Set([7]));
              else
                expect(Buffer.compare(picked.subarray(0, total * size), pick(bytes, size, cols, expected)), label).toBe(
                  0,
                );
              expect(new Set(positions.subarray(total * 4)), label).toEqual(new Set([7]));
              expect(new Set(picked.subarray(total * size)), label).toEqual(new Set([7]));
              for (const storage of made) storage.dispose();
            }
          });
        }
      }
    },
  );

  it('does nothing with parts of no columns', () => {
    const out = backend.fromHost(new Uint32Array(4).fill(7), 'u32');
    backend.getOrLoadFunc('sort_radix_count_f32', SORT).launch(1, 256, 0, [1, 4, 0, 0, 0, out.ptr]);
    expect([...new Uint32Array(out.toHostSync())]).toEqual([7, 7, 7, 7]);
    out.dispose();
  });
});
