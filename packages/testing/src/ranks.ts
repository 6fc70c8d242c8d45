/** Ranks for tests of what several devices compute together: a worker thread each, with a device of its own. */
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { Communicator, Device } from '@x/core';
import { bundled } from './bundle';

const from = (path: string) => new URL(path, import.meta.url).href;

/** Whether this is part of a bundle of tools/gpu, whose threads have core and the backend and no other module. */
export const inBundle = !import.meta.url.endsWith('.ts');

/** What a thread imports: a bundle of the sources, or what lies beside the bundle. */
function pathsOf(modules: Readonly<Record<string, string>>) {
  if (inBundle) return { core: from('./core.js'), backend: from('./backend.js'), modules };
  const own = { core: from('../../core/src/index.ts'), backend: from('../../rocm-backend/src/index.ts') };
  const sources = Object.entries({ ...own, ...modules }).map(([name, url]) => [name, fileURLToPath(url)]);
  const { core, backend, ...others } = bundled(Object.fromEntries(sources));
  return { core, backend, modules: others };
}

/** Runs the body of an async function (communicator, core, device, rank, input, modules) and posts what it returns, or its error. */
const RANK = `
  const { parentPort, workerData } = require('node:worker_threads');
  (async () => {
    const { rank, size, id, timeoutMs, device: name, body, input, modules } = workerData;
    try {
      const core = await import(workerData.core);
      await import(workerData.backend);
      const device = core.Device.parse(name);
      const communicator = await core.Communicator.join(device, { id, rank, size, timeoutMs });
      const loaded = {};
      for (const [key, path] of Object.entries(modules)) loaded[key] = await import(path);
      const run = new (async () => {}).constructor('communicator', 'core', 'device', 'rank', 'input', 'modules', body);
      const value = await run(communicator, core, device, rank, input, loaded);
      communicator.dispose();
      parentPort.postMessage({ value, live: device.memory().liveBytes });
    } catch (error) {
      parentPort.postMessage({ error: { code: error.code, rank: error.rank, message: error.message } });
    }
  })();
`;

/** The `input` of ranks of which one is there for as long as the others run, and what their bodies begin with. */
export function ends(size: number): { left: Int32Array } {
  return { left: new Int32Array(new SharedArrayBuffer(4)).fill(size - 1) };
}
export const OTHERS = `
  const end = ({ left }) => Atomics.sub(left, 0, 1);
  const othersEnd = async ({ left }) => { while (Atomics.load(left, 0) > 0) await new Promise((done) => setTimeout(done, 20)); };
`;

export interface Outcome {
  value?: unknown;
  /** Bytes of the device that were left. */
  live?: number;
  error?: { code: string; rank?: number; message: string };
}

export interface RanksOptions {
  /** Of all ranks, or of each. */
  device?: string | readonly string[];
  timeoutMs?: number;
  /** Cloned to every rank. */
  input?: unknown;
  /** Modules that the body has beside core, by the name that it has for each: URLs. */
  modules?: Readonly<Record<string, string>>;
  /** Ranks of the group, where not all of them come. */
  size?: number;
  /** Of each rank, added to the caller's. */
  environment?: readonly NodeJS.ProcessEnv[];
  /** Called with the workers once all run. */
  started?: (workers: readonly Worker[]) => void;
}

/** What each of `count` ranks posts; a worker that ends without a word gives an empty outcome. */
export async function ranks(count: number, body: string, options: RanksOptions = {}): Promise<Outcome[]> {
  const { device = 'cpu', timeoutMs = 10_000, input, modules = {}, size = count, environment, started } = options;
  const nameOf = (rank: number) => (typeof device === 'string' ? device : device[rank]);
  const paths = pathsOf(modules);
  const id = Communicator.uniqueId(Device.parse(nameOf(0)));
  const workers = Array.from({ length: count }, (_, rank) => {
    return new Worker(RANK, {
      eval: true,
      env: { ...process.env, ...environment?.[rank] },
      workerData: { rank, size, id, timeoutMs, device: nameOf(rank), body, input, ...paths },
    });
  });
  started?.(workers);
  const outcomes = workers.map(
    (worker) =>
      new Promise<Outcome>((resolve, reject) => {
        let outcome: Outcome = {};
        worker.on('message', (message: Outcome) => {
          outcome = message;
        });
        worker.on('error', reject);
        worker.on('exit', () => resolve(outcome));
      }),
  );
  return Promise.all(outcomes);
}
