/** The radix sort's kernels in workgroups on the host (simt/simt.h): waves of 32 and 64 lanes, which no GPU runs in tests. */
import { describe, expect, it } from 'vitest';
import { runCases } from './simt/run';

describe('radix sort', () => {
  it.each([
    ['gfx11', '__GFX11__', 32],
    ['gfx942', '__gfx942__', 64],
  ] as const)('of %s', { timeout: 120_000 }, (_name, macro, wave) => {
    const lines = runCases('sort', macro, wave);
    expect(lines.length).toBeGreaterThan(20);
    expect(lines.filter((line) => !line.endsWith(': ok'))).toEqual([]);
  });
});
