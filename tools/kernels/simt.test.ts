/**
 * GPU code on the host (simt/), a thread a lane, though no such GPU runs the tests. AMD's matrix units are computed by the
 * lane layouts of its guides: products, those with quantized weights and attention are right on every chip with WMMA or MFMA.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findCompiler } from './toolchain';

const FLAGS = ['-std=c++20', '-O1', '-Wno-builtin-macro-redefined', '-Wno-psabi', '-Wno-pass-failed', '-lpthread'];

describe('GPU code on the host', () => {
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'x-simt-'));
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  /** The lines that simt/{cases}.cc prints, one a case. */
  function linesOf(cases: string, ...flags: string[]): string[] {
    const program = join(directory, [cases, ...flags].join(''));
    const source = join(__dirname, `simt/${cases}.cc`);
    execFileSync(findCompiler('host').path, [...FLAGS, ...flags, source, '-o', program], { stdio: 'pipe' });
    return spawnSync(program, { encoding: 'utf8' }).stdout.trim().split('\n');
  }

  describe.each([
    ['gfx11', '__GFX11__', 32],
    ['gfx12', '__GFX12__', 32],
    ['gfx942', '__gfx942__', 64],
    ['gfx90a', '__gfx90a__', 64],
    ['gfx908', '__gfx908__', 64],
  ])('matrix units of %s', (_name, macro, wave) => {
    it.each(['matrix-units', 'quantized'])('%s', { timeout: 120_000 }, (cases) => {
      const lines = linesOf(cases, `-D${macro}`, `-DWAVE=${wave}`);
      expect(lines.length).toBeGreaterThan(10);
      expect(lines.filter((line) => !line.endsWith(', ok'))).toEqual([]);
    });
  });

  it('blocks at even addresses are loaded without reading beyond them', { timeout: 120_000 }, () => {
    const lines = linesOf('loads', '-fsanitize=alignment', '-fsanitize-trap=alignment');
    expect(lines).toEqual(['q4_0, ok', 'q5_0, ok', 'q8_0, ok']);
  });
});
