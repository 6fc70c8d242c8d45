// Reports and run-time compilation: what is said when a platform is there, absent or broken. Each case is its own process,
// because a library once loaded stays.
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { failure } from '@x/testing/hip-failure';
import { describe, expect, test } from 'vitest';
import { type CompilerReport, compileProgram, compilers, type PlatformReport, platforms } from '../src/index';
import { buildFakeHip, runIsolated } from './fake-hip';

const DEBIAN_HIP = '/usr/lib/x86_64-linux-gnu/libamdhip64.so.5';

function rocmReport(environment: Record<string, string | undefined>): PlatformReport {
  return runIsolated<PlatformReport[]>('return hip.platforms();', environment)[0];
}

describe('reports', () => {
  test('cover every platform, and say why not where one is absent', () => {
    const reports = platforms();
    expect(reports.map((report) => report.platform)).toEqual(['rocm', 'cuda', 'host']);
    for (const report of reports) {
      expect(report.available).toBe(report.deviceCount > 0);
      expect(report.reason === undefined).toBe(report.available);
      if (report.reason) {
        expect(report.reason.message.length).toBeGreaterThan(20);
        expect(report.reason.remedy.length).toBeGreaterThan(10);
      }
    }
    expect(reports[2].available).toBe(true);
    expect(reports[1].searched).toContain('libcuda.so.1');
  });

  test('X_HIP_LIBRARY that is not there', () => {
    const report = rocmReport({ X_HIP_LIBRARY: '/nowhere/libamdhip64.so' });
    expect(report.searched).toEqual(['/nowhere/libamdhip64.so']);
    expect(report.reason?.code).toBe('LIBRARY_NOT_FOUND');
    expect(report.reason?.message).toContain('/nowhere/libamdhip64.so');
    expect(report.reason?.message).toContain('no such file');
    expect(report.reason?.remedy).toContain('X_HIP_LIBRARY');
  });

  test('X_HIP_LIBRARY that is no library', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'x-hip-nonsense-')), 'libamdhip64.so');
    writeFileSync(file, 'this is a text file');
    const report = rocmReport({ X_HIP_LIBRARY: file });
    expect(report.reason?.code).toBe('LIBRARY_NOT_FOUND');
    expect(report.reason?.message).toMatch(/invalid ELF header|file too short/);
  });

  test('X_HIP_LIBRARY that is another library', () => {
    const report = rocmReport({ X_HIP_LIBRARY: 'libm.so.6' });
    expect(report.reason?.code).toBe('SYMBOL_MISSING');
    expect(report.reason?.message).toContain('hipInit');
    expect(report.reason?.message).toContain('hipModuleLaunchKernel');
  });

  test('a runtime without a device', () => {
    const library = buildFakeHip();
    const report = rocmReport({ X_HIP_LIBRARY: library, FAKE_HIP: 'none' });
    expect(report).toMatchObject({ available: false, deviceCount: 0, library, version: '6.4.43484' });
    expect(report.reason?.name).toBe('hipErrorNoDevice');
    expect(['NO_DEVICE', 'NO_PERMISSION']).toContain(report.reason?.code);
    expect(report.reason?.message).toContain('/dev/kfd');
  });

  test('opening what a report refuses throws the same reason', () => {
    const [code, message] = runIsolated<string[]>(
      "try { hip.openDevice('rocm'); } catch (e) { return [e.code, e.message]; }",
      { X_HIP_LIBRARY: '/nowhere/libamdhip64.so' },
    );
    expect(code).toBe('LIBRARY_NOT_FOUND');
    expect(message).toContain('/nowhere/libamdhip64.so');
  });
});

// Debian 12 ships HIP 5.2.3, which runs without a GPU as far as its error paths and its compiler go.
describe.runIf(existsSync(DEBIAN_HIP))("Debian's libamdhip64 5.2.3", () => {
  test('loads, has every symbol, and reports in its own words', () => {
    const report = rocmReport({ X_HIP_LIBRARY: DEBIAN_HIP });
    expect(report.library).toMatch(/libamdhip64\.so\.5/);
    expect(report.version).toMatch(/^5\.2\./);
    if (report.available) return; // an AMD GPU, or an emulated one
    expect(report.reason?.code).not.toBe('SYMBOL_MISSING');
    expect(report.reason?.name).toBe('hipErrorNoDevice');
    expect(report.reason?.message).toContain('hipGetDeviceCount failed with hipErrorNoDevice (100)');
  });

  test('compiles without a GPU', () => {
    const [bytes, compiler] = runIsolated<[number[], CompilerReport]>(
      `const code = hip.compileProgram('rocm', 'extern "C" __global__ void add_one(float* x) { x[threadIdx.x] += 1; }', { arch: 'gfx1030' });
      return [Array.from(code), hip.compilers()[0]];`,
      { X_HIP_LIBRARY: DEBIAN_HIP },
    );
    const code = Buffer.from(bytes);
    expect(code.subarray(0, 4).toString('latin1')).toBe('\x7fELF');
    expect(code.readUInt16LE(18)).toBe(224);
    expect(code.includes('add_one.kd')).toBe(true);
    expect(compiler).toMatchObject({ platform: 'rocm', available: true });
  });

  test('a compile error carries the log', () => {
    const [code, message] = runIsolated<string[]>(
      `try { hip.compileProgram('rocm', 'extern "C" __global__ void k(int* x) { x[0] = nonsense; }', { arch: 'gfx1030', name: 'broken.hip' }); }
      catch (e) { return [e.code, e.message]; }`,
      { X_HIP_LIBRARY: DEBIAN_HIP },
    );
    expect(code).toBe('COMPILE_FAILED');
    expect(message).toContain("'broken.hip'");
    expect(message).toContain("undeclared identifier 'nonsense'");
    expect(message).toContain('--gpu-architecture=gfx1030');
  });
});

describe('the host compiler', () => {
  test('is reported', () => {
    const report = compilers().find(({ platform }) => platform === 'host');
    expect(report?.available).toBe(true);
    expect(report?.version).toContain('clang');
  });

  test('gives a shared object, or the log', () => {
    const code = compileProgram('host', 'extern "C" void k() {}', { arch: 'x86-64' });
    expect(Buffer.from(code).subarray(0, 4).toString('latin1')).toBe('\x7fELF');
    const error = failure(() =>
      compileProgram('host', 'int broken() { return nonsense; }', { arch: 'x86-64', name: 'a "b".cpp' }),
    );
    expect(error.code).toBe('COMPILE_FAILED');
    expect(error.message).toContain('nonsense');
    expect(error.message).toContain('a "b".cpp:1');
  });

  test.runIf(process.arch === 'x64')('makes vector code of loops over mathematical functions', () => {
    const source = 'extern "C" void k(float* x, long n) { for (long i = 0; i < n; ++i) x[i] = __builtin_expf(x[i]); }';
    const calls = (arch: string) => Buffer.from(compileProgram('host', source, { arch })).includes('_ZGVdN8v_expf');
    expect(['x86-64-v2', 'x86-64-v3', 'x86-64-v3-vnni'].map(calls)).toEqual([false, true, true]);
  });

  test('says what it tried when there is none', () => {
    const [code, message] = runIsolated<string[]>(
      "try { hip.compileProgram('host', 'int x;', { arch: 'x86-64' }); } catch (e) { return [e.code, e.message]; }",
      { X_CLANG: '/nowhere/clang++' },
    );
    expect(code).toBe('LIBRARY_NOT_FOUND');
    expect(message).toContain('/nowhere/clang++');
  });

  test('says where it cannot write', () => {
    const [code, message] = runIsolated<string[]>(
      "process.env.TMPDIR = '/nowhere'; try { hip.compileProgram('host', 'int x;', { arch: 'x86-64' }); } catch (e) { return [e.code, e.message]; }",
    );
    expect(code).toBe('COMPILE_FAILED');
    expect(message).toMatch(/no directory can be made in \/nowhere .*Set TMPDIR/);
  });

  test('refuses an arch that is none', () => {
    for (const arch of ['', 'gfx 1030', '-o/tmp/x y', undefined as unknown as string]) {
      expect(failure(() => compileProgram('host', 'int x;', { arch })).code).toBe('INVALID_ARGUMENT');
    }
    expect(failure(() => compileProgram('rocm', 'a\0b', { arch: 'gfx1030' })).message).toContain('NUL');
  });
});

test('a missing addon is a typed error and still a report', () => {
  const result = runIsolated<{ code: string; message: string; reasons: string[] }>(
    `Object.defineProperty(process, 'arch', { value: 'sparc' });
    const reasons = hip.platforms().map((report) => report.reason?.code);
    try { hip.openDevice('host'); } catch (e) { return { code: e.code, message: e.message, reasons }; }`,
  );
  expect(result.code).toBe('ADDON_MISSING');
  expect(result.message).toContain('linux-sparc');
  expect(result.reasons).toEqual(['ADDON_MISSING', 'ADDON_MISSING', 'ADDON_MISSING']);
});
