/**
 * Runs a command as if the machine had an AMD GPU: kernels are compiled for emulated lanes of the chip (lanes.h) and run by
 * the stand-in for libamdhip64 (packages/hip/test/fake-hip), so that everything above the HIP runtime is the real thing.
 * Code objects are those of a built target with waves of the same width: the stand-in takes only their kernels' names.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { compileLibrary } from '@x/testing/compiled';
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
  await compiler.lanes(join(ROOT, 'tools/emulator/lanes.cc'), defines, join(libraries, 'liblanes.so'));
  const path = join(ROOT, 'tools/emulator/module.cc');
  const sources = modules.map((module) => ({
    name: module,
    path,
    flags: [...defines, ...INCLUDES, `-DEMULATED_MODULE="${join(KERNELS, `${module}.hip`)}"`],
  }));
  await compiler.libraries(sources, libraries);
  const runtime = join(directory, 'libamdhip64.so');
  compileLibrary(join(ROOT, 'packages/hip/test/fake-hip/fake_hip.cc'), runtime, ['-w', '-O1']);
  buildFakeRccl(directory);

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
    X_HIP_LIBRARY: runtime,
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
