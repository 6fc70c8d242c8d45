/**
 * Kernels compiled at run time: hiprtc on AMD, NVRTC on NVIDIA, clang for the host, with a disk cache. candle compiles
 * nothing at run time but what a user's custom op brings, and keeps none of it.
 *
 * The cache key covers source, headers, options, platform, target and compiler, so a changed header never meets an old
 * object. A file that does not match its recorded hash, or that others may have written, is compiled again and replaced.
 */
import { createHash } from 'node:crypto';
import { kinds } from '@x/core';
import { compileProgram, compilers, type ParamType, type Platform, targetOptions } from '@x/hip';
import { headerSource } from '@x/kernels';
import { debug } from './debug';
import { forgetCleaned, readCache, writeCache } from './kernel-cache';

export interface RuntimeSource {
  /** HIP C++; `#include "x.h"` brings in the kernel headers. */
  source: string;
  options: {
    /** Extra compiler options, such as `-DTILE=64`. */
    flags?: readonly string[];
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
  /** Not loaded because others may have written the cache directory or the file: compiled again. */
  refused: number;
  /** Compiled: `diskMisses`, `damaged` and `refused` less those that did not compile. */
  compiled: number;
  /** Compiled, but not kept: the cache directory cannot be written or is refused. */
  writeFailures: number;
}

const counters: CompileCacheStats = {
  memoryHits: 0,
  diskHits: 0,
  diskMisses: 0,
  damaged: 0,
  refused: 0,
  compiled: 0,
  writeFailures: 0,
};
const compiledByKey = new Map<string, CompiledSource>();

/** A copy of the counters of this process, over all devices. */
export function compileCacheStats(): CompileCacheStats {
  return { ...counters };
}

const OPTIONS = kinds.fields({
  flags: kinds.optional(
    kinds.kind(
      (value) => Array.isArray(value) && value.every((option) => typeof option === 'string'),
      "give an array of compiler options, as ['-DTILE=64']",
    ),
  ),
});

/** Compiles `request` or takes it from the cache; `wrap` turns a compiler failure into the caller's error. */
export function compileCached(
  request: RuntimeSource,
  wrap: (cause: unknown) => unknown = (cause) => cause,
): CompiledSource {
  kinds.check('compile', 'source', request.source, kinds.STRING);
  kinds.check('compile', 'options', request.options, OPTIONS);
  const source = request.source.replace(/^[ \t]*#[ \t]*include[ \t]*"x\.h"[^\n]*$/m, () => headerSource());
  const options = request.options.flags ?? [];
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
  if (!writeCache(key, bytes)) counters.writeFailures++;
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

function sha256(data: string): string {
  return createHash('sha256').update(data).digest('hex');
}

function readCached(key: string): CompiledSource | undefined {
  const found = readCache(key);
  if (found.state === 'hit') {
    counters.diskHits++;
    return { key, bytes: found.bytes };
  }
  counters[found.state === 'miss' ? 'diskMisses' : found.state]++;
  return undefined;
}

/** Forgets what this process has compiled and cleaned; the disk cache stays. */
export function clearCompiledSources(): void {
  compiledByKey.clear();
  forgetCleaned();
}
