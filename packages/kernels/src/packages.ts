/**
 * The packages that code objects come in, one for each family of processors, and which of them serves a device. The
 * packages hold data only; stores.ts reads them.
 */
import { CUBIN_TARGETS, resolveTarget } from './targets';

export interface KernelPackage {
  /** The targets inside: families first, then the chips that have code of their own. */
  readonly targets: readonly string[];
  /** What it is for, as people name it. */
  readonly hardware: string;
  /** Where it can be used; absent: anywhere (a GPU's code is data to the machine that installs it). */
  readonly os?: 'linux';
  readonly cpu?: 'x64' | 'arm64';
  /** Made only where NVIDIA's `ptxas` is, and what it holds is in another package too, in a form that a driver compiles. */
  readonly needsPtxas?: true;
}

/** By package name. */
export const KERNEL_PACKAGES: Readonly<Record<string, KernelPackage>> = {
  '@x/kernels-gfx9': {
    targets: ['gfx9-generic', 'gfx906', 'gfx908'],
    hardware: 'AMD Vega and MI50, MI60, MI100 (gfx900 to gfx90c)',
  },
  '@x/kernels-gfx90a': { targets: ['gfx90a'], hardware: 'AMD MI210, MI250, MI250X (gfx90a)' },
  '@x/kernels-gfx942': {
    targets: ['gfx942', 'gfx9-4-generic'],
    hardware: 'AMD MI300A, MI300X, MI325X (gfx942)',
  },
  '@x/kernels-gfx950': { targets: ['gfx950'], hardware: 'AMD MI350X, MI355X (gfx950)' },
  '@x/kernels-gfx10-3': {
    targets: ['gfx10-3-generic', 'gfx1030'],
    hardware: 'AMD RDNA 2: RX 6000 series and the APUs of its time (gfx1030 to gfx1036)',
  },
  '@x/kernels-gfx11': {
    targets: ['gfx11-generic', 'gfx1100'],
    hardware: 'AMD RDNA 3 and 3.5: RX 7000 series, Ryzen AI (gfx1100 to gfx1153)',
  },
  '@x/kernels-gfx12': {
    targets: ['gfx12-generic', 'gfx1201'],
    hardware: 'AMD RDNA 4: RX 9000 series (gfx1200, gfx1201)',
  },
  '@x/kernels-nvidia': {
    targets: ['nvptx64', 'sm_90a'],
    hardware: 'NVIDIA GPUs of compute capability 8.0 and later',
  },
  '@x/kernels-nvidia-cubins': {
    targets: CUBIN_TARGETS,
    hardware:
      "NVIDIA GPUs, beside @x/kernels-nvidia: machine code, so that the driver compiles nothing at a model's first use",
    needsPtxas: true,
  },
  '@x/kernels-host-x64': {
    targets: ['x86-64-v2', 'x86-64-v3', 'x86-64-v3-vnni', 'x86-64-v4', 'x86-64-v4-vnni'],
    hardware: 'the CPU of x64 machines with Linux',
    os: 'linux',
    cpu: 'x64',
  },
  '@x/kernels-host-arm64': {
    targets: ['aarch64', 'aarch64-dotprod', 'aarch64-i8mm'],
    hardware: 'the CPU of ARM machines with Linux',
    os: 'linux',
    cpu: 'arm64',
  },
};

/**
 * The package with code objects for a device, or undefined where none is shipped.
 *
 * @param arch As the driver names it: gfx1100, gfx90a:sramecc+:xnack-, sm_90, x86-64-v3-vnni, aarch64.
 */
export function kernelPackageFor(arch: string): string | undefined {
  for (const target of resolveTarget(arch)) {
    const found = Object.entries(KERNEL_PACKAGES).find(([, { targets }]) => targets.includes(target));
    if (found) return found[0];
  }
  return undefined;
}
