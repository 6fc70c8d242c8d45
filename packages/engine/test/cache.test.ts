// The cache that all sequences share: blocks that grow, prefixes in common, what happens when it is full.
import { dirname } from 'node:path';
import { type Device, memoryStats } from '@x/core';
import { readGolden } from '@x/testing/golden';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Constraint, KvPool, type LanguageModel, LogitsProcessor, loadModel } from '../src';
import type { Runner } from '../src/runner';
import type { BatchScheduler } from '../src/schedule/scheduler';
import { deviceNames, GGUF, goldenQ8, maxDifference, openDevice, settledMemory, TINY } from './helpers';

const inside = (model: LanguageModel) => model as unknown as { runner: Runner; scheduler: BatchScheduler };

interface Golden {
  logits_std: number;
  prompts: { ids: number[]; last: number[]; greedy: { ids: number[] } }[];
}
const golden = readGolden<Golden>(dirname(TINY));

async function written(model: LanguageModel, prompt: readonly number[], maxTokens: number): Promise<number[]> {
  const ids: number[] = [];
  for await (const { id } of model.generate(prompt, { maxTokens, ignoreEos: true })) ids.push(id);
  return ids;
}

describe.each(deviceNames)('the cache on %s', (name) => {
  let device: Device;
  let model: LanguageModel;
  /** Of logits of kernels that quantize activations, in another order. */
  let tolerance: number;

  beforeAll(async () => {
    device = openDevice(name);
    tolerance = device.backend.quantized ? 0.25 : 2e-3;
    model = await loadModel(GGUF, { device, maxContext: 512 });
  });
  afterAll(() => model.dispose());

  it('holds what sequences hold', () => {
    settledMemory(model);
    expect(model.cacheStats).toEqual({ usedBlocks: 0, blocks: 0, bytes: 0 });
    model.forward([...Array(33).keys()], 0).dispose();
    expect(model.cacheStats.usedBlocks).toBe(2);
    model.forward([1], 3).dispose();
    expect(model.cacheStats.usedBlocks).toBe(1);
    model.reset();
    expect(model.cacheStats.usedBlocks).toBe(0);
  });

  it('grows, and keeps what it holds', async () => {
    const before = memoryStats();
    const layout = { kvHeads: 2, keyDim: 8, valueDim: 16 };
    const pool = new KvPool([layout, layout], device, { dtype: 'f16', maxPositions: 32 * 40 });
    const first = pool.sequence(1000);
    first.reserve(40);
    const { blocks, bytes } = pool.stats;
    expect(bytes).toBe(blocks * 32 * 2 * 2 * (8 + 16) * 2);
    pool.layer(1).values.constSet(3);
    const { version } = pool;
    const second = pool.sequence(10_000);
    second.reserve(32 * blocks);
    expect(pool.stats.blocks).toBe(2 * blocks);
    expect(pool.version).not.toBe(version);
    const kept = pool.layer(1).values.narrow(0, 0, 32 * blocks);
    const values = await kept.toVec<number[][][]>();
    kept.dispose();
    expect(new Set(values.flat(2))).toEqual(new Set([3]));
    expect(() => second.reserve(32 * 39)).toThrow(expect.objectContaining({ code: 'CACHE_FULL' }));
    first.dispose();
    second.reserve(32 * 40);
    expect(() => second.reserve(10_001)).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
    second.dispose();
    pool.dispose();
    // More than any memory.
    const huge = new KvPool([{ kvHeads: 2 ** 20, keyDim: 2 ** 10, valueDim: 2 ** 10 }], device);
    expect(() => huge.sequence(100).reserve(1)).toThrow(/has no memory for more/);
    huge.dispose();
    expect(memoryStats()).toEqual(before);
  });

  it('computes a beginning once that several prompts have', async () => {
    const before = settledMemory(model);
    const { ids, greedy_ids } = goldenQ8().prompts[0];
    const text = [...ids, ...greedy_ids].slice(0, 45);
    const next = [...ids, ...greedy_ids].slice(45, 50);
    const { runner } = inside(model);
    const { pass } = runner;
    // Tokens of prompts since the last call.
    let read = 0;
    const counts = () => {
      const count = read;
      read = 0;
      return count;
    };
    runner.pass = function (steps, logits) {
      for (const { ids } of steps) if (ids.length > 1) read += ids.length;
      return pass.call(this, steps, logits);
    };
    try {
      expect(await written(model, text, 5)).toEqual(next);
      expect(counts()).toBe(45);
      // One whole block is found, the rest computed: by this prompt, and by one that ends otherwise.
      expect(await written(model, text, 5)).toEqual(next);
      expect(await written(model, [...text.slice(0, 40), 9, 9], 1)).toHaveLength(1);
      expect(counts()).toBe(13 + 10);
      // Another beginning, and one that wants none.
      await written(model, [8, ...text], 1);
      for await (const _ of model.generate(text, { maxTokens: 1, reusePrompt: false }));
      expect(counts()).toBe(46 + 45);
    } finally {
      runner.pass = pass;
    }
    expect(settledMemory(model)).toEqual(before);
  });

  it('shares blocks between a sequence and its forks until one writes', async () => {
    const { runner } = inside(model);
    const ids = Array.from({ length: 40 }, (_, i) => 5 + ((i * 7919) % 4000));
    const first = runner.cache();
    runner.step([{ cache: first, ids }]).dispose();
    const used = model.cacheStats.usedBlocks;
    const fork = first.fork(36);
    expect(model.cacheStats.usedBlocks).toBe(used);
    const other = await logitsOf(runner, fork, [1, 2, 3]);
    expect(model.cacheStats.usedBlocks).toBe(used + 1);
    expect(fork.blocks[0]).toBe(first.blocks[0]);
    expect(fork.blocks[1]).not.toBe(first.blocks[1]);
    // Neither sees what the other one wrote.
    const whole = runner.cache();
    expect(maxDifference(other, await logitsOf(runner, whole, [...ids.slice(0, 36), 1, 2, 3]))).toBeLessThan(tolerance);
    whole.truncate(0);
    const on = await logitsOf(runner, first, [4]);
    expect(maxDifference(on, await logitsOf(runner, whole, [...ids, 4]))).toBeLessThan(tolerance);
    for (const cache of [first, fork, whole]) cache.dispose();
    expect(model.cacheStats.usedBlocks).toBe(0);
  });

  it('rounds to what it is told to hold', async () => {
    const [, { ids, last }] = golden.prompts;
    for (const [cacheDtype, bytesEach, tolerance] of [
      ['f32', 4, 2e-3],
      ['f16', 2, 1e-2],
      ['bf16', 2, 3e-2],
      ['q8_0', 1 + 2 / 32, 3e-2],
    ] as const) {
      using narrow = await loadModel(TINY, { device, cacheDtype, maxContext: 64 });
      for (const [at, id] of ids.slice(0, -1).entries()) narrow.forward([id], at).dispose();
      using logits = narrow.forward(ids.slice(-1), ids.length - 1);
      const difference = maxDifference(await logits.toArray<Float32Array>(), last) / golden.logits_std;
      expect(difference).toBeLessThan(tolerance);
      if (cacheDtype === 'bf16' || cacheDtype === 'q8_0') expect(difference).toBeGreaterThan(1e-4);
      // A block of 32 positions.
      const { blocks, bytes } = narrow.cacheStats;
      const { numLayers, numKvHeads, headDim } = narrow.config;
      expect(bytes / blocks).toBe(32 * numLayers * numKvHeads * headDim * 2 * bytesEach);
      expect(narrow.cacheDtype).toBe(cacheDtype);
    }
  });

  it.each(['llama', 'gemma3_text', 'gpt_oss', 'qwen3'])(
    'in 8 bits writes the same text however %s is run',
    async (model) => {
      const options = { device, cacheDtype: 'q8_0', maxContext: 128 } as const;
      const path = TINY.replace('llama', model);
      const { prompts } = readGolden<Golden>(dirname(path));
      const texts = prompts.filter(({ greedy }) => greedy).map(({ ids }) => ids);
      let expected: number[][] = [];
      for (const graphs of device.kind === 'js' ? ['0'] : ['0', '1']) {
        vi.stubEnv('X_GRAPHS', graphs);
        using narrow = await loadModel(path, options);
        const alone: number[][] = [];
        for (const ids of texts) alone.push(await written(narrow, ids, 12));
        const together = await Promise.all(texts.map((ids) => written(narrow, ids, 12)));
        expect(together).toEqual(alone);
        if (expected.length > 0) expect(alone).toEqual(expected);
        expected = alone;
        // Behind a beginning that is in the cache, which may be longer than a block.
        const [ids, text] = [texts.at(-1)!, alone.at(-1)!];
        expect(await written(narrow, [...ids, ...text.slice(0, 6)], 6)).toEqual(text.slice(6));
      }
      vi.unstubAllEnvs();
      // What the rounding leaves: of random weights' logits a few hundredths.
      const [{ ids, last }] = prompts;
      using narrow = await loadModel(path, options);
      using logits = narrow.forward(ids, 0);
      using exact = await loadModel(path, { ...options, cacheDtype: 'f32' });
      using whole = exact.forward(ids, 0);
      const [rounded, unrounded] = await Promise.all([logits, whole].map((x) => x.toArray<Float32Array>()));
      const deviation = Math.sqrt(last.reduce((sum, x) => sum + x * x, 0) / last.length);
      expect(maxDifference(rounded, unrounded)).toBeLessThan(deviation * 5e-2);
      expect(maxDifference(rounded, unrounded)).toBeGreaterThan(0);
    },
  );

  it('in 8 bits wants heads of a multiple of 32 values', async () => {
    const before = memoryStats();
    const path = TINY.replace('llama', 'qwen2');
    let reads = 0;
    const loading = loadModel(path, { device, cacheDtype: 'q8_0', onProgress: () => void reads++ });
    await expect(loading).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining("this model's have 16"),
    });
    // It is known before any weight is read.
    expect(reads).toBe(0);
    expect(memoryStats()).toEqual(before);
  });

  it('is told of kernels that are compiled until it is disposed', async () => {
    const { backend } = device;
    const heard: number[] = [];
    const onKernels = ({ compiled }: { compiled: number }) => void heard.push(compiled);
    const model = await loadModel(TINY, { device, onKernels });
    backend.onCompiled?.(7);
    const other = await loadModel(TINY, { device, onKernels: ({ compiled }) => void heard.push(-compiled) });
    model.dispose();
    backend.onCompiled?.(8);
    other.dispose();
    expect(heard).toEqual([7, -8]);
    expect(backend.onCompiled).toBeUndefined();
    await expect(loadModel('nowhere.gguf', { device, onKernels })).rejects.toThrow('nowhere.gguf');
    expect(backend.onCompiled).toBeUndefined();
  });

  it('lets sequences wait for one another when it is full, and all end as if they were alone', async () => {
    const before = memoryStats();
    // Numbers, whose choices do not hang on roundings.
    const { ids: prompt, greedy } = golden.prompts[golden.prompts.length - 1];
    // Four blocks: each text grows into its second one, and there are six of them.
    using small = await loadModel(TINY, {
      device,
      maxContext: 128,
      maxCachePositions: 128,
    });
    const { scheduler } = inside(small);
    const texts = [0, 1, 2, 3, 4, 5].map((cut) => ({
      ids: [...prompt, ...greedy.ids.slice(0, cut)],
      expected: greedy.ids.slice(cut),
    }));
    const results = await Promise.all(texts.map(({ ids, expected }) => written(small, ids, expected.length)));
    expect(results).toEqual(texts.map(({ expected }) => expected));
    expect(small.cacheStats).toMatchObject({ usedBlocks: 0, blocks: 4 });
    // One whose consumer does not come back does not stand in the way.
    const idle = small.generate(prompt)[Symbol.asyncIterator]();
    await idle.next();
    const long = Array.from({ length: 127 }, (_, i) => (i * 37) % 500);
    expect(await written(small, long, 1)).toHaveLength(1);
    expect((await idle.next()).value).toMatchObject({ id: greedy.ids[1] });
    await idle.return!();
    // Alone and too long: an error that says so, and the next one works.
    const cache = scheduler.open();
    const other = scheduler.open(true);
    scheduler.reserve(other, 100);
    const sampler = new LogitsProcessor().sampler([]);
    await expect(scheduler.prefill(cache, long.slice(0, 40), sampler)).rejects.toMatchObject({
      code: 'CACHE_FULL',
      message: expect.stringMatching(/4 blocks of 32 positions.*limit of 4 blocks/),
    });
    for (const sequence of [cache, other]) scheduler.close(sequence);
    await expect(scheduler.prefill(cache, [1], sampler)).rejects.toMatchObject({ code: 'INVALID_OPTION' });
    expect(await written(small, prompt, 3)).toEqual(greedy.ids.slice(0, 3));
    // Waiting ends with an abort.
    const holder = small.generate(prompt)[Symbol.asyncIterator]();
    await holder.next();
    await expect(small.generate(long, { signal: AbortSignal.timeout(5) }).text()).rejects.toMatchObject({
      name: 'TimeoutError',
    });
    await holder.return!();
    small.dispose();
    expect(memoryStats()).toEqual(before);
  }, 180_000);

  it('takes one step of a sequence at a time', async () => {
    const { scheduler } = inside(model);
    const sampler = new LogitsProcessor().sampler([]);
    const cache = scheduler.open();
    const first = scheduler.prefill(cache, [1, 2, 3], sampler);
    const refused = { code: 'INVALID_OPTION', message: expect.stringContaining('under way') };
    await expect(scheduler.prefill(cache, [4], sampler)).rejects.toMatchObject(refused);
    await expect(scheduler.decode(cache, 4, sampler)).rejects.toMatchObject(refused);
    await first;
    const second = scheduler.decode(cache, 4, sampler);
    await expect(scheduler.decode(cache, 5, sampler)).rejects.toMatchObject(refused);
    await second;
    expect(cache.tokens).toEqual([1, 2, 3, 4]);
    // One that was aborted before it began is free again.
    await expect(
      scheduler.prefill(cache, [5], sampler, { signal: AbortSignal.abort(new Error('enough')) }),
    ).rejects.toThrow('enough');
    await scheduler.decode(cache, 5, sampler);
    scheduler.close(cache);
  });

  it('keeps to what a constraint allows', async () => {
    const { ids, greedy_ids } = goldenQ8().prompts[0];
    const only = (allowed: readonly number[]): Constraint & { seen: number[] } => {
      const mask = new Uint32Array(128);
      for (const id of allowed) mask[id >>> 5] |= 1 << (id & 31);
      const seen: number[] = [];
      return { seen, mask: () => (seen.length < 2 ? mask : undefined), accept: (id) => seen.push(id) };
    };
    const constraint = only([greedy_ids[0], 77]);
    const text: number[] = [];
    for await (const { id } of model.generate(ids, { maxTokens: 4, constraint })) text.push(id);
    expect(text[0]).toBe(greedy_ids[0]);
    expect([greedy_ids[0], 77]).toContain(text[1]);
    expect(constraint.seen).toEqual(text);
    await expect(model.generate(ids, { constraint: only([]) }).text()).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining('allows none of the 4096 tokens'),
    });
    for (const bad of [{}, 1, { mask: 1, accept: 2 }])
      expect(() => model.generate(ids, { constraint: bad as never })).toThrow(/constraint/);
  });
});

async function logitsOf(runner: Runner, cache: ReturnType<Runner['cache']>, ids: number[]): Promise<Float32Array> {
  using logits = runner.step([{ cache, ids }]);
  return logits.toArray<Float32Array>();
}
