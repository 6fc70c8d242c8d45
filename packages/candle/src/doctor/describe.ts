/** The text of `candle doctor`. */
import type { CompilerReport, LibraryReport, PlatformReport } from '@x/hip';
import { paint } from '../output';
import type { Finding } from './findings';
import type { Machine } from './machine';

const PURPOSES = {
  gemm: 'matrix products',
  convolution: 'convolutions',
  collectives: 'several devices together',
} as const;

export interface DeviceCheck {
  device: string;
  name: string;
  arch: string;
  memoryBytes: number;
  /** The target whose code objects serve it, or null. */
  codeObjects: string | null;
  advice?: string;
}

export interface Diagnosis {
  node: string;
  system: string;
  machine: Machine;
  findings: Finding[];
  platforms: PlatformReport[];
  devices: DeviceCheck[];
  compilers: CompilerReport[];
  libraries: LibraryReport[];
  /** Packages of kernels that are installed, with their targets. */
  kernelPackages: { name: string; targets: string[] }[];
  kernelTargets: string[];
}

export function describe(result: Diagnosis): string {
  return [
    ...describeMachine(result),
    ...describeFindings(result.findings),
    ...describePlatforms(result),
    ...describeTools(result),
    '',
    `Kernel targets: ${result.kernelTargets.join(', ') || 'none'}`,
    ...result.kernelPackages.map(({ name, targets }) => `  ${name}: ${targets.join(', ') || 'cannot be used'}`),
  ].join('\n');
}

const mark = (good: boolean) => (good ? paint('green', 'ok') : paint('yellow', '--'));

function describeMachine({ node, system, machine }: Diagnosis): string[] {
  const where = [machine.container && 'in a container', machine.wsl && 'in WSL'].filter(Boolean).join(', ');
  const lines = [
    `Node ${node} on ${system}, ${machine.distribution}, Linux ${machine.kernel}${where ? `, ${where}` : ''}`,
  ];
  for (const { node, arch, vramBytes, gttBytes, integrated } of machine.gpus) {
    const shared = integrated ? `, shares the processor's memory (${(gttBytes / 2 ** 30).toFixed(1)} GiB)` : '';
    lines.push(`  the kernel lists ${arch}: node ${node}, ${(vramBytes / 2 ** 30).toFixed(1)} GiB${shared}`);
  }
  return lines;
}

/** For a terminal and for goldens alike: `!!` is a problem, `..` advice. */
export function describeFindings(findings: readonly Finding[]): string[] {
  if (findings.length === 0) return [];
  const lines = ['', 'Findings'];
  for (const { code, level, message, remedy } of findings) {
    lines.push(
      `  ${level === 'problem' ? paint('red', '!!') : paint('yellow', '..')} ${code}: ${message}`,
      `       ${remedy}`,
    );
  }
  return lines;
}

function describePlatforms({ platforms, devices }: Diagnosis): string[] {
  const lines = ['', 'Platforms'];
  for (const { platform, available, library, version, reason, searched } of platforms) {
    lines.push(`  ${mark(available)} ${platform}${library ? `: ${library}` : ''}${version ? ` (${version})` : ''}`);
    if (reason)
      lines.push(`       ${reason.name ? `${reason.name}: ` : ''}${reason.message}`, `       ${reason.remedy}`);
    if (!library && searched.length > 0) lines.push(paint('dim', `       looked for: ${searched.join(', ')}`));
  }
  lines.push('', 'Devices');
  for (const { device, name, arch, memoryBytes, codeObjects, advice } of devices) {
    lines.push(
      `  ${mark(codeObjects !== null)} ${device}: ${name} (${arch}), ${(memoryBytes / 2 ** 30).toFixed(1)} GiB, kernels: ${codeObjects ?? 'none'}`,
    );
    if (advice) lines.push(`       ${advice}`);
  }
  return lines;
}

function describeTools({ compilers, libraries }: Diagnosis): string[] {
  const lines = ['', 'Run-time compilers'];
  for (const { platform, available, library, version, reason, candidates } of compilers) {
    lines.push(`  ${mark(available)} ${platform}: ${available ? `${library} (${version})` : reason}`);
    for (const refused of candidates?.filter((candidate) => candidate.reason) ?? []) {
      const what = refused.version ? `${refused.path} (${refused.version})` : refused.path;
      lines.push(paint('dim', `       not ${what}: ${refused.reason}`));
    }
  }
  lines.push(
    '',
    'Libraries (our kernels do the work of those that are missing; several GPUs need the one for collectives)',
  );
  for (const { name, platform, purpose, available, library, version, reason, searched } of libraries) {
    const what = `${name} (${platform}, ${PURPOSES[purpose]})`;
    lines.push(
      `  ${mark(available)} ${what}: ${library ? `${library}${version ? ` (${version})` : ''}` : reason?.message}`,
    );
    if (reason) lines.push(`       ${reason.remedy}`);
    if (!available && searched.length > 0) lines.push(paint('dim', `       looked for: ${places(searched)}`));
  }
  return lines;
}

/** Paths that were tried, each file and each directory named once. */
function places(searched: readonly string[]): string {
  const files = new Set(searched.map((path) => path.slice(path.lastIndexOf('/') + 1)));
  const directories = new Set(searched.map((path) => path.slice(0, path.lastIndexOf('/') + 1) || "the loader's path"));
  return `${[...files].join(', ')} in ${[...directories].join(', ')}`;
}
