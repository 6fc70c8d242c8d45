/** Which instructions of matrix units a chip's code has: the emulator shows that they are used rightly, not that they are. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GEMM, listTargets, readManifest } from '@x/kernels';
import { expect, it } from 'vitest';
import { amalgamate } from './amalgamate';
import { codeObjectVersionOf, compile, compilerFlags } from './compile';
import { disassemble, findDisassembler } from './disassemble';
import { makeTarget } from './targets';
import { findCompiler } from './toolchain';

it.each([
  ['gfx950', ['v_mfma_f32_16x16x32_bf16', 'v_mfma_f32_16x16x32_f16']],
  ['gfx942', ['v_mfma_f32_16x16x16_bf16', 'v_mfma_f32_16x16x16_f16']],
])('products of f16 and bf16 on %s are %j', { timeout: 120_000 }, async (name, instructions) => {
  const found = (await instructionsOf(name)).match(/\bv_mfma_\w+/g);
  expect([...new Set(found)].sort()).toEqual(instructions);
});

/** Of the object that is built for the target, if there is one; otherwise of one that is compiled here. */
async function instructionsOf(name: string): Promise<string> {
  const objdump = findDisassembler();
  const file = listTargets().includes(name) && readManifest(name)?.modules[GEMM.id]?.file;
  if (objdump && file) return disassemble(objdump, name, file);
  const directory = mkdtempSync(join(tmpdir(), 'x-matrix-units-'));
  try {
    const [source, output] = [join(directory, 'gemm.hip'), join(directory, 'gemm.s')];
    writeFileSync(source, amalgamate(join(import.meta.dirname, '../../kernels'), 'gemm.hip'));
    const target = makeTarget(name);
    const flags = compilerFlags(target, codeObjectVersionOf(target, undefined));
    const { ok, messages } = await compile(findCompiler('amdgcn'), [...flags, '-S'], source, output);
    expect(ok, messages).toBe(true);
    return readFileSync(output, 'utf8');
  } finally {
    rmSync(directory, { recursive: true });
  }
}
