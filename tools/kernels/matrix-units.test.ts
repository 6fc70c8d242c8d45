/**
 * Kernels on AMD's matrix units, computed on the host by the lane layouts of AMD's guides (simt/simt.h): products, those
 * with quantized weights and attention are right on every chip with WMMA or MFMA, though no such GPU runs the tests.
 */
import { describe, expect, it } from 'vitest';
import { runCases } from './simt/run';

describe('matrix units', () => {
  describe.each([
    ['gfx11', '__GFX11__', 32],
    ['gfx12', '__GFX12__', 32],
    ['gfx942', '__gfx942__', 64],
    ['gfx90a', '__gfx90a__', 64],
    ['gfx908', '__gfx908__', 64],
  ] as const)('of %s', (_name, macro, wave) => {
    it.each(['matrix-units', 'quantized'])('%s', { timeout: 120_000 }, (cases) => {
      const lines = runCases(cases, macro, wave);
      expect(lines.length).toBeGreaterThan(10);
      expect(lines.filter((line) => !line.endsWith(', ok'))).toEqual([]);
    });
  });
});
