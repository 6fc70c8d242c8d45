/** The compiler's command line for a target, and one compilation: to a temporary name, then renamed. */
import { spawn } from 'node:child_process';
import { rename, rm } from 'node:fs/promises';
import { hostLevelOptions } from '../../packages/hip/src/compile-host';
import type { Target } from './targets';
import { type Compiler, deviceLibraries } from './toolchain';

export const EXTENSION: Record<Target['kind'], string> = { amdgcn: 'hsaco', nvptx: 'ptx', host: 'so' };

const COMMON = ['-std=c++17', '-O3', '-ffp-contract=on', '-Wall', '-Wextra', '-Wno-pass-failed', '-Werror=return-type'];

const HOST_FLAGS = [
  ...['-x', 'c++', '-shared', '-fPIC', '-fvisibility=hidden', '-fno-exceptions', '-fno-rtti', '-fno-math-errno'],
  // Nothing is thrown through kernels.
  ...['-fno-asynchronous-unwind-tables', '-fno-unwind-tables'],
  // Without the build machine's libraries: what the object takes from libc and libm has no version then, and is found in
  // whichever the process has. Only libmvec is named, since nothing else loads it.
  ...['-nostdlib', '-fuse-ld=lld', '-Wl,--gc-sections', '-Wl,--strip-all', '-Wl,--as-needed', '-Wl,-z,noexecstack'],
];

/** Code object version of a target: its own, the one asked for, or null where the format has none. */
export function codeObjectVersionOf(target: Target, override: number | undefined): number | null {
  return target.kind === 'amdgcn' ? (override ?? target.codeObjectVersion) : null;
}

/** Arguments that select language, target and libraries; input and output are not among them. */
export function compilerFlags(target: Target, codeObjectVersion: number | null): string[] {
  const bitcode = bitcodeFlags(target, codeObjectVersion);
  switch (target.kind) {
    case 'amdgcn':
      return [
        ...['-x', 'hip', '--cuda-device-only', '--no-gpu-bundle-output', `--offload-arch=${target.name}`],
        ...['-nogpuinc', '-nogpulib', '-fuse-cuid=none', `-mcode-object-version=${codeObjectVersion}`],
        ...COMMON,
        ...bitcode,
      ];
    case 'nvptx':
      return [
        ...['-x', 'cuda', '--cuda-device-only', `--cuda-gpu-arch=${target.arch}`, '--cuda-feature=+ptx80'],
        ...['-nocudainc', '-nocudalib', '-S', '-fuse-cuid=none', '-Wno-unknown-cuda-version'],
        ...COMMON,
        ...bitcode,
      ];
    case 'host':
      return [`--target=${hostTriple(target.name)}`, ...HOST_FLAGS, ...hostLevelOptions(target.name), ...COMMON];
  }
}

function bitcodeFlags(target: Target, codeObjectVersion: number | null): string[] {
  return deviceLibraries(target, codeObjectVersion ?? 0).flatMap((path) =>
    ['-mlink-builtin-bitcode', path].flatMap((word) => ['-Xclang', word]),
  );
}

/**
 * The same in two steps, for AMD targets: from the source to intermediate code as text, of which nothing is optimised yet, and from
 * there to the object, which is that of one step byte for byte.
 */
export function stepFlags(target: Target, codeObjectVersion: number | null): { toCode: string[]; toObject: string[] } {
  const bitcode = bitcodeFlags(target, codeObjectVersion);
  const front = compilerFlags(target, codeObjectVersion).slice(0, -bitcode.length);
  const version = `-mcode-object-version=${codeObjectVersion}`;
  return {
    toCode: [...front, '-S', '-emit-llvm', '-Xclang', '-disable-llvm-passes'],
    toObject: [
      ...['-x', 'ir', '-target', 'amdgcn-amd-amdhsa', `-mcpu=${target.name}`, '-nogpulib', version],
      ...COMMON.filter((flag) => /^-[Of]/.test(flag)),
      ...bitcode,
    ],
  };
}

/** After other flags: every function is translated as it stands, in a tenth of the time, to an object with the same kernels. */
export const UNOPTIMIZED = ['-O0', '-Xclang', '-disable-llvm-passes'];

function hostTriple(name: string): string {
  return name.startsWith('aarch64') ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
}

/**
 * Of LLVM's programs, which free small blocks by the million, of which glibc's malloc keeps no more than seven of a size at hand by
 * itself. Their heap grows by many pages at once, and by huge ones where the system has these: a fifth of the page faults.
 */
export const ENVIRONMENT = {
  GLIBC_TUNABLES: 'glibc.malloc.tcache_count=65535:glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864',
  ...process.env,
};

export interface CompileResult {
  ok: boolean;
  /** What the compiler printed: warnings, or why it failed. */
  messages: string;
  seconds: number;
}

export async function compile(
  compiler: Compiler,
  flags: string[],
  source: string,
  output: string,
): Promise<CompileResult> {
  const temporary = `${output}.${process.pid}.tmp`;
  // Libraries come after the input: the linker takes from them what was asked for before.
  const libraries = flags.includes('-fveclib=libmvec') ? ['-lmvec'] : [];
  const started = performance.now();
  const { code, messages } = await run(compiler.path, [...flags, source, '-o', temporary, ...libraries]);
  if (code === 0) await rename(temporary, output);
  else await rm(temporary, { force: true });
  return { ok: code === 0, messages, seconds: (performance.now() - started) / 1000 };
}

/** What the compiler says of a source without making anything of it, in a fifteenth of the time. */
export async function check(compiler: Compiler, flags: string[], source: string): Promise<CompileResult> {
  const started = performance.now();
  const { code, messages } = await run(compiler.path, [
    ...flags,
    ...['-fsyntax-only', '-Wno-unused-command-line-argument'],
    source,
  ]);
  return { ok: code === 0, messages, seconds: (performance.now() - started) / 1000 };
}

function run(path: string, args: string[]): Promise<{ code: number; messages: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'], env: ENVIRONMENT });
    let messages = '';
    child.stdout.on('data', (text) => {
      messages += text;
    });
    child.stderr.on('data', (text) => {
      messages += text;
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code: code ?? 1, messages }));
  });
}
