/**
 * Kernels compiled at run time: hiprtc on AMD, NVRTC on NVIDIA, clang for the host, with a disk cache. candle compiles
 * nothing at run time but what a user's custom op brings, and keeps none of it.
 *
 * The cache key covers source, headers, options, platform, target and compiler, so a changed header never meets an old
 * object. A file is written under a name of its own and renamed, so that processes may write the same one at once; a file
 * that does not match its recorded hash is compiled again and replaced. A cache that cannot be written is a warning.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { threadId } from 'node:worker_threads';
import { compileProgram, compilers, type ParamType, type Platform, targetOptions } from '@x/hip';
import { headerSource } from '@x/kernels';
import { debug } from './debug';
import { messageOf } from './errors';

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

/** What became of the sources that were asked for since the process started. */
export interface CompileCacheStats {
  /** Compiled or read before by this process. */
  memoryHits: number;
  /** Read from the cache directory. */
  diskHits: number;
  /** Not in the cache directory. */
  diskMisses: number;
  /** In the cache directory, but cut short or changed: compiled again and replaced. */
  damaged: number;
  /** Compiled: `diskMisses` and `damaged` less those that did not compile. */
  compiled: number;
  /** Compiled, but the cache directory could not be written. */
  writeFailures: number;
}

const counters: CompileCacheStats = {
  memoryHits: 0,
  diskHits: 0,
  diskMisses: 0,
  damaged: 0,
  compiled: 0,
  writeFailures: 0,
};
const compiledByKey = new Map<string, CompiledSource>();
/** Directories that were looked through for abandoned files, and those that could not be written. */
const cleaned = new Set<string>();
const warned = new Set<string>();

/** Temporary files older than this were left by a process that died while it wrote. */
const ABANDONED_MS = 60 * 60 * 1000;

/** Where compiled objects are kept: `X_CACHE_DIR`, else the user's cache directory. */
export function cacheDirectory(): string {
  return process.env.X_CACHE_DIR || join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'x-candle');
}

export function compileCacheStats(): CompileCacheStats {
  return { ...counters };
}

/** Compiles `request` or takes it from the cache; `wrap` turns a compiler failure into the caller's error. */
export function compileCached(
  request: RuntimeSource,
  wrap: (cause: unknown) => unknown = (cause) => cause,
): CompiledSource {
  const source = request.source.replace(/^[ \t]*#[ \t]*include[ \t]*"x\.h"[^\n]*$/m, () => headerSource());
  const options = request.options.defines ?? [];
  const { platform, arch } = request;
  const all = [...targetOptions(platform, arch), ...options];
  const key = sha256([platform, arch, compilerId(platform), ...all, source].join('\0'));
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
    counters.diskMisses++;
    return undefined;
  }
  const bytes = new Uint8Array(file.subarray(64));
  if (file.length <= 64 || sha256(bytes) !== file.toString('latin1', 0, 64)) {
    counters.damaged++;
    debug(1, () => `cache file ${key}.bin is damaged, compiling again`);
    return undefined;
  }
  counters.diskHits++;
  return { key, bytes };
}

/** The cache is a convenience: a directory that cannot be written costs time, not results. */
function store(key: string, bytes: Uint8Array): void {
  let directory = 'the cache directory';
  let temporary: string | undefined;
  try {
    directory = cacheDirectory();
    mkdirSync(directory, { recursive: true });
    removeAbandoned(directory);
    temporary = join(directory, `${key}.${process.pid}-${threadId}.tmp`);
    writeFileSync(temporary, Buffer.concat([Buffer.from(sha256(bytes), 'latin1'), bytes]));
    renameSync(temporary, join(directory, `${key}.bin`));
  } catch (error) {
    counters.writeFailures++;
    if (temporary) removeQuietly(temporary);
    if (warned.has(directory)) return;
    warned.add(directory);
    process.emitWarning(
      `compiled kernels cannot be kept in ${directory}: ${messageOf(error)}. ` +
        'Every process compiles them again; set X_CACHE_DIR to a directory that can be written',
      { type: 'CandleWarning', code: 'KERNEL_CACHE_UNWRITABLE' },
    );
  }
}

/** Removes what writers that died have left, once a process and directory. */
function removeAbandoned(directory: string): void {
  if (cleaned.has(directory)) return;
  cleaned.add(directory);
  for (const name of readdirSync(directory)) {
    if (!name.endsWith('.tmp')) continue;
    const path = join(directory, name);
    const age = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > ABANDONED_MS) removeQuietly(path);
  }
}

function removeQuietly(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch (error) {
    debug(1, () => `cannot remove ${path}: ${messageOf(error)}`);
  }
}

/** Forgets what this process has compiled and cleaned; the disk cache stays. */
export function clearCompiledSources(): void {
  compiledByKey.clear();
  cleaned.clear();
}
