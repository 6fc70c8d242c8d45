/**
 * Kernels on AMD's matrix units, computed on the host by the lane layouts of AMD's guides (simt/simt.h): products, those
 * with quantized weights and attention are right on every chip with WMMA or MFMA, though no such GPU runs the tests.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findCompiler } from './toolchain';

const FLAGS = ['-std=c++20', '-O1', '-Wno-builtin-macro-redefined', '-Wno-psabi', '-Wno-pass-failed', '-lpthread'];

describe('matrix units', () => {
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'x-matrix-units-'));
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  describe.each([
    ['gfx11', '__GFX11__', 32],
    ['gfx12', '__GFX12__', 32],
    ['gfx942', '__gfx942__', 64],
    ['gfx90a', '__gfx90a__', 64],
    ['gfx908', '__gfx908__', 64],
  ])('of %s', (name, macro, wave) => {
    it.each(['matrix-units', 'quantized'])('%s', { timeout: 120_000 }, (cases) => {
      const program = join(directory, `${cases}-${name}`);
      const source = join(__dirname, `simt/${cases}.cc`);
      const chip = [`-D${macro}`, `-DWAVE=${wave}`];
      execFileSync(findCompiler('host').path, [...FLAGS, ...chip, source, '-o', program], { stdio: 'pipe' });
      const lines = spawnSync(program, { encoding: 'utf8' }).stdout.trim().split('\n');
      expect(lines.length).toBeGreaterThan(10);
      expect(lines.filter((line) => !line.endsWith(', ok'))).toEqual([]);
    });
  });
});
