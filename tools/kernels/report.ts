/** The table of --report: what each module costs on each target, from the manifests. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { KernelInfo, Manifest } from '../../packages/kernels/src/index';

function most(
  kernels: KernelInfo[],
  field: 'vgprs' | 'vgprSpills' | 'sgprSpills' | 'scratchBytes' | 'ldsBytes',
): string {
  const values = kernels.map((kernel) => kernel[field]).filter((value): value is number => value !== null);
  return values.length === 0 ? '-' : String(Math.max(...values));
}

/** Lines of text: a heading, then one row a module and target. Registers, spills and bytes are the largest of any kernel. */
export function report(objects: string, targets: string[], modules: string[]): string[] {
  const rows = [['module', 'target', 'bytes', 'kernels', 'vgprs', 'vgpr spills', 'sgpr spills', 'scratch', 'lds']];
  for (const target of targets) {
    const path = join(objects, target, 'manifest.json');
    if (!existsSync(path)) continue;
    const manifest = JSON.parse(readFileSync(path, 'utf8')) as Manifest;
    for (const module of modules) {
      const entry = manifest.modules[module];
      if (entry === undefined) continue;
      const { kernels } = entry;
      rows.push([
        module,
        target,
        String(entry.size),
        String(kernels.length),
        most(kernels, 'vgprs'),
        most(kernels, 'vgprSpills'),
        most(kernels, 'sgprSpills'),
        most(kernels, 'scratchBytes'),
        most(kernels, 'ldsBytes'),
      ]);
    }
  }
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    row.map((cell, column) => (column < 2 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!))).join('  '),
  );
}
