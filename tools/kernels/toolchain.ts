/**
 * Finds what compiles kernels: clang 19 or newer with lld, AMD's device libraries, NVIDIA's libdevice. ROCm's own clang
 * and libraries come first for AMD targets (ROCM_PATH, /opt/rocm); X_CLANG names a compiler for every target.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Clang, searchClang, toolOf } from '../../packages/hip/src/clang.mjs';
import type { Target } from './targets';

export type Compiler = Clang;

function rocmRoots(): string[] {
  const roots = [process.env.ROCM_PATH, '/opt/rocm'].filter((root): root is string => !!root && existsSync(root));
  return [...new Set(roots)];
}

const compilers = new Map<string, Compiler>();

/** The compiler of a target's kind. Throws with the package to install. */
export function findCompiler(kind: Target['kind']): Compiler {
  const known = compilers.get(kind);
  if (known !== undefined) return known;
  const found = searchCompiler(kind);
  compilers.set(kind, found);
  return found;
}

function searchCompiler(kind: Target['kind']): Compiler {
  const clang = searchClang({ rocmFirst: kind === 'amdgcn' });
  if (clang.path === undefined) throw new Error(`${clang.reason}.`);
  if (kind !== 'nvptx' && toolOf(clang, 'ld.lld') === undefined)
    throw new Error(`${clang.path} has no ld.lld of its version beside it: apt install lld-${clang.major}.`);
  return clang;
}

/** The bitcode libraries that a target links, in order. Throws with the package to install. */
export function deviceLibraries(target: Target, codeObjectVersion: number): string[] {
  if (target.kind === 'nvptx') return [libdevice()];
  if (target.kind === 'host') return [];
  const directory = amdBitcode();
  const library = (name: string) => join(directory, `${name}.bc`);
  const abi = [`${codeObjectVersion}00`, '600', '500', '400'].map((v) => `oclc_abi_version_${v}`);
  const names = [
    'ocml',
    'ockl',
    abi.find((name) => existsSync(library(name))) ?? abi.at(-1)!,
    'oclc_correctly_rounded_sqrt_on',
    'oclc_daz_opt_off',
    'oclc_finite_only_off',
    'oclc_unsafe_math_off',
    `oclc_wavefrontsize64_${target.wave === 64 ? 'on' : 'off'}`,
    `oclc_isa_version_${nearestIsa(directory, target.isa)}`,
  ];
  const paths = names.map(library);
  const missing = paths.find((path) => !existsSync(path));
  // Device libraries of ROCm 6.2 and later no longer have the sqrt switch: leaving it out is right there.
  if (missing === library('oclc_correctly_rounded_sqrt_on')) return paths.filter((path) => path !== missing);
  if (missing !== undefined) throw new Error(`${missing} is missing: apt install --reinstall rocm-device-libs.`);
  return paths;
}

function amdBitcode(): string {
  const directories = [
    ...rocmRoots().map((root) => join(root, 'amdgcn/bitcode')),
    ...rocmRoots().flatMap((root) => clangResources(join(root, 'lib/llvm/lib/clang'))),
    '/usr/lib/x86_64-linux-gnu/amdgcn/bitcode',
    '/usr/lib/aarch64-linux-gnu/amdgcn/bitcode',
    '/usr/lib/amdgcn/bitcode',
    '/usr/amdgcn/bitcode',
  ];
  const found = directories.find((directory) => existsSync(join(directory, 'ocml.bc')));
  if (found === undefined)
    throw new Error('no AMD device libraries (ocml.bc): apt install rocm-device-libs, or set ROCM_PATH.');
  return found;
}

function clangResources(clang: string): string[] {
  return existsSync(clang) ? readdirSync(clang).map((version) => join(clang, version, 'lib/amdgcn/bitcode')) : [];
}

/**
 * The control file for an ISA, or the newest older one when the libraries predate the chip: ocml asks only whether
 * instructions such as fast fma exist, and newer chips kept them.
 */
function nearestIsa(directory: string, isa: string): string {
  const known = readdirSync(directory).flatMap((file) => /^oclc_isa_version_(\w+)\.bc$/.exec(file)?.[1] ?? []);
  const order = (name: string) => Number.parseInt(name, 16) + (name.length > 3 ? 0x10000 : 0);
  const older = known.filter((name) => order(name) <= order(isa)).sort((a, b) => order(b) - order(a));
  if (older[0] === undefined) throw new Error(`${directory} has no oclc_isa_version file for gfx${isa} or older.`);
  return older[0];
}

function libdevice(): string {
  const cuda = existsSync('/usr/local')
    ? readdirSync('/usr/local')
        .filter((name) => name.startsWith('cuda'))
        .sort()
        .map((name) => join('/usr/local', name))
    : [];
  const roots = [process.env.CUDA_PATH, process.env.CUDA_HOME, ...cuda, '/opt/cuda'].filter(
    (root): root is string => !!root,
  );
  const paths = [
    ...roots.map((root) => join(root, 'nvvm/libdevice/libdevice.10.bc')),
    '/usr/lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc',
    '/usr/lib/cuda/nvvm/libdevice/libdevice.10.bc',
  ];
  const found = paths.find((path) => existsSync(path));
  if (found === undefined) throw new Error('no libdevice.10.bc: apt install nvidia-cuda-toolkit, or set CUDA_PATH.');
  return found;
}
