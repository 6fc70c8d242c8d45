/**
 * Asking the drivers, each in a process of its own: a driver that crashes or hangs ends that process and not the program.
 * The processes are this command itself (`candle doctor --probe NAME`), which prints one JSON object.
 */
import { spawn } from 'node:child_process';
import {
  type CompilerReport,
  compilers,
  type LibraryReport,
  libraryReports,
  openDevice,
  type PlatformReport,
  platforms,
} from '@x/hip';
import { type RefusedSetting, refusedSettings } from './settings';

export interface ProbedDevice {
  device: string;
  name: string;
  /** gfx90a:sramecc+:xnack-, sm_90, x86-64-v3 */
  arch: string;
  memoryBytes: number;
}

export interface PlatformProbe {
  report: PlatformReport;
  devices: ProbedDevice[];
  refused: RefusedSetting[];
}

export interface ToolsProbe {
  compilers: CompilerReport[];
  libraries: LibraryReport[];
}

/** What ended a probe that gave no answer. */
export interface ProbeFailure {
  /** `SIGSEGV`, `exit status 1`, `no answer in 60 s`; {@link DENIED} where there was no process. */
  how: string;
  /** The last lines that it wrote. */
  output: string;
}

export type Probed<T> = { answer: T } | { failure: ProbeFailure };

export interface Probes {
  rocm: Probed<PlatformProbe>;
  cuda: Probed<PlatformProbe>;
  host: Probed<PlatformProbe>;
  tools: Probed<ToolsProbe>;
}

/** Node's permission model lets no process be started. */
export const DENIED = 'ERR_ACCESS_DENIED';

export const PROBES = ['rocm', 'cuda', 'host', 'tools'] as const;
export type ProbeName = (typeof PROBES)[number];

/** In the process of a probe: what it answers. */
function answerProbe(name: ProbeName): PlatformProbe | ToolsProbe {
  if (name === 'tools') return { compilers: compilers(), libraries: libraryReports() };
  const [report] = platforms([name]) as [PlatformReport];
  const devices = Array.from({ length: report.deviceCount }, (_, ordinal) => {
    using device = openDevice(name, ordinal);
    const { name: shown, arch, totalMemory } = device.properties;
    return { device: name === 'host' ? 'cpu' : `${name}:${ordinal}`, name: shown, arch, memoryBytes: totalMemory };
  });
  return { report, devices, refused: refusedSettings(name) };
}

const ANSWER = 'candle-doctor-answer:';

export function printAnswer(name: ProbeName): void {
  // Drivers print too: the answer is the line with the mark.
  process.stdout.write(`\n${ANSWER}${JSON.stringify(answerProbe(name))}\n`);
}

/** Drivers load in seconds; on a machine with many GPUs in some tens. */
const LIMIT_MS = 60_000;

/** Runs every probe, at once. Never rejects. */
export async function probeAll(limitMs = LIMIT_MS): Promise<Probes> {
  const [rocm, cuda, host, tools] = await Promise.all(PROBES.map((name) => probe(name, limitMs)));
  return { rocm, cuda, host, tools } as Probes;
}

function start(name: ProbeName) {
  const args = [...process.execArgv, process.argv[1] ?? '', 'doctor', '--probe', name];
  return spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

function probe(name: ProbeName, limitMs: number): Promise<Probed<unknown>> {
  return new Promise((resolve) => {
    let child: ReturnType<typeof start>;
    try {
      child = start(name);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      return resolve({ failure: { how: code ?? message, output: '' } });
    }
    let [out, err] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      out += part;
    });
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      err += part;
    });
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      child.kill('SIGKILL');
    }, limitMs);
    const end = (how: string) => {
      clearTimeout(timer);
      const line = out.split('\n').find((text) => text.startsWith(ANSWER));
      // A driver may crash when the process ends, too: then there is an answer.
      if (line) return resolve({ answer: JSON.parse(line.slice(ANSWER.length)) });
      resolve({ failure: { how, output: `${out}\n${err}`.trim().split('\n').slice(-6).join('\n') } });
    };
    child.on('error', (error) => end(error.message));
    child.on('close', (status, signal) =>
      end(late ? `no answer in ${limitMs / 1000} s` : (signal ?? `exit status ${status}`)),
    );
  });
}
