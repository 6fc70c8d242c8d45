/** `candle doctor`: drivers, permissions, compilers, libraries and code objects, and what to do about what is missing. */
import { writeFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import type { PlatformReport } from '@x/hip';
import { installCommand, installedKernels, kernelPackageFor, listTargets, resolveTarget } from '@x/kernels';
import { Command, Option } from 'commander';
import { version } from '../../package.json';
import { type DeviceCheck, type Diagnosis, describe } from '../doctor/describe';
import { findings } from '../doctor/findings';
import { readMachine } from '../doctor/machine';
import { DENIED, PROBES, type ProbedDevice, type ProbeName, type Probes, printAnswer, probeAll } from '../doctor/probe';
import { guarded, printJson, UsageError } from '../output';

interface DoctorOptions {
  json?: boolean;
  report?: string;
  probe?: ProbeName;
}

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check what this machine can run, and say what to install')
    .option('--json', 'print one JSON object')
    .option('--report <file>', 'write all of it to a file, to send with a report of a problem')
    .addOption(new Option('--probe <name>').choices(PROBES).hideHelp())
    .addHelpText('after', '\nThe exit status is 1 where a finding marked !! says that something does not work, else 0.')
    .action((options: DoctorOptions) =>
      guarded(options.json, async () => {
        if (options.probe) return printAnswer(options.probe);
        const result = await diagnose();
        if (options.report) writeReport(options.report, result);
        if (options.json) printJson(result);
        else process.stdout.write(`${describe(result)}\n`);
        if (result.findings.some(({ level }) => level === 'problem')) process.exitCode = 1;
      }),
    );
}

async function diagnose(): Promise<Diagnosis> {
  const machine = readMachine();
  const probes = await probeAll();
  const targets = listTargets();
  const targetFor = (arch: string) => resolveTarget(arch).find((target) => targets.includes(target));
  const installed = installedKernels();
  const devices = [probes.rocm, probes.cuda, probes.host].flatMap((probe) =>
    'answer' in probe ? probe.answer.devices.map((device) => checkDevice(device, targetFor(device.arch))) : [],
  );
  if ('answer' in probes.host && !devices.some(({ device }) => device === 'cpu')) devices.push(plainCpu());
  const tools = 'answer' in probes.tools ? probes.tools.answer : { compilers: [], libraries: [] };
  return {
    node: process.versions.node,
    system: machine.system,
    machine,
    findings: findings(machine, probes, {
      targetFor,
      installFor: (arch) => {
        const name = kernelPackageFor(arch);
        return name && installCommand(name);
      },
      refused: installed.flatMap(({ name, reason }) => (reason ? [{ name, reason: reason.message }] : [])),
    }),
    platforms: (['rocm', 'cuda', 'host'] as const).map((name) => platformReport(name, probes)),
    devices,
    ...tools,
    kernelPackages: installed.map(({ name, targets }) => ({ name, targets })),
    kernelTargets: targets,
  };
}

function platformReport(platform: 'rocm' | 'cuda' | 'host', probes: Probes): PlatformReport {
  const probe = probes[platform];
  if ('answer' in probe) return probe.answer.report;
  return {
    platform,
    available: false,
    deviceCount: 0,
    searched: [],
    reason: {
      code: 'DRIVER_ERROR',
      message: probe.failure.how === DENIED ? 'it could not be asked' : `asking it ended with ${probe.failure.how}`,
      remedy: 'See the findings above',
    },
  };
}

function checkDevice(device: ProbedDevice, target: string | undefined): DeviceCheck {
  const advice = target
    ? undefined
    : 'its kernels are compiled on first use if the run-time compiler below is there, and kept';
  return { ...device, codeObjects: target ?? null, ...(advice && { advice }) };
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

/** A file of JSON: the facts as data, and the text in lines. It has no more of the environment than the drivers' variables. */
function writeReport(file: string, result: Diagnosis): void {
  const report = { candle: version, written: new Date().toISOString(), ...result, text: describe(result).split('\n') };
  try {
    writeFileSync(file, `${JSON.stringify(report, null, 1)}\n`);
  } catch (error) {
    throw new UsageError(
      `the report cannot be written: ${(error as Error).message}. Name a file in a folder that can be written`,
    );
  }
}
