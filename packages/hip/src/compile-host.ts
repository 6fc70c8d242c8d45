/**
 * The host platform's compiler: clang++ as a child process, C++ in, a shared object out. The source keeps its own name in
 * the log through a #line directive.
 */

import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { type Clang, searchClang } from './clang.mjs';
import { HipError } from './errors';
import { clangPath } from './settings.mjs';

let taken: { environment: string; clang: Clang } | undefined;

/**
 * The clang++ that compiles for the host. Remembered once found, since asking every clang for its version takes a tenth of
 * a second each; one that is gone, or another environment, is a new search.
 */
function hostClang(name: string): Clang {
  const { PATH, ROCM_PATH } = process.env;
  const environment = JSON.stringify([clangPath(), PATH, ROCM_PATH]);
  if (taken?.environment === environment && existsSync(taken.clang.path)) return taken.clang;
  const clang = searchClang();
  if (clang.path === undefined) {
    throw new HipError('LIBRARY_NOT_FOUND', `'${name}' cannot be compiled for the host: ${clang.reason}`, {
      platform: 'host',
    });
  }
  taken = { environment, clang };
  return clang;
}

/** What is asked of clang beside the user's options, as for the objects that are shipped. */
export function hostOptions(arch: string): string[] {
  return ['-std=c++17', '-O3', '-ffp-contract=on', '-fno-math-errno', ...hostLevelOptions(arch)];
}

/**
 * ARM's levels as clang spells them. i8mm and bf16 are part of armv8.6-a, but processors of armv8.4-a have them too (Neoverse
 * V1), so that the level asks for no more of that version.
 */
const ARM_LEVELS: Readonly<Record<string, string>> = {
  aarch64: 'armv8-a',
  'aarch64-dotprod': 'armv8.2-a+dotprod+fp16',
  'aarch64-i8mm': 'armv8.2-a+dotprod+fp16+i8mm+bf16',
};

/**
 * The instructions that clang may use. Loops over log, sin and so on are vector code by libmvec; x86-64-v2 calls libm, for
 * clang would call functions of libmvec that need AVX2. Left alone, clang takes half of AVX-512's vectors.
 */
export function hostLevelOptions(arch: string): string[] {
  // Atomics as instructions, not as calls of the compiler's library, which kernels do not link.
  if (arch in ARM_LEVELS) return [`-march=${ARM_LEVELS[arch]}`, '-mno-outline-atomics'];
  const level = arch.replace(/-vnni$/, '');
  const options = [`-march=${level}`];
  if (level === 'x86-64-v4') options.push('-mprefer-vector-width=512');
  if (level !== arch) options.push(level === 'x86-64-v4' ? '-mavx512vnni' : '-mavxvnni');
  return usesVectorMath(arch) ? [...options, '-fveclib=libmvec'] : options;
}

function usesVectorMath(arch: string): boolean {
  return /^x86-64-v[34](-vnni)?$/.test(arch);
}

export function compileHost(source: string, name: string, arch: string, options: readonly string[]): Uint8Array {
  const clang = hostClang(name);
  const directory = privateDirectory(name);
  try {
    const input = join(directory, 'source.cpp');
    const output = join(directory, 'code.so');
    writeFileSync(input, `#line 1 ${JSON.stringify(name)}\n${source}`);
    const args = [
      '-x',
      'c++',
      '-fPIC',
      '-shared',
      ...hostOptions(arch),
      ...options,
      input,
      '-o',
      output,
      // The linker takes from libraries what was asked for before them.
      ...(usesVectorMath(arch) ? ['-lm', '-lmvec'] : ['-lm']),
    ];
    const result = spawnSync(clang.path, args, {
      encoding: 'utf8',
      timeout: 300_000,
      maxBuffer: 64 * 1024 * 1024,
      // Clang's own intermediate files too.
      env: { ...process.env, TMPDIR: directory },
    });
    if (result.status !== 0) {
      const how = result.error
        ? result.error.message
        : result.signal
          ? `signal ${result.signal}`
          : `exit ${result.status}`;
      throw new HipError(
        'COMPILE_FAILED',
        `${clang.path} of '${name}' for ${arch} failed (${how}):\n${result.stderr?.trim() || 'no output'}`,
        { platform: 'host', call: clang.path, status: result.status ?? undefined },
      );
    }
    return new Uint8Array(readFileSync(output));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** A new directory with a random name that this user alone can enter whatever the umask: what clang writes there is executed. */
function privateDirectory(name: string): string {
  const parent = resolve(tmpdir());
  try {
    const directory = mkdtempSync(join(parent, 'x-hip-'));
    chmodSync(directory, 0o700);
    return directory;
  } catch (cause) {
    throw new HipError(
      'COMPILE_FAILED',
      `'${name}' cannot be compiled for the host: no directory can be made in ${parent} (${(cause as Error).message}). ` +
        'Set TMPDIR to a directory that can be written',
      { platform: 'host', cause },
    );
  }
}
