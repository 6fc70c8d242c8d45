/**
 * NVRTC has few of clang's and gcc's built-in functions, and nvcc, whose front end it shares, has more because of its host
 * compiler: so what NVRTC would see of every module is searched for names that it does not know.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { amalgamate } from './amalgamate';
import { findCompiler } from './toolchain';

const KERNELS = join(import.meta.dirname, '../../kernels');
const KNOWN = ['__builtin_memcpy'];
/** Its macros, and none of clang's. */
const FLAGS = ['-E', '-P', '-x', 'c++', '-std=c++17', '-U__clang__', '-D__CUDACC_RTC__', '-D__CUDA_ARCH__=800', '-'];

describe('NVRTC', () => {
  it.each(readdirSync(KERNELS).filter((name) => name.endsWith('.hip')))('knows every built-in of %s', (file) => {
    const options = { input: amalgamate(KERNELS, file), encoding: 'utf8', maxBuffer: 2 ** 28 } as const;
    const text = execFileSync(findCompiler('host').path, FLAGS, options);
    expect(text).toContain('__launch_bounds__');
    const names = new Set(text.match(/\b__builtin_\w+/g));
    expect([...names].filter((name) => !KNOWN.includes(name))).toEqual([]);
  });
});
