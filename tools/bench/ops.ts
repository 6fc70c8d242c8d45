/**
 * Times tensor operations through the public API, or with `--programs` training steps and forward passes of small models
 * (programs.ts), one JSON line an op:
 *
 *   tsx tools/bench/ops.ts [--device cuda:0] [--programs] [--only REGEX] [--scale N] [--torch [--python FILE]] [--processor-time]
 *
 * A figure is the median of 30 runs between two device events after warm-up, outputs going back to the allocator. With
 * `--torch`, PyTorch (of `python3`) runs each op on the same GPU or CPU, five rounds of six in turn with ours, since a GPU's
 * memory gets faster and slower by a few percent within seconds; `ratio` is its time over ours.
 * `--processor-time` is for a CPU that others use too: the time that a process was given, of all its threads and JavaScript's,
 * and PyTorch on one thread, which waits for no other. A run is then as many calls as take some milliseconds, on both sides.
 * Copy bandwidth of the run is the line `copy_f32`, which comes first.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Device } from '../../packages/core/src';
import { RocmDevice } from '../../packages/rocm-backend/src';
import { type BenchGroup, type BenchOp, benchGroups } from './op-list';
import { programGroups } from './programs';

/** Both sides in turn, and the runs of a round that count. */
const ROUNDS = 5;
const RUNS = 6;
/** Runs before those of a round, and the milliseconds that those of the first round take at least: compilers are then done. */
const WARM_UP = { runs: 3, ms: 200 };
/** Runs over small tensors after which V8 has compiled what an op runs, as it has in programs that run for seconds. */
const COMPILED = { runs: 5000, ms: 300, scale: 4096 };
/** Of processor time: what the calls of a run take together, and how long workers without work spin at most. */
const BATCH_MS = 10;
const WORKERS_SPIN_MS = 0.3;
const SLEEP = new Int32Array(new SharedArrayBuffer(4));

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      device: { type: 'string', default: 'auto' },
      only: { type: 'string', default: '' },
      programs: { type: 'boolean', default: false },
      scale: { type: 'string', default: '1' },
      torch: { type: 'boolean', default: false },
      python: { type: 'string', default: 'python3' },
      'processor-time': { type: 'boolean', default: false },
    },
  });
  const device = values.device === 'auto' ? await Device.auto() : Device.parse(values.device);
  const ofProcessor = values['processor-time'];
  const time = ofProcessor ? processorTimer(device) : timer(device);
  const wanted = new RegExp(values.only);
  const torch = values.torch ? new TorchRunner(values.python, device, values.scale, ofProcessor) : undefined;
  const ratios: number[] = [];
  try {
    const groupsOf = (scale: number) => (values.programs ? programGroups() : benchGroups(scale));
    const small = groupsOf(Math.max(Number(values.scale), COMPILED.scale));
    for (const [i, group] of groupsOf(Number(values.scale)).entries()) {
      if (!group.names.some((name) => wanted.test(name))) continue;
      compile(small[i], device, wanted);
      const { ops, close } = group.open(device);
      for (const op of ops.filter(({ name }) => wanted.test(name))) {
        const ours: number[] = [];
        const others: number[] = [];
        for (let round = 0; round < ROUNDS; round++) {
          const warmUp = round === 0 ? WARM_UP : { ...WARM_UP, ms: 0 };
          ours.push(...timesOf(() => time(op), warmUp));
          if (torch) others.push(...(await torch.times(op.name, warmUp)));
        }
        const ms = median(ours);
        const theirs = torch && median(others);
        const ratio = theirs === undefined ? undefined : theirs / ms;
        if (ratio !== undefined) ratios.push(ratio);
        console.log(JSON.stringify(lineOf(op, ms, theirs, ratio)));
      }
      close();
      device.backend.emptyCache();
    }
  } finally {
    torch?.close();
  }
  if (ratios.length > 0) {
    const mean = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
    console.log(
      JSON.stringify({ ops: ratios.length, geometricMean: round(mean, 3), behind: ratios.filter((r) => r < 1).length }),
    );
  }
}

function lineOf(op: BenchOp, ms: number, torchMs?: number, ratio?: number): object {
  return {
    op: op.name,
    ms: round(ms, 4),
    ...(op.bytes && { gbs: round(op.bytes / ms / 1e6, 1) }),
    ...(op.flop && { tflops: round(op.flop / ms / 1e9, 1) }),
    ...(torchMs !== undefined && { torch_ms: round(torchMs, 4), ratio: round(ratio!, 3) }),
  };
}

function compile(group: BenchGroup, device: Device, wanted: RegExp): void {
  const { ops, close } = group.open(device);
  for (const { run } of ops.filter(({ name }) => wanted.test(name))) {
    const begin = performance.now();
    for (let i = 0; i < COMPILED.runs && performance.now() - begin < COMPILED.ms; i++) {
      run();
      if (i % 100 === 99) device.synchronizeSync();
    }
  }
  close();
}

/** Milliseconds of a run by device events; by the clock on js, which has none. */
function timer(device: Device): (op: BenchOp) => number {
  const backend = device.backend;
  if (!(backend instanceof RocmDevice)) {
    return (op) => clocked(op.run);
  }
  const start = backend.hip.createEvent();
  const end = backend.hip.createEvent();
  return (op) => {
    start.record(backend.hip.defaultStream);
    op.run();
    end.record(backend.hip.defaultStream);
    end.synchronizeSync();
    return end.elapsedMs(start);
  };
}

/**
 * Milliseconds that a call takes of the processors, waiting included where a thread spins. Linux adds a running thread's time
 * to its process's at its own ticks, every 4 ms, or when the thread sleeps: so it is asked when the workers have gone to sleep,
 * and for several calls at once.
 */
function processorTimer(device: Device): (op: BenchOp) => number {
  const took = new Map<BenchOp, number>();
  return (op) => {
    const known = took.get(op);
    const count = known === undefined ? 3 : Math.max(1, Math.round(BATCH_MS / known));
    const before = process.cpuUsage();
    for (let i = 0; i < count; i++) op.run();
    device.synchronizeSync();
    Atomics.wait(SLEEP, 0, 0, WORKERS_SPIN_MS);
    const { user, system } = process.cpuUsage(before);
    const ms = (user + system) / 1000 / count;
    took.set(op, Math.max(0.01, ms));
    return ms;
  };
}

function timesOf(once: () => number, warmUp: typeof WARM_UP): number[] {
  const begin = performance.now();
  for (let i = 0; i < warmUp.runs || performance.now() - begin < warmUp.ms; i++) once();
  return Array.from({ length: RUNS }, once);
}

function median(times: number[]): number {
  return times.sort((a, b) => a - b)[times.length >> 1];
}

function clocked(run: () => void): number {
  const begin = performance.now();
  run();
  return performance.now() - begin;
}

function round(value: number, decimals: number): number {
  return Number(value.toFixed(decimals));
}

/** One Python process that times an op when it is named. */
class TorchRunner {
  readonly #process: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  constructor(python: string, device: Device, scale: string, ofProcessor: boolean) {
    const script = join(fileURLToPath(new URL('.', import.meta.url)), 'torch_ops.py');
    const kind = device.kind === 'cuda' || device.kind === 'rocm' ? 'cuda' : 'cpu';
    const more = ofProcessor ? ['--threads', '1', '--processor-time'] : [];
    const args = [script, '--device', kind, '--scale', scale, ...more];
    this.#process = spawn(python, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#answers = createInterface({ input: this.#process.stdout! })[Symbol.asyncIterator]();
  }

  async times(op: string, warmUp: typeof WARM_UP): Promise<number[]> {
    this.#process.stdin!.write(`${JSON.stringify({ op, runs: RUNS, warmUp })}\n`);
    const { value, done } = await this.#answers.next();
    if (done) throw new Error('PyTorch ended; is torch installed for python3? Leave out --torch without it.');
    const answer = JSON.parse(value) as { op: string; ms?: number[]; error?: string };
    if (answer.ms === undefined) throw new Error(`PyTorch could not run ${op}: ${answer.error}`);
    return answer.ms;
  }

  close(): void {
    this.#process.stdin!.end();
    void once(this.#process, 'close');
  }
}

void main();
