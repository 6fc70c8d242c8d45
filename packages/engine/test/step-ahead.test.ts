// Passes that are enqueued before their tokens are known: the texts are those without, whoever joins, leaves or changes meanwhile.
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { type GenerateOptions, type LanguageModel, LogitsProcessor, loadModel } from '../src';
import { deviceNames, openDevice, settledMemory, TINY } from './helpers';
import { alone, anyReader, idsOf, insideOf, PROMPTS, type Reader, read, runnerOf } from './readers';

describe.each(deviceNames.filter((name) => name !== 'js'))('passes ahead on %s', (name) => {
  const models = new Map<string, Promise<LanguageModel>>();
  const load = (key: string, options = {}) => {
    const model = models.get(key) ?? loadModel(TINY, { device: openDevice(name), ...options });
    models.set(key, model);
    return model;
  };

  it('are most of the passes of a text, and give the same tokens and log probabilities', async () => {
    const model = await load('usual');
    const reader = (options: GenerateOptions): Reader => ({
      prompt: 0,
      options: { maxTokens: 40, ignoreEos: true, ...options },
      leaveAt: -1,
      pauseAt: -1,
      startAfter: 0,
    });
    const readers = [
      reader({ temperature: 0 }),
      reader({ temperature: 1, seed: 3, topK: 40, topLogprobs: 3 }),
      reader({ temperature: 0, repetitionPenalty: 1.2 }),
      reader({ temperature: 1, seed: 4, regex: '[a-z ]{80,}' }),
    ];
    const expected = await alone(model, readers);
    const before = settledMemory(model);
    for (const [i, one] of readers.entries()) {
      const follow = vi.spyOn(runnerOf(model), 'follow');
      try {
        expect(await read(model, one)).toEqual(expected[i]);
        expect(follow.mock.results.filter(({ value }) => value !== undefined).length).toBeGreaterThan(30);
      } finally {
        follow.mockRestore();
      }
    }
    expect(settledMemory(model)).toEqual(before);
  });

  it('are made where steps are long as well, up to what an abort can wait for', async () => {
    const model = await load('long');
    const options = { maxTokens: 12, temperature: 0, ignoreEos: true } as const;
    const expected = await model.generate(PROMPTS[0], options).text();
    const follow = vi.spyOn(runnerOf(model), 'follow');
    for (const [stepMs, passes] of [
      [300, 10],
      [3000, 0],
    ]) {
      follow.mockClear();
      const { times } = insideOf(model).scheduler as unknown as { times: object };
      Object.defineProperty(times, 'stepMs', { get: () => stepMs, set() {}, configurable: true });
      expect(await model.generate(PROMPTS[0], options).text()).toBe(expected);
      expect(follow.mock.results.filter(({ value }) => value !== undefined)).toHaveLength(passes);
    }
    follow.mockRestore();
  });

  it('are not made behind drafts, nor behind the last token', async () => {
    const model = await load('usual');
    const follow = vi.spyOn(runnerOf(model), 'follow');
    try {
      const one = { maxTokens: 12, temperature: 0, ignoreEos: true } as const;
      await model.generate(PROMPTS[0], { ...one, speculative: 'lookup' }).text();
      await model.generate(PROMPTS[0], { ...one, maxTokens: 2 }).text();
      expect(follow).not.toHaveBeenCalled();
      await model.generate(PROMPTS[0], one).text();
      // The first token is the prompt's.
      expect(follow.mock.calls.length).toBeLessThanOrEqual(10);
    } finally {
      follow.mockRestore();
    }
  });

  it('are not taken for another token than the one that was chosen', async () => {
    const { scheduler } = insideOf(await load('usual'));
    const sampler = new LogitsProcessor().sampler([]);
    const ids = [5, 9, 14];
    // The first step of a kind is no graph, the second one is captured.
    const written = async (goesOn: boolean, forced: readonly number[]) => {
      const cache = scheduler.open();
      const chosen = [(await scheduler.prefill(cache, ids, sampler, { reuse: false })).id];
      for (const id of forced) chosen.push((await scheduler.decode(cache, id, sampler, undefined, goesOn)).id);
      expect(cache.tokens).toEqual([...ids, ...forced]);
      scheduler.close(cache);
      return chosen;
    };
    const forced = [20, 21, 22, 23, 24, 25];
    const expected = await written(false, forced);
    expect(await written(true, forced)).toEqual(expected);
  });

  it('are not taken for a sequence that was changed behind its token', async () => {
    const { scheduler } = insideOf(await load('usual'));
    const sampler = new LogitsProcessor().sampler([], { logprob: true });
    const written = async (goesOn: boolean) => {
      const cache = scheduler.open();
      await scheduler.prefill(cache, [5, 9, 14], sampler, { reuse: false });
      let id = 20;
      for (let i = 0; i < 4; i++) ({ id } = await scheduler.decode(cache, id, sampler, undefined, goesOn));
      cache.truncate(cache.length - 1);
      await scheduler.prefill(cache, [33], sampler);
      const last = await scheduler.decode(cache, id, sampler);
      scheduler.close(cache);
      return last;
    };
    expect(await written(true)).toEqual(await written(false));
  });

  it('are computed again where the model was used in between', async () => {
    const model = await load('usual');
    const [first, second]: Reader[] = [0, 1].map((prompt) => ({
      prompt,
      options: { maxTokens: 24, temperature: 0, ignoreEos: true },
      leaveAt: -1,
      pauseAt: -1,
      startAfter: 0,
    }));
    const expected = await alone(model, [first, second]);
    const disturbed = async (reader: Reader) => {
      const pieces: unknown[] = [];
      for await (const piece of model.generate(PROMPTS[reader.prompt], reader.options)) {
        pieces.push(piece);
        model.reset();
        model.forward([3 + piece.index], 0).dispose();
      }
      return pieces;
    };
    expect(await Promise.all([disturbed(first), disturbed(second)])).toEqual(expected);
  });

  // A pool of few blocks, so that sequences give theirs up and are computed again.
  it.each([
    ['usual', {}],
    ['narrow', { maxContext: 128, maxCachePositions: 192 }],
  ])('give each its own text, whoever comes, waits, leaves or gives up blocks: %s', async (key, options) => {
    const model = await load(key, options);
    const runs = name === 'cpu' ? 20 : 3;
    await fc.assert(
      fc.asyncProperty(fc.array(anyReader, { minLength: 1, maxLength: 6 }), async (readers) => {
        const expected = idsOf(await alone(model, readers));
        const texts = await Promise.all(readers.map((one) => read(model, one)));
        expect(idsOf(texts)).toEqual(expected);
      }),
      { numRuns: runs, seed: 7 },
    );
  });
});
