/**
 * gfx90a has the waves of gfx942, for which every module is built, and its instructions but for matrix units. The kernels whose code
 * is another for it before anything is optimised are compiled here, and judged as objects on disk are (quality.ts).
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type KernelInfo, parseCodeObject } from '@x/kernels';
import { afterAll, expect, it } from 'vitest';
import { amalgamate, listModules } from './amalgamate';
import { codeObjectVersionOf, compile, compilerFlags, stepFlags } from './compile';
import { differingKernels } from './differing';
import { disassembleFile, findDisassembler } from './disassemble';
import { resourceFailures } from './resources';
import { zeroAddends } from './roundings';
import { makeTarget } from './targets';
import { findCompiler } from './toolchain';

const KERNELS = join(import.meta.dirname, '../../kernels');
const directory = mkdtempSync(join(tmpdir(), 'x-same-family-'));
afterAll(() => rmSync(directory, { recursive: true }));

/** A file that clang makes of another. */
async function made(source: string, output: string, flags: string[]): Promise<string> {
  const { ok, messages } = await compile(findCompiler('amdgcn'), flags, source, output);
  expect(ok, messages).toBe(true);
  return output;
}

/** The text that a step of clang gives of a module for a target. */
async function textOf(module: string, name: string, step: 'preprocessed' | 'code'): Promise<string> {
  const source = join(directory, `${module}.hip`);
  writeFileSync(source, amalgamate(KERNELS, `${module}.hip`));
  const target = makeTarget(name);
  const version = codeObjectVersionOf(target, undefined);
  const flags = step === 'code' ? stepFlags(target, version).toCode : [...compilerFlags(target, version), '-E', '-P'];
  return readFileSync(await made(source, join(directory, `${module}.${name}.${step}`), flags), 'utf8');
}

it.each(listModules(KERNELS))(
  'kernels of %s for gfx90a are those of gfx942, or spill nothing and round right too',
  { timeout: 300_000 },
  async (module) => {
    const both = async (step: 'preprocessed' | 'code') =>
      [await textOf(module, 'gfx90a', step), await textOf(module, 'gfx942', step)] as const;
    const [before, other] = await both('preprocessed');
    if (before === other) return;
    const differing = differingKernels(...(await both('code')));
    console.log(`${module}: ${differing.kernels.length} kernels of gfx90a are not those of gfx942`);
    if (differing.kernels.length === 0) return;
    const code = join(directory, `${module}.ll`);
    writeFileSync(code, differing.text);
    const target = makeTarget('gfx90a');
    const { toObject } = stepFlags(target, codeObjectVersionOf(target, undefined));
    const object = await made(code, join(directory, `${module}.hsaco`), toObject);
    const { kernels } = parseCodeObject(new Uint8Array(readFileSync(object)));
    const entries = Object.values<KernelInfo>(kernels).map((kernel) => ({ ...kernel, target: 'gfx90a', module }));
    expect(entries.map(({ name }) => name).sort()).toEqual([...differing.kernels].sort());
    expect(resourceFailures(entries)).toEqual([]);
    const objdump = findDisassembler();
    expect(objdump, 'llvm-objdump beside clang').toBeDefined();
    expect([...zeroAddends(disassembleFile(objdump!, object))]).toEqual([]);
  },
);

it('finds the kernels that differ, by what they call, and leaves out the others', () => {
  const code = (cpu: string, inner: string, loops: string) => `
%struct.two = type { i32, i32 }
@x_sig_a = constant [1 x i8] zeroinitializer
@llvm.compiler.used = appending global [1 x ptr] [ptr @x_sig_a], section "llvm.metadata"
define amdgpu_kernel void @a() #0 {
  call void @outer(), !note ${loops}
}
define amdgpu_kernel void @b() #0 {
  ret void
}
define linkonce_odr void @outer() #1 {
  call void @inner()
}
define linkonce_odr void @inner() #1 {
  ${inner}
}
declare void @far()
attributes #0 = { convergent "target-cpu"="${cpu}" "target-features"="+dpp" }
attributes #1 = { nounwind }
!0 = distinct !{!0, !1}
!1 = !{!"once"}
!2 = distinct !{!2, !3}
!3 = !{!"twice"}
`;
  const text = code('gfx90a', 'ret void', '!0');
  expect(differingKernels(text, code('gfx942', 'ret void', '!0')).kernels).toEqual([]);
  expect(differingKernels(text, code('gfx942', 'ret void', '!2')).kernels).toEqual(['a']);
  const { kernels, text: left } = differingKernels(text, code('gfx942', 'unreachable', '!0'));
  expect(kernels).toEqual(['a']);
  for (const name of ['@a()', '@outer()', '@inner()', '@x_sig_a', '%struct.two', '@far()', '#1 =', '!3 ='])
    expect(left).toContain(name);
  expect(left).not.toContain('@b()');
});
