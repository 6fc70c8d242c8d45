// Vendor libraries as the binding offers them: reports in every state, arguments that do not fit, and OpenBLAS as work of a
// host stream. Cases that load another library run in a process of their own, because a library once loaded stays.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { failure } from '@x/testing/hip-failure';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type BlasHandle,
  type GemmProblem,
  HipDevice,
  type LibraryReport,
  libraryReports,
  openDevice,
} from '../src/index';
import { runIsolated } from './fake-hip';
import { buildFakeOpenBlas, runOnFakes } from './fake-libraries';

const openBlas = libraryReports('host')[0];

describe('reports', () => {
  test('cover every library, with its place or what to install', () => {
    const reports = libraryReports();
    expect(reports.map(({ name }) => name)).toEqual([
      'rocblas',
      'hipblaslt',
      'miopen',
      'cublas',
      'cudnn',
      'openblas',
      'rccl',
      'nccl',
    ]);
    for (const report of reports) {
      expect(report.available).toBe(report.reason === undefined);
      expect(report.searched.length).toBeGreaterThan(0);
      expect(report.reason?.remedy ?? 'Install').toMatch(/Install|Point/);
      expect(libraryReports(report.platform)).toContainEqual(report);
    }
  });

  const reportWith = (file: string) =>
    runIsolated<LibraryReport[]>("return hip.libraryReports('host');", { X_OPENBLAS_LIBRARY: file })[0];

  test('a library named by its switch that is not there', () => {
    const report = reportWith('/nowhere/libopenblas.so');
    expect(report.searched).toEqual(['/nowhere/libopenblas.so']);
    expect(report.reason?.code).toBe('LIBRARY_NOT_FOUND');
    expect(report.reason?.message).toBe(
      'X_OPENBLAS_LIBRARY names /nowhere/libopenblas.so, which cannot be used (no such file)',
    );
    expect(report.reason?.remedy).toContain('X_OPENBLAS_LIBRARY');
  });

  test('one that is no library, or another one', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'x-hip-nonsense-')), 'libopenblas.so');
    writeFileSync(file, 'this is a text file');
    expect(reportWith(file).reason?.message).toMatch(/invalid ELF header|file too short/);
    const other = reportWith('libm.so.6');
    expect(other.reason?.code).toBe('SYMBOL_MISSING');
    expect(other.reason?.message).toContain('lacks cblas_sgemm cblas_dgemm');
  });

  test("every ROCm library can be named, and Debian's absence of them is said", () => {
    const reports = runIsolated<LibraryReport[]>("return hip.libraryReports('rocm');", {
      X_ROCBLAS_LIBRARY: '/nowhere/a.so',
      X_HIPBLASLT_LIBRARY: '/nowhere/b.so',
      X_MIOPEN_LIBRARY: '/nowhere/c.so',
      X_RCCL_LIBRARY: '/nowhere/d.so',
    });
    expect(reports.map((report) => report.searched)).toEqual([
      ['/nowhere/a.so'],
      ['/nowhere/b.so'],
      ['/nowhere/c.so'],
      ['/nowhere/d.so'],
    ]);
  });

  test('opening what a report refuses throws the same reason', () => {
    const [code, message] = runIsolated<string[]>(
      "try { hip.openDevice('host').openBlas('openblas'); } catch (e) { return [e.code, e.message]; }",
      { X_OPENBLAS_LIBRARY: '/nowhere/libopenblas.so' },
    );
    expect(code).toBe('LIBRARY_NOT_FOUND');
    expect(message).toContain('/nowhere/libopenblas.so');
  });
});

describe('a device', () => {
  test('opens libraries of its platform only', () => {
    const device = openDevice('host');
    expect(failure(() => device.openBlas('cublas')).message).toContain('cuBLAS works on cuda devices');
    expect(failure(() => device.openConvolution('miopen')).message).toContain('MIOpen works on rocm devices');
    expect(failure(() => device.openBlas('blas' as 'cublas')).code).toBe('INVALID_ARGUMENT');
    expect(device).toBeInstanceOf(HipDevice);
    device.dispose();
    expect(failure(() => device.openBlas('openblas')).code).toBe('DISPOSED');
  });
});

// Debian's libopenblas0-pthread, or whatever OpenBLAS is installed.
describe.runIf(openBlas.available)('OpenBLAS on a host stream', () => {
  let device: HipDevice;
  let blas: BlasHandle;
  const size = 96;
  const matrix = (ptr: number, more = {}) => ({ ptr, transposed: false, ld: size, batchStride: 0, ...more });
  const square = (lhs: number, rhs: number, out: number, more: Partial<GemmProblem> = {}): GemmProblem => ({
    ...{ type: 'f32', batch: 1, m: size, n: size, k: size, lhs: matrix(lhs), rhs: matrix(rhs), out },
    ...more,
  });
  const bytes = size * size * 4;
  let a: number;
  let b: number;
  let c: number;
  beforeAll(() => {
    device = openDevice('host');
    blas = device.openBlas('openblas');
    [a, b, c] = [device.alloc(bytes), device.alloc(bytes), device.alloc(bytes)];
    device.memcpyHtoD(
      a,
      Float32Array.from({ length: size * size }, (_, i) => (i % size === Math.floor(i / size) ? 2 : 0)),
    );
    device.memcpyHtoD(
      b,
      Float32Array.from({ length: size * size }, (_, i) => i % 31),
    );
  });
  afterAll(() => device.dispose());

  test('reports the file and its version', () => {
    expect(openBlas.library).toMatch(/openblas.*\.so/);
    expect(openBlas.version).toMatch(/^\d+\.\d+/);
    expect(blas.takes('f32')).toBe(true);
    expect(blas.takes('f64')).toBe(true);
    expect(blas.takes('f16')).toBe(false);
  });

  test('is ordered with copies before and after it, and counted', async () => {
    const before = device.counters().library;
    const first = new Float32Array(size * size);
    const second = new Float32Array(size * size);
    blas.gemm(square(a, b, c));
    const reading = device.memcpyDtoH(first, c);
    blas.gemm(square(a, c, b));
    blas.gemm(square(a, b, c));
    device.memcpyDtoHSync(second, c);
    await reading;
    expect(first[5]).toBe(10);
    expect(second[5]).toBe(40);
    expect(device.counters().library - before).toBe(3);
    device.memcpyHtoD(
      b,
      Float32Array.from({ length: size * size }, (_, i) => i % 31),
    );
  });

  test('returns before the work is done', async () => {
    const large = 1200;
    const memory = device.alloc(large * large * 4 * 2);
    device.memset(memory, 0, large * large * 4 * 2);
    const operand = { ptr: memory, transposed: false, ld: large, batchStride: 0 };
    const event = device.createEvent();
    await device.synchronize();
    for (let i = 0; i < 3; i++)
      blas.gemm({
        type: 'f32',
        batch: 1,
        m: large,
        n: large,
        k: large,
        lhs: operand,
        rhs: operand,
        out: memory + large * large * 4,
      });
    event.record(device.defaultStream);
    expect(event.query()).toBe(false);
    await event.synchronize();
    expect(event.query()).toBe(true);
    device.free(memory);
  });

  test('runs on the stream that it is given, in order with that one', () => {
    const stream = device.createStream();
    const out = new Float32Array(size * size);
    device.memset(c, 0, bytes, stream);
    blas.gemm(square(a, b, c), stream);
    device.memcpyDtoHSync(out, c, stream);
    expect(out[7]).toBe(14);
    stream.dispose();
  });

  test('is captured into a graph and replayed with the memory of that moment', () => {
    const stream = device.createStream();
    stream.beginCapture();
    blas.gemm(square(a, b, c), stream);
    const exec = stream.endCapture().instantiate();
    const out = new Float32Array(size * size);
    for (const factor of [3, 5]) {
      device.memcpyHtoD(b, new Float32Array(size * size).fill(factor), stream);
      exec.launch(stream);
      device.memcpyDtoHSync(out, c, stream);
      expect(out.every((value) => value === 2 * factor)).toBe(true);
    }
    stream.dispose();
  });

  test('refuses what does not fit, with the numbers', () => {
    const message = (problem: GemmProblem) => {
      const error = failure(() => blas.gemm(problem));
      expect(error.code).toBe('INVALID_ARGUMENT');
      return error.message;
    };
    expect(message(square(a, b, c, { lhs: matrix(a, { ld: size - 1 }) }))).toContain(
      `a leading dimension of ${size - 1} is less than ${size}`,
    );
    expect(message(square(a, b, c, { m: size + 1 }))).toContain("gemm's left matrix");
    expect(message(square(a, b, c, { rhs: matrix(b + 4) }))).toContain("gemm's right matrix");
    expect(message(square(a, b, c + 4))).toContain("gemm's result");
    expect(message(square(a, b, 4096))).toContain("gemm's result");
    expect(message(square(a, b, c, { batch: 2, lhs: matrix(a, { batchStride: size }) }))).toContain('left');
    expect(message(square(a, b, c, { batch: 2 ** 31 - 1, lhs: matrix(a, { batchStride: 2 ** 52 }) }))).toContain(
      'past any memory',
    );
    for (const wrong of [0, -1, 1.5, Number.NaN, 2 ** 31]) message(square(a, b, c, { k: wrong }));
    expect(message(square(a, b, c, { type: 'f16' }))).toContain('no product of f16');
    expect(message(square(a, b, c, { type: 'i64' as 'f32' }))).toContain('no type');
  });

  test('waits for each product with X_LAUNCH_BLOCKING=1', () => {
    const done = runIsolated<boolean>(
      `const device = hip.openDevice('host');
      const blas = device.openBlas('openblas');
      const n = 700;
      const memory = device.alloc(n * n * 8);
      device.memset(memory, 0, n * n * 8);
      const operand = { ptr: memory, transposed: false, ld: n, batchStride: 0 };
      const shares = [1, 2, 3, 4, 5].map(() => {
        const begun = process.hrtime.bigint();
        blas.gemm({ type: 'f32', batch: 1, m: n, n, k: n, lhs: operand, rhs: operand, out: memory + n * n * 4 });
        const called = process.hrtime.bigint();
        device.synchronizeSync();
        return Number(process.hrtime.bigint() - called) / Number(called - begun);
      });
      // Nothing is left to wait for; a busy machine may take its time now and then.
      return Math.min(...shares) < 0.1;`,
      { X_LAUNCH_BLOCKING: '1' },
    );
    expect(done).toBe(true);
  });
});

describe('an OpenBLAS with bf16 products', () => {
  let library: string;
  beforeAll(() => {
    library = buildFakeOpenBlas();
  });
  const PRODUCT = `
    const device = backend.RocmDevice.open('cpu', 0, { gemm: 'openblas' });
    const { Layout } = core;
    const run = (dtype, b, m, n, k, right) => {
      const values = (count) => Float32Array.from({ length: count }, (_, i) => (i % 9) - 4);
      const bytes = (count) => dtype === 'f32' ? values(count) : Uint16Array.from(values(count), dtype === 'f16' ? core.f32ToF16 : core.f32ToBf16);
      const results = [core.Device.js().backend, device].map((d) => {
        const [x, y] = [d.fromHost(bytes(b * m * k), dtype), d.fromHost(bytes(b * k * n), dtype)];
        const out = x.device.ops.matmul({ storage: x, layout: Layout.contiguous([b, m, k]) }, { storage: y, layout: right }, { b, m, n, k });
        return [...new Uint8Array(out.toHostSync())].join();
      });
      return results[0] === results[1];
    };
  `;

  test('takes bf16 as it is and widens f16, with one thread of its own', () => {
    const { value, log } = runOnFakes<boolean[]>(
      undefined,
      `${PRODUCT}
      const plain = Layout.contiguous([1, 6, 5]);
      const turned = Layout.contiguous([1, 5, 6]).transpose(1, 2);
      return [run('bf16', 1, 4, 5, 6, plain), run('bf16', 1, 4, 5, 6, turned), run('f16', 1, 4, 5, 6, turned), run('f32', 1, 4, 5, 6, turned)];`,
      { X_OPENBLAS_LIBRARY: library },
    );
    expect(value).toEqual([true, true, true, true]);
    expect(log).toEqual(['threads 1', 'bf16 5 4 6', 'bf16 5 4 6', 'f32 5 4 6', 'f32 5 4 6']);
  });

  test('cuts a large product among our threads, unless the library was built without any', () => {
    const body = `${PRODUCT} return run('f32', 1, 128, 128, 96, Layout.contiguous([1, 96, 128]));`;
    const cut = runOnFakes<boolean>(undefined, body, { X_OPENBLAS_LIBRARY: library, X_HOST_THREADS: '4' });
    expect(cut.value).toBe(true);
    const tiles = cut.log.filter((line) => line.startsWith('f32')).map((line) => line.split(' ').slice(1).map(Number));
    expect(tiles).toHaveLength(4);
    for (const tile of tiles) expect(tile).toEqual([64, 64, 96]);
    const sequential = { X_OPENBLAS_LIBRARY: library, X_HOST_THREADS: '4', FAKE_OPENBLAS: 'sequential' };
    const whole = runOnFakes<boolean>(undefined, body, sequential);
    expect(whole.value).toBe(true);
    expect(whole.log).toEqual(['threads 1', 'f32 128 128 96']);
  });
});
