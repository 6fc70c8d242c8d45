import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { amalgamate } from './amalgamate';
import { ALL_TARGETS, hasModule, hostLevels, makeTarget, neededByTests, parseTargets, runsLevel } from './targets';

describe('targets', () => {
  it('expands groups, keeps order and drops repeats', () => {
    expect(parseTargets('gfx1100,host,x86-64-v3').map(({ name }) => name)).toEqual([
      ...['gfx1100', 'x86-64-v2', 'x86-64-v3', 'x86-64-v3-vnni', 'x86-64-v4', 'x86-64-v4-vnni'],
    ]);
    expect(parseTargets('all').map(({ name }) => name)).toEqual(ALL_TARGETS);
    expect(parseTargets('release').every(({ name }) => ALL_TARGETS.includes(name))).toBe(true);
  });

  it('knows warp width and code object version', () => {
    expect(makeTarget('gfx90a')).toMatchObject({ wave: 64, codeObjectVersion: 4, isa: '90a' });
    expect(makeTarget('gfx12-generic')).toMatchObject({ wave: 32, codeObjectVersion: 6, isa: '1200' });
    expect(makeTarget('gfx1036')).toMatchObject({ wave: 32, codeObjectVersion: 4, isa: '1036' });
    expect(() => makeTarget('gfx')).toThrow('unknown target "gfx"');
  });

  it('picks the host level by features', () => {
    const v3 = ['avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'movbe'];
    const v4 = [...v3, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'];
    const levels = (...flags: string[]) => hostLevels(new Set(flags), 'x64');
    expect(levels('sse4_2')).toEqual(['x86-64-v2']);
    expect(levels(...v3)).toEqual(['x86-64-v3']);
    expect(levels(...v3, 'avx_vnni')).toEqual(['x86-64-v3', 'x86-64-v3-vnni']);
    expect(levels(...v4, 'avx_vnni')).toEqual(['x86-64-v4']);
    expect(levels(...v4, 'avx512_vnni')).toEqual(['x86-64-v4', 'x86-64-v4-vnni']);
  });

  it('knows which levels a processor runs', () => {
    const v3 = ['avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'movbe'];
    const v4 = [...v3, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl', 'avx512_vnni'];
    const run = (arch: 'x64' | 'arm64', ...flags: string[]) =>
      parseTargets('all').flatMap(({ kind, name }) =>
        kind === 'host' && runsLevel(name, new Set(flags), arch) ? [name.replace('x86-64-', '')] : [],
      );
    expect(run('x64')).toEqual(['v2']);
    expect(run('x64', ...v3)).toEqual(['v2', 'v3']);
    expect(run('x64', ...v3, 'avx_vnni')).toEqual(['v2', 'v3', 'v3-vnni']);
    expect(run('x64', ...v4)).toEqual(['v2', 'v3', 'v4', 'v4-vnni']);
    expect(run('x64', ...v4, 'avx_vnni')).toEqual(['v2', 'v3', 'v3-vnni', 'v4', 'v4-vnni']);
    expect(run('arm64', 'asimd')).toEqual(['aarch64']);
  });

  it('knows which objects tests run', () => {
    const v3 = ['avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'movbe'];
    const v4 = [...v3, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'];
    const needed = (name: string, ...flags: string[]) =>
      ['gemm', 'quantized', 'unary'].map((module) => neededByTests(name, module, new Set(flags), 'x64'));
    expect(needed('x86-64-v2', 'sse4_2')).toEqual(['object', 'object', 'object']);
    expect(needed('x86-64-v2', ...v3)).toEqual(['unoptimized', 'unoptimized', 'object']);
    expect(needed('x86-64-v3', ...v3)).toEqual(['object', 'object', 'object']);
    expect(needed('x86-64-v4', ...v3)).toEqual(['check', 'check', 'check']);
    expect(needed('x86-64-v3', ...v4)).toEqual(['unoptimized', 'object', 'object']);
    expect(needed('x86-64-v3-vnni', ...v4)).toEqual(['check', 'check', 'check']);
    expect(needed('x86-64-v4', ...v4)).toEqual(['object', 'object', 'object']);
    expect(neededByTests('aarch64', 'gemm', new Set(['asimd']), 'arm64')).toBe('object');
  });

  it('picks the levels of ARM by features', () => {
    const dotprod = ['fp', 'asimd', 'atomics', 'fphp', 'asimdhp', 'asimdrdm', 'asimddp'];
    const levels = (...flags: string[]) => hostLevels(new Set(flags), 'arm64');
    expect(levels('fp', 'asimd', 'asimddp')).toEqual(['aarch64']);
    expect(levels(...dotprod)).toEqual(['aarch64', 'aarch64-dotprod']);
    expect(levels(...dotprod, 'i8mm')).toEqual(['aarch64', 'aarch64-dotprod']);
    expect(levels(...dotprod, 'i8mm', 'bf16')).toEqual(['aarch64', 'aarch64-dotprod', 'aarch64-i8mm']);
  });

  it('knows which modules a target has', () => {
    expect(['quantized', 'gemm'].map((module) => hasModule(makeTarget('x86-64-v4-vnni'), module))).toEqual([
      true,
      false,
    ]);
    expect(['quantized', 'gemm'].map((module) => hasModule(makeTarget('x86-64-v4'), module))).toEqual([true, true]);
  });
});

describe('amalgamate', () => {
  it('inlines each header once and keeps line numbers', () => {
    const root = mkdtempSync(join(tmpdir(), 'x-amalgamate-'));
    try {
      const kernels = join(root, 'kernels');
      mkdirSync(join(kernels, 'include'), { recursive: true });
      mkdirSync(join(kernels, 'demo'));
      writeFileSync(join(kernels, 'include/x.h'), '#pragma once\nint x;\n');
      writeFileSync(join(kernels, 'demo/part.h'), '#pragma once\n#include "x.h"\nint part;\n');
      writeFileSync(join(kernels, 'demo.hip'), '#include "x.h"\n#include "demo/part.h"\nint demo;\n');
      expect(amalgamate(kernels, 'demo.hip').split('\n')).toEqual([
        '#line 1 "kernels/demo.hip"',
        '#line 1 "kernels/include/x.h"',
        '',
        'int x;',
        '#line 2 "kernels/demo.hip"',
        '#line 1 "kernels/demo/part.h"',
        '',
        '#line 3 "kernels/demo/part.h"',
        'int part;',
        '#line 3 "kernels/demo.hip"',
        'int demo;',
        '',
      ]);
      writeFileSync(join(kernels, 'demo.hip'), '#include "absent.h"\n');
      expect(() => amalgamate(kernels, 'demo.hip')).toThrow('kernels/demo.hip includes "absent.h"');
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });
});
