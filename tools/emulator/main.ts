/**
 * Runs a command as if the machine had an AMD GPU: kernels are compiled for emulated lanes of the chip (lanes.h) and run by
 * the stand-in for libamdhip64 (packages/hip/test/fake-hip), so that everything above the HIP runtime is the real thing.
 * Code objects are those of a built target with waves of the same width: the stand-in takes only their kernels' names.
 */
import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { buildFakeRccl } from '../../packages/hip/test/fake-libraries';
import { listModules } from '../kernels/amalgamate';
import { parseTargets } from '../kernels/targets';
import { findCompiler } from '../kernels/toolchain';
import { LaneCompiler } from './compile';

const USAGE = `usage: tsx tools/emulator/main.ts CHIP [options] -- COMMAND...
  CHIP             gfx908, gfx90a, gfx942, gfx950, gfx1030, gfx1100 or gfx1201
  --modules LIST   comma-separated modules whose kernels can be run (default: every kernels/*.hip)
  --devices N      how many there are, all alike (default: 1)
  --optimize       kernels that take many times as long to compile, for what runs long`;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const KERNELS = join(ROOT, 'kernels');
const INCLUDES = [`-I${KERNELS}`, `-I${join(KERNELS, 'include')}`];
const BUILT = join(ROOT, 'packages/kernels');

/** What clang defines for a chip, as far as kernels ask for it; the lanes of a wave; the target whose objects it is given. */
const CHIPS: Record<string, { macros: string[]; wave: number; objects: string }> = {
  gfx908: { macros: ['__GFX9__', '__gfx908__'], wave: 64, objects: 'gfx942' },
  gfx90a: { macros: ['__GFX9__', '__gfx90a__'], wave: 64, objects: 'gfx942' },
  gfx942: { macros: ['__GFX9__', '__gfx942__'], wave: 64, objects: 'gfx942' },
  gfx950: { macros: ['__GFX9__', '__gfx950__'], wave: 64, objects: 'gfx942' },
  gfx1030: { macros: ['__gfx1030__'], wave: 32, objects: 'gfx1100' },
  gfx1100: { macros: ['__GFX11__'], wave: 32, objects: 'gfx1100' },
  gfx1201: { macros: ['__GFX12__'], wave: 32, objects: 'gfx1100' },
};

const run = promisify(execFile);

/** The stand-ins for AMD's libraries, of every chip the same: made once of their sources, and kept under them. */
async function standIns(directory: string, kept: string): Promise<void> {
  const sources = join(ROOT, 'packages/hip/test');
  const files = ['fake-hip', 'fake-libraries'].flatMap((name) =>
    readdirSync(join(sources, name)).map((file) => join(name, file)),
  );
  const hash = createHash('sha256').update(process.env.CXX ?? '');
  for (const file of ['library-signatures.ts', 'nccl-signatures.ts', ...files.sort()])
    hash.update(readFileSync(join(sources, file)));
  const key = hash.digest('hex').slice(0, 32);
  const standIn = async (name: string, make: (into: string) => unknown): Promise<void> => {
    const library = join(kept, `${name}-${key}`);
    if (!existsSync(library)) {
      const scratch = mkdtempSync(join(kept, 'stand-in-'));
      await make(scratch);
      renameSync(join(scratch, name), library);
      rmSync(scratch, { recursive: true });
    }
    copyFileSync(library, join(directory, name));
  };
  const hip = join(sources, 'fake-hip/fake_hip.cc');
  const flags = ['-std=c++17', '-w', '-O1', '-shared', '-fPIC'];
  await standIn('libamdhip64.so', (into) => run('g++', [...flags, hip, '-ldl', '-o', join(into, 'libamdhip64.so')]));
  await standIn('librccl.so', buildFakeRccl);
}

/** Builds into `directory` and returns the environment in which programs find the chip as `rocm:0`. */
async function build(
  name: string,
  modules: string[],
  { devices, optimize }: { devices: number; optimize: boolean },
  directory: string,
): Promise<NodeJS.ProcessEnv> {
  const { macros, wave, objects } = CHIPS[name];
  const libraries = join(directory, 'kernels');
  mkdirSync(libraries, { recursive: true });
  const compiler = new LaneCompiler(findCompiler('host'), join(ROOT, '.cache/emulator/kept'), optimize);
  const defines = [...macros.map((macro) => `-D${macro}`), `-DEMULATED_WAVE=${wave}`];
  const lanes = compiler.lanes(join(ROOT, 'tools/emulator/lanes.cc'), defines, join(libraries, 'liblanes.so'));
  const path = join(ROOT, 'tools/emulator/module.cc');
  const sources = modules.map((module) => ({
    name: module,
    path,
    flags: [...defines, ...INCLUDES, `-DEMULATED_MODULE="${join(KERNELS, `${module}.hip`)}"`],
  }));
  await Promise.all([lanes.then(() => compiler.libraries(sources, libraries)), standIns(directory, compiler.kept)]);

  const folder = join(directory, 'objects', name);
  cpSync(join(BUILT, 'objects', objects), folder, { recursive: true });
  const manifest = join(folder, 'manifest.json');
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(`"target": "${objects}"`, `"target": "${name}"`));
  // The cpu device beside it runs what is shipped, as on any machine.
  for (const host of parseTargets('host')) {
    const built = join(BUILT, 'objects', host.name);
    if (existsSync(built)) cpSync(built, join(directory, 'objects', host.name), { recursive: true });
  }
  if (!existsSync(join(directory, 'sources'))) symlinkSync(join(BUILT, 'sources'), join(directory, 'sources'));
  return {
    X_HIP_LIBRARY: join(directory, 'libamdhip64.so'),
    X_KERNEL_DIR: directory,
    FAKE_HIP_ARCH: name,
    FAKE_HIP_KERNELS: libraries,
    FAKE_HIP_DEVICES: `${devices}`,
    FAKE_NCCL: 'threads',
    X_TEST_DEVICES: ['js', ...Array.from({ length: devices }, (_, ordinal) => `rocm:${ordinal}`)].join(),
  };
}

const { values, positionals } = parseArgs({
  options: {
    modules: { type: 'string' },
    devices: { type: 'string', default: '1' },
    optimize: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const [chip, ...command] = positionals;
if (!chip || !(chip in CHIPS) || command.length === 0) {
  console.error(USAGE);
  process.exit(2);
}
const modules = values.modules?.split(',') ?? listModules(KERNELS);
const options = { devices: Number(values.devices), optimize: values.optimize };
const environment = await build(chip, modules, options, join(ROOT, '.cache/emulator', chip));
const { status } = spawnSync(command[0], command.slice(1), {
  stdio: 'inherit',
  env: { ...process.env, ...environment },
});
process.exit(status ?? 1);
