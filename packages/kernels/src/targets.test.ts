import { describe, expect, it } from 'vitest';
import { cubinTargets, gfxName, resolveTarget } from './targets';

describe('resolveTarget', () => {
  it.each([
    ['gfx1031', ['gfx1031', 'gfx10-3-generic']],
    ['gfx1103', ['gfx1103', 'gfx11-generic']],
    ['gfx1151', ['gfx1151', 'gfx11-generic']],
    ['gfx1201', ['gfx1201', 'gfx12-generic']],
    ['gfx90c', ['gfx90c', 'gfx9-generic']],
    ['gfx906', ['gfx906', 'gfx9-generic']],
    ['gfx942:sramecc+:xnack-', ['gfx942', 'gfx9-4-generic']],
    ['gfx940', ['gfx940', 'gfx9-4-generic']],
    ['gfx950', ['gfx950', 'gfx9-4-generic']],
    ['sm_80', ['nvptx64']],
    ['sm_90', ['sm_90a', 'nvptx64']],
    ['sm_120', ['nvptx64']],
    ['x86-64-v4', ['x86-64-v4', 'x86-64-v3', 'x86-64-v2']],
    ['x86-64-v2', ['x86-64-v2']],
    ['x86-64-v4-vnni', ['x86-64-v4-vnni', 'x86-64-v4', 'x86-64-v3', 'x86-64-v2']],
    ['aarch64-i8mm', ['aarch64-i8mm', 'aarch64-dotprod', 'aarch64']],
    ['aarch64-dotprod', ['aarch64-dotprod', 'aarch64']],
    ['aarch64', ['aarch64']],
    ['x86-64-v3-vnni', ['x86-64-v3-vnni', 'x86-64-v3', 'x86-64-v2']],
  ])('%s runs %j', (arch, targets) => {
    expect(resolveTarget(arch)).toEqual(targets);
  });

  it('gives no family to the chips that none covers', () => {
    expect(resolveTarget('gfx90a:sramecc+:xnack-')).toEqual(['gfx90a']);
    expect(resolveTarget('gfx908')).toEqual(['gfx908']);
    expect(resolveTarget('gfx1010')).toEqual(['gfx1010']);
  });

  it('refuses NVIDIA GPUs below compute capability 8.0', () => {
    expect(resolveTarget('sm_75')).toEqual([]);
  });
});

describe('cubinTargets', () => {
  it.each([
    ['sm_80', ['sm_80-cubin']],
    ['sm_86', ['sm_86-cubin', 'sm_80-cubin']],
    ['sm_89', ['sm_89-cubin', 'sm_86-cubin', 'sm_80-cubin']],
    ['sm_90', ['sm_90a-cubin']],
    ['sm_103', ['sm_100-cubin']],
    ['sm_121', ['sm_120-cubin']],
    ['sm_87', []],
    ['sm_75', []],
    ['sm_110', []],
    ['gfx90a', []],
  ])('%s runs %j', (arch, targets) => {
    expect(cubinTargets(arch)).toEqual(targets);
  });
});

it('names AMD GPUs by the numbers of the kernel driver', () => {
  expect([90010, 90402, 100300, 110001, 110501, 120001].map(gfxName)).toEqual([
    ...['gfx90a', 'gfx942', 'gfx1030', 'gfx1101', 'gfx1151', 'gfx1201'],
  ]);
});
