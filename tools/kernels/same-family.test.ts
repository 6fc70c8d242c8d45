/**
 * gfx90a has the waves of gfx942, for which every module is built, and its instructions but for matrix units. What the preprocessor
 * makes different for it is compiled here, and judged as objects on disk are (quality.ts).
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type KernelInfo, parseCodeObject } from '@x/kernels';
import { afterAll, expect, it } from 'vitest';
import { amalgamate, listModules } from './amalgamate';
import { codeObjectVersionOf, compile, compilerFlags } from './compile';
import { disassembleFile, findDisassembler } from './disassemble';
import { resourceFailures } from './resources';
import { zeroAddends } from './roundings';
import { makeTarget } from './targets';
import { findCompiler } from './toolchain';

const KERNELS = join(import.meta.dirname, '../../kernels');
const directory = mkdtempSync(join(tmpdir(), 'x-same-family-'));
afterAll(() => rmSync(directory, { recursive: true }));

/** A file that clang makes of a module for a target. */
async function made(module: string, name: string, ...options: string[]): Promise<string> {
  const [source, output] = [join(directory, `${module}.hip`), join(directory, `${module}.${name}`)];
  writeFileSync(source, amalgamate(KERNELS, `${module}.hip`));
  const target = makeTarget(name);
  const flags = compilerFlags(target, codeObjectVersionOf(target, undefined));
  const { ok, messages } = await compile(findCompiler('amdgcn'), [...flags, ...options], source, output);
  expect(ok, messages).toBe(true);
  return output;
}

it.each(listModules(KERNELS))(
  '%s of gfx90a is that of gfx942, or spills nothing and rounds right too',
  { timeout: 300_000 },
  async (module) => {
    const text = async (name: string) => readFileSync(await made(module, name, '-E', '-P'), 'utf8');
    if ((await text('gfx90a')) === (await text('gfx942'))) return;
    const object = await made(module, 'gfx90a');
    const { kernels } = parseCodeObject(new Uint8Array(readFileSync(object)));
    const entries = Object.values<KernelInfo>(kernels).map((kernel) => ({ ...kernel, target: 'gfx90a', module }));
    expect(entries.length).toBeGreaterThan(0);
    expect(resourceFailures(entries)).toEqual([]);
    const objdump = findDisassembler();
    expect(objdump, 'llvm-objdump beside clang').toBeDefined();
    expect([...zeroAddends(disassembleFile(objdump!, object))]).toEqual([]);
  },
);
