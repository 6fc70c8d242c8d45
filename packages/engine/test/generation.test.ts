import { getEventListeners } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Device, memoryStats, scope } from '@x/core';
import { GgufFile } from '@x/quantized';
import { describeGguf, Tokenizer, Weights } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type GenerateOptions, LanguageModel, loadModel, type Piece } from '../src';
import type { Runner } from '../src/runner';
import { deviceNames, GGUF, goldenQ8, openDevice, settledMemory, TOKENIZER } from './helpers';

/** Keeps this thread busy for some milliseconds. */
function spin(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until; );
}

describe.each(deviceNames)('generate on %s', (name) => {
  let device: Device;
  let model: LanguageModel;

  beforeAll(async () => {
    device = openDevice(name);
    model = await loadModel(GGUF, { device, maxContext: 160 });
  });

  afterAll(() => model.dispose());

  async function run(prompt: string | number[], options: GenerateOptions) {
    const generation = model.generate(prompt, options);
    const pieces: Piece[] = [];
    for await (const piece of generation) pieces.push(piece);
    return {
      pieces,
      text: pieces.map((piece) => piece.text).join(''),
      ids: pieces.map((piece) => piece.id),
      stats: generation.stats,
    };
  }

  it('continues as PyTorch does, and a hundred tokens leave nothing behind', async () => {
    const before = settledMemory(model);
    const { text, ids, greedy_ids, greedy_text } = goldenQ8().prompts[0];
    const progress: [number, number][] = [];
    const result = await run(text, { maxTokens: 100, onProgress: (done, total) => progress.push([done, total]) });
    expect(settledMemory(model)).toEqual(before);
    // 8-bit activations follow the f32 golden for some 28 tokens and then take another, equally good path.
    const same = device.backend.quantized ? 24 : 64;
    expect(result.ids.slice(0, same)).toEqual(greedy_ids.slice(0, same));
    expect(greedy_text.startsWith(model.tokenizer.decode(result.ids.slice(0, same)))).toBe(true);
    expect(result.text).toBe(model.tokenizer.decode(result.ids));
    expect(result.pieces.map((piece) => piece.index)).toEqual(Array.from({ length: 100 }, (_, i) => i));
    expect(progress).toEqual([[ids.length, ids.length]]);
    const { stats } = result;
    expect(stats).toMatchObject({ promptTokens: ids.length, tokens: 100, finishReason: 'length' });
    expect(stats.loadMs).toBeGreaterThan(0);
    expect(stats.firstTokenMs).toBeGreaterThan(0);
    expect(stats.decodeTokensPerSecond).toBeGreaterThan(0);
  }, 180_000);

  it('takes ids, and tells log probabilities', async () => {
    const { ids, logits, greedy_ids } = goldenQ8().prompts[1];
    const { pieces } = await run(ids, { maxTokens: 3, logprobs: true });
    expect(pieces.map((piece) => piece.id)).toEqual(greedy_ids.slice(0, 3));
    const max = Math.max(...logits);
    const logsum = max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
    // Kernels quantize activations to 8 bits.
    expect(pieces[0].logprob).toBeCloseTo(logits[greedy_ids[0]] - logsum, device.backend.quantized ? 1 : 3);
    expect((await run(ids, { maxTokens: 1 })).pieces[0]).not.toHaveProperty('logprob');
  });

  it('samples the same text for the same seed', async () => {
    const options = { maxTokens: 8, temperature: 1.2, topK: 50, topP: 0.95, repetitionPenalty: 1.1 };
    const first = await run('The king', { ...options, seed: 3 });
    expect((await run('The king', { ...options, seed: 3 })).ids).toEqual(first.ids);
    expect((await run('The king', { ...options, seed: 4 })).ids).not.toEqual(first.ids);
    expect(first.stats.seed).toBe(3);
  });

  it('ends before a stop string', async () => {
    const { text, greedy_text } = goldenQ8().prompts[0];
    expect(greedy_text.slice(0, 30)).toBe(' there lived a king who had a ');
    const result = await run(text, { maxTokens: 20, stop: ['zebra', 'ing who h'] });
    expect(result.text).toBe(' there lived a k');
    expect(result.stats.finishReason).toBe('stop');
    // What is held back as a possible start comes out in the end.
    const held = await run(text, { maxTokens: 4, stop: ' king whose' });
    expect(held.text).toBe(' there lived a king');
    expect(held.pieces[3]).toMatchObject({ text: ' king', index: 3 });
  });

  it('ends at an end-of-text token, whose piece has no text', async () => {
    const { ids, greedy_ids } = goldenQ8().prompts[0];
    const tokenizer = await Tokenizer.fromFile(TOKENIZER, { eosIds: [1, greedy_ids[2]] });
    const file = GgufFile.open(GGUF);
    const { architecture, config } = describeGguf(file.metadata);
    const inner = await architecture.build(new Weights(file, { device, layout: architecture }), config, 32);
    file.close();
    using early = new LanguageModel({ model: inner, tokenizer, maxContext: 32, loadMs: 0 });
    const generation = early.generate(ids, { maxTokens: 10 });
    const pieces: Piece[] = [];
    for await (const piece of generation) pieces.push(piece);
    expect(pieces.map((piece) => piece.id)).toEqual(greedy_ids.slice(0, 3));
    expect(pieces[2].text).toBe('');
    expect(generation.stats).toMatchObject({ tokens: 3, finishReason: 'eos' });
  });

  it('ends when the context is full', async () => {
    const prompt = goldenQ8()
      .prompts.flatMap(({ ids, greedy_ids }) => [...ids, ...greedy_ids])
      .slice(0, 157);
    const result = await run(prompt, {});
    // 157 positions of the prompt and three more; the fourth token is predicted but has no place.
    expect(result.ids.length).toBe(4);
    expect(result.stats.finishReason).toBe('context');
    expect(() => model.generate(new Array<number>(161).fill(5))).toThrow(
      expect.objectContaining({ code: 'CONTEXT_EXCEEDED' }),
    );
  });

  it('refuses what is no prompt, and at once a text that is too long by far', () => {
    for (const prompt of [null, undefined, 5, {}, true, () => 1])
      expect(() => model.generate(prompt as unknown as string)).toThrow(
        expect.objectContaining({
          code: 'INVALID_OPTION',
          message: expect.stringContaining('give a text, or an array'),
        }),
      );
    expect(model.generate({ length: 1, 0: 5 }).stats.promptTokens).toBe(1);
    expect(() => model.generate({ length: 1e12 })).toThrow(expect.objectContaining({ code: 'CONTEXT_EXCEEDED' }));
    const encode = vi.spyOn(model.tokenizer, 'encode');
    expect(() => model.generate('a'.repeat(1_000_000))).toThrow(/has at least \d+ tokens and the cache 160 positions/);
    expect(encode).not.toHaveBeenCalled();
    encode.mockRestore();
  });

  it('gives the empty text where no other is allowed', async () => {
    const generation = model.generate([5], { choices: [''] });
    expect(await generation.text()).toBe('');
    expect(generation.stats.finishReason).toBe('eos');
  });

  it('listens once to the signal of many, whom it stops, and no longer than they run', async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const add = vi.spyOn(signal, 'addEventListener');
    const listeners = () => getEventListeners(signal, 'abort').length;
    const prompt = Array.from({ length: 60 }, (_, i) => 3 + i);
    const all = (options: GenerateOptions) =>
      Promise.allSettled(
        Array.from({ length: 12 }, (_, i) => run([...prompt, i], { signal, maxTokens: 2, ...options })),
      );
    let [most, isOver] = [0, false];
    const reading = all({ reusePrompt: false }).finally(() => {
      isOver = true;
    });
    // At every turn of the event loop: progress may be told only when all is done.
    for (; !isOver; await nextTurn()) most = Math.max(most, listeners());
    for (const { status } of await reading) expect(status).toBe('fulfilled');
    expect([add.mock.calls.length >= 12, most, listeners()]).toEqual([true, 1, 0]);
    const leaving = all({ reusePrompt: false, maxTokens: 90 });
    await nextTurn();
    controller.abort(new Error('enough'));
    for (const result of await leaving) expect(result).toMatchObject({ reason: { message: 'enough' } });
    expect(listeners()).toBe(0);
  });

  it('stops for a signal with its reason, between tokens and before the first', async () => {
    const before = settledMemory(model);
    const aborted = new AbortController();
    aborted.abort();
    await expect(run('The king', { signal: aborted.signal })).rejects.toMatchObject({ name: 'AbortError' });

    const controller = new AbortController();
    const reason = new Error('enough');
    const generation = model.generate('The king', { signal: controller.signal });
    const seen: number[] = [];
    const loop = (async () => {
      for await (const { index } of generation) {
        seen.push(index);
        if (index === 2) controller.abort(reason);
      }
    })();
    await expect(loop).rejects.toBe(reason);
    expect(seen).toEqual([0, 1, 2]);
    expect(generation.stats).toMatchObject({ tokens: 3, finishReason: 'aborted' });

    // A timer gets its turn while tokens are made, also on a device that computes synchronously.
    await expect(run('The king', { signal: AbortSignal.timeout(20) })).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(settledMemory(model)).toEqual(before);
    expect((await run('The king', { maxTokens: 1 })).ids.length).toBe(1);
  });

  describe('a long prompt', () => {
    let long: LanguageModel;
    const prompt = Array.from({ length: 300 }, (_, i) => 5 + ((i * 7919) % 4000));

    beforeAll(async () => {
      long = await loadModel(GGUF, { device, maxContext: 320 });
    });

    afterAll(() => long.dispose());

    it('reports what the device has finished, and its size decides nothing', async () => {
      const before = settledMemory(long);
      const progress: number[] = [];
      const times: number[] = [];
      const onProgress = (done: number, total: number) => {
        expect(total).toBe(prompt.length);
        progress.push(done);
        times.push(performance.now());
      };
      const began = performance.now();
      const generation = long.generate(prompt, { reusePrompt: false, maxTokens: 2, onProgress });
      const ids: number[] = [];
      for await (const { id } of generation) ids.push(id);
      expect(settledMemory(long)).toEqual(before);
      expect(progress.at(-1)).toBe(prompt.length);
      for (let i = 1; i < progress.length - 1; i++) expect(progress[i] - progress[i - 1]).toBeGreaterThanOrEqual(16);
      // Half of the prompt is not said to be done before a good part of the time has passed.
      const half = progress.findIndex((done) => done >= prompt.length / 2);
      if (device.location.kind !== 'rocm' && device.location.kind !== 'cuda') {
        expect(progress.length).toBeGreaterThan(2);
        expect(times[half] - began).toBeGreaterThan(0.15 * generation.stats.firstTokenMs);
      }
      // The same tokens at once, and again at another pace: chunks follow from model and device, not from the clock.
      expect((await long.generate(prompt, { reusePrompt: false, maxTokens: 2 }).text()).length).toBeGreaterThan(0);
      const again: number[] = [];
      for await (const { id } of long.generate(prompt, { reusePrompt: false, maxTokens: 2, onProgress: () => spin(3) }))
        again.push(id);
      expect(again).toEqual(ids);
    }, 180_000);

    it('is left soon after an abort, wherever it comes, and leaves nothing', async () => {
      const before = settledMemory(long);
      for (const at of [0, 1]) {
        const controller = new AbortController();
        let calls = 0;
        let aborted = 0;
        const abort = () => {
          aborted = performance.now();
          controller.abort();
        };
        const onProgress = () => {
          if (calls++ === at - 1) abort();
        };
        if (at === 0) setImmediate(abort);
        const generation = long.generate(prompt, { reusePrompt: false, signal: controller.signal, onProgress });
        await expect(generation.text()).rejects.toMatchObject({ name: 'AbortError' });
        // 100 ms where nothing else runs.
        expect(performance.now() - aborted).toBeLessThan(1000);
        expect(settledMemory(long)).toEqual(before);
        expect(long.length).toBe(0);
        // A device that is done with all of it at the first report has a token too.
        expect(generation.stats.tokens).toBeLessThan(2);
        expect(generation.stats.finishReason).toBe('aborted');
      }
      // The next text is not disturbed by what was abandoned.
      const { text, greedy_ids } = goldenQ8().prompts[0];
      const ids: number[] = [];
      for await (const { id } of long.generate(text, { maxTokens: 12 })) ids.push(id);
      expect(ids).toEqual(greedy_ids.slice(0, 12));
    }, 180_000);
  });

  it('can be left early without a trace', async () => {
    const before = settledMemory(model);
    const generation = model.generate('Once upon a time');
    for await (const { index } of generation) if (index === 1) break;
    expect(settledMemory(model)).toEqual(before);
    expect(generation.stats).toMatchObject({ tokens: 2, finishReason: 'left' });
    await expect((async () => void (await generation.text()))()).rejects.toMatchObject({ code: 'INVALID_OPTION' });
  });

  it('runs several at once, each as if it were alone', async () => {
    const before = settledMemory(model);
    const passes: number[] = [];
    const { runner } = model as unknown as { runner: Runner };
    const { pass, choose } = runner;
    runner.pass = function (steps, logits) {
      passes.push(steps.length);
      return pass.call(this, steps, logits);
    };
    runner.choose = function (steps, samplers) {
      passes.push(steps.length);
      return choose.call(this, steps, samplers);
    };
    try {
      const prompts = goldenQ8().prompts;
      const written = prompts.map(async ({ text }, i) => {
        const ids: number[] = [];
        // They end at different times.
        for await (const { id } of model.generate(text, { maxTokens: 10 + 3 * i })) ids.push(id);
        return ids;
      });
      expect(await Promise.all(written)).toEqual(prompts.map(({ greedy_ids }, i) => greedy_ids.slice(0, 10 + 3 * i)));
      expect(Math.max(...passes)).toBeGreaterThan(1);
      expect(settledMemory(model)).toEqual(before);
    } finally {
      Object.assign(runner, { pass, choose });
    }
  });

  it('goes on for the others when one is aborted or left, and when its tokens are wrong', async () => {
    const before = settledMemory(model);
    const { text, greedy_ids } = goldenQ8().prompts[0];
    const controller = new AbortController();
    const all = async (options: GenerateOptions) => {
      const ids: number[] = [];
      for await (const { id, index } of model.generate(text, { maxTokens: 12, ...options })) {
        ids.push(id);
        if (options.signal && index === 3) controller.abort();
      }
      return ids;
    };
    const leaver = (async () => {
      for await (const { index } of model.generate(text)) if (index === 5) break;
    })();
    const results = await Promise.allSettled([
      all({}),
      all({ signal: controller.signal }),
      leaver,
      model.generate([0, 99999]).text(),
      all({}),
    ]);
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    for (const i of [0, 4]) expect(results[i]).toMatchObject({ value: greedy_ids.slice(0, 12) });
    expect(settledMemory(model)).toEqual(before);
  });

  it('goes on for the others when the scope around one ends', async () => {
    const before = settledMemory(model);
    const { text, greedy_ids } = goldenQ8().prompts[0];
    const all = async (maxTokens: number) => {
      const ids: number[] = [];
      for await (const { id } of model.generate(text, { maxTokens })) ids.push(id);
      return ids;
    };
    // The first to ask is in a scope that ends while its own text goes on, and that of the other.
    let inner: Promise<number[]> | undefined;
    const first = scope(async () => {
      inner = all(12);
      await nextTurn();
    });
    expect(await all(14)).toEqual(greedy_ids.slice(0, 14));
    await first;
    expect(await inner).toEqual(greedy_ids.slice(0, 12));
    expect(settledMemory(model)).toEqual(before);
  });

  it('ends for all when the model is disposed, and says so', async () => {
    const before = memoryStats();
    for (const after of [1, 20, 60]) {
      const gone = await loadModel(GGUF, { device, maxContext: 512 });
      const texts = ['Once', 'The king', 'A'].map((prompt) => gone.generate(prompt, { ignoreEos: true }).text());
      const disposed = new Promise((resolve) => setTimeout(() => resolve(gone.dispose()), after));
      for (const result of await Promise.allSettled(texts)) {
        expect(result).toMatchObject({
          reason: { code: 'DISPOSED', message: expect.stringContaining('the model was disposed') },
        });
      }
      await disposed;
      expect(memoryStats()).toEqual(before);
    }
  });

  it("leaves the model's own sequence alone, and is left alone by it", async () => {
    const { text, ids, greedy_ids } = goldenQ8().prompts[0];
    model.reset();
    model.forward(ids, 0).dispose();
    const written: number[] = [];
    for await (const { id, index } of model.generate(text, { maxTokens: 5 })) {
      written.push(id);
      if (index === 2) model.reset();
    }
    expect(written).toEqual(greedy_ids.slice(0, 5));
    expect(model.length).toBe(0);
  });

  it('refuses bad options at once', () => {
    const code = (prompt: string | number[], options: GenerateOptions) => {
      try {
        model.generate(prompt, options);
      } catch (error) {
        return (error as { code: string }).code;
      }
      return 'none';
    };
    expect(code('', { addSpecialTokens: false })).toBe('EMPTY_INPUT');
    expect(code([], {})).toBe('EMPTY_INPUT');
    for (const options of [
      { maxTokens: 0 },
      { maxTokens: 1.5 },
      { maxTokens: Number.NaN },
      { stop: '' },
      { topP: 2 },
    ]) {
      expect(code('a', options)).toBe('INVALID_OPTION');
    }
  });

  it('reports ids that are not in the vocabulary from the iteration', async () => {
    const before = settledMemory(model);
    await expect(run([0, 99999], {})).rejects.toMatchObject({ code: 'BAD_TOKEN' });
    expect(settledMemory(model)).toEqual(before);
    expect((await run([0], { maxTokens: 1 })).ids.length).toBe(1);
  });
});
