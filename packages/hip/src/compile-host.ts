/**
 * The host platform's compiler: clang++ as a child process, C++ in, a shared object out. The source keeps its own name in
 * the log through a #line directive.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HipError } from './errors';

const NAMES = ['clang++', 'clang++-22', 'clang++-21', 'clang++-20', 'clang++-19'];

export interface ClangSearch {
  readonly path?: string;
  readonly version?: string;
  readonly searched: readonly string[];
}

/** The first clang++ that runs: X_CLANG alone when set, else the names above on PATH. */
export function findClang(): ClangSearch {
  const candidates = process.env.X_CLANG ? [process.env.X_CLANG] : NAMES;
  const searched: string[] = [];
  for (const candidate of candidates) {
    searched.push(candidate);
    const result = spawnSync(candidate, ['--version'], { encoding: 'utf8', timeout: 30_000 });
    if (result.status === 0) return { path: candidate, version: result.stdout.split('\n')[0], searched };
  }
  return { searched };
}

/** What is asked of clang beside the user's options, as for the objects that are shipped. */
export function hostOptions(arch: string): string[] {
  return ['-std=c++17', '-O3', '-ffp-contract=on', '-fno-math-errno', ...hostLevelOptions(arch)];
}

/**
 * The instructions that clang may use. Loops over log, sin and so on are vector code by libmvec; x86-64-v2 calls libm, for
 * clang would call functions of libmvec that need AVX2. Left alone, clang takes half of AVX-512's vectors.
 */
export function hostLevelOptions(arch: string): string[] {
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
  const clang = findClang();
  if (!clang.path) {
    throw new HipError(
      'LIBRARY_NOT_FOUND',
      `no clang++ to compile '${name}' with (tried ${clang.searched.join(', ')}). Install clang 19 or later, or set X_CLANG`,
      { platform: 'host' },
    );
  }
  const directory = mkdtempSync(join(tmpdir(), 'x-hip-'));
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
    const result = spawnSync(clang.path, args, { encoding: 'utf8', timeout: 300_000, maxBuffer: 64 * 1024 * 1024 });
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
