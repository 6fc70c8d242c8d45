/** Disassembly of the AMD code objects on disk. */
import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kernelDirectory } from '@x/kernels';
import { toolOf } from '../../packages/hip/src/clang.mjs';
import { findCompiler } from './toolchain';

/** llvm-objdump of the clang that compiles the kernels, since an older one does not know the newest targets; or undefined. */
export function findDisassembler(): string | undefined {
  try {
    return toolOf(findCompiler('amdgcn'), 'llvm-objdump');
  } catch {
    return undefined;
  }
}

/** What `objdump` prints of a module's code object, `file` as the target's manifest names it. */
export function disassemble(objdump: string, target: string, file: string): string {
  return disassembleFile(objdump, join(kernelDirectory(), 'objects', target, file));
}

/** The same of a code object anywhere. */
export function disassembleFile(objdump: string, path: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'x-disassembly-'));
  try {
    // It writes each instruction by itself, which takes twice as long into a pipe as into a file.
    const text = join(directory, 'text');
    const out = openSync(text, 'w');
    const { status, stderr } = spawnSync(objdump, ['-d', '--no-show-raw-insn', path], {
      encoding: 'utf8',
      stdio: ['ignore', out, 'pipe'],
    });
    closeSync(out);
    if (status !== 0) throw new Error(`${objdump} ${path}: exit status ${status}. ${stderr}`);
    return readFileSync(text, 'latin1');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
