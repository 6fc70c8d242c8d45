/**
 * Compiles kernels/*.hip into packages/kernels: objects/<target>/<module>.{hsaco,ptx,so} with a manifest, and
 * sources/<module>.hip with the headers inlined. An object is rebuilt when its source, flags, target or compiler changed. Where
 * NVIDIA's ptxas is, `release` has machine code of the PTX, too (cubins.ts).
 */
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { portabilityProblems } from '../../packages/hip/scripts/portable.mjs';
import { type Manifest, type ManifestModule, parseCodeObject } from '../../packages/kernels/src/index';
import { amalgamate, listModules } from './amalgamate';
import { check, codeObjectVersionOf, compile, compilerFlags, EXTENSION, UNOPTIMIZED } from './compile';
import { buildCubins, cubinsOf, findPtxas, ptxTargetsOf } from './cubins';
import { readManifest, sha256Of, writeManifest, writeWhole } from './manifest';
import { report } from './report';
import { ALL_TARGETS, hasModule, isCubin, nativeTargets, neededByTests, parseTargets, type Target } from './targets';
import { type Compiler, deviceLibraries, findCompiler } from './toolchain';

const USAGE = `usage: pnpm kernels [options]
  --targets LIST   comma-separated targets or groups: host, native, release, cubins, all (default: native)
  --modules LIST   comma-separated modules (default: every kernels/*.hip)
  --list           print modules and targets, build nothing
  --report         print size, registers, spills, scratch and shared memory of each module and target
  --jobs N         compilations at once (default: number of cores)
  --for-tests      of the host's levels, optimise what tests run, and only check the sources of levels that this
                   processor does not run
  --force          rebuild what is up to date
  --out DIR        directory for objects/ and sources/ (default: packages/kernels)
  --code-object-version N   AMD code object version (default: 4 for exact targets, 6 for generic families)`;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const KERNELS = join(ROOT, 'kernels');

interface Job {
  target: Target;
  module: string;
  compiler: Compiler;
  codeObjectVersion: number | null;
  sourcePath: string;
  directory: string;
  file: string;
  flags: string[];
  key: string;
  /** Nothing is made of it. */
  checked: boolean;
}

/** What the manifest says of an object. Throws where a host object would not load on the oldest machines. */
function describe(output: string, job: Job): ManifestModule {
  const problems = job.target.kind === 'host' ? portabilityProblems(output, 'gnu') : [];
  if (problems.length > 0) throw new Error(`${output} is not portable: ${problems.join('; ')}.`);
  const bytes = new Uint8Array(readFileSync(output));
  const kernels = Object.values(parseCodeObject(bytes).kernels);
  return { file: job.file, size: bytes.length, sha256: sha256Of(bytes), key: job.key, kernels };
}

function isUpToDate(manifest: Manifest | undefined, job: Job): boolean {
  const entry = manifest?.modules[job.module];
  const path = join(job.directory, job.file);
  return entry?.key === job.key && existsSync(path) && statSync(path).size === entry.size;
}

// Read again for every change: another build may have written other modules meanwhile.
function updateManifest(job: Job, entry: ManifestModule | undefined): void {
  const existing = new Set(listModules(KERNELS));
  const known = Object.entries(readManifest(job.directory)?.modules ?? {});
  const modules = new Map(known.filter(([module]) => existing.has(module)));
  if (entry === undefined) modules.delete(job.module);
  else modules.set(job.module, entry);
  writeManifest(job.directory, {
    version: 1,
    target: job.target.name,
    compiler: job.compiler.version,
    codeObjectVersion: job.codeObjectVersion,
    modules: Object.fromEntries(modules),
  });
}

async function buildTargets(targets: Target[], modules: string[], out: string, options: BuildOptions): Promise<number> {
  const sources = join(out, 'sources');
  mkdirSync(sources, { recursive: true });
  const texts = new Map(modules.map((module) => [module, amalgamate(KERNELS, `${module}.hip`)]));
  for (const [module, text] of texts) writeWhole(join(sources, `${module}.hip`), text);
  writeWhole(join(sources, 'x.h'), amalgamate(KERNELS, 'include/x.h'));

  const jobs: Job[] = [];
  let skipped = 0;
  for (const target of targets) {
    const compiler = findCompiler(target.kind);
    const version = codeObjectVersionOf(target, options.codeObjectVersion);
    const optimized = compilerFlags(target, version);
    const libraries = deviceLibraries(target, version ?? 0).map((path) => `${path} ${statSync(path).size}`);
    const directory = join(out, 'objects', target.name);
    const old = readManifest(directory);
    for (const module of modules) {
      if (!hasModule(target, module)) continue;
      const needed = options.forTests && target.kind === 'host' ? neededByTests(target.name, module) : 'object';
      const flags = needed === 'unoptimized' ? [...optimized, ...UNOPTIMIZED] : optimized;
      const keyOf = (flags: string[]) =>
        sha256Of(texts.get(module)!, target.name, compiler.version, ...flags, ...libraries);
      const job: Job = {
        target,
        module,
        compiler,
        codeObjectVersion: version,
        sourcePath: join(sources, `${module}.hip`),
        directory,
        file: `${module}.${EXTENSION[target.kind]}`,
        flags,
        key: keyOf(flags),
        checked: needed === 'check',
      };
      if (!job.checked) mkdirSync(directory, { recursive: true });
      // What is optimised without need is left.
      const isThere = !job.checked && [flags, optimized].some((made) => isUpToDate(old, { ...job, key: keyOf(made) }));
      if (isThere && !options.force) skipped++;
      else jobs.push(job);
    }
  }

  let next = 0;
  let done = 0;
  let failed = 0;
  const worker = async (): Promise<void> => {
    while (next < jobs.length) {
      const job = jobs[next++]!;
      const output = join(job.directory, job.file);
      const result = job.checked
        ? await check(job.compiler, job.flags, job.sourcePath)
        : await compile(job.compiler, job.flags, job.sourcePath, output);
      const verdict = result.ok ? `${job.checked ? 'checked in ' : ''}${result.seconds.toFixed(1)} s` : 'FAILED';
      console.log(`[${++done}/${jobs.length}] ${job.target.name} ${job.module}: ${verdict}`);
      if (result.messages.trim() !== '') console.error(result.messages.trimEnd());
      if (!result.ok) failed++;
      if (!job.checked) updateManifest(job, result.ok ? describe(output, job) : undefined);
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, options.jobs) }, worker));
  const checked = jobs.filter((job) => job.checked).length;
  console.log(
    `${done - failed - checked} built, ${checked > 0 ? `${checked} checked, ` : ''}${skipped} up to date, ${failed} failed`,
  );
  return failed;
}

interface BuildOptions {
  jobs: number;
  force: boolean;
  forTests: boolean;
  codeObjectVersion: number | undefined;
}

function positiveInteger(text: string, option: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error(`${option} ${text}: give a whole number of 1 or more.`);
  return value;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      targets: { type: 'string', default: 'native' },
      modules: { type: 'string' },
      list: { type: 'boolean', default: false },
      report: { type: 'boolean', default: false },
      jobs: { type: 'string' },
      'for-tests': { type: 'boolean', default: false },
      force: { type: 'boolean', default: false },
      out: { type: 'string', default: join(ROOT, 'packages/kernels') },
      'code-object-version': { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const known = listModules(KERNELS);
  if (values.list) {
    console.log(
      `modules: ${known.join(' ')}\ntargets: ${[...ALL_TARGETS, ...(findPtxas()?.targets ?? [])].join(' ')}\nnative:  ${nativeTargets().join(' ')}`,
    );
    return 0;
  }
  const out = values.out!;
  const modules = values.modules?.split(',') ?? known;
  const stranger = modules.find((module) => !known.includes(module));
  if (stranger !== undefined) throw new Error(`unknown module "${stranger}"; known: ${known.join(' ')}.`);
  const ptxas = findPtxas();
  const cubins = cubinsOf(values.targets!, ptxas);
  const compiled = values.targets!.split(',').filter((name) => name !== 'cubins' && !isCubin(name));
  const targets = parseTargets([...compiled, ...cubins.flatMap(ptxTargetsOf)].join());
  if (targets.length === 0) throw new Error('--targets names no target.');
  const version = values['code-object-version'];
  const jobs = values.jobs === undefined ? availableParallelism() : positiveInteger(values.jobs, '--jobs');
  let failed = await buildTargets(targets, modules, out, {
    jobs,
    force: values.force!,
    forTests: values['for-tests']!,
    codeObjectVersion: version === undefined ? undefined : positiveInteger(version, '--code-object-version'),
  });
  if (ptxas && cubins.length > 0 && failed === 0)
    failed = await buildCubins(ptxas, cubins, modules, out, { jobs, force: values.force! });
  if (values.report) {
    const names = [...targets.map((target) => target.name), ...cubins];
    console.log(report(join(out, 'objects'), names, modules).join('\n'));
  }
  return failed === 0 ? 0 : 1;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    console.error(`kernels: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  },
);
