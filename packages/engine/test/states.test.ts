// States of recurrent layers: what is kept, shared, given up and computed again, on models of each kind of layer.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readGolden } from '@x/testing/golden';
import { testSettings } from '@x/testing/settings';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import type { SequenceCache } from '../src/kv/sequence-cache';
import { StatePool } from '../src/kv/states';
import type { Runner } from '../src/runner';
import { deviceNames, maxDifference, openDevice, settledMemory } from './helpers';

const folder = (name: string) => fileURLToPath(new URL(`../../../models/tiny/${name}`, import.meta.url));
const NAMES = ['lfm2', 'mamba2', 'falcon_mamba', 'qwen3_5_text'].filter((name) => existsSync(folder(name)));
const MODELS = deviceNames.flatMap((device) =>
  NAMES.slice(0, testSettings.scale < 1 ? 1 : undefined).map((name) => [name, device]),
);

/** More than two blocks. */
const TEXT = Array.from({ length: 70 }, (_, i) => 20 + ((i * 131) % 480));

describe.each(MODELS)('states of %s on %s', (name, deviceName) => {
  let model: LanguageModel;
  let runner: Runner;
  const { logits_std } = readGolden<{ logits_std: number }>(folder(name));
  /** The same numbers in other pieces. */
  const tolerance = 1e-3 * logits_std;

  beforeAll(async () => {
    model = await loadModel(join(folder(name), 'model.safetensors'), {
      device: openDevice(deviceName),
      maxContext: 200,
      // However tokens are cut: GPUs round the activations of many rows to 16-bit weights' dtype.
      dtype: 'f32',
    });
    runner = (model as unknown as { runner: Runner }).runner;
  });
  afterAll(() => model.dispose());

  const step = async (cache: SequenceCache, ids: readonly number[]) => {
    using logits = runner.step([{ cache, ids }]);
    return logits.toArray<Float32Array>();
  };
  const fresh = async (ids: readonly number[]) => {
    const cache = runner.cache();
    try {
      return await step(cache, ids);
    } finally {
      cache.dispose();
    }
  };
  const written = async (prompt: readonly number[], maxTokens: number) => {
    const ids: number[] = [];
    for await (const { id } of model.generate(prompt, { temperature: 0, maxTokens, ignoreEos: true })) ids.push(id);
    return ids;
  };

  it('go back to an earlier position', async () => {
    const before = settledMemory(model);
    model.forward(TEXT, 0).dispose();
    for (const position of [70, 69, 40, 32, 31, 1, 0]) {
      using logits = model.forward([7, 8], position);
      expect(model.length).toBe(position + 2);
      const wanted = await fresh([...TEXT.slice(0, position), 7, 8]);
      expect(maxDifference(await logits.toArray<Float32Array>(), wanted)).toBeLessThan(tolerance);
      if (position < 70) model.forward(TEXT.slice(position), position).dispose();
    }
    expect(() => model.forward([1], 71)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }));
    expect(settledMemory(model)).toEqual(before);
  });

  it('are taken up where they were kept, by texts with the same beginning', async () => {
    settledMemory(model);
    const { pass } = runner;
    const read: number[] = [];
    runner.pass = function (steps, logits) {
      for (const { ids } of steps) if (ids.length > 1) read.push(ids.length);
      return pass.call(this, steps, logits);
    };
    try {
      const next = await written(TEXT, 3);
      expect(read.reduce((sum, count) => sum + count, 0)).toBe(70);
      expect(read.at(-1)).toBe(6);
      // What was written is in front of what comes: as in a conversation.
      const on = [...TEXT, ...next, 5, 6];
      for (const [prompt, count] of [
        [TEXT, 6],
        [on, 11],
        [[...TEXT.slice(0, 66), 9], 3],
        [TEXT.slice(0, 33), 32],
      ] as const) {
        read.length = 0;
        const again = await written(prompt, 3);
        expect(read).toEqual([count]);
        settledMemory(model);
        expect(again).toEqual(await written(prompt, 3));
        settledMemory(model);
        await written(TEXT, 3);
      }
    } finally {
      runner.pass = pass;
    }
  });

  it('are shared between a sequence and its forks, of which each goes its way', async () => {
    const first = runner.cache();
    await step(first, TEXT.slice(0, 64));
    await step(first, TEXT.slice(64, 66));
    for (const length of [66, 65, 64, 20]) {
      const fork = first.fork(length);
      expect(fork.tokens).toEqual(TEXT.slice(0, length));
      expect(fork.length).toBe(length >= 66 ? 66 : length >= 64 ? 64 : 0);
      const ids = [...fork.tokens.slice(fork.length), 3];
      expect(maxDifference(await step(fork, ids), await fresh([...TEXT.slice(0, length), 3]))).toBeLessThan(tolerance);
      fork.dispose();
    }
    expect(maxDifference(await step(first, [4]), await fresh([...TEXT.slice(0, 66), 4]))).toBeLessThan(tolerance);
    first.dispose();
  });

  it('stay as they were when a pass is left', async () => {
    const cache = runner.cache();
    await step(cache, TEXT.slice(0, 10));
    for (const steps of [1, 2]) {
      const pass = runner.pass([{ cache, ids: [1, 2, 3] }], true);
      for (let i = 0; i < steps; i++) pass.next();
      pass.return(undefined);
    }
    expect(cache.length).toBe(10);
    expect(maxDifference(await step(cache, [4]), await fresh([...TEXT.slice(0, 10), 4]))).toBeLessThan(tolerance);
    cache.dispose();
  });

  it('of others are not written by the rows that fill up a captured batch', async () => {
    const before = settledMemory(model);
    const caches = [0, 1, 2].map(() => runner.cache());
    for (const [i, cache] of caches.entries()) await step(cache, TEXT.slice(0, 5 + i));
    const other = runner.cache();
    await step(other, TEXT.slice(0, 12));
    // The second step of three sequences is captured, the third replayed.
    for (const id of [3, 4, 5]) {
      using logits = runner.step(caches.map((cache) => ({ cache, ids: [id] })));
      const rows = await logits.toVec<number[][]>();
      for (const [i, cache] of caches.entries())
        expect(maxDifference(rows[i], await fresh(cache.tokens))).toBeLessThan(tolerance);
    }
    expect(maxDifference(await step(other, [4]), await fresh([...TEXT.slice(0, 12), 4]))).toBeLessThan(tolerance);
    for (const cache of [...caches, other]) cache.dispose();
    expect(settledMemory(model)).toEqual(before);
  });

  it('of more sequences than there were slots for, all as if alone', async () => {
    settledMemory(model);
    expect(model.cacheStats.states).toEqual({ used: 0, slots: 0, bytes: 0 });
    const prompts = Array.from({ length: 11 }, (_, i) => TEXT.slice(i, i + 3 + (i % 4)));
    const together = await Promise.all(prompts.map((prompt) => written(prompt, 4)));
    expect(model.cacheStats.states!.slots).toBeGreaterThan(11);
    expect(model.cacheStats.states!.bytes).toBeGreaterThan(0);
    for (const [i, prompt] of prompts.entries()) expect(together[i]).toEqual(await written(prompt, 4));
    settledMemory(model);
    expect(model.cacheStats.states).toEqual({ used: 0, slots: 0, bytes: 0 });
  });

  it('that were given up for others are computed again', async () => {
    const options = { device: openDevice(deviceName), maxContext: 96, maxCachePositions: 128, dtype: 'f32' } as const;
    using small = await loadModel(join(folder(name), 'model.safetensors'), options);
    const evict = vi.spyOn(Object.getPrototypeOf(runner.cache()) as SequenceCache, 'evict');
    const texts = [TEXT.slice(0, 40), TEXT.slice(10, 50), TEXT.slice(20, 60)];
    const all = async (prompt: readonly number[]) => {
      const ids: number[] = [];
      for await (const { id } of small.generate(prompt, { temperature: 0, maxTokens: 30, ignoreEos: true }))
        ids.push(id);
      return ids;
    };
    const together = await Promise.all(texts.map(all));
    // Each ends once; more than that were taken from.
    expect(evict.mock.calls.length).toBeGreaterThan(texts.length);
    evict.mockRestore();
    for (const [i, text] of texts.entries()) expect(together[i]).toEqual(await written(text, 30));
  });
});

describe('StatePool', () => {
  it('reuses slots, drops the snapshot used longest ago first, and grows when all are used', () => {
    const pool = new StatePool([undefined, { conv: [2, 4], ssm: [3] }], openDevice('js'));
    expect(pool.slotBytes).toBe(4 * 11);
    expect(pool.layer(0)).toBeUndefined();
    expect(() => pool.layer(1)).toThrow(/internal/);
    const slots = Array.from({ length: 8 }, () => pool.take());
    expect(new Set(slots).size).toBe(8);
    const { version } = pool;
    pool.layer(1)!.ssm.constSet(2);
    slots.forEach((slot, block) => {
      pool.snapshot(block, slot);
      pool.release(slot);
    });
    expect(pool.stats).toEqual({ used: 8, slots: 8, bytes: 8 * 44 });
    // The first was used last; one that a sequence has too is not dropped.
    expect(pool.at(0)).toBe(slots[0]);
    pool.share(slots[1]);
    expect(pool.take()).toBe(slots[2]);
    expect(pool.at(2)).toBeUndefined();
    pool.forget(3);
    expect(pool.take()).toBe(slots[3]);
    for (let i = 0; i < 5; i++) pool.take();
    expect(pool.version).toBe(version);
    expect(pool.at(0)).toBeUndefined();
    // All are in use: the memory doubles and keeps what it holds.
    pool.take();
    expect(pool.stats.slots).toBe(16);
    expect(pool.version).not.toBe(version);
    expect(pool.layer(1)!.ssm.toVecSync<number[][]>().slice(0, 9)).toEqual([...Array(8).fill([2, 2, 2]), [0, 0, 0]]);
    pool.dispose();
    expect(() => new StatePool([{ huge: [2 ** 30, 2 ** 12] }], openDevice('js')).take()).toThrow(
      expect.objectContaining({ code: 'CACHE_FULL' }),
    );
  });
});
