/**
 * Run-time compilation: hiprtc for rocm, NVRTC for cuda, clang for the host. None needs a device. Mirrors the way candle's
 * cuda backend compiles kernels that it does not ship (cudarc's nvrtc).
 */
import { addon } from './addon';
import { type ClangCandidate, searchClang } from './clang.mjs';
import { compileHost, hostOptions } from './compile-host';
import { HipError, invalidArgument } from './errors';
import { PLATFORMS, type Platform, platformNumber } from './platforms';

export interface CompileOptions {
  /** What the source is called in messages. Default `kernel.hip`. */
  name?: string;
  /** Target: `gfx1100` or `gfx90a:xnack-`; `sm_90`; for the host a level (`x86-64-v3-vnni`) or a clang -march value (`native`). */
  arch: string;
  /** Further compiler options, after ours (C++17, -O3). */
  options?: readonly string[];
}

export interface CompilerReport {
  readonly platform: Platform;
  readonly available: boolean;
  /** The library, or the path of the clang++ that is taken: the newest, of version 19 or later. */
  readonly library?: string;
  readonly version?: string;
  readonly searched: readonly string[];
  /** Why not, and what to do. */
  readonly reason?: string;
  /** Of the host: every clang++ that was found, and for those that are not taken the reason. */
  readonly candidates?: readonly ClangCandidate[];
}

/**
 * Compiles one source to what `loadModule` takes: HSACO, PTX text, or a shared object. Blocks until done. Throws
 * COMPILE_FAILED with the compiler's log, or LIBRARY_NOT_FOUND when there is no compiler.
 */
export function compileProgram(platform: Platform, source: string, options: CompileOptions): Uint8Array {
  const number = platformNumber(platform);
  const name = options.name ?? 'kernel.hip';
  if (source.includes('\0') || name.includes('\0')) {
    throw invalidArgument(`the source of '${name}' or its name contains a NUL character`, platform);
  }
  if (!/^[A-Za-z0-9_.:+-]+$/.test(options.arch ?? '')) {
    throw invalidArgument(`'${options.arch}' is not an arch. Use the device's properties.arch`, platform);
  }
  const more = options.options ?? [];
  if (platform === 'host') return compileHost(source, name, options.arch, more);
  return addon().compile(number, source, name, [...targetOptions(platform, options.arch), ...more]);
}

/** The options that {@link compileProgram} gives the compiler for a target, before the caller's own. */
export function targetOptions(platform: Platform, arch: string): string[] {
  if (platform === 'host') return hostOptions(arch);
  if (platform === 'rocm') return [`--gpu-architecture=${arch}`, '-std=c++17', '-O3'];
  // NVRTC takes a function without an attribute for a host function, and constexpr helpers have none. What only compute
  // capability 9.0 has is in the features of 9.0a.
  return [
    `--gpu-architecture=${arch.replace(/^sm_/, 'compute_').replace(/_90$/, '_90a')}`,
    '--std=c++17',
    '--device-as-default-execution-space',
  ];
}

/** Which run-time compilers this machine has. Never throws. */
export function compilers(): CompilerReport[] {
  return PLATFORMS.map((platform) => {
    if (platform === 'host') {
      const { path, version, searched, candidates, reason } = searchClang();
      if (path === undefined) return { platform, available: false, searched, candidates, reason };
      return { platform, available: true, library: path, version, searched, candidates };
    }
    try {
      const found = addon().compiler(platformNumber(platform));
      return {
        platform,
        available: found.available,
        searched: found.searched,
        ...(found.available ? { library: found.library, version: found.version } : { reason: found.reason }),
      };
    } catch (error) {
      const reason = error instanceof HipError ? error.message : String(error);
      return { platform, available: false, searched: [], reason };
    }
  });
}
