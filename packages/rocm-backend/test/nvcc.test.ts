/**
 * nvcc has the front end of NVRTC and needs no GPU, so where it is installed it shows that every module's source is what
 * NVRTC takes: it knows fewer of clang's builtins, and its vector types have no conversions.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ALL_MODULES, type KernelModule, kernelDirectory, parseCodeObject } from '@x/kernels';
import { describe, expect, it } from 'vitest';
import { parametersOn } from './own-kernels';

// It needs a host compiler to work at all.
const nvcc = [process.env.CUDA_PATH, process.env.CUDA_HOME, '/usr/local/cuda']
  .flatMap((root) => (root ? [join(root, 'bin/nvcc')] : []))
  .find((path) => existsSync(path) && spawnSync(path, ['--dryrun', '-x', 'cu', '-E', '/dev/null']).status === 0);

describe.runIf(nvcc)('nvcc', () => {
  it.each(ALL_MODULES as KernelModule[])(
    'compiles $name to the kernels of the object built ahead of time',
    (module) => {
      const directory = mkdtempSync(join(tmpdir(), 'candle-nvcc-'));
      try {
        const output = join(directory, 'module.ptx');
        // NVRTC's --device-as-default-execution-space; the optimiser is not what is tested here.
        const flags = ['-x', 'cu', '-std=c++17', '-arch=sm_90a', '--expt-relaxed-constexpr', '-Xcicc', '-O0', '-ptx'];
        const source = join(kernelDirectory(), 'sources', `${module.id}.hip`);
        const { status, stderr } = spawnSync(nvcc!, [...flags, source, '-o', output], { encoding: 'utf8' });
        expect(status, stderr).toBe(0);
        const compiled = parseCodeObject(readFileSync(output));
        // Names and parameters are those of every target, and NVIDIA's own.
        const expected = parametersOn('nvidia', module.codeObject('gfx1100')!.kernels);
        expect([compiled.format, compiled.arch]).toEqual(['ptx', 'sm_90a']);
        expect(Object.keys(compiled.kernels).sort()).toEqual(Object.keys(expected).sort());
        for (const [name, { params, warpSize }] of Object.entries(compiled.kernels)) {
          expect([name, params, warpSize]).toEqual([name, expected[name], 32]);
        }
      } finally {
        rmSync(directory, { recursive: true, force: true });
      }
    },
    300_000,
  );
});
