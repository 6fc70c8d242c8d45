/** Builds and runs a program of this folder for one chip: kernels in a workgroup on the host (simt.h). */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findCompiler } from '../toolchain';

const FLAGS = ['-std=c++20', '-O1', '-Wno-builtin-macro-redefined', '-Wno-psabi', '-Wno-pass-failed'];

/** What it prints: a line a case, which ends in "ok" or says what is wrong. */
export function runCases(name: string, macro: string, wave: 32 | 64): string[] {
  const directory = mkdtempSync(join(tmpdir(), 'x-simt-'));
  try {
    const program = join(directory, name);
    const chip = [`-D${macro}`, `-DWAVE=${wave}`];
    const source = join(__dirname, `${name}.cc`);
    execFileSync(findCompiler('host').path, [...FLAGS, ...chip, source, '-o', program], { stdio: 'pipe' });
    return spawnSync(program, { encoding: 'utf8' }).stdout.trim().split('\n');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
