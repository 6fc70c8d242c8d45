/** Sequences that share a cache without room for all: each gets the text that it has alone, and none waits for what it does not need. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { memoryStats } from '@x/core';
import '@x/rocm-backend';
import { afterAll, describe, expect, it } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { TINY } from './helpers';

const folder = mkdtempSync(join(tmpdir(), 'engine-full-cache-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Token ids that tell prompts apart. */
const ids = (count: number, seed: number) =>
  Array.from({ length: count }, (_, i) => 20 + ((i * 37 + seed * 101) % 480));
/** In f32: with weights in bf16 some CPUs round activations of 64 rows and more, which prompts in one pass have and one alone has not. */
const load = (device: string, maxCachePositions: number, name = 'llama') =>
  loadModel(TINY.replace('llama', name), { device, dtype: 'f32', maxContext: 200, maxCachePositions });
const on = { ignoreEos: true };

describe.each(['js', 'cpu'])('on %s', (device) => {
  it('a prompt that lost its blocks while it waited goes on behind those that it gets back', async () => {
    using model = await load(device, 128);
    const prefix = ids(65, 1);
    const prompt = [...prefix.slice(0, 64), ...ids(20, 3)];
    const alone = await model.generate(prompt, { ...on, maxTokens: 20 }).text();
    model.emptyCache();
    await model.generate(prefix, { maxTokens: 1 }).text();
    // Its last step needs a third block.
    const other = model.generate(ids(33, 2), { ...on, maxTokens: 33 }).text();
    await sleep(5);
    expect(await model.generate(prompt, { ...on, maxTokens: 20 }).text()).toBe(alone);
    await other;
  });

  it('a step that needs no room does not wait with one that does', async () => {
    using model = await load(device, 128);
    const times: number[] = [];
    let later: Promise<string> | undefined;
    let last = performance.now();
    for await (const _ of model.generate(ids(33, 1), { ...on, maxTokens: 16 })) {
      // Wants a third block soon, of which there is none.
      later ??= model.generate(ids(62, 2), { ...on, maxTokens: 10 }).text();
      times.push(performance.now() - last);
      await sleep(5);
      last = performance.now();
    }
    await later;
    // A loop that is not woken looks once a second.
    expect(times.filter((time) => time > 900)).toEqual([]);
  });

  it('texts wait for prompts that are saved and loaded, and these for one another', async () => {
    using model = await load(device, 128);
    const run = (seed: number) => model.generate(ids(50, seed), { ...on, maxTokens: 20 }).text();
    const alone = [await run(2), await run(3)];
    model.emptyCache();
    const path = (name: string) => join(folder, `${device}-${name}`);
    const saves = [4, 5, 6].map((seed) => model.savePrompt(path(`${seed}`), ids(100, seed)));
    const texts = [run(2), run(3)];
    expect(await Promise.all(texts)).toEqual(alone);
    expect((await Promise.all(saves)).map(({ tokens }) => tokens)).toEqual([96, 96, 96]);
    model.emptyCache();
    const loads = [4, 5, 6].map((seed) => model.loadPrompt(path(`${seed}`)));
    expect(await Promise.all([run(2), run(3)])).toEqual(alone);
    await Promise.all(loads);
  });
});

it.each(['llama', 'qwen3_next', 'mamba2', 'lfm2'])(
  '%s: many texts in little room are those that each is alone',
  async (name) => {
    const before = memoryStats().liveTensors;
    {
      using model: LanguageModel = await load('cpu', 224, name);
      const prompts = Array.from({ length: 16 }, (_, i) => [
        ...ids(32 * (i % 3), 1),
        ...ids(1 + ((i * 13) % 60), 2 + i),
      ]);
      const options = (i: number) => ({ ...on, maxTokens: 4 + ((i * 7) % 30) });
      const alone: string[] = [];
      for (const [i, prompt] of prompts.entries()) {
        alone.push(await model.generate(prompt, options(i)).text());
        model.emptyCache();
      }
      for (let round = 0; round < 3; round++) {
        const together = prompts.map(async (prompt, i) => {
          await sleep((i * round) % 7);
          return model.generate(prompt, options(i)).text();
        });
        expect(await Promise.all(together)).toEqual(alone);
      }
    }
    expect(memoryStats().liveTensors).toBe(before);
  },
);
