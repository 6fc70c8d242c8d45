/** A model that is made ready: what comes then finds kernels, graphs and memory. */
import { memoryStats } from '@x/core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import type { Executor } from '../src/execute/executor';
import type { Runner } from '../src/runner';
import { deviceNames, openDevice, temporaryDirectory, writeRandomCheckpoint } from './helpers';

const runnerOf = (model: LanguageModel) => (model as unknown as { runner: Runner }).runner;
const executorOf = (model: LanguageModel) => (runnerOf(model) as unknown as { executor: Executor }).executor;

async function write(model: LanguageModel, seed: number): Promise<string> {
  const prompt = Array.from({ length: 20 + seed }, (_, i) => 5 + ((i * 31 + seed * 7) % 90));
  const generation = model.generate(prompt, { maxTokens: 6, temperature: 0, ignoreEos: true });
  let text = '';
  for await (const piece of generation) text += piece.text;
  return text;
}

describe.each(deviceNames)('on %s', (name) => {
  const folder = temporaryDirectory();
  beforeAll(() => writeRandomCheckpoint(folder.path, { model_type: 'llama', architectures: ['LlamaForCausalLM'] }));
  afterAll(() => folder.remove());
  const load = (options = {}) =>
    loadModel(folder.path, { device: openDevice(name), cacheDtype: 'f16', maxContext: 256, ...options });

  it('later texts are the same, and capture no step of as many sequences', async () => {
    using cold = await load();
    const expected = [];
    for (const seed of [0, 1, 2]) expected.push(await write(cold, seed));
    using model = await load();
    const { device } = model;
    await model.warmUp({ sequences: 3 });
    const capture = vi.spyOn(executorOf(model), 'capture');
    const replay = vi.spyOn(executorOf(model), 'replay');
    const version = runnerOf(model).pool.version;
    expect(await Promise.all([0, 1, 2].map((seed) => write(model, seed)))).toEqual(expected);
    expect(await write(model, 1)).toBe(expected[1]);
    const isGpu = device.kind === 'cuda' || device.kind === 'rocm';
    if (isGpu) {
      expect(runnerOf(model).pool.version).toBe(version);
      expect(replay.mock.calls.length).toBeGreaterThan(0);
      const steps = capture.mock.calls.filter(([key]) => !key.startsWith('prompts'));
      expect(steps).toEqual([]);
    } else expect(version).toBe(0);
  });

  it('leaves no sequence, and takes what room there is', async () => {
    const before = memoryStats();
    {
      using model = await load({ maxCachePositions: 96 });
      await model.warmUp({ sequences: 64, positions: 1e9 });
      expect(runnerOf(model).pool.stats.blocks).toBeLessThanOrEqual(3);
      model.emptyCache();
      expect(model.cacheStats.blocks).toBe(0);
    }
    expect(memoryStats().liveTensors).toBe(before.liveTensors);
  });

  it('stops, and says what is wrong', async () => {
    using model = await load();
    const controller = new AbortController();
    controller.abort(new Error('enough'));
    const isGpu = model.device.kind === 'cuda' || model.device.kind === 'rocm';
    const stopped = model.warmUp({ signal: controller.signal });
    if (isGpu) await expect(stopped).rejects.toThrow('enough');
    else await stopped;
    for (const sequences of [0, -1, 1.5, Number.NaN, '3'])
      await expect(model.warmUp({ sequences: sequences as number })).rejects.toThrow(/sequences/);
    await expect(model.warmUp({ sequence: 3 } as never)).rejects.toThrow(/sequences/);
    const text = await write(model, 0);
    model.dispose();
    await expect(model.warmUp()).rejects.toThrow(/disposed/);
    expect(text.length).toBeGreaterThan(0);
  });
});
