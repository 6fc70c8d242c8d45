/**
 * Products and convolutions through the vendor libraries that this machine has (OpenBLAS on cpu, cuBLAS and cuDNN on
 * cuda, rocBLAS and MIOpen on rocm) against the TypeScript reference, and the choice between them and our kernels.
 */
import { type DType, Layout, type MatmulSize } from '@x/core';
import { HipError, type LibraryReport } from '@x/hip';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { failure } from '@x/testing/hip-failure';
import { at, operandSpec, type Pair, runs } from '@x/testing/operands';
import { tolerance, withPair } from '@x/testing/products';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RocmDevice } from '../src/index';

const dtype = fc.constantFrom<DType>('f32', 'f16', 'bf16', 'f64');
const small = (min: number, max: number) => fc.integer({ min, max });
const kinds = kernelDevices().map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');

describe.each(kinds)('libraries on %s', (kind) => {
  let device: RocmDevice;
  let gemm: LibraryReport | undefined;
  /** Whether `auto` gives it large products: kernels of a host with AVX-512 are faster. */
  let takesLarge: boolean;
  beforeAll(() => {
    device = RocmDevice.open(kind, 0);
    const there = device.hip.libraries().filter((report) => report.available);
    gemm = there.find((report) => report.purpose === 'gemm');
    takesLarge = gemm !== undefined && !device.hip.properties.arch.startsWith('x86-64-v4');
  });
  afterAll(() => device.dispose());

  const calls = () => device.hip.counters();
  const choose = (choice: 'library' | 'kernels' | 'auto') => {
    if (choice === 'library' && !gemm) return false;
    device.gemm = choice;
    return true;
  };
  const product = (pair: Pair, size: MatmulSize, left: Layout, right: Layout, type: DType = 'f32') => {
    const bytes = (layout: Layout, seed: number) =>
      pair.operand([layout.endOffset()], type, { kind: 'contiguous', seed }, true);
    const a = bytes(left, 7);
    const b = bytes(right, 8);
    const before = calls();
    const result = pair.run((side) => a[side].device.ops.matmul(at(a[side], left), at(b[side], right), size));
    const after = calls();
    expectClose(result, `${type} ${left} times ${right}`, tolerance(type, size.k));
    return { library: after.library - before.library, launches: after.launch - before.launch };
  };

  it('reports what the platform can use, and what to install', () => {
    for (const report of device.hip.libraries()) {
      expect(report.platform).toBe(device.hip.platform);
      expect(report.available).toBe(report.reason === undefined);
      if (report.available) expect(report.library).toContain('/');
      else expect(report.reason!.remedy.length).toBeGreaterThan(20);
    }
  });

  it.each(['library', 'auto', 'kernels'] as const)('products of any strides and dtype, by %s', (choice) => {
    if (!choose(choice)) {
      const error = failure(() => choose('library') || RocmDevice.open(kind, 0, { gemm: 'library' }));
      expect(error.code).toBe('LIBRARY_NOT_FOUND');
      expect(error.message).toMatch(/Install|Point/);
      return;
    }
    const sizes = fc.tuple(small(1, 3), small(1, 2), small(1, 70), small(1, 70), small(1, 40));
    const before = calls().library;
    fc.assert(
      fc.property(dtype, sizes, operandSpec, operandSpec, (type, [b0, b1, m, n, k], left, right) =>
        withPair(device, (pair) => {
          const a = pair.operand([b0, b1, m, k], type, left, true);
          const c = pair.operand([b0, b1, k, n], type, right, true);
          const size = { b: b0 * b1, m, n, k };
          expectClose(
            pair.run((side) => a[side].device.ops.matmul(at(a[side], a.layout), at(c[side], c.layout), size)),
            `${type} ${a.layout} times ${c.layout}`,
            tolerance(type, k),
          );
        }),
      ),
      runs(150),
    );
    if (choice === 'kernels') expect(calls().library).toBe(before);
    if (choice === 'library') expect(calls().library).toBeGreaterThan(before + runs(150).numRuns / 3);
    if (choice === 'auto' && !gemm) expect(calls().library).toBe(before);
  });

  it('a large product by auto', () => {
    choose('auto');
    withPair(device, (pair) => {
      const size = { b: 1, m: 260, n: 270, k: 300 };
      const counts = product(pair, size, Layout.contiguous([260, 300]), Layout.contiguous([300, 270]));
      expect(counts.library).toBe(takesLarge ? 1 : 0);
    });
  });

  it('takes row-major and transposed operands as they are, with any batch stride', () => {
    if (!choose('library')) return expect(gemm).toBeUndefined();
    const [b, m, n, k] = [3, 5, 6, 4];
    const left = {
      plain: Layout.contiguous([b, m, k]),
      transposed: Layout.contiguous([b, k, m]).transpose(1, 2),
      narrowed: Layout.contiguous([b, m, k + 3]).narrow(2, 1, k),
      broadcast: Layout.contiguous([1, m, k]).broadcastAs([b, m, k]),
      'batch in the middle': Layout.contiguous([m, b, k]).transpose(0, 1),
    };
    const right = {
      plain: Layout.contiguous([b, k, n]),
      transposed: Layout.contiguous([b, n, k]).transpose(1, 2),
      'narrowed transposed': Layout.contiguous([b, n + 2, k + 5])
        .narrow(1, 1, n)
        .narrow(2, 2, k)
        .transpose(1, 2),
      broadcast: Layout.contiguous([n, k]).transpose(0, 1).broadcastAs([b, k, n]),
    };
    withPair(device, (pair) => {
      for (const type of ['f32', 'f64'] as const)
        for (const l of Object.values(left))
          for (const r of Object.values(right)) {
            expect(product(pair, { b, m, n, k }, l, r, type), `${l} times ${r}`).toEqual({ library: 1, launches: 0 });
          }
    });
  });

  it('dims of size 1 may have any stride', () => {
    if (!choose('library')) return expect(gemm).toBeUndefined();
    withPair(device, (pair) => {
      const row = new Layout([1, 1, 4], [999, 77, 1], 0);
      const column = new Layout([1, 4, 1], [5, 1, 31], 0);
      expect(product(pair, { b: 1, m: 1, n: 1, k: 4 }, row, column)).toEqual({ library: 1, launches: 0 });
      const outer = new Layout([1, 4, 1], [0, 3, 0], 0);
      expect(product(pair, { b: 1, m: 4, n: 4, k: 1 }, outer, new Layout([1, 1, 4], [0, 0, 1], 0))).toEqual({
        library: 1,
        launches: 0,
      });
    });
  });

  it('leaves other strides to the kernel, without a copy', () => {
    if (!choose('library')) return expect(gemm).toBeUndefined();
    withPair(device, (pair) => {
      const every2nd = new Layout([1, 5, 4], [40, 8, 2], 0);
      const counts = product(pair, { b: 1, m: 5, n: 6, k: 4 }, every2nd, Layout.contiguous([1, 4, 6]));
      expect(counts).toEqual({ library: 0, launches: 1 });
    });
  });

  it('empty products, and sums of nothing', () => {
    for (const choice of ['library', 'auto', 'kernels'] as const) {
      if (!choose(choice)) continue;
      const x = device.zeros(0, 'f32');
      const y = device.zeros(20, 'f32');
      const product = (size: MatmulSize, left: Layout, right: Layout) => {
        const out = device.ops.matmul(at(left.elemCount ? y : x, left), at(right.elemCount ? y : x, right), size);
        const values = [...new Float32Array(out.toHostSync())];
        out.dispose();
        return values;
      };
      const plain = (...shape: number[]) => Layout.contiguous(shape);
      expect(product({ b: 1, m: 0, n: 4, k: 5 }, plain(1, 0, 5), plain(1, 5, 4))).toEqual([]);
      expect(product({ b: 0, m: 2, n: 2, k: 5 }, plain(0, 2, 5), plain(0, 5, 2))).toEqual([]);
      expect(product({ b: 1, m: 2, n: 3, k: 0 }, plain(1, 2, 0), plain(1, 0, 3))).toEqual([0, 0, 0, 0, 0, 0]);
      x.dispose();
      y.dispose();
    }
  });

  it('does not read what was in the result before', () => {
    if (!choose('library')) return expect(gemm).toBeUndefined();
    for (const type of ['f32', 'f16', 'bf16', 'f64'] as const) {
      const size = { b: 2, m: 40, n: 48, k: 8 };
      const [a, b] = [device.zeros(2 * 40 * 8, type), device.zeros(2 * 8 * 48, type)];
      const stale = device.allocUninit(2 * 40 * 48, type);
      stale.device.ops.fill(at(stale, Layout.contiguous([2 * 40 * 48])), Number.NaN);
      stale.dispose();
      const out = a.device.ops.matmul(at(a, Layout.contiguous([2, 40, 8])), at(b, Layout.contiguous([2, 8, 48])), size);
      expect(new Uint8Array(out.toHostSync()).every((byte) => byte === 0)).toBe(true);
      for (const storage of [a, b, out]) storage.dispose();
    }
  });

  it('products become part of a captured graph', async () => {
    for (const choice of ['library', 'auto'] as const) {
      if (!choose(choice)) continue;
      const layout = Layout.contiguous([1, 64, 64]);
      const size = { b: 1, m: 64, n: 64, k: 64 };
      const [a, b] = [
        device.zeros(4096, 'f32'),
        device.fromHost(
          new Float32Array(4096).map((_, i) => i % 7),
          'f32',
        ),
      ];
      a.device.ops.matmul(at(a, layout), at(b, layout), size).dispose();
      const stream = device.hip.defaultStream;
      stream.beginCapture();
      expect(stream.isCapturing).toBe(true);
      const out = a.device.ops.matmul(at(a, layout), at(b, layout), size);
      const exec = stream.endCapture().instantiate();
      expect(stream.isCapturing).toBe(false);
      device.write(
        a,
        0,
        new Float32Array(64).map(() => 1),
      );
      exec.launch(stream);
      const first = new Float32Array(await out.toHost(0, 64));
      const expected = new Float32Array(64).map((_, n) =>
        Array.from({ length: 64 }, (_, k) => (k * 64 + n) % 7).reduce((x, y) => x + y),
      );
      expect(first).toEqual(expected);
      for (const storage of [a, b, out]) storage.dispose();
    }
  });

  it('a capture before the first product: auto uses kernels, library says what to do', () => {
    const fresh = RocmDevice.open(kind, 0, { gemm: 'auto' });
    try {
      const layout = Layout.contiguous([1, 300, 300]);
      const size = { b: 1, m: 300, n: 300, k: 300 };
      const x = fresh.zeros(90000, 'f32');
      const run = () => x.device.ops.matmul(at(x, layout), at(x, layout), size).dispose();
      fresh.gemm = 'kernels';
      run();
      fresh.gemm = 'auto';
      const stream = fresh.hip.defaultStream;
      stream.beginCapture();
      run();
      expect(fresh.hip.counters().library).toBe(0);
      if (gemm) {
        fresh.gemm = 'library';
        expect(failure(run).message).toContain('beginCapture()');
        fresh.gemm = 'auto';
      }
      stream.endCapture().dispose();
      run();
      expect(fresh.hip.counters().library).toBe(takesLarge ? 1 : 0);
    } finally {
      fresh.dispose();
    }
  });

  it('the choice is checked when it is made', () => {
    expect(failure(() => RocmDevice.open(kind, 0, { gemm: 'nonsense' as 'auto' })).message).toContain('Choose one of');
    const foreign = kind === 'cuda' ? 'rocblas' : 'cublas';
    const error = failure(() => RocmDevice.open(kind, 0, { gemm: foreign }));
    expect(error.code).toBe('INVALID_ARGUMENT');
    expect(error.message).toContain(`'${foreign}' does not work on ${device.hip.platform} devices`);
    device.gemm = 'kernels';
    expect(device.gemm).toBe('kernels');
    expect(() => {
      device.gemm = foreign;
    }).toThrow(HipError);
    expect(device.gemm).toBe('kernels');
    if (kind === 'cpu') {
      expect(failure(() => RocmDevice.open(kind, 0, { convolution: 'library' })).message).toContain(
        'no library for X_CONV',
      );
    }
  });

  it('X_GEMM and X_CONV choose when a device is opened', () => {
    const withEnvironment = (name: string, value: string, body: () => void) => {
      const old = process.env[name];
      process.env[name] = value;
      try {
        body();
      } finally {
        if (old === undefined) delete process.env[name];
        else process.env[name] = old;
      }
    };
    const opened = (read: (device: RocmDevice) => unknown) => {
      const fresh = RocmDevice.open(kind, 0);
      const value = read(fresh);
      fresh.dispose();
      return value;
    };
    withEnvironment('X_GEMM', 'kernels', () => expect(opened((d) => d.gemm)).toBe('kernels'));
    withEnvironment('X_CONV', 'kernels', () => expect(opened((d) => d.convolution)).toBe('kernels'));
    withEnvironment('X_GEMM', 'fastest', () =>
      expect(failure(() => RocmDevice.open(kind, 0)).message).toContain('X_GEMM=fastest is none of auto'),
    );
    // A library of another platform leaves this device alone.
    withEnvironment('X_GEMM', kind === 'cuda' ? 'rocblas' : 'cublas', () => expect(opened((d) => d.gemm)).toBe('auto'));
    if (kind === 'cpu') withEnvironment('X_CONV', 'library', () => expect(opened((d) => d.convolution)).toBe('auto'));
    if (gemm) withEnvironment('X_GEMM', gemm.name, () => expect(opened((d) => d.gemm)).toBe(gemm?.name));
  });

  it.each(['library', 'auto', 'kernels'] as const)(
    'sums in f32 and multiplies without TF32 unless asked, by %s',
    (choice) => {
      if (!choose(choice)) return expect(gemm).toBeUndefined();
      // Beyond the 10 bits of TF32's fraction; and more ones than f16 and bf16 can count.
      const fine = 1 + 2 ** -12;
      const cases = [
        { type: 'f32', k: 8, left: [fine, 0, 0, 0, 0, 0, 0, 0], expected: fine },
        { type: 'f16', k: 4096, left: [], expected: 4096 },
        { type: 'bf16', k: 1024, left: [], expected: 1024 },
      ] as const;
      for (const { type, k, left, expected } of cases) {
        const ones = device.zeros(k * 64, type);
        ones.device.ops.fill(at(ones, Layout.contiguous([k * 64])), 1);
        const a = device.zeros(64 * k, type);
        if (left.length) for (let row = 0; row < 64; row++) device.write(a, row * k * 4, Float32Array.from(left));
        else a.device.ops.fill(at(a, Layout.contiguous([64 * k])), 1);
        const run = () => {
          const out = a.device.ops.matmul(
            at(a, Layout.contiguous([1, 64, k])),
            at(ones, Layout.contiguous([1, k, 64])),
            { b: 1, m: 64, n: 64, k },
          );
          const wide = out.device.ops.toDtype(at(out, Layout.contiguous([4096])), 'f32');
          const values = new Float32Array(wide.toHostSync());
          out.dispose();
          wide.dispose();
          return values;
        };
        expect(run().every((value) => value === expected)).toBe(true);
        const knob = {
          f32: 'gemmReducedPrecisionF32',
          f16: 'gemmReducedPrecisionF16',
          bf16: 'gemmReducedPrecisionBf16',
        } as const;
        device[knob[type]] = true;
        // Asked for, it may be anything that the short formats give.
        expect(run().every((value) => value >= expected / 4.5 && value <= expected * 1.01)).toBe(true);
        device[knob[type]] = false;
        expect(run().every((value) => value === expected)).toBe(true);
        a.dispose();
        ones.dispose();
      }
    },
  );

  it('prints a product with its time at X_DEBUG=4', () => {
    if (!gemm) return expect(choose('library')).toBe(false);
    const lines: string[] = [];
    const write = process.stderr.write;
    process.stderr.write = (text: string | Uint8Array) => lines.push(String(text)) > 0;
    process.env.X_DEBUG = '4';
    try {
      const traced = RocmDevice.open(kind, 0, { gemm: 'library' });
      const x = traced.zeros(64, 'f32');
      x.device.ops
        .matmul(at(x, Layout.contiguous([1, 8, 8])), at(x, Layout.contiguous([1, 8, 8])), { b: 1, m: 8, n: 8, k: 8 })
        .dispose();
      traced.dispose();
    } finally {
      delete process.env.X_DEBUG;
      process.stderr.write = write;
    }
    expect(lines.join('')).toMatch(new RegExp(`${gemm.name} f32 1 x \\[8, 8\\] \\* \\[8, 8\\] [\\d.]+ us`));
  });
});
