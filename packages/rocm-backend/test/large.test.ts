/**
 * Long sums, and tensors past 2^32 elements, on every device with kernels. Views that overlap themselves and, on the
 * processor, memory that is never touched make most of it cheap. With X_TEST_HUGE=1 tensors of a little over 4 GiB are
 * really filled and computed with on every device: it takes three times that memory.
 */
import { type BackendStorage, type DType, Layout } from '@x/core';
import { valuesOf } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { testSettings } from '@x/testing/settings';
import { describe, expect, it } from 'vitest';

const WIDTH = 65536;
const ROWS = 65537;
const COUNT = ROWS * WIDTH;
const huge = testSettings.huge;

describe.each(kernelDevices())('large tensors on %s', (device) => {
  const { backend } = device;
  const read = (storage: BackendStorage, offset = 0, count = storage.elemCount - offset) =>
    Array.from(valuesOf(storage.toHostSync(offset, count), storage.dtype), Number);
  /** Runs a body with a way to have storages disposed of afterwards, and their memory given back. */
  const withStorages = (body: (keep: (storage: BackendStorage) => BackendStorage) => void) => {
    const kept: BackendStorage[] = [];
    try {
      body((storage) => {
        kept.push(storage);
        return storage;
      });
    } finally {
      for (const storage of kept) storage.dispose();
      backend.emptyCache();
    }
  };
  const filled = (count: number, dtype: DType, value: number) => {
    const storage = backend.allocUninit(count, dtype);
    storage.device.ops.fill(at(storage, Layout.contiguous([count])), value);
    return storage;
  };

  it('sums more than 2^24 ones in f32 and bf16, and 2^20 small values in f16', () =>
    withStorages((keep) => {
      const n = 2 ** 25 + 8;
      const flat = keep(filled(n, 'f32', 1));
      expect(read(keep(flat.device.ops.reduce('sum', at(flat, Layout.contiguous([n])), [0])))).toEqual([n]);
      const columns = Layout.contiguous([n / 2, 2]);
      expect(read(keep(flat.device.ops.reduce('sum', at(flat, columns), [0])))).toEqual([n / 2, n / 2]);
      // One element seen 2^25 times, and a dim that no single stride walks.
      const repeated = new Layout([2 ** 13, 2 ** 12], [0, 0], 0);
      expect(read(keep(flat.device.ops.reduce('sum', at(flat, repeated), [0, 1])))).toEqual([2 ** 25]);
      const crossed = Layout.contiguous([2 ** 12, 2 ** 13]).transpose(0, 1);
      expect(read(keep(flat.device.ops.reduce('sum', at(flat, crossed), [0, 1])))).toEqual([2 ** 25]);
      const narrow = keep(filled(2 ** 25, 'bf16', 1));
      expect(read(keep(narrow.device.ops.reduce('sum', at(narrow, Layout.contiguous([2 ** 25])), [0])))).toEqual([
        2 ** 25,
      ]);
      const small = keep(filled(2 ** 20, 'f16', 2 ** -10));
      expect(read(keep(small.device.ops.reduce('sum', at(small, Layout.contiguous([2 ** 20])), [0])))).toEqual([1024]);
      expect(read(keep(small.device.ops.reduce('sum', at(small, Layout.contiguous([2 ** 19, 2])), [0])))).toEqual([
        512, 512,
      ]);
    }));

  it('a column of 2^25 ones is summed to 2^25', () =>
    withStorages((keep) => {
      // Below 2^24 a single f32 accumulator would do.
      const flat = keep(filled(2 ** 26, 'f32', 1));
      expect(read(keep(flat.device.ops.reduce('sum', at(flat, Layout.contiguous([2 ** 25, 2])), [0])))).toEqual([
        2 ** 25,
        2 ** 25,
      ]);
    }));

  it('the same sum twice has the same bits', () =>
    withStorages((keep) => {
      const n = 3_000_001;
      const values = new Float32Array(n).map((_, i) => Math.sin(i) * 3);
      const x = keep(backend.fromHost(values, 'f32'));
      const once = read(keep(x.device.ops.reduce('sum', at(x, Layout.contiguous([n])), [0])));
      expect(read(keep(x.device.ops.reduce('sum', at(x, Layout.contiguous([n])), [0])))).toEqual(once);
      const exact = values.reduce((sum, value) => sum + value, 0);
      expect(Math.abs(once[0] - exact)).toBeLessThan(0.05);
    }));

  it('reduces a view of more than 2^32 elements', () =>
    withStorages((keep) => {
      // Row i begins 16 elements behind the row before: rows whose index was cut to 32 bits would be the first ones again.
      const step = 16;
      const bytes = new Uint8Array(ROWS * step + WIDTH).map((_, i) => (i * 7 + (i >> 9)) % 251);
      const x = keep(backend.fromHost(bytes, 'u8'));
      const layout = new Layout([ROWS, WIDTH], [step, 1], 0);
      const before = new Float64Array(bytes.length + 1);
      for (const [i, value] of bytes.entries()) before[i + 1] = before[i] + value;
      const sums = new Uint8Array(ROWS).map((_, row) => before[row * step + WIDTH] - before[row * step]);
      expect(
        Buffer.from(keep(x.device.ops.reduce('sum', at(x, layout), [1])).toHostSync()).equals(Buffer.from(sums)),
      ).toBe(true);
    }));

  it('names the limit of positions', () => {
    const x = backend.zeros(1, 'u8');
    const repeated = new Layout([COUNT], [0], 0);
    expect(() => x.device.ops.reduce('argmax', at(x, repeated), [0])).toThrow(/argmax over 4295032832 elements.*u32/);
    expect(() => x.device.sorting!.argSortLastDim!(at(x, repeated), false)).toThrow(
      /argSortLastDim over 4295032832 elements.*u32/,
    );
    x.dispose();
  });

  // Memory of the processor that is not written to takes no room.
  if (huge || backend.location.kind === 'cpu')
    it('reads and writes past 2^32 elements', () =>
      withStorages((keep) => {
        const x = keep(backend.allocUninit(COUNT, 'u8'));
        const matrix = Layout.contiguous([ROWS, WIDTH]);
        const last = matrix.narrow(0, ROWS - 2, 2).narrow(1, WIDTH - 4, 4);
        const first = matrix.narrow(0, 0, 2).narrow(1, WIDTH - 4, 4);
        x.device.ops.fill(at(x, first), 1);
        x.device.ops.fill(at(x, last), 9);
        const ids = keep(backend.fromHost(Uint32Array.of(ROWS - 1, 0, ROWS - 2, 1), 'u32'));
        const rows = keep(x.device.ops.indexSelect(at(x, matrix), at(ids, Layout.contiguous([4])), 0));
        for (const [row, value] of [9, 1, 9, 1].entries())
          expect(read(rows, (row + 1) * WIDTH - 4, 4)).toEqual([value, value, value, value]);
        expect(read(keep(x.device.ops.unary('sqr', at(x, last))))).toEqual(new Array(8).fill(81));
        expect(read(keep(x.device.ops.binary('sub', at(x, last), at(x, first))))).toEqual(new Array(8).fill(8));
        expect(read(keep(x.device.ops.reduce('sum', at(x, last), [0, 1])))).toEqual([72]);
        expect(read(x, COUNT - 4, 4)).toEqual([9, 9, 9, 9]);

        const source = keep(
          backend.fromHost(
            new Uint8Array(8).map((_, i) => i),
            'u8',
          ),
        );
        source.device.ops.copy(
          at(source, Layout.contiguous([8])),
          at(x, Layout.contiguous([Layout.contiguous([8]).elemCount], COUNT - 8)),
        );
        expect(read(x, COUNT - 8)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
        const copy = { d1: 2, d2: 3, srcStride: 4, dstStride: COUNT - 4, srcOffset: 0, dstOffset: 0 };
        source.device.ops.copy2d(source, x, copy);
        expect([read(x, 0, 3), read(x, COUNT - 4, 3)]).toEqual([
          [0, 1, 2],
          [4, 5, 6],
        ]);
        // Scattering into one column of the last row: its place is past 2^32.
        const column = keep(backend.fromHost(Uint32Array.of(WIDTH - 1), 'u32'));
        const one = Layout.contiguous([1, 1]);
        const tail = matrix.narrow(0, ROWS - 1, 1);
        x.device.ops.scatterSet(at(x, tail), at(column, one), at(source, Layout.contiguous([1, 1], 5)), 1);
        expect(read(x, COUNT - 1)).toEqual([5]);
      }));

  if (huge)
    it(
      'computes with every element of a tensor of more than 2^32',
      () =>
        withStorages((keep) => {
          const whole = Layout.contiguous([COUNT]);
          const x = keep(filled(COUNT, 'u8', 3));
          x.device.ops.fill(at(x, Layout.contiguous([5], COUNT - 5)), 200);
          expect(read(keep(x.device.ops.reduce('max', at(x, whole), [0])))).toEqual([200]);
          expect(read(keep(x.device.ops.reduce('sum', at(x, whole), [0])))).toEqual([(COUNT * 3 + 5 * 197) % 256]);
          const y = keep(x.device.ops.affine(at(x, whole), 2, 1));
          expect(read(y, COUNT - 6)).toEqual([7, 145, 145, 145, 145, 145]);
          const z = keep(x.device.ops.cmp('lt', at(x, whole), at(y, whole)));
          // The last five wrapped.
          expect(read(z, COUNT - 6)).toEqual([1, 0, 0, 0, 0, 0]);
          expect(
            read(keep(z.device.ops.reduce('sum', at(z, Layout.contiguous([ROWS, WIDTH])), [0])), WIDTH - 6),
          ).toEqual([1, 0, 0, 0, 0, 0]);
          const turned = Layout.contiguous([WIDTH, ROWS]).transpose(0, 1);
          z.dispose();
          const copy = keep(x.device.ops.unary('relu', at(x, turned)));
          expect(read(copy, COUNT - 1)).toEqual([200]);
          expect(
            read(keep(copy.device.ops.reduce('max', at(copy, Layout.contiguous([ROWS, WIDTH])), [1])), ROWS - 6),
          ).toEqual(new Array(6).fill(0).map((_, i) => (i === 0 ? 3 : 200)));
        }),
      600_000,
    );
});
