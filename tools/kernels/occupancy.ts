/**
 * How many waves of the fast kernels a SIMD can hold, and what limits them, from the registers and the shared memory (LDS)
 * that AMD code objects state; and the widest memory accesses in their disassembly. Prints a table in Markdown:
 *
 *   tsx tools/kernels/occupancy.ts [--targets gfx1100,gfx942]
 */
import { parseArgs } from 'node:util';
import { type KernelInfo, readManifest } from '@x/kernels';
import { type Accesses, parseDisassembly } from './accesses';
import { disassemble, findDisassembler } from './disassemble';
import { FAMILIES, type Family, ldsBytesOf } from './families';

/** What the SIMDs that share one LDS have. */
export interface SimdLimits {
  lanes: number;
  /** Vector registers of a lane over all waves of a SIMD, and in what steps a wave gets them. */
  vgprs: number;
  granule: number;
  waves: number;
  simds: number;
  ldsBytes: number;
  ldsGranule: number;
}

/** As LLVM's AMDGPU back end has them: gfx1100 in wave32 and WGP mode, gfx942 with its unified register file. */
export const LIMITS: Record<string, SimdLimits> = {
  gfx1100: { lanes: 32, vgprs: 1536, granule: 24, waves: 16, simds: 4, ldsBytes: 131072, ldsGranule: 1024 },
  gfx942: { lanes: 64, vgprs: 512, granule: 8, waves: 8, simds: 4, ldsBytes: 65536, ldsGranule: 512 },
};

/** Fewer waves than this hide too little of the memory's latency to go unexplained. */
const WANTED = 8;

export interface Occupancy {
  waves: number;
  limit: 'hardware' | 'registers' | 'LDS';
}

/** Waves that a SIMD holds at once, of blocks of `threads` threads. */
export function occupancy(limits: SimdLimits, vgprs: number, ldsBytes: number, threads: number): Occupancy {
  const byRegisters = Math.floor(limits.vgprs / roundUp(Math.max(1, vgprs), limits.granule));
  const blocks = ldsBytes === 0 ? Infinity : Math.floor(limits.ldsBytes / roundUp(ldsBytes, limits.ldsGranule));
  const byLds = Math.floor((blocks * Math.ceil(threads / limits.lanes)) / limits.simds);
  const waves = Math.min(limits.waves, byRegisters, byLds);
  if (waves === limits.waves) return { waves, limit: 'hardware' };
  return { waves, limit: byRegisters <= byLds ? 'registers' : 'LDS' };
}

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}

/** A kernel with what the table says of it. */
export interface Measured extends Occupancy {
  name: string;
  vgprs: number;
  ldsBytes: number;
  load: number;
  store: number;
}

function measure(target: string, family: Family, kernel: KernelInfo, accesses: Accesses): Measured {
  const { name } = kernel;
  if (kernel.vgprs === null || kernel.ldsBytes === null)
    throw new Error(`${target} ${name} states no registers or LDS`);
  const limits = LIMITS[target]!;
  const ldsBytes = ldsBytesOf(family, kernel);
  const widest = (counts: Map<number, number>) => Math.max(0, ...counts.keys());
  return {
    ...{ name, vgprs: kernel.vgprs, ldsBytes, load: widest(accesses.loads), store: widest(accesses.stores) },
    ...occupancy(limits, kernel.vgprs, ldsBytes, family.threads(limits.lanes)),
  };
}

/** A row a family, and a line for each family and limit that has kernels below {@link WANTED} waves. */
export function tableOf(
  target: string,
  measured: readonly (readonly [Family, readonly Measured[]])[],
): { rows: string[]; few: string[] } {
  const rows: string[] = [];
  const few: string[] = [];
  for (const [family, kernels] of measured) {
    const span = (field: 'vgprs' | 'ldsBytes' | 'waves' | 'load' | 'store') => {
      const values = kernels.map((kernel) => kernel[field]);
      const [least, most] = [Math.min(...values), Math.max(...values)];
      return least === most ? `${most}` : `${least}–${most}`;
    };
    const cells = [target, family.name, kernels.length, span('load'), span('store'), span('vgprs'), span('ldsBytes')];
    rows.push(`| ${[...cells, span('waves'), family.banks].join(' | ')} |`);
    for (const limit of ['registers', 'LDS'] as const) {
      const low = kernels.filter((kernel) => kernel.waves < WANTED && kernel.limit === limit);
      if (low.length === 0) continue;
      const sorted = low.sort((a, b) => a.waves - b.waves);
      const names = sorted.map(({ name, waves }) => `${name} ${waves}`);
      const shown = names.length > 6 ? [...names.slice(0, 6), `and ${names.length - 6} more`] : names;
      few.push(`- ${target} ${family.name}, ${limit}: ${shown.join(', ')}`);
    }
  }
  return { rows, few };
}

function main(): void {
  const { values } = parseArgs({ options: { targets: { type: 'string', default: 'gfx1100,gfx942' } } });
  const objdump = findDisassembler();
  if (objdump === undefined) throw new Error('no llvm-objdump beside clang (apt install llvm-22).');
  const heading = [
    'target',
    'family',
    'kernels',
    'widest load',
    'widest store',
    'VGPRs',
    'LDS',
    'waves a SIMD',
    'LDS banks',
  ];
  console.log(`| ${heading.join(' | ')} |\n|${' -- |'.repeat(heading.length)}`);
  const below: string[] = [];
  for (const target of values.targets.split(',')) {
    if (!(target in LIMITS)) throw new Error(`target ${target} is none of: ${Object.keys(LIMITS).join(', ')}.`);
    const manifest = readManifest(target);
    if (!manifest) throw new Error(`no code objects for ${target}: run \`pnpm kernels --targets ${target}\`.`);
    const disassembled = new Map<string, Map<string, Accesses>>();
    const accessesOf = (module: string) => {
      const known = disassembled.get(module);
      if (known) return known;
      const parsed = parseDisassembly(disassemble(objdump, target, manifest.modules[module]!.file));
      disassembled.set(module, parsed);
      return parsed;
    };
    const measured = FAMILIES.map((family) => {
      const kernels = family.modules.flatMap((module) =>
        manifest.modules[module]!.kernels.filter(({ name }) => family.pattern.test(name)).map((kernel) =>
          measure(target, family, kernel, accessesOf(module).get(kernel.name)!),
        ),
      );
      if (kernels.length === 0) throw new Error(`${target} has no kernel of ${family.name}; correct families.ts.`);
      return [family, kernels] as const;
    });
    const { rows, few } = tableOf(target, measured);
    for (const row of rows) console.log(row);
    below.push(...few);
  }
  console.log(`\nFewer than ${WANTED} waves a SIMD:\n\n${below.join('\n') || 'none'}`);
}

if (process.argv[1]?.endsWith('occupancy.ts')) main();
