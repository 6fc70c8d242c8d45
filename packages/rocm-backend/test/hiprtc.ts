/**
 * hiprtc needs no GPU, so what it makes of every shipped module is checked wherever AMD's library is installed: the
 * kernels, their parameters and their warp size are those of the code object built ahead of time, and none spills.
 */
import { compileProgram, compilers } from '@x/hip';
import { type KernelInfo, type KernelModule, parseCodeObject } from '@x/kernels';
import { describe, expect, it } from 'vitest';
import { type Kind, parametersOn } from './own-kernels';

const available = compilers().some((compiler) => compiler.platform === 'rocm' && compiler.available);

/** One test a module; each prints the kernels that keep something in scratch memory. @param options the compiler's, beside ours */
export function hiprtcSuite(
  arch: string,
  kind: Kind,
  modules: readonly KernelModule[],
  options: readonly string[] = [],
): void {
  const wave = kind === 'cdna' ? 64 : 32;
  describe.runIf(available)(`hiprtc for ${arch}`, () => {
    it.each(modules as KernelModule[])(
      'compiles $name to the kernels of the object built ahead of time',
      (module) => {
        const name = `${module.id}.hip`;
        const compiled = parseCodeObject(compileProgram('rocm', module.source, { arch, name, options }));
        // Names and parameters are those of every target, and what this one has of its own.
        const expected = parametersOn(kind, module.codeObject('gfx1100')!.kernels);
        expect(compiled.format).toBe('hsaco');
        expect(compiled.arch).toBe(arch);
        expect(Object.keys(compiled.kernels).sort()).toEqual(Object.keys(expected).sort());
        for (const [kernel, { params, warpSize }] of Object.entries(compiled.kernels)) {
          expect([kernel, params, warpSize]).toEqual([kernel, expected[kernel], wave]);
        }
        const kernels = Object.values(compiled.kernels);
        report(arch, module, kernels);
        expect(kernels.filter(({ vgprSpills }) => vgprSpills !== 0).map(({ name }) => name)).toEqual([]);
      },
      300_000,
    );
  });
}

function report(arch: string, module: KernelModule, kernels: readonly KernelInfo[]): void {
  const registers = Math.max(...kernels.map(({ vgprs }) => vgprs ?? 0));
  const scratch = kernels.filter(({ scratchBytes }) => scratchBytes).map((k) => `${k.name} ${k.scratchBytes} bytes`);
  const scalar = kernels.filter(({ sgprSpills }) => sgprSpills).map((k) => `${k.name} ${k.sgprSpills}`);
  console.log(
    `${module.name} by hiprtc for ${arch}: ${kernels.length} kernels, up to ${registers} VGPRs, ` +
      `scratch: ${scratch.join(', ') || 'none'}, SGPR spills: ${scalar.join(', ') || 'none'}`,
  );
}
