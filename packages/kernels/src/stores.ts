/**
 * Where code objects are: the directory of a checkout (or the one that X_KERNEL_DIR names), whose files are as the compiler
 * wrote them, and the installed packages of packages.ts, whose files are compressed with brotli and read without being
 * unpacked to disk. Brotli, because Node has had it since 11 and zstd only since 22.15, and because it is smaller: of
 * gfx1100, 15.8 MB, it leaves 1.41 MB in its highest quality where zstd leaves 1.56 MB; reading all of it takes 50 ms.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync } from 'node:zlib';
import { version } from '../package.json';
import { KernelError } from './errors';
import { KERNEL_PACKAGES } from './packages';
import { namedDirectory } from './settings';
import type { Manifest, ManifestModule } from './types';

/**
 * The format of code objects: manifests, compression, names and layout of files. A package of another major version is
 * refused. What kernels a module has and what they take changes with every release: a package must have the version of
 * @x/kernels too.
 */
export const CODE_OBJECT_FORMAT = '1.0.0';

/** `index.json` of a package of kernels. */
export interface PackageIndex {
  format: string;
  /** The version of @x/kernels that the objects belong to. */
  version: string;
  /** By target and by name (`manifest.json`, `affine.hsaco`): where in the package it is and what it unpacks to. */
  targets: Record<string, Record<string, PackedFile>>;
}

export interface PackedFile {
  path: string;
  /** Of the file as it was before it was compressed. */
  bytes: number;
  sha256: string;
}

/** Code objects of some targets. */
export interface ObjectStore {
  /** A directory, or a package's name. */
  readonly place: string;
  targets(): string[];
  manifest(target: string): Manifest | undefined;
  /** The bytes that the manifest's entry describes, or undefined when they are not there. */
  object(target: string, entry: ManifestModule): Uint8Array | undefined;
}

/** The directory with `objects/` and `sources/`. */
export function kernelDirectory(): string {
  // A bundle that was made a CommonJS one has no `import.meta.url`, and no kernels of its own.
  return namedDirectory() ?? (import.meta.url ? fileURLToPath(new URL('..', import.meta.url)) : process.cwd());
}

/** Every place that may have code objects of a target, or of any: first one first, and with X_KERNEL_DIR that alone. */
export function objectStores(target?: string): ObjectStore[] {
  const directory = new DirectoryStore(join(kernelDirectory(), 'objects'));
  if (namedDirectory()) return [directory];
  const names = Object.keys(KERNEL_PACKAGES).filter(
    (name) => !target || KERNEL_PACKAGES[name]!.targets.includes(target),
  );
  return [directory, ...names.flatMap((name) => installedPackage(name) ?? [])];
}

/** Manifests of directories as they were last read, 0.8 MB each: every device that is opened asks for each module that it loads. */
const lastRead = new Map<string, { stamp: string; manifest: Manifest }>();
/** A file that is younger may change again without a later time, which comes from the system's tick. */
const SETTLED_MS = 100;

class DirectoryStore implements ObjectStore {
  constructor(readonly place: string) {}

  targets(): string[] {
    if (!existsSync(this.place)) return [];
    return readdirSync(this.place).filter((target) => existsSync(join(this.place, target, 'manifest.json')));
  }

  manifest(target: string): Manifest | undefined {
    const path = join(this.place, target, 'manifest.json');
    if (!existsSync(path)) return undefined;
    const stats = statSync(path);
    const stamp = [stats.dev, stats.ino, stats.size, stats.mtimeMs, stats.ctimeMs].join();
    const known = lastRead.get(path);
    if (known?.stamp === stamp) return known.manifest;
    const manifest = parseManifest(readFileSync(path), target, path, checkoutRemedy(target));
    if (Date.now() - stats.ctimeMs > SETTLED_MS) lastRead.set(path, { stamp, manifest });
    return manifest;
  }

  object(target: string, entry: ManifestModule): Uint8Array | undefined {
    const path = join(this.place, target, entry.file);
    if (!existsSync(path)) return undefined;
    const bytes = plainBytes(readFileSync(path));
    if (isFile(bytes, entry.size, entry.sha256)) return bytes;
    throw new KernelError(
      'KERNEL_OBJECT_CORRUPT',
      `${path} (${bytes.length} bytes) is not the file of ${entry.size} bytes that its manifest describes. ${checkoutRemedy(target)}`,
    );
  }
}

/** What mends files of a directory, which only a checkout has; ours are not asked for with X_KERNEL_DIR. */
function checkoutRemedy(target: string): string {
  const named = namedDirectory();
  const first = named
    ? `Unset X_KERNEL_DIR (${named}) or have it name a directory with the kernels of this version; in`
    : 'In';
  return `${first} a checkout of the project, run \`pnpm kernels --targets ${target} --force\`.`;
}

class PackageStore implements ObjectStore {
  readonly #manifests = new Map<string, Manifest>();

  constructor(
    readonly place: string,
    private readonly folder: string,
    private readonly index: PackageIndex,
  ) {}

  targets(): string[] {
    return Object.keys(this.index.targets);
  }

  manifest(target: string): Manifest | undefined {
    const known = this.#manifests.get(target);
    if (known) return known;
    const bytes = this.#read(target, 'manifest.json');
    if (!bytes) return undefined;
    const manifest = parseManifest(bytes, target, `${this.place}: manifest of ${target}`, installAgain(this.place));
    this.#manifests.set(target, manifest);
    return manifest;
  }

  object(target: string, entry: ManifestModule): Uint8Array | undefined {
    const bytes = this.#read(target, entry.file);
    if (!bytes || isFile(bytes, entry.size, entry.sha256)) return bytes;
    throw this.#corrupt(target, entry.file, 'it is not the file that its manifest describes');
  }

  #read(target: string, name: string): Uint8Array | undefined {
    const file = this.index.targets[target]?.[name];
    if (!file) return undefined;
    let bytes: Uint8Array;
    try {
      const packed = readFileSync(join(this.folder, file.path));
      bytes = plainBytes(brotliDecompressSync(packed, { maxOutputLength: Math.max(1, file.bytes) }));
    } catch (cause) {
      throw this.#corrupt(target, name, (cause as Error).message, cause);
    }
    if (!isFile(bytes, file.bytes, file.sha256)) throw this.#corrupt(target, name, "its hash is not the index's");
    return bytes;
  }

  #corrupt(target: string, name: string, why: string, cause?: unknown): KernelError {
    return new KernelError(
      'KERNEL_OBJECT_CORRUPT',
      `${this.place}: ${name} of ${target} cannot be read: ${why}. ${installAgain(this.place)}`,
      { cause },
    );
  }
}

/** A view of memory of its own: Node's small buffers are parts of a shared one. */
function plainBytes({ buffer, byteOffset, length }: Buffer<ArrayBuffer>): Uint8Array {
  return buffer.byteLength === length
    ? new Uint8Array(buffer)
    : new Uint8Array(buffer.slice(byteOffset, byteOffset + length));
}

function isFile(bytes: Uint8Array, size: number, sha256: string): boolean {
  return bytes.length === size && createHash('sha256').update(bytes).digest('hex') === sha256;
}

function parseManifest(bytes: Uint8Array, target: string, place: string, remedy: string): Manifest {
  try {
    const manifest = JSON.parse(new TextDecoder().decode(bytes)) as Manifest;
    if (manifest.version === 1 && manifest.target === target && typeof manifest.modules === 'object') return manifest;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new KernelError('KERNEL_MANIFEST_INVALID', `${place} is no manifest of version 1 for ${target}. ${remedy}`);
}

function installAgain(name: string): string {
  return `Remove it from node_modules and install it again: \`${installCommand(name)}\`.`;
}

/** The command that installs a package of kernels in the version that belongs to this one. */
export function installCommand(name: string): string {
  return `npm install ${name}@${version}`;
}

/** A package that cannot be used: what it would serve fails with the reason, and nothing else does. */
class RefusedStore implements ObjectStore {
  constructor(
    readonly place: string,
    readonly reason: KernelError,
  ) {}

  targets(): string[] {
    return [];
  }

  manifest(): Manifest | undefined {
    throw this.reason;
  }

  object(): Uint8Array | undefined {
    throw this.reason;
  }
}

/** Packages stay where they are while a program runs: what was found, or not, is remembered. */
const packages = new Map<string, PackageStore | RefusedStore | undefined>();

function installedPackage(name: string): PackageStore | RefusedStore | undefined {
  if (!packages.has(name)) packages.set(name, openPackage(name));
  return packages.get(name);
}

function openPackage(name: string): PackageStore | RefusedStore | undefined {
  const folder = folderOf(name);
  if (!folder) return undefined;
  try {
    const index = readIndex(name, folder);
    return index && new PackageStore(name, folder, index);
  } catch (error) {
    if (error instanceof KernelError) return new RefusedStore(name, error);
    throw error;
  }
}

/** A package of kernels on this machine. */
export interface InstalledKernels {
  name: string;
  targets: string[];
  /** Why it cannot be used. */
  reason?: KernelError;
}

/** The packages of kernels that are installed, also those that cannot be used. */
export function installedKernels(): InstalledKernels[] {
  return Object.keys(KERNEL_PACKAGES).flatMap((name) => {
    const store = installedPackage(name);
    if (!store) return [];
    return [{ name, targets: store.targets(), ...(store instanceof RefusedStore && { reason: store.reason }) }];
  });
}

/** From this module, then from the program: with strict package managers only one of them may see the package. */
function folderOf(name: string): string | undefined {
  for (const from of [import.meta.url, process.argv[1]]) {
    if (!from) continue;
    try {
      return dirname(createRequire(from).resolve(`${name}/package.json`));
    } catch {
      // Not installed there.
    }
  }
  return undefined;
}

/** The index of an installed package; undefined in a checkout, whose packages are empty until they are packed. */
function readIndex(name: string, folder: string): PackageIndex | undefined {
  const path = join(folder, 'index.json');
  if (!existsSync(path)) return undefined;
  let index: PackageIndex;
  try {
    index = JSON.parse(readFileSync(path, 'utf8'));
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const why = code === undefined ? 'is no JSON' : `cannot be read (${message})`;
    throw new KernelError('KERNEL_PACKAGE_INVALID', `${path} ${why}. ${installAgain(name)}`, { cause });
  }
  const format = String(index?.format);
  if (format.split('.')[0] !== CODE_OBJECT_FORMAT.split('.')[0]) {
    throw new KernelError(
      'KERNEL_PACKAGE_VERSION',
      `${name} (${folder}) has code objects of format ${format}, and this @x/kernels reads ${CODE_OBJECT_FORMAT}. ` +
        `Install the one that belongs to it: \`${installCommand(name)}\`.`,
    );
  }
  if (index.version !== version) {
    throw new KernelError(
      'KERNEL_PACKAGE_VERSION',
      `${name} (${folder}) is of version ${index.version}, and @x/kernels of ${version}: their kernels differ. ` +
        `Install the one that belongs to it: \`${installCommand(name)}\`.`,
    );
  }
  if (typeof index.targets !== 'object' || index.targets === null)
    throw new KernelError('KERNEL_PACKAGE_INVALID', `${path} lists no targets. ${installAgain(name)}`);
  return index;
}
