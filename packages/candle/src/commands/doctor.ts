/** `candle doctor`: drivers, permissions, compilers, libraries and code objects, and what to install for what is missing. */
import { totalmem } from 'node:os';
import { compilers, type LibraryReport, libraryReports, openDevice, type PlatformReport, platforms } from '@x/hip';
import { listTargets, resolveTarget } from '@x/kernels';
import { Command } from 'commander';
import { guarded, paint, printJson } from '../output';

interface DeviceCheck {
  device: string;
  name: string;
  arch: string;
  memoryBytes: number;
  /** The built target that serves it, or null. */
  codeObjects: string | null;
  advice?: string;
}

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check what this machine can run, and say what to install')
    .option('--json', 'print one JSON object')
    .action((options: { json?: boolean }) =>
      guarded(options.json, () => {
        const targets = listTargets();
        const reports = platforms();
        const devices = reports.flatMap((report) => checkDevices(report, targets));
        if (!devices.some(({ device }) => device === 'cpu')) devices.push(plainCpu());
        const result = {
          node: process.versions.node,
          system: `${process.platform}-${process.arch}`,
          platforms: reports,
          devices,
          compilers: compilers(),
          libraries: libraryReports(),
          kernelTargets: targets,
        };
        if (options.json) printJson(result);
        else process.stdout.write(`${describe(result)}\n`);
      }),
    );
}

function checkDevices(report: PlatformReport, targets: readonly string[]): DeviceCheck[] {
  return Array.from({ length: report.deviceCount }, (_, ordinal) => {
    using device = openDevice(report.platform, ordinal);
    const { name, arch, totalMemory } = device.properties;
    const codeObjects = resolveTarget(arch).find((target) => targets.includes(target)) ?? null;
    const advice = codeObjects
      ? undefined
      : `no kernels for ${arch}: they are compiled on first use if the run-time compiler below is there (else install it), and kept; in a checkout of the project, build them: pnpm kernels --targets native`;
    const label = report.platform === 'host' ? 'cpu' : `${report.platform}:${ordinal}`;
    return { device: label, name, arch, memoryBytes: totalMemory, codeObjects, advice };
  });
}

/** The cpu device where the host platform cannot run: core's own, in TypeScript. */
function plainCpu(): DeviceCheck {
  return {
    device: 'cpu',
    name: 'plain TypeScript',
    arch: process.arch,
    memoryBytes: totalmem(),
    codeObjects: null,
    advice:
      'it computes in plain TypeScript, many times slower than with compiled kernels: see host above for why and what to do',
  };
}

function describe(result: {
  node: string;
  system: string;
  platforms: PlatformReport[];
  devices: DeviceCheck[];
  compilers: ReturnType<typeof compilers>;
  libraries: LibraryReport[];
  kernelTargets: string[];
}): string {
  const mark = (good: boolean) => (good ? paint('green', 'ok') : paint('yellow', '--'));
  const lines = [`Node ${result.node} on ${result.system}`, '', 'Platforms'];
  for (const { platform, available, library, version, reason, searched } of result.platforms) {
    lines.push(`  ${mark(available)} ${platform}${library ? `: ${library}` : ''}${version ? ` (${version})` : ''}`);
    if (reason)
      lines.push(`       ${reason.name ? `${reason.name}: ` : ''}${reason.message}`, `       ${reason.remedy}`);
    if (!library && searched.length > 0) lines.push(paint('dim', `       looked for: ${searched.join(', ')}`));
  }
  lines.push('', 'Devices');
  for (const { device, name, arch, memoryBytes, codeObjects, advice } of result.devices) {
    lines.push(
      `  ${mark(codeObjects !== null)} ${device}: ${name} (${arch}), ${(memoryBytes / 2 ** 30).toFixed(1)} GiB, kernels: ${codeObjects ?? 'none'}`,
    );
    if (advice) lines.push(`       ${advice}`);
  }
  lines.push('', 'Run-time compilers');
  for (const { platform, available, library, version, reason, candidates } of result.compilers) {
    lines.push(`  ${mark(available)} ${platform}: ${available ? `${library} (${version})` : reason}`);
    for (const refused of candidates?.filter((candidate) => candidate.reason) ?? []) {
      const what = refused.version ? `${refused.path} (${refused.version})` : refused.path;
      lines.push(paint('dim', `       not ${what}: ${refused.reason}`));
    }
  }
  lines.push('', 'Libraries (our kernels do the work of those that are missing)');
  for (const { name, platform, purpose, available, library, version, reason, searched } of result.libraries) {
    const what = `${name} (${platform}, ${purpose === 'gemm' ? 'matrix products' : 'convolutions'})`;
    lines.push(
      `  ${mark(available)} ${what}: ${library ? `${library}${version ? ` (${version})` : ''}` : reason?.message}`,
    );
    if (reason) lines.push(`       ${reason.remedy}`);
    if (!available && searched.length > 0) lines.push(paint('dim', `       looked for: ${places(searched)}`));
  }
  lines.push(
    '',
    `Kernel targets built: ${result.kernelTargets.join(', ') || 'none: install @x/kernels again, or in a checkout of the project run pnpm kernels --targets native'}`,
  );
  return lines.join('\n');
}

/** Paths that were tried, each file and each directory named once. */
function places(searched: readonly string[]): string {
  const files = new Set(searched.map((path) => path.slice(path.lastIndexOf('/') + 1)));
  const directories = new Set(searched.map((path) => path.slice(0, path.lastIndexOf('/') + 1) || "the loader's path"));
  return `${[...files].join(', ')} in ${[...directories].join(', ')}`;
}
