/** Modules are loaded once, counted at the driver table; kernels from source compile once and survive a damaged cache. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Layout } from '@x/core';
import { compilers } from '@x/hip';
import { AFFINE, BINARY, type KernelModule, UNARY } from '@x/kernels';
import { testDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { compileCacheStats, KernelLookupError, RocmDevice } from '../src/index';

const kinds = testDevices()
  .filter((device) => device.location.kind !== 'js')
  .map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');

describe.each(kinds)('module store on %s', (kind) => {
  let device: RocmDevice;
  beforeEach(() => {
    device = RocmDevice.open(kind, 0);
  });
  afterEach(() => device.dispose());

  it('loads a module once for many kernels and many uses', () => {
    const before = device.hip.counters();
    for (let i = 0; i < 3; i++)
      for (const name of ['badd_f32', 'bmul_f32', 'eq_f32']) device.getOrLoadFunc(name, BINARY);
    const after = device.hip.counters();
    expect(after.moduleLoad - before.moduleLoad).toBe(1);
    expect(after.getFunction - before.getFunction).toBe(3);
    expect(device.modules.stats()).toEqual({ modulesLoaded: 1, functionsLoaded: 3 });
  });

  it('returns the same function each time, and one module each for different modules', () => {
    expect(device.getOrLoadFunc('affine_f32', AFFINE)).toBe(device.getOrLoadFunc('affine_f32', AFFINE));
    device.getOrLoadFunc('uexp_f32', UNARY);
    expect(device.hip.counters().moduleLoad).toBe(2);
  });

  it('loads once under concurrent first use', async () => {
    const x = device.fromHost(Float32Array.of(1, 2, 3), 'f32');
    const layout = Layout.contiguous([3]);
    const first = async () => {
      await Promise.resolve();
      const out = x.device.ops.affine(at(x, layout), 2, 1);
      const values = new Float32Array(await out.toHost());
      out.dispose();
      return [...values];
    };
    const results = await Promise.all(Array.from({ length: 16 }, first));
    for (const values of results) expect(values).toEqual([3, 5, 7]);
    expect(device.hip.counters().moduleLoad).toBe(1);
    x.dispose();
  });

  it('names kernel, module and target when a kernel does not exist', () => {
    expect(() => device.getOrLoadFunc('badd_f33', BINARY)).toThrow(KernelLookupError);
    expect(() => device.getOrLoadFunc('badd_f33', BINARY)).toThrow(
      /kernel badd_f33 is not in module BINARY for \S+, which has \d+ kernels \(near: badd_/,
    );
  });

  it('refuses a code object of another warp size', () => {
    const foreign = Object.create(AFFINE) as KernelModule;
    const object = AFFINE.codeObject(kind === 'cpu' ? 'gfx1100' : 'x86-64-v2');
    if (!object)
      throw new Error('the tests need kernels for gfx1100 and the host: pnpm kernels --targets host,gfx1100');
    Object.defineProperties(foreign, { codeObject: { value: () => object }, name: { value: 'foreign' } });
    expect(() => device.getOrLoadFunc('affine_f32', foreign)).toThrow(/waves of \d+ lanes, the device runs \d+/);
  });

  it.runIf(kind === 'cpu' && AFFINE.codeObject('x86-64-v2'))(
    'says once that a lower level of the host is used',
    async () => {
      const warnings: Error[] = [];
      const listen = (warning: Error) => warnings.push(warning);
      process.on('warning', listen);
      try {
        for (const name of ['first', 'second']) {
          const lower = Object.create(AFFINE) as KernelModule;
          const codeObject = (target: string) => (target === 'x86-64-v2' ? AFFINE.codeObject(target) : undefined);
          Object.defineProperties(lower, { codeObject: { value: codeObject }, name: { value: name } });
          device.getOrLoadFunc('affine_f32', lower);
        }
        await new Promise(setImmediate);
      } finally {
        process.off('warning', listen);
      }
      const isLower = device.hip.properties.arch.split('-v')[1]?.[0] !== '2';
      expect(warnings.map((warning) => (warning as NodeJS.ErrnoException).code)).toEqual(
        isLower ? ['KERNELS_OF_LOWER_LEVEL'] : [],
      );
      if (isLower) expect(warnings[0].message).toMatch(/kernels of x86-64-v2 are used.*pnpm kernels --targets host/);
    },
  );
});

const compilerKinds = kinds.filter((kind) =>
  compilers().some(({ platform, available }) => platform === (kind === 'cpu' ? 'host' : kind) && available),
);

describe.each(compilerKinds)('kernels from source on %s', (kind) => {
  const source = (factor: number) => `
    #include "x.h"
    KERNEL(scale_by, (u64 n, const float* x, float* y, float factor)) {
      X_FOR_EACH(i, n) y[i] = x[i] * factor + ${factor}.0f;
    }`;
  let directory: string;
  let previous: string | undefined;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'candle-cache-'));
    previous = process.env.X_CACHE_DIR;
    process.env.X_CACHE_DIR = directory;
  });
  afterEach(() => {
    if (previous === undefined) delete process.env.X_CACHE_DIR;
    else process.env.X_CACHE_DIR = previous;
    rmSync(directory, { recursive: true, force: true });
  });

  async function runScale(device: RocmDevice, text: string): Promise<number[]> {
    const scale = device.getOrLoadFuncRaw('scale_by', text);
    const x = device.fromHost(Float32Array.of(1, 2, 3), 'f32');
    const y = device.zeros(3, 'f32');
    scale.launch(1, 64, 0, [3, x.ptr, y.ptr, 10]);
    const values = [...new Float32Array(await y.toHost())];
    x.dispose();
    y.dispose();
    return values;
  }

  it('compiles once, runs, and refuses wrong arguments', async () => {
    const device = RocmDevice.open(kind, 0);
    const before = compileCacheStats();
    expect(await runScale(device, source(1))).toEqual([11, 21, 31]);
    expect(await runScale(device, source(1))).toEqual([11, 21, 31]);
    const after = compileCacheStats();
    expect(after.compiled - before.compiled).toBe(1);
    expect(after.memoryHits - before.memoryHits).toBe(1);
    expect(device.hip.counters().moduleLoad).toBe(1);
    const scale = device.getOrLoadFuncRaw('scale_by', source(1));
    expect(() => scale.launch(1, 64, 0, [3])).toThrow(/scale_by/);
    device.dispose();
  });

  it('compiles again over a damaged cache file', async () => {
    const device = RocmDevice.open(kind, 0);
    expect(await runScale(device, source(2))).toEqual([12, 22, 32]);
    const files = readdirSync(directory);
    expect(files).toHaveLength(1);
    expect(files[0]).toMatch(/^[0-9a-f]{64}\.bin$/);
    writeFileSync(join(directory, files[0]), 'damaged');
    const { clearCompiledSources } = await import('../src/runtime-compile');
    clearCompiledSources();
    const other = RocmDevice.open(kind, 0);
    const before = compileCacheStats();
    expect(await runScale(other, source(2))).toEqual([12, 22, 32]);
    expect(compileCacheStats().compiled - before.compiled).toBe(1);
    clearCompiledSources();
    const third = RocmDevice.open(kind, 0);
    expect(await runScale(third, source(2))).toEqual([12, 22, 32]);
    expect(compileCacheStats().diskHits - before.diskHits).toBe(1);
    for (const opened of [device, other, third]) opened.dispose();
  });

  it('gives the compiler’s message for source that does not compile', () => {
    const device = RocmDevice.open(kind, 0);
    expect(() => device.getOrLoadFuncRaw('broken', 'KERNEL(broken, (')).toThrow(
      expect.objectContaining({ code: 'COMPILE_FAILED' }),
    );
    device.dispose();
  });
});
