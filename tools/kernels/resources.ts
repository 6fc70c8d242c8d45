/** Registers, shared memory, scratch and spills of AMD kernels, as their objects state them. */
import type { KernelInfo } from '@x/kernels';

export interface Entry extends KernelInfo {
  target: string;
  module: string;
}

/**
 * SGPRs that kernels may spill, the first pattern that fits counts; all others none. A spilled scalar lives in a lane of a
 * vector register: v_writelane and v_readlane, no memory. The metadata's count is the number of v_writelane. The limits are
 * what clang 22 needs for gfx90a, gfx942 and gfx1100; `opaque` of kernels/include/x/platform.h is what has helped.
 */
export const SGPR_SPILLS: readonly (readonly [pattern: RegExp, most: number])[] = [
  // One table of coefficients in f64, two registers each.
  [/^(ugelu_erf|unormcdf|uerf)_f64$/, 28],
  [/^u(sin|cos|softplus)_f64$/, 4],
  [/^bpow_f64$/, 9],
  // Three loops in one kernel: contiguous, one stride, any strides.
  [/^fast_(min|max)_(bf16|f16)$/, 35],
  [/^fast_(sum|min|max|argmin|argmax)_/, 20],
  [/^cols_(min|max|argmin|argmax)_(bf16|f8e4m3)$/, 20],
  [/^part_(min|max)_f8e4m3$/, 4],
  [/^sort_warp_/, 4],
  [/^gemv_f8e4m3$/, 2],
  [/^indexed_moe_forward_iq2_xs_q8_1$/, 1],
  // Two ways to draw from a list.
  [/^sample_list_f32$/, 2],
  // Parameters of the merge, which stay in registers over the loop of keys, beside masks of 64 lanes.
  [/^attention_(paged|step)_/, 28],
];

/** The most SGPRs that a kernel may spill. */
export function sgprSpillLimit(kernel: string): number {
  return SGPR_SPILLS.find(([pattern]) => pattern.test(kernel))?.[1] ?? 0;
}

/**
 * Kernels with scratch memory, VGPR spills or more SGPR spills than {@link SGPR_SPILLS} allows, one line each. A resource
 * that is not stated is a failure too.
 */
export function resourceFailures(entries: readonly Entry[]): string[] {
  return entries.flatMap(({ target, module, name, scratchBytes, vgprSpills, sgprSpills }) => {
    const problems: string[] = [];
    if (scratchBytes !== 0) problems.push(`${scratchBytes ?? 'unknown'} bytes of scratch`);
    if (vgprSpills !== 0) problems.push(`${vgprSpills ?? 'unknown'} VGPR spills`);
    const limit = sgprSpillLimit(name);
    if (sgprSpills === null || sgprSpills > limit)
      problems.push(`${sgprSpills ?? 'unknown'} SGPR spills, ${limit} allowed`);
    return problems.length === 0 ? [] : [`${target} ${module} ${name}: ${problems.join(', ')}`];
  });
}

/** A line a kernel under a heading. */
export function table(entries: readonly Entry[]): string {
  const heading = ['target', 'module', 'kernel', 'vgprs', 'agprs', 'sgprs', 'lds', 'scratch', 'vgpr spills'];
  const rows = entries.map((entry) => [
    ...[entry.target, entry.module, entry.name],
    ...[entry.vgprs, entry.agprs, entry.sgprs, entry.ldsBytes, entry.scratchBytes].map((value) => `${value ?? '-'}`),
    ...[`${entry.vgprSpills ?? '-'}`, `${entry.sgprSpills ?? '-'}`],
  ]);
  const all = [[...heading, 'sgpr spills'], ...rows];
  const widths = all[0]!.map((_, column) => all.reduce((most, row) => Math.max(most, row[column]!.length), 0));
  return all
    .map((row) => row.map((cell, i) => (i < 3 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '))
    .join('\n');
}
