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

const UNKNOWN = '  not known: see the findings above';

const mark = (good: boolean) => (good ? paint('green', 'ok') : paint('yellow', '--'));

function describeMachine({ node, system, machine }: Diagnosis): string[] {
  const where = [machine.container && 'in a container', machine.wsl && 'in WSL'].filter(Boolean).join(', ');
  const linux = system.startsWith('linux') ? `, ${machine.distribution}, Linux ${machine.kernel}` : '';
  const lines = [`Node ${node} on ${system}${linux}${where ? `, ${where}` : ''}`];
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
  findings.forEach(({ code, level, message, remedy }, i) => {
    lines.push(`  ${level === 'problem' ? paint('red', '!!') : paint('yellow', '..')} ${code}: ${shortened(message)}`);
    // Of several in a row with one remedy, the last one says it.
    if (findings[i + 1]?.remedy !== remedy) lines.push(`       ${remedy}`);
  });
  return lines;
}

/** Of the symbols that a library lacks, the first three. */
function shortened(message: string): string {
  return message.replace(/( lacks(?: \w+){3})((?: \w+)+)/, (_, first: string, others: string) => {
    return `${first} and ${others.trim().split(' ').length} more`;
  });
}

/** Where a finding has said why something is not there, a pointer to it; else why, and what to do. */
function whyNot(findings: readonly Finding[], message: string, remedy?: string): string[] {
  const why = `${message}.${remedy ? ` ${remedy}` : ''}`;
  const said = findings.find(
    (finding) =>
      (finding.code === 'ADDON_MISSING' && why.includes(finding.remedy)) ||
      (finding.code === 'SETTING' && why.includes(finding.message)),
  );
  if (said) return [`see ${said.code} above`];
  return remedy ? [shortened(message), remedy] : [shortened(message)];
}

function describePlatforms({ platforms, devices, findings }: Diagnosis): string[] {
  const lines = ['', 'Platforms'];
  for (const { platform, available, library, version, reason, searched } of platforms) {
    lines.push(`  ${mark(available)} ${platform}${library ? `: ${library}` : ''}${version ? ` (${version})` : ''}`);
    if (reason) {
      const why = whyNot(findings, `${reason.name ? `${reason.name}: ` : ''}${reason.message}`, reason.remedy);
      lines.push(...why.map((line) => `       ${line}`));
    }
    if (!library && searched.length > 0) lines.push(paint('dim', `       looked for: ${searched.join(', ')}`));
  }
  lines.push('', 'Devices');
  if (devices.length === 0) lines.push(UNKNOWN);
  for (const { device, name, arch, memoryBytes, codeObjects, advice } of devices) {
    lines.push(
      `  ${mark(codeObjects !== null)} ${device}: ${name} (${arch}), ${(memoryBytes / 2 ** 30).toFixed(1)} GiB, kernels: ${codeObjects ?? 'none'}`,
    );
    if (advice) lines.push(`       ${advice}`);
  }
  return lines;
}

function describeTools({ compilers, libraries, findings }: Diagnosis): string[] {
  const lines = ['', 'Run-time compilers'];
  if (compilers.length === 0) lines.push(UNKNOWN);
  for (const { platform, available, library, version, reason, candidates } of compilers) {
    lines.push(
      `  ${mark(available)} ${platform}: ${available ? `${library} (${version})` : whyNot(findings, reason ?? '')[0]}`,
    );
    for (const refused of candidates?.filter((candidate) => candidate.reason) ?? []) {
      const what = refused.version ? `${refused.path} (${refused.version})` : refused.path;
      lines.push(paint('dim', `       not ${what}: ${refused.reason}`));
    }
  }
  lines.push(
    '',
    'Libraries (our kernels do the work of those that are missing; several GPUs need the one for collectives)',
  );
  if (libraries.length === 0) lines.push(UNKNOWN);
  for (const { name, platform, purpose, available, library, version, reason, searched } of libraries) {
    const [first, ...more] = reason
      ? whyNot(findings, reason.message, reason.remedy)
      : [`${library}${version ? ` (${version})` : ''}`];
    lines.push(`  ${mark(available)} ${name} (${platform}, ${PURPOSES[purpose]}): ${first}`);
    lines.push(...more.map((line) => `       ${line}`));
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
