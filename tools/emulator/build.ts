/** Compiles kernels/*.hip for emulated lanes of an AMD chip (lanes.h): a library a module, whose path names all it depends on. */
import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { listModules } from '../kernels/amalgamate';
import { findCompiler } from '../kernels/toolchain';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FLAGS = ['-std=c++20', '-O0', '-march=x86-64-v3', '-ffp-contract=on', '-w', '-shared', '-fPIC', '-fvisibility=hidden'];

/** Macros that clang defines for a chip, as far as kernels ask for them, and the lanes of a wave. */
const CHIPS = {
  gfx1030: { macros: ['__gfx1030__'], wave: 32 },
  gfx1100: { macros: ['__GFX11__'], wave: 32 },
  gfx1201: { macros: ['__GFX12__'], wave: 32 },
  gfx908: { macros: ['__GFX9__', '__gfx908__'], wave: 64 },
  gfx90a: { macros: ['__GFX9__', '__gfx90a__'], wave: 64 },
  gfx942: { macros: ['__GFX9__', '__gfx942__'], wave: 64 },
};
export type Chip = keyof typeof CHIPS;

/** Builds into `directory`, two libraries at a time: a module each and liblanes.so, which they share. */
export async function buildEmulated(chip: Chip, directory: string): Promise<void> {
  mkdirSync(directory, { recursive: true });
  const { macros, wave } = CHIPS[chip];
  const defines = [...macros.map((name) => `-D${name}`), `-DEMULATED_WAVE=${wave}`];
  const compiler = findCompiler('host').path;
  const lanes = join(directory, 'liblanes.so');
  await promisify(execFile)(compiler, [...FLAGS, '-fvisibility=default', ...defines, join(ROOT, 'tools/emulator/lanes.cc'), '-o', lanes]);
  const modules = listModules(join(ROOT, 'kernels'));
  const next = async (): Promise<void> => {
    const module = modules.shift();
    if (!module) return;
    const kernel = `-DEMULATED_MODULE="${join(ROOT, 'kernels', `${module}.hip`)}"`;
    const includes = [`-I${join(ROOT, 'kernels')}`, `-I${join(ROOT, 'kernels/include')}`];
    const paths = [join(ROOT, 'tools/emulator/module.cc'), lanes, '-Wl,-rpath,$ORIGIN', '-o', join(directory, `${module}.so`)];
    await promisify(execFile)(compiler, [...FLAGS, ...includes, ...defines, kernel, ...paths]);
    return next();
  };
  await Promise.all([next(), next()]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildEmulated(process.argv[2] as Chip, process.argv[3]);
