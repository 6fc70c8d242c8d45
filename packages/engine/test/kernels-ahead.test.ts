/**
 * Kernels of a model are compiled on other threads while its weights are read: on a stand-in for libcuda whose compiler takes its
 * time and which computes nothing.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { textKernels } from '@x/testing/text-kernels';
import { afterAll, expect, test } from 'vitest';
import { buildFakeDriver, runOnFakes } from '../../hip/test/fake-libraries';
import { GGUF, TINY } from './helpers';

const driver = buildFakeDriver();
const kernels = textKernels();
afterAll(() => rmSync(kernels, { recursive: true }));
const COMPILE_MS = 60;

interface Outcome {
  heard: { ready: number; wanted: number; device: string }[];
  /** Calls of the driver's loader when the model was there, and what became of a text. */
  loads: number;
  error?: string;
  live: number;
}

/** Loads a model, and reads prompts of 30 and of 7 tokens and a token behind each. */
const LIFE = `
  const device = core.Device.cuda(0);
  const { modules, hip: driver } = device.backend;
  const outcome = { heard: [] };
  const load = (more = {}) => engine.loadModel(process.env.MODEL, { device, cacheDtype: 'f16', maxContext: 256, ...more });
  {
    using model = await load({ onKernels: (progress) => outcome.heard.push(progress) });
    outcome.loads = driver.counters().moduleLoad;
    try {
      for (const length of [30, 7]) {
        const prompt = Array.from({ length }, (_, i) => 5 + i);
        const sampler = new engine.LogitsProcessor({ temperature: 0 }).sampler([]);
        const cache = model.runner.cache();
        await model.runner.choose([{ cache, ids: prompt }], [sampler]).choices;
        await model.runner.choose([{ cache, ids: [3] }], [sampler]).choices;
        cache.dispose();
      }
    } catch (error) { outcome.error = error.code + ' ' + error.message; }
    model.emptyCache();
  }
  outcome.live = core.memoryStats().liveTensors;
`;

function run(body: string, environment: Record<string, string> = {}) {
  // TypeScript leaves out what is imported and not used.
  return runOnFakes<Outcome>(
    undefined,
    `void backend; ${LIFE} ${body} return outcome;`,
    {
      ...driver,
      FAKE_CUDA_COMPILE_MS: String(COMPILE_MS),
      FAKE_CUDA_SILENT: '1',
      X_KERNEL_DIR: kernels,
      MODEL: GGUF,
      X_GRAPHS: '0',
      X_GEMM: 'kernels',
      ...environment,
    },
    { engine: true },
  );
}

test.each([
  ['blocks', GGUF],
  ['numbers', join(TINY, '..')],
])('what a model of %s uses is compiled by then, on other threads', (_, model) => {
  const { value, log } = run('', { MODEL: model });
  expect(value.error).toBeUndefined();
  expect(value.live).toBe(0);
  const loaded = log.filter((line) => line.startsWith('loaded '));
  expect(new Set(loaded).size).toBe(loaded.length);
  // Some are there before the rehearsal is through; none comes after it, and few were taken before a thread had begun.
  expect(loaded.length).toBeGreaterThan(8);
  expect(value.loads).toBe(loaded.length);
  expect(loaded.filter((line) => line.includes(' first ')).length).toBeLessThanOrEqual(2);
});

test('the listener hears of them when they take long, until all are ready', () => {
  const { heard } = run('').value;
  expect(heard.length).toBeGreaterThan(2);
  expect(heard[0].device).toBe('Fake Hopper (sm_90)');
  expect(heard.at(-1)!.ready).toBe(heard.at(-1)!.wanted);
  const counts = heard.map(({ ready }) => ready);
  expect(counts).toEqual([...counts].sort((a, b) => a - b));
  expect(run('', { FAKE_CUDA_COMPILE_MS: '0' }).value.heard).toEqual([]);
});

test('without it they are compiled one by one at their first use', () => {
  const { value, log } = run('', { X_KERNELS_AHEAD: '0' });
  const loaded = log.filter((line) => line.startsWith('loaded '));
  expect(value.loads).toBeLessThan(5);
  expect(loaded.length).toBeGreaterThan(8);
  expect(loaded.every((line) => line.endsWith(' first 1'))).toBe(true);
});

test('a kernel that does not compile is an error where it is used', () => {
  const { value } = run('', { FAKE_CUDA_REFUSE: '.entry sample_f32(' });
  expect(value.error).toMatch(/^DRIVER_ERROR cuModuleLoadDataEx failed .* JIT log: line 1: no such thing/);
});

test('loading that is stopped meanwhile leaves nothing', () => {
  const { value } = run(
    `
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('enough')), 30);
    outcome.error = await load({ signal: stop.signal }).then(() => 'loaded', (error) => error.message);
    outcome.live = core.memoryStats().liveTensors;
    device.dispose();`,
    { FAKE_CUDA_COMPILE_MS: '150' },
  );
  expect(value).toMatchObject({ error: 'enough', live: 0 });
});
