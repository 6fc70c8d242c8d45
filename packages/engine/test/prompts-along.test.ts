// Parts of prompts in the passes of decode steps: each text is the one that is written alone, whoever comes, fails or leaves.
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import type { Runner } from '../src/runner';
import { deviceNames, openDevice, settledMemory, TINY } from './helpers';
import { alone, anyReader, idsOf, insideOf, PROMPTS, type Reader, read, runnerOf } from './readers';

/** A long text whose passes take prompts along. */
const carrier: Reader = {
  prompt: 0,
  options: { maxTokens: 60, temperature: 0, ignoreEos: true },
  leaveAt: -1,
  pauseAt: -1,
  startAfter: 0,
};
const passenger = (startAfter: number, prompt = 1): Reader => ({
  ...carrier,
  prompt,
  options: { maxTokens: 6, temperature: 1, seed: prompt, ignoreEos: true, topLogprobs: 2 },
  startAfter,
});

describe.each(deviceNames.filter((name) => name !== 'js'))('prompts in decode steps on %s', (name) => {
  const models = new Map<string, Promise<LanguageModel>>();
  const load = async (key: string, options = {}) => {
    const loading = models.get(key) ?? loadModel(TINY, { device: openDevice(name), ...options });
    models.set(key, loading);
    const model = await loading;
    insideOf(model).scheduler.manyRows = 1;
    return model;
  };
  const spied = (model: LanguageModel) => vi.spyOn(runnerOf(model), 'followBeside');
  /** Reads when the carrier has written so many tokens. */
  async function together(model: LanguageModel, at: number, readers: readonly Reader[]) {
    model.reset();
    let texts: Promise<unknown[][]> | undefined;
    const pieces: unknown[] = [];
    for await (const piece of model.generate(PROMPTS[0], carrier.options)) {
      pieces.push(piece);
      if (piece.index === at) texts = Promise.all(readers.map((one) => read(model, one)));
    }
    return [pieces, ...(await texts!)];
  }

  it('are read in such passes, several together, and give the same texts', async () => {
    const model = await load('usual');
    const readers = [passenger(0, 1), passenger(0, 2), passenger(3, 1)];
    const expected = idsOf(await alone(model, [carrier, ...readers]));
    const before = settledMemory(model);
    const beside = spied(model);
    try {
      expect(idsOf(await together(model, 10, readers))).toEqual(expected);
      const taken = beside.mock.calls.map(([, parts]) => parts.length);
      expect(taken.reduce((a, b) => a + b, 0)).toBeGreaterThanOrEqual(3);
      expect(Math.max(...taken)).toBeGreaterThan(1);
    } finally {
      beside.mockRestore();
    }
    expect(settledMemory(model)).toEqual(before);
  });

  it('are read by themselves where few decode, and where such a pass fails', async () => {
    const model = await load('usual');
    const readers = [passenger(0, 1), passenger(0, 2)];
    const expected = idsOf(await alone(model, [carrier, ...readers]));
    const beside = spied(model);
    try {
      insideOf(model).scheduler.manyRows = 2;
      expect(idsOf(await together(model, 10, readers.slice(0, 1)))).toEqual(expected.slice(0, 2));
      expect(beside).not.toHaveBeenCalled();
      insideOf(model).scheduler.manyRows = 1;
      beside.mockImplementation(() => {
        throw new Error('no such pass');
      });
      expect(idsOf(await together(model, 10, readers))).toEqual(expected);
      expect(beside).toHaveBeenCalled();
    } finally {
      beside.mockRestore();
    }
  });

  it('are cut where there is no room for all of one, which then goes on in the next pass', async () => {
    const model = await load('usual');
    const long = PROMPTS.join(' ').repeat(3);
    const [expected] = await alone(model, [carrier]);
    const options = { maxTokens: 6, temperature: 0, ignoreEos: true } as const;
    const text = async (onProgress?: (done: number) => void) => {
      const written: unknown[] = [];
      for await (const piece of model.generate(long, { ...options, onProgress })) written.push(piece);
      return written;
    };
    const other = await text();
    const { scheduler } = insideOf(model);
    const inside = scheduler as unknown as { prompts: { cutAt: number }; times: { alongTokens: number } };
    const beside = spied(model);
    for (const fails of [false, true]) {
      model.reset();
      model.emptyCache();
      if (fails) {
        beside.mockImplementation(() => {
          throw new Error('no such pass');
        });
      }
      inside.prompts.cutAt = 8;
      const done: number[] = [];
      const pieces: unknown[] = [];
      let reading: Promise<unknown[]> | undefined;
      for await (const piece of model.generate(PROMPTS[0], carrier.options)) {
        pieces.push(piece);
        if (piece.index === 8) reading = text((tokens) => done.push(tokens));
        inside.times.alongTokens = 20;
      }
      expect(idsOf([await reading!])).toEqual(idsOf([other]));
      expect(idsOf([pieces])).toEqual(idsOf([expected]));
      expect([...done].sort((a, b) => a - b)).toEqual(done);
      const cuts = beside.mock.calls.map(([, parts]) => parts.map(({ ids }) => ids.length));
      if (!fails) expect(cuts.filter(([count]) => count === 16).length).toBeGreaterThan(1);
    }
    beside.mockRestore();
    inside.prompts.cutAt = 256;
  });

  it('that are left on their way end alone', async () => {
    const model = await load('usual');
    const runner = runnerOf(model);
    const [expected] = idsOf(await alone(model, [carrier]));
    const before = settledMemory(model);
    const beside = spied(model);
    try {
      for (const moment of ['before', 'in'] as const) {
        model.reset();
        const leave = new AbortController();
        const { followBeside } = Object.getPrototypeOf(runner) as Runner;
        beside.mockImplementation((...args) => {
          const result = followBeside.apply(runner, args);
          if (moment === 'in') leave.abort(new Error('left'));
          return result;
        });
        const ids: number[] = [];
        let other: Promise<string> | undefined;
        for await (const { id, index } of model.generate(PROMPTS[0], carrier.options)) {
          ids.push(id);
          if (index !== 8) continue;
          other = model.generate(PROMPTS[1], { maxTokens: 5, signal: leave.signal }).text();
          other.catch(() => {});
          if (moment === 'before') leave.abort(new Error('left'));
        }
        expect(ids).toEqual(expected);
        await expect(other).rejects.toThrow(/left/);
      }
    } finally {
      beside.mockRestore();
    }
    expect(settledMemory(model)).toEqual(before);
  });

  // A pool of few blocks, so that sequences give theirs up and are computed again.
  it.each([
    ['usual', {}],
    ['narrow', { maxContext: 128, maxCachePositions: 192 }],
  ])('leave each its own text, whoever comes, waits, leaves or gives up blocks: %s', async (key, options) => {
    const model = await load(key, options);
    const beside = spied(model);
    try {
      await fc.assert(
        fc.asyncProperty(fc.array(anyReader, { minLength: 2, maxLength: 8 }), async (readers) => {
          const expected = idsOf(await alone(model, readers));
          model.reset();
          model.emptyCache();
          const texts = await Promise.all(readers.map((one) => read(model, one)));
          expect(idsOf(texts)).toEqual(expected);
        }),
        // In the first one prompts come while a long text is written, on slow machines too.
        {
          numRuns: name === 'cpu' ? 30 : 3,
          seed: 11,
          examples: [[[carrier, ...[3, 10, 30, 60, 100].map((ms) => passenger(ms))]]],
        },
      );
      // A few runs need not have any.
      if (name === 'cpu') expect(beside.mock.calls.length).toBeGreaterThan(0);
    } finally {
      beside.mockRestore();
    }
  });
});
