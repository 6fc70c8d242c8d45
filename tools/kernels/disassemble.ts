/** Disassembly of the AMD code objects on disk. */
import { spawnSync } from 'node:child_process';
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
  const path = join(kernelDirectory(), 'objects', target, file);
  const options = { encoding: 'utf8', maxBuffer: 2 ** 30 } as const;
  const { status, stdout, stderr } = spawnSync(objdump, ['-d', '--no-show-raw-insn', path], options);
  if (status !== 0) throw new Error(`${objdump} ${path}: exit status ${status}. ${stderr}`);
  return stdout;
}
