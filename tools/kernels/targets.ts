/** The targets that kernels are compiled for, and the words that name groups of them. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { KERNEL_PACKAGES } from '../../packages/kernels/src/packages';
import { CUBIN_TARGETS, gfxName } from '../../packages/kernels/src/targets';

export type Target =
  | { kind: 'amdgcn'; name: string; codeObjectVersion: 4 | 6; wave: 32 | 64; isa: string }
  | { kind: 'nvptx'; name: string; arch: string; modules?: readonly string[] }
  | { kind: 'host'; name: string; modules?: readonly string[] };

/**
 * AMD targets with the ISA number that ocml is specialised for. Exact targets are code object version 4, which every
 * ROCm since 4.5 loads; a generic family needs version 6 (ROCm 6.3).
 */
const AMD: [name: string, isa: string][] = [
  ['gfx906', '906'],
  ['gfx908', '908'],
  ['gfx90a', '90a'],
  ['gfx942', '942'],
  ['gfx950', '950'],
  ['gfx1030', '1030'],
  ['gfx1100', '1100'],
  ['gfx1101', '1101'],
  ['gfx1102', '1102'],
  ['gfx1150', '1150'],
  ['gfx1151', '1151'],
  ['gfx1200', '1200'],
  ['gfx1201', '1201'],
  ['gfx9-generic', '900'],
  ['gfx9-4-generic', '940'],
  ['gfx10-3-generic', '1030'],
  ['gfx11-generic', '1100'],
  ['gfx12-generic', '1200'],
];

/**
 * PTX for every NVIDIA GPU from compute capability 8.0 on, and for those of 9.0 alone the modules that use what these
 * have: warpgroup products (kernels/shared/wgmma.h) and kernels that begin early (kernels/include/x/early.h).
 */
const NVIDIA: { name: string; arch: string; modules?: readonly string[] }[] = [
  { name: 'nvptx64', arch: 'sm_80' },
  {
    name: 'sm_90a',
    arch: 'sm_90a',
    modules: [
      'affine',
      'attention',
      'binary',
      'cast',
      'collectives',
      'decode',
      'experts',
      'gemm',
      'quantized',
      'ternary',
      'unary',
    ],
  },
];

/** Linux on ARM: every 64-bit processor, and what those with int8 products (dotprod, i8mm) and bf16 gain by them. */
const ARM: { name: string; modules?: readonly string[] }[] = [
  { name: 'aarch64' },
  { name: 'aarch64-dotprod', modules: ['experts', 'quantized'] },
  { name: 'aarch64-i8mm', modules: ['cast', 'quantized'] },
];
/** The psABI's levels, and those with the CPU's int8 dot products (AVX-VNNI, AVX512-VNNI), for the modules that use them. */
const X64: { name: string; modules?: readonly string[] }[] = [
  { name: 'x86-64-v2' },
  { name: 'x86-64-v3' },
  { name: 'x86-64-v3-vnni', modules: ['experts', 'quantized'] },
  { name: 'x86-64-v4' },
  { name: 'x86-64-v4-vnni', modules: ['experts', 'quantized'] },
];
const HOST_NAMES = (process.arch === 'arm64' ? ARM : X64).map(({ name }) => name);

/** What the packages hold and a compiler makes. */
const RELEASE = Object.values(KERNEL_PACKAGES).flatMap(({ targets }) => targets.filter((name) => !isCubin(name)));

export const ALL_TARGETS = [...AMD.map(([name]) => name), ...[...NVIDIA, ...X64, ...ARM].map(({ name }) => name)];

/** Whether it is machine code that is made of another target's PTX (cubins.ts). */
export function isCubin(name: string): boolean {
  return CUBIN_TARGETS.includes(name);
}

export function makeTarget(name: string): Target {
  const nvidia = NVIDIA.find((target) => target.name === name);
  if (nvidia !== undefined) return { kind: 'nvptx', ...nvidia };
  const host = [...X64, ...ARM].find((target) => target.name === name);
  if (host !== undefined) return { kind: 'host', ...host };
  const known = AMD.find(([amd]) => amd === name);
  if (known === undefined && !/^gfx[0-9a-f]{3,4}$/.test(name)) {
    throw new Error(
      `unknown target "${name}"; known: ${ALL_TARGETS.join(' ')} and the groups host all release native.`,
    );
  }
  const isa = known?.[1] ?? name.slice(3);
  return {
    kind: 'amdgcn',
    name,
    codeObjectVersion: name.endsWith('generic') ? 6 : 4,
    wave: name.startsWith('gfx9') ? 64 : 32,
    isa,
  };
}

/** Whether a target's code objects include this module. */
export function hasModule(target: Target, module: string): boolean {
  return target.kind === 'amdgcn' || target.modules?.includes(module) !== false;
}

/** Targets of `host,gfx1100`, `all`, `release`, `native`, in the order named, each once. */
export function parseTargets(list: string): Target[] {
  const names = list.split(',').flatMap((word): string[] => {
    if (word === 'host') return HOST_NAMES;
    if (word === 'all') return ALL_TARGETS;
    if (word === 'release') return RELEASE;
    if (word === 'native') return nativeTargets();
    return word === '' ? [] : [word];
  });
  return [...new Set(names)].map(makeTarget);
}

/** The host levels that this processor runs best, the gfx targets of its AMD GPUs and NVIDIA's beside an NVIDIA driver. */
export function nativeTargets(): string[] {
  const names = hostLevels(processorFlags(), process.arch);
  const nodes = '/sys/class/kfd/kfd/topology/nodes';
  for (const node of existsSync(nodes) ? readdirSync(nodes) : []) {
    const version = Number(
      /^gfx_target_version (\d+)$/m.exec(readFileSync(`${nodes}/${node}/properties`, 'utf8'))?.[1] ?? 0,
    );
    if (version > 0) names.push(gfxName(version));
  }
  if (existsSync('/proc/driver/nvidia')) names.push(...NVIDIA.map(({ name }) => name));
  return [...new Set(names)];
}

/**
 * What tests need of a module for a level of the host: its object; one that nothing optimises, since they read it but run that of
 * the best level; or that its source compiles, where the processor does not run the level.
 */
export function neededByTests(
  name: string,
  module: string,
  flags = processorFlags(),
  arch = process.arch,
): 'object' | 'unoptimized' | 'check' {
  if (!runsLevel(name, flags, arch)) return 'check';
  // Of these, packages/rocm-backend/test/host-levels.test.ts runs every level.
  const runsAll = module === 'unary' || (module === 'quantized' && name !== 'x86-64-v2');
  return runsAll || hostLevels(flags, arch).includes(name) ? 'object' : 'unoptimized';
}

/** Whether a processor, this one if no other is named, runs what is compiled for the host level. */
export function runsLevel(name: string, flags = processorFlags(), arch = process.arch): boolean {
  const best = hostLevels(flags, arch);
  if (best.includes(name)) return true;
  const below = name.startsWith('x86-64-v') && arch === 'x64' && name < best[0]!;
  return below && (!name.endsWith('-vnni') || flags.has('avx_vnni'));
}

function processorFlags(): Set<string> {
  const flags = /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? '';
  return new Set(flags.trim().split(' '));
}

/** The highest level whose features are all there, and what is beside it for those that have int8 products too. */
export function hostLevels(flags: Set<string>, arch: string): string[] {
  const has = (...names: string[]) => names.every((name) => flags.has(name));
  if (arch === 'arm64') {
    if (!has('atomics', 'asimdrdm', 'fphp', 'asimdhp', 'asimddp')) return ['aarch64'];
    return has('i8mm', 'bf16') ? ['aarch64', 'aarch64-dotprod', 'aarch64-i8mm'] : ['aarch64', 'aarch64-dotprod'];
  }
  // The level has LZCNT too, which no processor with BMI2 lacks, but some systems' lists do (gVisor's).
  if (!has('avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'movbe')) return ['x86-64-v2'];
  if (!has('avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'))
    return has('avx_vnni') ? ['x86-64-v3', 'x86-64-v3-vnni'] : ['x86-64-v3'];
  return has('avx512_vnni') ? ['x86-64-v4', 'x86-64-v4-vnni'] : ['x86-64-v4'];
}
