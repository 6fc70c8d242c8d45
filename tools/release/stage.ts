/**
 * Makes the tarballs of a release from what is built: each package as npm gets it, compiled code compressed and beside its
 * manifest. Says what is missing or not what its manifest describes.
 *
 *   tsx tools/release/stage.ts [--out DIR] [--quality 0..11] [--only NAME,NAME] [--allow-missing]
 *
 * --only leaves out the packages of compiled code that are not named; --allow-missing those of which nothing is built, and of
 * the others the targets that are not.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';
import { readElf } from '../../packages/hip/scripts/elf.mjs';
import { portabilityProblems } from '../../packages/hip/scripts/portable.mjs';
import {
  CODE_OBJECT_FORMAT,
  KERNEL_PACKAGES,
  type Manifest,
  type PackageIndex,
} from '../../packages/kernels/src/index';
import { listModules } from '../kernels/amalgamate';
import { hasModule, isCubin, makeTarget } from '../kernels/targets';
import { address } from './address';
import { differences, filesOf, type PrebuiltPackage, prebuiltPackages, ROOT, version } from './prebuilt';

export interface StageOptions {
  out: string;
  /** Brotli's, 0 to 11. */
  quality: number;
  /** Of the packages of compiled code; default: all. */
  only?: readonly string[];
  allowMissing: boolean;
  /** Leaves the packages with sources out. */
  compiledOnly?: boolean;
  /** Where addons and kernels are built; default: this checkout. */
  addons?: string;
  objects?: string;
}

export interface StagedPackage {
  name: string;
  version: string;
  /** In `out`. */
  tarball: string;
  bytes: number;
  unpackedBytes: number;
  /** As npm and its lock files write it. */
  integrity: string;
}

export interface Staged {
  packages: StagedPackage[];
  /** What keeps this from being released. */
  problems: string[];
  /** What was left out. */
  missing: string[];
}

const PNPM = join(ROOT, '.cache/tools/node_modules/pnpm/bin/pnpm.cjs');
/** Compressed files by the hash of what they hold: most stay the same from one run to the next. */
const COMPRESSED = join(ROOT, '.cache/release/compressed');

export async function stage(options: StageOptions): Promise<Staged> {
  const result: Staged = { packages: [], problems: [], missing: [] };
  result.problems.push(...differences());
  rmSync(options.out, { recursive: true, force: true });
  mkdirSync(options.out, { recursive: true });
  for (const entry of prebuiltPackages()) {
    if (options.only && !options.only.includes(entry.name)) continue;
    const folder = join(options.out, 'stage', entry.name, 'package');
    const before = result.problems.length;
    const some =
      entry.kind === 'addon'
        ? stageAddon(entry, folder, options, result)
        : await stageKernels(entry, folder, options, result);
    if (!some || result.problems.length > before) continue;
    writeFiles(entry, folder);
    result.packages.push(pack(folder, options.out));
  }
  for (const folder of options.compiledOnly ? [] : stageSources(options, result))
    result.packages.push(pack(folder, options.out));
  rmSync(join(options.out, 'stage'), { recursive: true, force: true });
  writeFileSync(join(options.out, 'release.json'), `${JSON.stringify(result, null, 1)}\n`);
  return result;
}

function writeFiles(entry: PrebuiltPackage, folder: string): void {
  const files = filesOf(entry, version());
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
  completeManifest(folder, entry.folder);
}

/**
 * Adds what is said once: where the sources are, and which packages of kernels a package reads.
 */
function completeManifest(folder: string, source: string): void {
  const path = join(folder, 'package.json');
  const where = address();
  const manifest = { ...JSON.parse(readFileSync(path, 'utf8')), ...where };
  if (where.repository) manifest.repository = { ...where.repository, directory: relative(ROOT, source) };
  // pnpm writes them in the order in which it comes to know their versions.
  for (const kind of ['dependencies', 'optionalDependencies', 'peerDependencies', 'devDependencies'])
    if (manifest[kind]) manifest[kind] = Object.fromEntries(Object.entries(manifest[kind]).sort());
  // Only in what is released: changesets would take every version of a peer for a change that breaks.
  const peers = optionalPeers(manifest.name);
  if (peers.length > 0) {
    const [versions, optional] = [manifest.version, { optional: true }].map((value) =>
      Object.fromEntries(peers.map((peer) => [peer, value])),
    );
    manifest.peerDependencies = { ...manifest.peerDependencies, ...versions };
    manifest.peerDependenciesMeta = { ...manifest.peerDependenciesMeta, ...optional };
  }
  writeFileSync(path, `${JSON.stringify(manifest, null, 2)}\n`);
  copyFileSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'));
}

/** The packages of kernels that a package reads, or that go with it, where they are installed. */
function optionalPeers(name: string): string[] {
  const all = Object.entries(KERNEL_PACKAGES);
  if (name === '@x/kernels') return all.map(([peer]) => peer);
  // The CPU's come with the umbrella.
  return name === '@x/candle' ? all.filter(([, { cpu }]) => !cpu).map(([peer]) => peer) : [];
}

function stageAddon(
  entry: PrebuiltPackage & { kind: 'addon' },
  folder: string,
  options: StageOptions,
  { problems, missing }: Staged,
): boolean {
  const built = join(options.addons ?? join(ROOT, 'packages/hip/prebuilds'), entry.target.directory, 'hip.node');
  if (!existsSync(built)) {
    (options.allowMissing ? missing : problems).push(`${entry.name}: ${built} is not built`);
    return false;
  }
  try {
    const { machine, stripped } = readElf(built);
    if (machine !== entry.target.machine) problems.push(`${entry.name}: ${built} is for ${machine}`);
    if (!stripped) problems.push(`${entry.name}: ${built} is not stripped`);
    problems.push(...portabilityProblems(built, entry.target.libc).map((line) => `${entry.name}: ${line}`));
  } catch (error) {
    problems.push(`${entry.name}: ${(error as Error).message}`);
  }
  mkdirSync(folder, { recursive: true });
  copyFileSync(built, join(folder, 'hip.node'));
  return true;
}

async function stageKernels(
  entry: PrebuiltPackage & { kind: 'kernels' },
  folder: string,
  options: StageOptions,
  { problems, missing }: Staged,
): Promise<boolean> {
  const objects = options.objects ?? join(ROOT, 'packages/kernels/objects');
  const index: PackageIndex = { format: CODE_OBJECT_FORMAT, version: version(), targets: {} };
  for (const target of entry.kernels.targets) {
    const source = join(objects, target);
    const path = join(source, 'manifest.json');
    if (!existsSync(path)) {
      const mayLack = options.allowMissing || entry.kernels.needsPtxas;
      (mayLack ? missing : problems).push(`${entry.name}: ${target} is not built`);
      continue;
    }
    const manifest = JSON.parse(readFileSync(path, 'utf8')) as Manifest;
    const names = ['manifest.json'];
    for (const module of expectedModules(target)) {
      const described = manifest.modules[module];
      const file = described && join(source, described.file);
      if (!file || !existsSync(file)) problems.push(`${entry.name}: ${target} has no ${module}`);
      else if (sha256(readFileSync(file)) !== described.sha256)
        problems.push(`${entry.name}: ${file} is not the file that its manifest describes`);
      else names.push(described.file);
    }
    mkdirSync(join(folder, 'objects', target), { recursive: true });
    const files = names.map(async (name) => {
      const bytes = readFileSync(join(source, name));
      const packed = `objects/${target}/${name}.br`;
      writeFileSync(join(folder, packed), await compressed(bytes, options.quality));
      return [name, { path: packed, bytes: bytes.length, sha256: sha256(bytes) }] as const;
    });
    index.targets[target] = Object.fromEntries(await Promise.all(files));
  }
  if (Object.keys(index.targets).length === 0) return false;
  writeFileSync(join(folder, 'index.json'), `${JSON.stringify(index, null, 1)}\n`);
  return true;
}

function expectedModules(target: string): string[] {
  const modules = listModules(join(ROOT, 'kernels'));
  return isCubin(target) ? modules : modules.filter((module) => hasModule(makeTarget(target), module));
}

async function compressed(bytes: Uint8Array, quality: number): Promise<Uint8Array> {
  const path = join(COMPRESSED, `${sha256(bytes)}-${quality}`);
  if (existsSync(path)) return readFileSync(path);
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: quality,
    [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
  };
  const packed = await promisify(brotliCompress)(bytes, { params });
  mkdirSync(COMPRESSED, { recursive: true });
  writeFileSync(path, packed);
  return packed;
}

/** The folders of the packages with sources, those of no use to others left out. */
function sourcePackages(): string[] {
  return readdirSync(join(ROOT, 'packages'))
    .map((name) => join(ROOT, 'packages', name))
    .filter((folder) => !manifestOf(folder).private);
}

/** As `pnpm pack` makes them, which puts versions in place of `workspace:`; one process for all. The folders to be packed. */
function stageSources({ out }: StageOptions, { problems }: Staged): string[] {
  const complete = sourcePackages().filter((source) => {
    const { name, exports } = manifestOf(source);
    const absent = entriesOf(exports).filter((file) => !existsSync(join(source, file)));
    if (absent.length > 0) problems.push(`${name}: ${absent.join(', ')} of its exports are not built: pnpm build`);
    return absent.length === 0;
  });
  // Without a filter pnpm would pack all.
  if (complete.length === 0) return [];
  const packed = join(out, 'stage', 'packed');
  mkdirSync(packed, { recursive: true });
  const filters = complete.flatMap((source) => ['--filter', `./${relative(ROOT, source)}`]);
  execFileSync(process.execPath, [PNPM, '-r', ...filters, 'pack', '--pack-destination', packed], {
    cwd: ROOT,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return complete.map((source) => {
    const manifest = manifestOf(source);
    const folder = join(out, 'stage', manifest.name);
    mkdirSync(folder, { recursive: true });
    execFileSync('tar', ['-xzf', join(packed, tarballOf(manifest))], { cwd: folder });
    completeManifest(join(folder, 'package'), source);
    return join(folder, 'package');
  });
}

function manifestOf(folder: string) {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

function tarballOf({ name, version }: { name: string; version: string }): string {
  return `${name.slice(1).replace('/', '-')}-${version}.tgz`;
}

/** Every file that a manifest's exports name. */
function entriesOf(exports: unknown): string[] {
  if (typeof exports === 'string') return [exports];
  return Object.values(exports ?? {}).flatMap(entriesOf);
}

function pack(folder: string, out: string): StagedPackage {
  const { name, version } = manifestOf(folder);
  const tarball = tarballOf({ name, version });
  // The same bytes for the same files, whenever and by whomever it is packed.
  const order = [
    '--sort=name',
    '--mtime=@499162500',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--mode=u=rwX,go=rX',
  ];
  const tar = execFileSync('tar', [...order, '-cf', '-', 'package'], { cwd: dirname(folder), maxBuffer: 2 ** 30 });
  const bytes = execFileSync('gzip', ['-n', '-9'], { input: tar, maxBuffer: 2 ** 30 });
  writeFileSync(join(out, tarball), bytes);
  const integrity = `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
  return { name, version, tarball, bytes: bytes.length, unpackedBytes: sizeOf(folder), integrity };
}

function sizeOf(folder: string): number {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .reduce((total, entry) => total + statSync(join(entry.parentPath ?? entry.path, entry.name)).size, 0);
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      out: { type: 'string', default: join(ROOT, '.cache/release/tarballs') },
      quality: { type: 'string', default: '11' },
      only: { type: 'string' },
      'allow-missing': { type: 'boolean', default: false },
    },
  });
  const quality = Number(values.quality);
  if (!Number.isInteger(quality) || quality < 0 || quality > 11)
    throw new Error(`--quality ${values.quality}: give a whole number from 0 to 11.`);
  const { problems, missing, packages } = await stage({
    out: values.out!,
    quality,
    only: values.only?.split(','),
    allowMissing: values['allow-missing']!,
  });
  for (const line of missing) console.log(`left out: ${line}`);
  for (const line of problems) console.error(`problem: ${line}`);
  for (const { name, bytes, unpackedBytes } of packages)
    console.log(`${name}: ${(bytes / 1e6).toFixed(2)} MB, ${(unpackedBytes / 1e6).toFixed(2)} MB unpacked`);
  process.exitCode = problems.length === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
