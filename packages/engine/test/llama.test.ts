import { join } from 'node:path';
import { type Device, memoryStats, scope } from '@x/core';
import type { PassStep } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import type { SequenceCache } from '../src/kv/sequence-cache';
import type { Runner } from '../src/runner';
import {
  deviceNames,
  GGUF,
  goldenQ8,
  maxDifference,
  openDevice,
  rewriteGguf,
  settledMemory,
  temporaryDirectory,
  writeCheckpoint,
} from './helpers';

/** Largest difference of any logit that counts as equal: sums of f32 products in another order. */
const TOLERANCE = 2e-3;

async function logitsOf(model: LanguageModel, ids: ArrayLike<number>, position: number): Promise<Float32Array> {
  const logits = model.forward(ids, position);
  try {
    expect(logits.shape).toEqual([4096]);
    return await logits.toArray<Float32Array>();
  } finally {
    logits.dispose();
  }
}

describe.each(deviceNames)('Llama on %s', (name) => {
  let device: Device;
  let model: LanguageModel;
  /** TOLERANCE where activations stay f32; kernels quantize them to 8 bits for products with quantized weights. */
  let quantized: number;

  beforeAll(async () => {
    device = openDevice(name);
    quantized = device.backend.quantized ? 0.25 : TOLERANCE;
    // Narrower caches have tests of their own (cache.test.ts).
    model = await loadModel(GGUF, { device, cacheDtype: 'f32' });
  });

  afterAll(() => model.dispose());

  it('gives the logits that PyTorch gives', async () => {
    for (const { ids, logits } of goldenQ8().prompts) {
      model.reset();
      expect(maxDifference(await logitsOf(model, ids, 0), logits)).toBeLessThan(quantized);
    }
  });

  it('changes nothing when a pass is left in the middle', async () => {
    const { ids } = goldenQ8().prompts[0];
    model.reset();
    const first = await logitsOf(model, ids, 0);
    // The parts inside, which have passes in steps.
    const { runner, sequence } = model as unknown as { runner: Runner; sequence: SequenceCache };
    sequence.reserve(ids.length + 3);
    const before = memoryStats();
    const pass = runner.pass([{ cache: sequence, ids: [7, 8, 9] }], true);
    let last = 0;
    for (let i = 0; i < 4; i++) {
      const { value } = pass.next();
      const { share, output } = value as PassStep;
      expect(share).toBeGreaterThan(last);
      expect(output.isDisposed).toBe(false);
      last = share;
    }
    pass.return(undefined);
    expect(memoryStats()).toEqual(before);
    expect(model.length).toBe(ids.length);
    expect(() => model.forward([1], ids.length + 1)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }));
    const again = await logitsOf(model, ids.slice(-1), ids.length - 1);
    expect(maxDifference(again, first)).toBeLessThan(quantized);
  });

  it('computes several sequences in one pass', async () => {
    const { runner } = model as unknown as { runner: Runner };
    const before = settledMemory(model);
    const prompts = goldenQ8().prompts;
    const caches = prompts.map(() => runner.cache());
    try {
      // Whole prompts of several lengths, then a token each.
      for (const cut of [0, 1]) {
        const steps = prompts.map(({ ids, greedy_ids }, i) => ({
          cache: caches[i],
          ids: cut === 0 ? ids : greedy_ids.slice(0, 1),
        }));
        using logits = runner.step(steps);
        const rows = await logits.toVec<number[][]>();
        for (const [i, { ids, logits: wanted, greedy_ids }] of prompts.entries()) {
          expect(caches[i].length).toBe(ids.length + cut);
          if (cut === 0) expect(maxDifference(rows[i], wanted)).toBeLessThan(quantized);
          else expect(rows[i].indexOf(Math.max(...rows[i]))).toBe(greedy_ids[1]);
        }
      }
      // A sequence that begins as another one does.
      const fork = caches[0].fork(3);
      caches.push(fork);
      expect(fork.length).toBe(3);
      using logits = runner.step([{ cache: fork, ids: prompts[0].ids.slice(3) }]);
      const row = await logits.toArray<Float32Array>();
      expect(maxDifference(row, prompts[0].logits)).toBeLessThan(quantized);
    } finally {
      for (const cache of caches) cache.dispose();
    }
    expect(settledMemory(model)).toEqual(before);
  });

  it('gives the same logits however the tokens are cut', async () => {
    const { ids, greedy_ids } = goldenQ8().prompts[0];
    const all = [...ids, ...greedy_ids.slice(0, 12)];
    model.reset();
    const whole = await logitsOf(model, all, 0);
    for (const cuts of [
      [1, 17],
      [5, 6, 7, 17],
      [16, 17],
    ]) {
      model.reset();
      let last: Float32Array | undefined;
      let at = 0;
      for (const cut of cuts) {
        last = await logitsOf(model, all.slice(at, cut), at);
        at = cut;
        expect(model.length).toBe(cut);
      }
      expect(maxDifference(last!, whole)).toBeLessThan(quantized);
    }
  });

  it('replaces positions when it is sent back', async () => {
    const { ids } = goldenQ8().prompts[0];
    model.reset();
    const expected = await logitsOf(model, ids, 0);
    await logitsOf(model, [9, 8, 7], 2);
    expect(maxDifference(await logitsOf(model, ids.slice(2), 2), expected)).toBeLessThan(quantized);
  });

  it('refuses bad input with numbers, and works on', async () => {
    const { ids, logits } = goldenQ8().prompts[0];
    model.reset();
    const cases: [number[], number, string, RegExp][] = [
      [[], 0, 'EMPTY_INPUT', /no tokens/],
      [[0, 4096], 0, 'BAD_TOKEN', /token 4096 at index 1 .* 4096/],
      [[-1], 0, 'BAD_TOKEN', /-1/],
      [[1.5], 0, 'BAD_TOKEN', /1\.5/],
      [[0], 1, 'INVALID_OPTION', /position 1 with 0/],
      [[0], -1, 'INVALID_OPTION', /position -1/],
      [new Array<number>(513).fill(0), 0, 'CONTEXT_EXCEEDED', /513 .*512/],
    ];
    for (const [bad, position, code, message] of cases) {
      expect(() => model.forward(bad, position)).toThrow(
        expect.objectContaining({ code, message: expect.stringMatching(message) }),
      );
    }
    expect(model.length).toBe(0);
    expect(maxDifference(await logitsOf(model, ids, 0), logits)).toBeLessThan(quantized);
  });

  it('loads a checkpoint with halved rotation to the same logits', async () => {
    const single = temporaryDirectory();
    const sharded = temporaryDirectory();
    const before = memoryStats();
    try {
      await writeCheckpoint(single.path);
      await writeCheckpoint(sharded.path, 3);
      const { ids, logits, greedy_ids } = goldenQ8().prompts[1];
      const paths = [single.path, `${single.path}/model.safetensors`, sharded.path];
      for (const path of paths) {
        using checkpoint = await loadModel(path, { device, maxContext: 64 });
        expect(maxDifference(await logitsOf(checkpoint, ids, 0), logits)).toBeLessThan(TOLERANCE);
        const next = await logitsOf(checkpoint, greedy_ids.slice(0, 4), ids.length);
        model.reset();
        await logitsOf(model, ids, 0);
        expect(maxDifference(next, await logitsOf(model, greedy_ids.slice(0, 4), ids.length))).toBeLessThan(quantized);
        expect(checkpoint.tokenizer.eosIds).toEqual([1]);
      }
      // Half the memory, at the precision of bf16.
      using narrow = await loadModel(single.path, { device, maxContext: 64, dtype: 'bf16' });
      const difference = maxDifference(await logitsOf(narrow, ids, 0), logits);
      expect(difference).toBeGreaterThan(TOLERANCE);
      expect(difference).toBeLessThan(0.5);
    } finally {
      single.remove();
      sharded.remove();
    }
    expect(memoryStats()).toEqual(before);
  });

  it('takes weights of several types, an own output layer and biases', async () => {
    const { path, remove } = temporaryDirectory();
    try {
      const { ids, logits } = goldenQ8().prompts[2];
      // Types differ within a group of layers: the products are made one by one.
      const mixed = await rewriteGguf(join(path, 'mixed.gguf'), {
        widen: ['blk.0.attn_v.weight', 'blk.3.ffn_up.weight', 'token_embd.weight'],
      });
      using first = await loadModel(mixed, { device, maxContext: 64 });
      expect(maxDifference(await logitsOf(first, ids, 0), logits)).toBeLessThan(quantized);

      const ramp = (length: number, step: number) => Float32Array.from({ length }, (_, i) => Math.sin(i * step));
      // Of all layers, but zeros in the others: one that has none while others have is not whole.
      const biases = (part: string, size: number, layer: number, step: number) =>
        Array.from({ length: first.config.numLayers }, (_, i) => ({
          name: `blk.${i}.${part}.bias`,
          shape: [size],
          values: i === layer ? ramp(size, step) : new Float32Array(size),
        }));
      const add = [
        ...biases('attn_q', 256, 1, 0.7),
        ...biases('attn_k', 128, 1, 1.3),
        ...biases('attn_output', 256, 2, 0.4),
        ...biases('ffn_up', 768, 4, 0.9),
        { name: 'output.weight', shape: [4096, 256], values: ramp(4096 * 256, 0.37) },
      ];
      const biased = await rewriteGguf(join(path, 'biased.gguf'), { add });
      await writeCheckpoint(path, 1, biased);
      using gguf = await loadModel(biased, { device, maxContext: 64 });
      using checkpoint = await loadModel(path, { device, maxContext: 64 });
      const expected = await logitsOf(gguf, ids, 0);
      expect(maxDifference(expected, logits)).toBeGreaterThan(1);
      // This output layer's weights are some ten times the model's own, and so are its logits.
      expect(maxDifference(await logitsOf(checkpoint, ids, 0), expected)).toBeLessThan(quantized * 4);
      const missing = await rewriteGguf(join(path, 'missing.gguf'), { add: add.slice(1) });
      await expect(loadModel(missing, { device })).rejects.toThrow(/blk\.0\.attn_q\.bias/);
    } finally {
      remove();
    }
  });

  it('owns its memory: a scope around it takes nothing away, dispose gives all back', async () => {
    const before = memoryStats();
    const { ids, logits } = goldenQ8().prompts[0];
    let inner: LanguageModel | undefined;
    await scope(async () => {
      inner = await loadModel(GGUF, { device, maxContext: 16 });
    });
    expect(maxDifference(await logitsOf(inner!, ids, 0), logits)).toBeLessThan(quantized);
    inner!.dispose();
    inner!.dispose();
    expect(memoryStats()).toEqual(before);
    expect(() => inner!.forward(ids, 0)).toThrow(expect.objectContaining({ code: 'DISPOSED' }));
    expect(() => inner!.generate('a')).toThrow(expect.objectContaining({ code: 'DISPOSED' }));
  });
});
