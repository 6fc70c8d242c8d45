/**
 * Machine code for NVIDIA's GPUs: `ptxas` makes it of the PTX that was built before. A module is taken from the PTX for one compute
 * capability where there is such, else from that for all. Without `ptxas`, which comes with the CUDA toolkit, nothing needs it.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { CUBIN_TARGETS } from '../../packages/kernels/src/targets';
import type { Manifest, ManifestModule } from '../../packages/kernels/src/types';
import { readManifest, sha256Of, writeManifest } from './manifest';

export interface Ptxas {
  path: string;
  /** `Cuda compilation tools, release 13.0, V13.0.88`. */
  version: string;
  /** The cubin targets that it makes. */
  targets: readonly string[];
}

const FLAGS = ['-O3'];

/** The first `ptxas` that runs: of CUDA_PATH and CUDA_HOME, on PATH, under /usr/local. */
export function findPtxas(): Ptxas | undefined {
  const { CUDA_PATH, CUDA_HOME, PATH = '' } = process.env;
  const local = existsSync('/usr/local') ? readdirSync('/usr/local').filter((name) => name.startsWith('cuda')) : [];
  const directories = [
    ...[CUDA_PATH, CUDA_HOME].flatMap((root) => (root ? [join(root, 'bin')] : [])),
    ...PATH.split(delimiter).filter(Boolean),
    ...local
      .sort()
      .reverse()
      .map((name) => join('/usr/local', name, 'bin')),
  ];
  for (const path of new Set(directories.map((directory) => join(directory, 'ptxas')))) {
    const found = existsSync(path) ? ask(path) : undefined;
    if (found) return found;
  }
  return undefined;
}

function ask(path: string): Ptxas | undefined {
  const run = (option: string) =>
    execFileSync(path, [option], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    const version = run('--version');
    const known = new Set(run('--help').match(/\bsm_\d+[a-z]?\b/g));
    const line = /^.*\brelease \d.*$/m.exec(version)?.[0] ?? version.trim().split('\n')[0]!;
    return { path, version: line, targets: CUBIN_TARGETS.filter((target) => known.has(archOf(target))) };
  } catch {
    return undefined;
  }
}

/** `sm_90a` of `sm_90a-cubin`. */
function archOf(target: string): string {
  return target.replace(/-cubin$/, '');
}

/** PTX that a target's modules are made of, best first. */
export function ptxTargetsOf(target: string): string[] {
  return archOf(target) === 'sm_90a' ? ['sm_90a', 'nvptx64'] : ['nvptx64'];
}

/**
 * The cubin targets among the names and groups of a list: those of `release` and `cubins` as far as there is a `ptxas` that makes
 * them. `all` has none, since each takes minutes.
 *
 * @throws Error for one that is named and cannot be made
 */
export function cubinsOf(list: string, ptxas: Ptxas | undefined): string[] {
  const names = list.split(',');
  const named = CUBIN_TARGETS.filter((target) => names.includes(target));
  const absent = named.filter((target) => !ptxas?.targets.includes(target));
  if (!ptxas && names.includes('cubins')) absent.push('cubins');
  if (absent.length > 0) {
    const why = ptxas
      ? `${ptxas.path} (${ptxas.version}) does not know ${absent.map(archOf).join(', ')}`
      : 'there is no ptxas';
    throw new Error(`${absent.join(', ')}: ${why}. Install a newer CUDA toolkit, or set CUDA_PATH to one.`);
  }
  const all = names.includes('release') || names.includes('cubins');
  return all ? [...(ptxas?.targets ?? [])] : named;
}

interface Job {
  target: string;
  module: string;
  /** What it is made of. */
  source: string;
  described: ManifestModule;
  directory: string;
  file: string;
  key: string;
}

export interface CubinOptions {
  jobs: number;
  force: boolean;
}

/** Makes what is not up to date of the PTX under `out`. @returns how many failed */
export async function buildCubins(
  ptxas: Ptxas,
  targets: readonly string[],
  modules: readonly string[],
  out: string,
  { jobs: atOnce, force }: CubinOptions,
): Promise<number> {
  const all = targets.flatMap((target) => modules.map((module) => jobOf(ptxas, target, module, out)));
  const jobs = all.filter((job) => force || !isUpToDate(job));
  let [next, done, failed] = [0, 0, 0];
  const worker = async (): Promise<void> => {
    while (next < jobs.length) {
      const job = jobs[next++]!;
      const started = performance.now();
      const { ok, messages } = await assemble(ptxas, job);
      const verdict = ok ? `${((performance.now() - started) / 1000).toFixed(1)} s` : 'FAILED';
      console.log(`[${++done}/${jobs.length}] ${job.target} ${job.module}: ${verdict}`);
      if (messages.trim() !== '') console.error(messages.trimEnd());
      if (!ok) failed++;
      note(ptxas, job, ok);
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, atOnce) }, worker));
  console.log(`${done - failed} cubins built, ${all.length - jobs.length} up to date, ${failed} failed`);
  return failed;
}

function jobOf(ptxas: Ptxas, target: string, module: string, out: string): Job {
  const objects = join(out, 'objects');
  for (const ptx of ptxTargetsOf(target)) {
    const described = readManifest(join(objects, ptx))?.modules[module];
    const source = described && join(objects, ptx, described.file);
    if (!source || !existsSync(source)) continue;
    const key = sha256Of(described.sha256, target, ptxas.version, ...FLAGS);
    return { target, module, source, described, directory: join(objects, target), file: `${module}.cubin`, key };
  }
  throw new Error(`${target} ${module}: its PTX (${ptxTargetsOf(target).join(' or ')}) is not built.`);
}

function isUpToDate({ directory, module, key, file }: Job): boolean {
  const entry = readManifest(directory)?.modules[module];
  const path = join(directory, file);
  return entry?.key === key && existsSync(path) && statSync(path).size === entry.size;
}

function assemble(
  { path }: Ptxas,
  { target, source, directory, file }: Job,
): Promise<{ ok: boolean; messages: string }> {
  mkdirSync(directory, { recursive: true });
  const output = join(directory, file);
  const temporary = `${output}.${process.pid}.tmp`;
  return new Promise((resolve, reject) => {
    const child = spawn(path, [`-arch=${archOf(target)}`, ...FLAGS, source, '-o', temporary], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let messages = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (messages += text));
    child.on('error', reject);
    child.on('close', (code) => {
      if (code === 0) renameSync(temporary, output);
      else rmSync(temporary, { force: true });
      resolve({ ok: code === 0, messages });
    });
  });
}

/** Kernels and their parameters are those of the PTX. */
function note({ version }: Ptxas, { target, module, described, directory, file, key }: Job, ok: boolean): void {
  const known: Manifest['modules'] = { ...readManifest(directory)?.modules };
  delete known[module];
  if (ok) {
    const bytes = readFileSync(join(directory, file));
    known[module] = { ...described, file, size: bytes.length, sha256: sha256Of(bytes), key };
  }
  writeManifest(directory, { version: 1, target, compiler: version, codeObjectVersion: null, modules: known });
}
