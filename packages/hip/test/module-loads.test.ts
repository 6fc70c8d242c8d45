// Modules that are loaded on other threads ahead of their first use, on a stand-in for libcuda whose compiler takes its time.
import { expect, test } from 'vitest';
import { hipModule } from './fake-hip';
import { buildFakeDriver, runOnFakes } from './fake-libraries';

const driver = buildFakeDriver();
const COMPILE_MS = 150;

const PRELUDE = `
  const textOf = (name) => new TextEncoder().encode(\`.version 8.0
.target sm_90
.address_size 64
.visible .entry \${name}(.param .u64 a) { ret; }
\`);
  const caught = (run) => { try { run(); return 'nothing'; } catch (error) { return [error.code, error.call, error.message].join(' | '); } };
  const device = hip.openDevice('cuda');
`;

const run = <T>(body: string, environment: Record<string, string> = {}) =>
  runOnFakes<T>(undefined, PRELUDE + body, { ...driver, FAKE_CUDA_COMPILE_MS: String(COMPILE_MS), ...environment });

test('loads run on other threads while the program goes on, and each is there once', () => {
  const { value, log } = run<{ begun: boolean[]; startMs: number; done: boolean[]; calls: number }>(`
    const started = performance.now();
    const loads = ['a', 'b'].map((name) => device.loadModuleAhead(textOf(name)));
    const startMs = performance.now() - started;
    const begun = loads.map(({ isDone }) => isDone);
    while (!loads.every(({ isDone }) => isDone)) await new Promise((resolve) => setTimeout(resolve, 5));
    const modules = loads.map((load) => load.take());
    modules[1].getFunction('b', ['ptr']);
    modules[0].dispose();
    return { begun, startMs, done: loads.map(({ isDone }) => isDone), calls: device.counters().moduleLoad };`);
  expect(value).toMatchObject({ begun: [false, false], done: [true, true], calls: 2 });
  expect(value.startMs).toBeLessThan(COMPILE_MS);
  expect(
    log
      .filter((line) => line.startsWith('loaded'))
      .map((line) => line.replace(/\d$/, ''))
      .sort(),
  ).toEqual(['loaded a other ', 'loaded b other ']);
});

test('a module that is taken early is waited for, and loaded by the caller where no thread has begun', () => {
  const { value, log } = run<string[]>(`
    const loads = Array.from({ length: 40 }, (_, i) => device.loadModuleAhead(textOf('k' + i + '_')));
    // The last one has no thread yet; the first has.
    loads.at(-1).take().getFunction('k39_', ['ptr']);
    loads[0].take().getFunction('k0_', ['ptr']);
    return [caught(() => loads[0].take()), String(loads[0].isDone)];`);
  expect(value).toEqual([expect.stringContaining('DISPOSED'), 'true']);
  expect(log.some((line) => line.startsWith('loaded k39_ first'))).toBe(true);
  expect(log.filter((line) => line.startsWith('loaded k0_ '))).toHaveLength(1);
});

test('what fails on another thread is the same error as at once', () => {
  const { value } = run<string[]>(
    `
    const [bad, good] = ['bad_one', 'good'].map((name) => device.loadModuleAhead(textOf(name)));
    while (!bad.isDone) await new Promise((resolve) => setTimeout(resolve, 5));
    const errors = [caught(() => device.loadModule(textOf('bad_one'))), caught(() => bad.take())];
    good.take().getFunction('good', ['ptr']);
    return errors;`,
    { FAKE_CUDA_REFUSE: 'bad_one' },
  );
  expect(value[0]).toContain('JIT log: line 1: no such thing');
  expect(value[1]).toBe(value[0]);
});

test('a device that closes gives back what nobody took and begins nothing more', () => {
  const { value, log } = run<string[]>(`
    const loads = Array.from({ length: 40 }, (_, i) => device.loadModuleAhead(textOf('k' + i + '_')));
    await new Promise((resolve) => setTimeout(resolve, ${COMPILE_MS / 3}));
    device.dispose();
    return [caught(() => loads[0].take()), caught(() => device.loadModuleAhead(textOf('late'))), String(loads[39].isDone)];`);
  expect(value).toEqual([expect.stringContaining('DISPOSED'), expect.stringContaining('DISPOSED'), 'true']);
  const namesOf = (what: string) =>
    log
      .filter((line) => line.startsWith(what))
      .map((line) => line.split(' ')[1])
      .sort();
  expect(namesOf('loaded').length).toBeGreaterThan(0);
  expect(namesOf('loaded').length).toBeLessThan(40);
  expect(namesOf('unloaded')).toEqual(namesOf('loaded'));
});

test('a worker thread that ends in the middle of its loads takes nothing down', () => {
  const { value, log } = run<number>(
    `
    const { Worker } = await import('node:worker_threads');
    const { writeFileSync } = await import('node:fs');
    const file = import.meta.filename.replace('run.mjs', 'worker.mjs');
    writeFileSync(file, "import * as hip from " + JSON.stringify(process.env.HIP_MODULE) + ";" +
      "const device = hip.openDevice('cuda');" +
      "for (const name of ['x', 'y']) device.loadModuleAhead(new TextEncoder().encode('.entry ' + name + '('));" +
      "setTimeout(() => process.exit(0), ${COMPILE_MS / 3});");
    const status = await new Promise((resolve) => new Worker(file).on('exit', resolve));
    device.loadModule(textOf('after')).getFunction('after', ['ptr']);
    return status;`,
    { HIP_MODULE: hipModule() },
  );
  expect(value).toBe(0);
  expect(log.some((line) => line.startsWith('loaded after first'))).toBe(true);
});
