/**
 * What is left when a call of the driver fails: each one fails once while a model is loaded, reads a prompt, decodes (eagerly, while
 * a step is captured, and by replays), writes several texts at once, and is given back. Every failure is a CandleError or does no
 * harm; nothing of the failed work stays alive; the device goes on to give the same texts.
 *
 * Entry points that are called often are sampled (`faultSites`).
 */
import { fileURLToPath } from 'node:url';
import { Device, memoryStats } from '@x/core';
import { Faults, type FaultTrial } from '@x/testing/faults';
import { afterAll, describe, expect, it } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { deviceNames, GGUF } from './helpers';

const tiny = (name: string) => fileURLToPath(new URL(`../../../models/tiny/${name}`, import.meta.url));
const PROMPTS = ['Once upon a time', 'The king said to the', 'A'];
const OPTIONS = { maxTokens: 4, temperature: 0, ignoreEos: true, reusePrompt: false };

async function write(model: LanguageModel, prompt = PROMPTS[0]): Promise<string> {
  const ids: number[] = [];
  for await (const { id } of model.generate(model.tokenizer.encode(prompt), OPTIONS)) ids.push(id);
  return ids.join();
}

/** What is live beside what was. */
function since({ liveTensors, liveStorages }: { liveTensors: number; liveStorages: number }): string | undefined {
  const now = memoryStats();
  const [tensors, storages] = [now.liveTensors - liveTensors, now.liveStorages - liveStorages];
  return tensors !== 0 || storages !== 0 ? `leaves ${tensors} tensors and ${storages} storages` : undefined;
}

describe.each(deviceNames.filter((name) => name !== 'js'))('faults on %s', (name) => {
  const faults = new Faults(name);

  afterAll(() => {
    Device.parse(name).dispose();
    expect(faults.state.live).toEqual({});
  });

  describe.each([
    ['of 8-bit blocks', GGUF, 2],
    ['of floats', tiny('llama/model.safetensors'), 5],
    ['with states', tiny('qwen3_next/model-f16.gguf'), 2],
  ])('a model %s', (_, path, most) => {
    const load = (device: Device) => loadModel(path, { device, maxContext: 64 });

    it('is loaded and written with again after any failure', async () => {
      /** With nothing failing: the text, and what the device then holds of its own. */
      const clean = async () => {
        const device = Device.parse(name);
        const model = await load(device);
        const text = await write(model);
        model.dispose();
        const { liveStorages, graphBytes } = device.memory();
        device.dispose();
        return JSON.stringify({ text, liveStorages, graphBytes, live: faults.state.live });
      };
      await clean();
      faults.clear();
      const expected = await clean();
      const { text } = JSON.parse(expected);
      const problems = await faults.problems(faults.state.counts, most, async function* (settled) {
        const before = memoryStats();
        const device = Device.parse(name);
        let model: LanguageModel | undefined;
        const { value = text, problem } = await settled(async () => {
          model = await load(device);
          return write(model);
        });
        yield problem;
        if (value !== text) yield `writes ${value}, not ${text}`;
        yield (await settled(() => model?.dispose())).problem;
        yield since(before);
        faults.clear();
        const again = await clean();
        if (again !== expected) yield `is followed by ${again}, not ${expected}`;
      });
      expect(problems).toEqual([]);
    }, 600_000);

    it('goes on after any failure while it writes several texts', async () => {
      const device = Device.parse(name);
      const model = await load(device);
      const state = () => {
        model.emptyCache();
        const { liveStorages, liveBytes, graphBytes } = device.memory();
        return JSON.stringify({ cache: model.cacheStats, liveStorages, liveBytes, graphBytes });
      };
      const written = (prompts: readonly string[]) => Promise.all(prompts.map((prompt) => write(model, prompt)));
      const texts = async () => (await written(PROMPTS)).join(' ');
      // Uploads of dims and strides stay: of each batch that is left when a call fails.
      for (let subset = 1; subset < 2 ** PROMPTS.length; subset++) {
        await written(PROMPTS.filter((_, i) => (subset >> i) & 1));
        state();
      }
      for (let i = 0; i < 2; i++) {
        await texts();
        state();
      }
      faults.clear();
      const allocations = faults.allocations(device.backend);
      const expected = await texts();
      const { counts } = faults.state;
      const count = allocations();
      let kept = state();
      const trial: FaultTrial = async function* (settled) {
        const before = memoryStats();
        const outcomes = await Promise.all(PROMPTS.map((prompt) => settled(() => write(model, prompt))));
        for (const [i, { value, problem }] of outcomes.entries()) {
          yield problem;
          const right = expected.split(' ')[i];
          if (value !== undefined && value !== right) yield `writes ${value}, not ${right}`;
        }
        faults.clear();
        const now = state();
        // Which sequences decode together depends on the time, and each batch has uploads of its own.
        if (now !== kept) yield { grows: `leaves ${now}, not ${kept}` };
        kept = now;
        yield since(before);
        const again = await texts();
        if (again !== expected) yield `is followed by ${again}, not ${expected}`;
        state();
      };
      const problems = await faults.problems(counts, 3 * most, trial, { backend: device.backend, count });
      model.dispose();
      device.dispose();
      expect(problems).toEqual([]);
      expect(faults.state.live).toEqual({});
    }, 600_000);
  });
});
