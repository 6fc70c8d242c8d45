/**
 * Kernel modules as data: the amalgamated source of each and its code objects on disk, read when asked for. The
 * directory is the package's own; X_KERNEL_DIR names another with the same layout (objects/<target>/, sources/).
 */

import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KernelError } from './errors';
import { namedDirectory } from './settings';
import { resolveTarget } from './targets';
import type { KernelInfo, Manifest } from './types';

/** A compiled module, ready for a driver's module loader. */
export interface CodeObject {
  bytes: Uint8Array;
  target: string;
  kernels: Record<string, KernelInfo>;
}

/** The directory with `objects/` and `sources/`. */
export function kernelDirectory(): string {
  return namedDirectory() ?? fileURLToPath(new URL('..', import.meta.url));
}

/** Targets that have code objects on disk, in name order. */
export function listTargets(): string[] {
  const objects = join(kernelDirectory(), 'objects');
  if (!existsSync(objects)) return [];
  return readdirSync(objects)
    .filter((target) => existsSync(join(objects, target, 'manifest.json')))
    .sort();
}

/**
 * The manifest of one target, or undefined when nothing is built for it.
 *
 * @throws KernelError KERNEL_MANIFEST_INVALID
 */
export function readManifest(target: string): Manifest | undefined {
  const path = join(kernelDirectory(), 'objects', target, 'manifest.json');
  if (!existsSync(path)) return undefined;
  try {
    const manifest = JSON.parse(readFileSync(path, 'utf8')) as Manifest;
    if (manifest.version === 1 && manifest.target === target && typeof manifest.modules === 'object') return manifest;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new KernelError(
    'KERNEL_MANIFEST_INVALID',
    `${path} is no manifest of version 1 for ${target}. ${reinstall(`--targets ${target} --force`)}`,
  );
}

/** What mends the package's files, where it comes from npm and in a checkout; ours are not asked for with X_KERNEL_DIR. */
function reinstall(options: string): string {
  const named = namedDirectory();
  const first = named
    ? `Unset X_KERNEL_DIR (${named}) or have it name a directory with the kernels of this version`
    : 'Install @x/kernels again (remove it from node_modules first)';
  return `${first}; in a checkout of the project, run \`pnpm kernels ${options}\`.`;
}

/**
 * The kernel headers (`x.h`) as one string, for kernels that users write and compile at run time.
 *
 * @throws KernelError KERNEL_SOURCE_MISSING
 */
export function headerSource(): string {
  return readSource('x.h', 'the kernel headers');
}

function readSource(file: string, what: string): string {
  const path = join(kernelDirectory(), 'sources', file);
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new KernelError('KERNEL_SOURCE_MISSING', `${what} has no source at ${path}. ${reinstall('--targets host')}`, {
      cause: error,
    });
  }
}

/** One module of kernels, named as candle names its own. */
export class KernelModule {
  constructor(
    /** File name without extension: affine. */
    readonly id: string,
    /** AFFINE. */
    readonly name: string,
  ) {}

  /**
   * The whole source as one string (headers inlined), which clang, hiprtc and NVRTC compile as it is.
   *
   * @throws KernelError KERNEL_SOURCE_MISSING
   */
  get source(): string {
    return readSource(`${this.id}.hip`, `module ${this.name}`);
  }

  /**
   * The code object for exactly this target, or undefined when none is on disk.
   *
   * @throws KernelError KERNEL_OBJECT_CORRUPT when the file is not the one that the manifest describes.
   */
  codeObject(target: string): CodeObject | undefined {
    const entry = readManifest(target)?.modules[this.id];
    if (entry === undefined) return undefined;
    const path = join(kernelDirectory(), 'objects', target, entry.file);
    if (!existsSync(path)) return undefined;
    const bytes = new Uint8Array(readFileSync(path));
    if (bytes.length !== entry.size || createHash('sha256').update(bytes).digest('hex') !== entry.sha256) {
      throw new KernelError(
        'KERNEL_OBJECT_CORRUPT',
        `${path} (${bytes.length} bytes) is not the file of ${entry.size} bytes that its manifest describes. ` +
          reinstall(`--targets ${target} --force`),
      );
    }
    return { bytes, target, kernels: Object.fromEntries(entry.kernels.map((kernel) => [kernel.name, kernel])) };
  }

  /**
   * The best code object on disk for a device: its own target's, then its generic family's.
   *
   * @param arch As the driver names it: gfx1100, gfx90a:sramecc+:xnack-, sm_90, x86-64-v3-vnni.
   * @throws KernelError KERNEL_TARGET_MISSING when there is none.
   */
  codeObjectFor(arch: string): CodeObject {
    const targets = resolveTarget(arch);
    for (const target of targets) {
      const object = this.codeObject(target);
      if (object !== undefined) return object;
    }
    // All of them: the best target may be one that has only some modules.
    const remedy =
      targets.length === 0
        ? 'No target of this project runs there: NVIDIA GPUs need compute capability 8.0.'
        : `Devices of @x/rocm-backend compile the module's source instead. ${reinstall(`--targets ${targets.join(',')}`)}`;
    throw new KernelError(
      'KERNEL_TARGET_MISSING',
      `module ${this.name} has no code object for ${arch} (tried ${targets.join(', ') || 'none'}; ` +
        `${kernelDirectory()} has ${listTargets().join(', ') || 'none'}). ${remedy}`,
    );
  }
}

export const AFFINE = new KernelModule('affine', 'AFFINE');
export const ATTENTION = new KernelModule('attention', 'ATTENTION');
export const BINARY = new KernelModule('binary', 'BINARY');
export const CAST = new KernelModule('cast', 'CAST');
export const CONV = new KernelModule('conv', 'CONV');
export const DECODE = new KernelModule('decode', 'DECODE');
export const FILL = new KernelModule('fill', 'FILL');
export const GEMM = new KernelModule('gemm', 'GEMM');
export const INDEXING = new KernelModule('indexing', 'INDEXING');
export const QUANTIZED = new KernelModule('quantized', 'QUANTIZED');
export const RANDOM = new KernelModule('random', 'RANDOM');
export const REDUCE = new KernelModule('reduce', 'REDUCE');
export const SAMPLING = new KernelModule('sampling', 'SAMPLING');
export const SORT = new KernelModule('sort', 'SORT');
export const TERNARY = new KernelModule('ternary', 'TERNARY');
export const UNARY = new KernelModule('unary', 'UNARY');

/** Every module, in name order. */
export const ALL_MODULES: readonly KernelModule[] = [
  AFFINE,
  ATTENTION,
  BINARY,
  CAST,
  CONV,
  DECODE,
  FILL,
  GEMM,
  INDEXING,
  QUANTIZED,
  RANDOM,
  REDUCE,
  SAMPLING,
  SORT,
  TERNARY,
  UNARY,
];
