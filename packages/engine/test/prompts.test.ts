// Prompts that several sequences read at once: in passes together, with what each would write alone.
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, LogitsProcessor, loadModel } from '../src';
import type { Runner } from '../src/runner';
import type { BatchScheduler, PrefillOptions } from '../src/schedule/scheduler';
import { deviceNames, GGUF, openDevice } from './helpers';

const inside = (model: LanguageModel) => model as unknown as { runner: Runner; scheduler: BatchScheduler };
const STATES = fileURLToPath(new URL('../../../models/tiny/qwen3_next/model-f16.gguf', import.meta.url));
const sampler = new LogitsProcessor().sampler([]);

describe.each(deviceNames)('prompts on %s', (name) => {
  describe.each([
    ['keys and values', GGUF],
    ['states', STATES],
  ])('of a model with %s', (_, path) => {
    let model: LanguageModel;
    beforeAll(async () => {
      model = await loadModel(path, { device: openDevice(name), maxContext: 256 });
    });
    afterAll(() => model.dispose());

    /** Sizes of the passes that `work` makes, in tokens of each sequence. */
    async function passesOf(work: () => Promise<unknown>): Promise<number[][]> {
      const pass = vi.spyOn(inside(model).runner, 'pass');
      try {
        await work();
        return pass.mock.calls.map(([steps]) => steps.map(({ ids }) => ids.length));
      } finally {
        pass.mockRestore();
      }
    }

    const prompt = (length: number, seed: number) => Array.from({ length }, (_, i) => 3 + ((i * 37 + seed * 11) % 200));

    async function read(ids: readonly number[], options: PrefillOptions = {}): Promise<number> {
      const { scheduler } = inside(model);
      const cache = scheduler.open();
      try {
        return (await scheduler.prefill(cache, ids, sampler, { reuse: false, ...options })).id;
      } finally {
        scheduler.close(cache);
      }
    }

    it('are read in one pass where they are short, and give what each gives alone', async () => {
      const prompts = [5, 1, 9, 2].map(prompt);
      const alone: number[] = [];
      const single = await passesOf(async () => {
        for (const ids of prompts) alone.push(await read(ids));
      });
      const before = memoryStats();
      let together: number[] = [];
      const passes = await passesOf(async () => {
        together = await Promise.all(prompts.map((ids) => read(ids)));
      });
      expect(together).toEqual(alone);
      const most = inside(model).runner.chunkAt(0);
      const tokens = passes.map((sizes) => sizes.reduce((sum, size) => sum + size, 0));
      expect(Math.max(...tokens)).toBeLessThanOrEqual(most);
      expect(passes.length).toBeLessThan(single.length);
      if (most >= 17) expect(passes).toEqual([[5, 1, 9, 2]]);
      expect(memoryStats()).toEqual(before);
    });

    it('go beside the parts of a long one, which is cut as it is alone', async () => {
      const [long, short] = [prompt(230, 1), prompt(4, 2)];
      const alone = [await read(long), await read(short)];
      const cuts = (await passesOf(() => read(long))).flat();
      let together: number[] = [];
      const passes = await passesOf(async () => {
        together = await Promise.all([read(long), read(short)]);
      });
      expect(together).toEqual(alone);
      const own = (sizes: number[]) => sizes.filter((tokens) => tokens !== short.length);
      expect(own(passes.flat())).toEqual(own(cuts));
      // The short one is not kept until the end of the long one.
      if (cuts.length > 2) expect(passes.findIndex((sizes) => sizes.includes(short.length))).toBeLessThan(2);
    });

    it('are left one by one', async () => {
      const before = memoryStats();
      const controller = new AbortController();
      const reason = new Error('enough');
      const stopped = read(prompt(200, 3), { signal: controller.signal });
      const other = read(prompt(6, 4));
      setImmediate(() => controller.abort(reason));
      await expect(stopped).rejects.toBe(reason);
      const alone = await read(prompt(6, 4));
      expect(await other).toBe(alone);
      expect(memoryStats()).toEqual(before);
    });

    it('are not ended by what the listener of another one throws', async () => {
      const alone = await read(prompt(150, 5));
      const onProgress = () => {
        throw new Error('from the listener');
      };
      const thrower = expect(read(prompt(200, 3), { onProgress })).rejects.toThrow('from the listener');
      expect(await read(prompt(150, 5))).toBe(alone);
      await thrower;
    });

    it('go on alone when a pass of several fails', async () => {
      const { runner } = inside(model);
      const alone = await read(prompt(5, 1));
      const pass = vi.spyOn(runner, 'pass').mockImplementationOnce(() => {
        throw new Error('broken');
      });
      expect(await Promise.all([read(prompt(5, 1)), read(prompt(5, 1))])).toEqual([alone, alone]);
      pass.mockImplementationOnce(() => {
        throw new Error('broken');
      });
      await expect(read(prompt(5, 1))).rejects.toThrow('broken');
      pass.mockRestore();
      expect(await read(prompt(5, 1))).toBe(alone);
    });
  });
});
