/** Prompts as captured graphs, where the device attends in tiles: what js makes of them, whatever was computed before. */
import { afterAll, beforeAll, describe, expect, it, type MockInstance, vi } from 'vitest';
import { type LanguageModel, LogitsProcessor, loadModel } from '../src';
import type { Executor } from '../src/execute/executor';
import type { Runner } from '../src/runner';
import type { BatchScheduler } from '../src/schedule/scheduler';
import {
  deviceNames,
  maxDifference,
  openDevice,
  settledMemory,
  temporaryDirectory,
  writeRandomCheckpoint,
} from './helpers';

const inside = (model: LanguageModel) => model as unknown as { runner: Runner; scheduler: BatchScheduler };
const executorOf = ({ runner }: { runner: Runner }) => (runner as unknown as { executor: Executor }).executor;
const idsOf = (length: number, seed = 0) => Array.from({ length }, (_, i) => (i * 37 + seed * 11 + 5) % 96);
const numbersOf = async (model: LanguageModel, ids: readonly number[], position = 0) => {
  using logits = model.forward(ids, position);
  return (await logits.toArray()) as Float32Array;
};

const CONFIGS = {
  llama: { model_type: 'llama', architectures: ['LlamaForCausalLM'] },
  'qwen3 with a window': {
    model_type: 'qwen3',
    architectures: ['Qwen3ForCausalLM'],
    use_sliding_window: true,
    sliding_window: 40,
    max_window_layers: 1,
  },
};

describe.each(Object.entries(CONFIGS))('prompts of a %s', (_, config) => {
  const folder = temporaryDirectory();
  let exact: LanguageModel;
  beforeAll(async () => {
    writeRandomCheckpoint(folder.path, config);
    exact = await loadModel(folder.path, { device: 'js', dtype: 'f32' });
  });
  afterAll(() => {
    exact.dispose();
    folder.remove();
  });

  describe.each(deviceNames)('on %s', (name) => {
    let model: LanguageModel;
    let capture: MockInstance<Executor['capture']>;
    let isCaptured: boolean;
    beforeAll(async () => {
      model = await loadModel(folder.path, { device: openDevice(name), cacheDtype: 'f16' });
      capture = vi.spyOn(executorOf(inside(model)), 'capture');
      isCaptured = inside(model).runner.pool.memory.varlenRows !== undefined;
    });
    afterAll(() => {
      capture.mockRestore();
      model.dispose();
    });
    const prompts = () => capture.mock.calls.filter(([key]) => key.startsWith('prompts'));

    it('are captured at the second use, and give the same for other tokens and lengths', async () => {
      // Two that share a graph, one at the end of it, a whole one, and another graph.
      for (const length of [40, 33, 64, 1, 140, 130]) {
        const expected = await numbersOf(exact, idsOf(length));
        exact.reset();
        const scale = Math.max(...expected.map(Math.abs));
        for (const time of [0, 1, 2]) {
          const made = await numbersOf(model, idsOf(length));
          model.reset();
          expect(maxDifference(made, expected) / scale, `${length} tokens, time ${time}`).toBeLessThan(1.2e-2);
        }
      }
      expect(prompts().length).toBe(isCaptured ? 2 : 0);
    });

    it('go on behind keys that are there, and leave theirs to the next token', async () => {
      const run = async (of: LanguageModel) => {
        const parts = [];
        let position = 0;
        for (const length of [70, 35, 64, 1]) {
          parts.push(await numbersOf(of, idsOf(length, position), position));
          position += length;
        }
        of.reset();
        return parts;
      };
      const expected = await run(exact);
      for (let time = 0; time < 3; time++) {
        const made = await run(model);
        made.forEach((logits, i) => {
          const scale = Math.max(...expected[i].map(Math.abs));
          expect(maxDifference(logits, expected[i]) / scale, `part ${i}, time ${time}`).toBeLessThan(1.2e-2);
        });
      }
    });

    it('are read together, each with what it gives alone, and are left', async () => {
      const { scheduler } = inside(model);
      const sampler = new LogitsProcessor().sampler([]);
      const read = async (ids: readonly number[], signal?: AbortSignal) => {
        const cache = scheduler.open();
        try {
          return (await scheduler.prefill(cache, ids, sampler, { reuse: false, signal })).id;
        } finally {
          scheduler.close(cache);
        }
      };
      const lengths = [50, 3, 120, 7, 2];
      const alone: number[] = [];
      for (const [i, length] of lengths.entries()) alone.push(await read(idsOf(length, i)));
      const before = settledMemory(model);
      for (let time = 0; time < 3; time++)
        expect(await Promise.all(lengths.map((length, i) => read(idsOf(length, i))))).toEqual(alone);
      const controller = new AbortController();
      const left = read(idsOf(120, 2), controller.signal);
      setImmediate(() => controller.abort(new Error('enough')));
      // It may be done before.
      await left.catch((error) => expect(error.message).toBe('enough'));
      expect(await read(idsOf(lengths[2], 2))).toBe(alone[2]);
      expect(settledMemory(model)).toEqual(before);
    });

    it('are given back with the cache, and captured again', async () => {
      await numbersOf(model, idsOf(40));
      model.reset();
      const logits = await numbersOf(model, idsOf(40));
      model.reset();
      model.emptyCache();
      const count = prompts().length;
      for (let time = 0; time < 3; time++) {
        expect(maxDifference(await numbersOf(model, idsOf(40)), logits)).toBeLessThan(1e-2 * Math.max(...logits));
        model.reset();
      }
      expect(prompts().length - count).toBe(isCaptured ? 1 : 0);
    });

    it('make way for a cache that grows', async () => {
      const drop = vi.spyOn(executorOf(inside(model)), 'drop');
      model.emptyCache();
      for (let time = 0; time < 2; time++) {
        await numbersOf(model, idsOf(40));
        model.reset();
      }
      drop.mockClear();
      const { blocks } = model.cacheStats;
      const others = Array.from({ length: 8 }, () => inside(model).scheduler.open());
      for (const cache of others) inside(model).scheduler.reserve(cache, 900);
      expect(model.cacheStats.blocks).toBeGreaterThan(blocks);
      expect(drop.mock.calls.length).toBe(isCaptured ? 1 : 0);
      for (const cache of others) inside(model).scheduler.close(cache);
      const count = prompts().length;
      await numbersOf(model, idsOf(40));
      model.reset();
      expect(prompts().length - count).toBe(isCaptured ? 1 : 0);
      drop.mockRestore();
    });

    it('are computed without graphs where these are switched off', async () => {
      const logits = await numbersOf(model, idsOf(64));
      model.reset();
      vi.stubEnv('X_GRAPHS', '0');
      try {
        using eager = await loadModel(folder.path, { device: openDevice(name), cacheDtype: 'f16' });
        for (let time = 0; time < 3; time++) {
          expect(maxDifference(await numbersOf(eager, idsOf(64)), logits)).toBeLessThan(1e-2 * Math.max(...logits));
          eager.reset();
        }
      } finally {
        vi.unstubAllEnvs();
      }
    });
  });
});
