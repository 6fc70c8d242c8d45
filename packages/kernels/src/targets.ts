/** Which code objects run on which processor. */
import { checkName } from './arguments';

/** Generic families: one code object for several processors (AMD code object version 6). */
const FAMILIES: [family: string, members: RegExp][] = [
  ['gfx9-4-generic', /^gfx9(40|41|42|50)$/],
  ['gfx9-generic', /^gfx9(00|02|04|06|09|0c)$/],
  ['gfx10-3-generic', /^gfx103[0-9a-f]$/],
  ['gfx11-generic', /^gfx11[0-9a-f]{2}$/],
  ['gfx12-generic', /^gfx12[0-9a-f]{2}$/],
];

const HOST_LEVELS = ['x86-64-v4', 'x86-64-v3', 'x86-64-v2'];
const ARM_LEVELS = ['aarch64-i8mm', 'aarch64-dotprod', 'aarch64'];
/** A level with the CPU's int8 dot products, which has only the modules that use them. */
const HOST_PRODUCTS = /-vnni$/;

/**
 * The targets whose code objects a device can run, best first: its own, then its generic family.
 *
 * @param arch gfx1100, gfx90a:sramecc+:xnack-, sm_90, x86-64-v3-vnni; features after a colon are ignored.
 * @throws KernelError KERNEL_ARGUMENT_INVALID for what is no text
 */
export function resolveTarget(arch: string): string[] {
  checkName('resolveTarget: the processor', arch, 'gfx1100');
  const name = arch.split(':')[0]!;
  if (name.startsWith('gfx')) {
    const family = FAMILIES.find(([, members]) => members.test(name));
    return family === undefined ? [name] : [name, family[0]];
  }
  const compute = /^sm_(\d+)[a-z]?$/.exec(name);
  if (compute !== null) {
    const capability = Number(compute[1]);
    // sm_90a has the modules that use what no later GPU has; nvptx64 has them all.
    return capability < 80 ? [] : capability === 90 ? ['sm_90a', 'nvptx64'] : ['nvptx64'];
  }
  const arm = ARM_LEVELS.indexOf(name);
  if (arm >= 0) return ARM_LEVELS.slice(arm);
  const level = HOST_LEVELS.indexOf(name.replace(HOST_PRODUCTS, ''));
  if (level < 0) return [name];
  return HOST_PRODUCTS.test(name) ? [name, ...HOST_LEVELS.slice(level)] : HOST_LEVELS.slice(level);
}

/**
 * NVIDIA's machine code, made of the PTX where a release is built with `ptxas`. It runs on the compute capability that it was made
 * for and on later ones of the same major number; with an `a`, on that one alone.
 */
export const CUBIN_TARGETS: readonly string[] = ['80', '86', '89', '90a', '100', '120'].map(
  (name) => `sm_${name}-cubin`,
);
/** NVIDIA's systems on a chip, which take no code of its graphics cards. */
const EMBEDDED = [72, 87];

/**
 * The targets whose machine code a device can run, best first: none of other makers' devices. A driver that is older than the
 * `ptxas` may refuse it, so those of {@link resolveTarget} stay the ones to fall back on.
 *
 * @param arch sm_90
 */
export function cubinTargets(arch: string): string[] {
  checkName('cubinTargets: the processor', arch, 'sm_90');
  const capability = Number(/^sm_(\d+)[a-z]?$/.exec(arch)?.[1] ?? Number.NaN);
  if (EMBEDDED.includes(capability)) return [];
  return CUBIN_TARGETS.filter((target) => {
    const [, text, only] = /^sm_(\d+)(a?)-/.exec(target)!;
    const own = Number(text);
    return only ? own === capability : Math.floor(own / 10) === Math.floor(capability / 10) && own <= capability;
  }).reverse();
}

/**
 * The name of AMD's kernel driver's `gfx_target_version`: 110000 is gfx1100, 90010 gfx90a. Decimal pairs, of which the last two are
 * written in hexadecimal.
 */
export function gfxName(version: number): string {
  const [major, minor, step] = [Math.floor(version / 10000), Math.floor(version / 100) % 100, version % 100];
  return `gfx${major}${minor.toString(16)}${step.toString(16)}`;
}
