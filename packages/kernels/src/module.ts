/**
 * Kernel modules as data: the amalgamated source of each and its code objects, read when asked for. stores.ts says where
 * they are.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkName } from './arguments';
import { KernelError } from './errors';
import { kernelPackageFor } from './packages';
import { namedDirectory } from './settings';
import { installCommand, kernelDirectory, objectStores } from './stores';
import { resolveTarget } from './targets';
import type { KernelInfo, Manifest } from './types';

/** A compiled module, ready for a driver's module loader. */
export interface CodeObject {
  bytes: Uint8Array;
  target: string;
  kernels: Record<string, KernelInfo>;
}

/** Targets that have code objects here, in name order. */
export function listTargets(): string[] {
  return [...new Set(objectStores().flatMap((store) => store.targets()))].sort();
}

/**
 * The manifest of one target, or undefined when there is nothing for it.
 *
 * @throws KernelError KERNEL_MANIFEST_INVALID, KERNEL_PACKAGE_VERSION
 */
export function readManifest(target: string): Manifest | undefined {
  checkName('readManifest: the target', target, 'gfx1100');
  for (const store of objectStores(target)) {
    const manifest = store.manifest(target);
    if (manifest) return manifest;
  }
  return undefined;
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
    throw new KernelError('KERNEL_SOURCE_MISSING', `${what} has no source at ${path}. ${reinstall()}`, {
      cause: error,
    });
  }
}

function reinstall(): string {
  const named = namedDirectory();
  const first = named
    ? `Unset X_KERNEL_DIR (${named}) or have it name a directory with the kernels of this version`
    : 'Install @x/kernels again (remove it from node_modules first)';
  return `${first}; in a checkout of the project, run \`pnpm kernels --targets host\`.`;
}

/** What gives a device its code objects: the package to install, where there is one. */
function missingRemedy(arch: string, targets: readonly string[]): string {
  const named = namedDirectory();
  const name = kernelPackageFor(arch);
  const first = named
    ? `Unset X_KERNEL_DIR (${named}) or have it name a directory with the kernels of this version`
    : name
      ? `Install them: \`${installCommand(name)}\``
      : 'No package has them';
  // All of them: the best target may be one that has only some modules.
  return (
    `Devices of @x/rocm-backend compile the module's source instead. ${first}; in a checkout of the project, run ` +
    `\`pnpm kernels --targets ${targets.join(',')}\`.`
  );
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
   * The code object for exactly this target, or undefined when there is none.
   *
   * @throws KernelError KERNEL_OBJECT_CORRUPT when the file is not the one that the manifest describes,
   * KERNEL_PACKAGE_VERSION when an installed package belongs to another version.
   */
  codeObject(target: string): CodeObject | undefined {
    checkName(`${this.name}.codeObject: the target`, target, 'gfx1100');
    for (const store of objectStores(target)) {
      const entry = store.manifest(target)?.modules[this.id];
      const bytes = entry && store.object(target, entry);
      if (bytes)
        return { bytes, target, kernels: Object.fromEntries(entry.kernels.map((kernel) => [kernel.name, kernel])) };
    }
    return undefined;
  }

  /**
   * The best code object that is here for a device: its own target's, then its generic family's.
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
    const remedy =
      targets.length === 0
        ? 'No target of this project runs there: NVIDIA GPUs need compute capability 8.0.'
        : missingRemedy(arch, targets);
    const places = objectStores().map(({ place }) => place);
    throw new KernelError(
      'KERNEL_TARGET_MISSING',
      `module ${this.name} has no code object for ${arch} (tried ${targets.join(', ') || 'none'}; ` +
        `${places.join(', ')} have ${listTargets().join(', ') || 'none'}). ${remedy}`,
    );
  }
}

export const AFFINE = new KernelModule('affine', 'AFFINE');
export const ATTENTION = new KernelModule('attention', 'ATTENTION');
export const BINARY = new KernelModule('binary', 'BINARY');
export const CAST = new KernelModule('cast', 'CAST');
export const COLLECTIVES = new KernelModule('collectives', 'COLLECTIVES');
export const CONV = new KernelModule('conv', 'CONV');
export const DECODE = new KernelModule('decode', 'DECODE');
export const EXPERTS = new KernelModule('experts', 'EXPERTS');
export const FILL = new KernelModule('fill', 'FILL');
export const GEMM = new KernelModule('gemm', 'GEMM');
export const INDEXING = new KernelModule('indexing', 'INDEXING');
export const OPTIM = new KernelModule('optim', 'OPTIM');
export const QUANTIZED = new KernelModule('quantized', 'QUANTIZED');
export const RANDOM = new KernelModule('random', 'RANDOM');
export const RECURRENT = new KernelModule('recurrent', 'RECURRENT');
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
  COLLECTIVES,
  CONV,
  DECODE,
  EXPERTS,
  FILL,
  GEMM,
  INDEXING,
  OPTIM,
  QUANTIZED,
  RANDOM,
  RECURRENT,
  REDUCE,
  SAMPLING,
  SORT,
  TERNARY,
  UNARY,
];
