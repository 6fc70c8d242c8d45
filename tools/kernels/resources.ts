/** Registers, shared memory, scratch and spills of AMD kernels, as their objects state them. */
import type { KernelInfo } from '@x/kernels';

export interface Entry extends KernelInfo {
  target: string;
  module: string;
}

/** Kernels with scratch memory or VGPR spills, one line each. A resource that is not stated is a failure too. */
export function resourceFailures(entries: readonly Entry[]): string[] {
  return entries
    .filter(({ scratchBytes, vgprSpills }) => scratchBytes !== 0 || vgprSpills !== 0)
    .map(
      ({ target, module, name, scratchBytes, vgprSpills }) =>
        `${target} ${module} ${name}: ${scratchBytes ?? 'unknown'} bytes of scratch, ${vgprSpills ?? 'unknown'} VGPR spills`,
    );
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
