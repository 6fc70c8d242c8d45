/**
 * Kernels compiled at run time: hiprtc on AMD, NVRTC on NVIDIA, clang for the host, with a disk cache.
 *
 * The cache key covers source, headers, options, platform and target, so a changed header never meets an old object.
 * Files are written under a temporary name and renamed; a file that does not match its recorded hash is compiled again.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { compileProgram, compilers, type ParamType, type Platform } from '@x/hip';
import { headerSource } from '@x/kernels';
import { debug } from './debug';

export interface RuntimeSource {
  /** HIP C++; `#include "x.h"` brings in the kernel headers. */
  source: string;
  options: {
    /** Extra compiler options, such as `-DTILE=64`. */
    defines?: readonly string[];
    /** Parameter types by kernel name, for kernels that do not use the `KERNEL` macro. */
    params?: Record<string, readonly ParamType[]>;
  };
  platform: Platform;
  arch: string;
}

export interface CompiledSource {
  key: string;
  bytes: Uint8Array;
}

const counters = { memoryHits: 0, diskHits: 0, compiled: 0 };
const compiledByKey = new Map<string, CompiledSource>();

/** Where compiled objects are kept: `X_CACHE_DIR`, else the user's cache directory. */
export function cacheDirectory(): string {
  return process.env.X_CACHE_DIR ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'x-candle');
}

/** How often sources were found in memory, found on disk, or compiled, since the process started. */
export function compileCacheStats(): Readonly<typeof counters> {
  return { ...counters };
}

/** Compiles `request` or takes it from the cache; `wrap` turns a compiler failure into the caller's error. */
export function compileCached(
  request: RuntimeSource,
  wrap: (cause: unknown) => unknown = (cause) => cause,
): CompiledSource {
  const source = request.source.replace(/^[ \t]*#[ \t]*include[ \t]*"x\.h"[^\n]*$/m, () => headerSource());
  const options = request.options.defines ?? [];
  const key = sha256([request.platform, request.arch, compilerId(request.platform), ...options, source].join('\0'));
  const known = compiledByKey.get(key);
  if (known) {
    counters.memoryHits++;
    return known;
  }
  const compiled = readCached(key) ?? compile(key, source, options, request, wrap);
  compiledByKey.set(key, compiled);
  return compiled;
}

function compile(
  key: string,
  source: string,
  options: readonly string[],
  request: RuntimeSource,
  wrap: (cause: unknown) => unknown,
): CompiledSource {
  let bytes: Uint8Array;
  const started = performance.now();
  try {
    bytes = compileProgram(request.platform, source, {
      arch: request.arch,
      options: [...options],
      name: `${key.slice(0, 12)}.hip`,
    });
  } catch (cause) {
    throw wrap(cause);
  }
  counters.compiled++;
  debug(2, () => `compiled ${key.slice(0, 12)} for ${request.arch} in ${(performance.now() - started).toFixed(0)} ms`);
  store(key, bytes);
  return { key, bytes };
}

const compilerIds = new Map<Platform, string>();

function compilerId(platform: Platform): string {
  let id = compilerIds.get(platform);
  if (id === undefined) {
    id = compilers().find((compiler) => compiler.platform === platform)?.version ?? 'none';
    compilerIds.set(platform, id);
  }
  return id;
}

function sha256(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Cache files are the 64 hex digits of the object's hash followed by the object. */
function readCached(key: string): CompiledSource | undefined {
  let file: Buffer;
  try {
    file = readFileSync(join(cacheDirectory(), `${key}.bin`));
  } catch {
    return undefined;
  }
  const bytes = new Uint8Array(file.subarray(64));
  if (file.length <= 64 || sha256(bytes) !== file.toString('latin1', 0, 64)) {
    debug(1, () => `cache file ${key}.bin is damaged, compiling again`);
    return undefined;
  }
  counters.diskHits++;
  return { key, bytes };
}

/** The cache is a convenience: a directory that cannot be written costs time, not results. */
function store(key: string, bytes: Uint8Array): void {
  const directory = cacheDirectory();
  const temporary = join(directory, `${key}.${process.pid}.tmp`);
  try {
    mkdirSync(directory, { recursive: true });
    writeFileSync(temporary, Buffer.concat([Buffer.from(sha256(bytes), 'latin1'), bytes]));
    renameSync(temporary, join(directory, `${key}.bin`));
  } catch (error) {
    debug(
      1,
      () =>
        `cannot write the kernel cache in ${directory}: ${(error as Error).message}. Set X_CACHE_DIR to a writable directory`,
    );
    rmSync(temporary, { force: true });
  }
}

/** Forgets what this process has compiled; the disk cache stays. */
export function clearCompiledSources(): void {
  compiledByKey.clear();
}
