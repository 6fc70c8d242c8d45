import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { findCompiler } from '../kernels/toolchain';

const FLAGS = ['-std=c++20', '-O1', '-w', '-fsanitize=alignment', '-fsanitize-trap=alignment', '-DEMULATED_WAVE=32'];

it('blocks at even addresses are loaded without reading beyond them', { timeout: 120_000 }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'x-loads-'));
  try {
    const program = join(directory, 'loads');
    const paths = [
      '-I',
      join(import.meta.dirname, '../../kernels/include'),
      join(import.meta.dirname, 'loads.cc'),
      '-o',
      program,
    ];
    execFileSync(findCompiler('host').path, [...FLAGS, ...paths], { stdio: 'pipe' });
    const { stdout } = spawnSync(program, { encoding: 'utf8' });
    expect(stdout.trim().split('\n')).toEqual(['q4_0, ok', 'q5_0, ok', 'q8_0, ok']);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
