/** How much context the memory has room for: what a model says of it, and errors where there is none. */
import { Device, memoryStats, OutOfMemoryError } from '@x/core';
import '@x/rocm-backend';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { KvPool, type LoadModelOptions, loadModel, positionsIn } from '../src';
import { GGUF, TINY } from './helpers';

const cpu = Device.cpu();
const MIB = 2 ** 20;
/** Of tiny-tales: 2 · layers · kvHeads · headDim numbers of f32. */
const POSITION = 8192;

afterEach(() => vi.restoreAllMocks());

/** As if so many bytes were free when they are asked for. */
function free(bytes: number | undefined) {
  vi.spyOn(cpu, 'availableBytes').mockReturnValue(bytes);
}

async function loaded(options: LoadModelOptions = {}, path = GGUF) {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  warned.mockClear();
  using model = await loadModel(path, { device: cpu, ...options });
  const warnings = warned.mock.calls.map(([message, how]) => ({ message, ...(how as object) }));
  return { positions: model.cachePositions, maxContext: model.maxContext, warnings };
}

describe('positions that fit', () => {
  it('are those of the free memory, but for a sixteenth, in whole blocks', async () => {
    expect(positionsIn(16 * 32 * 100, 100)).toBe(15 * 32);
    expect(positionsIn(16 * 32 * 100 - 1, 100)).toBe(14 * 32);
    expect(positionsIn(0, 100)).toBe(0);
    free(64 * MIB);
    expect(await loaded()).toMatchObject({ positions: (60 * MIB) / POSITION, warnings: [] });
    expect((await loaded({ maxCachePositions: 100 })).positions).toBe(128);
    // On this device positions of 16 bits are half as wide.
    expect((await loaded({ cacheDtype: 'f16' })).positions).toBe((120 * MIB) / POSITION);
  });

  it('are not known where nobody says, and of models whose positions take no memory', async () => {
    free(undefined);
    expect((await loaded()).positions).toBeUndefined();
    expect((await loaded({ maxCachePositions: 64 })).positions).toBe(64);
    vi.restoreAllMocks();
    expect((await loaded({ device: 'js' }, TINY)).positions).toBeUndefined();
    expect((await loaded({ maxCachePositions: 64 }, TINY.replace('llama', 'mamba2'))).positions).toBeUndefined();
    expect((await loaded({}, TINY)).positions).toBeGreaterThan(1000);
  });

  it('are said of several devices', async () => {
    const model = await loadModel(GGUF, { devices: ['cpu', 'cpu'] });
    expect(model.cachePositions).toBeGreaterThan(1000);
    model.dispose();
    await model.ended();
  });
});

it('starts with a context that does not fit, and says once what does', async () => {
  free(1 * MIB);
  const first = await loaded({ maxContext: 512 });
  expect(first).toMatchObject({ positions: 96, maxContext: 512 });
  expect(first.warnings).toEqual([
    {
      type: 'CandleWarning',
      code: 'CONTEXT_DOES_NOT_FIT',
      message: expect.stringMatching(
        /^maxContext is 512, and cpu has room for about 96 positions of a key-value cache beside 7\.\d\d MiB of weights: 1\.00 MiB are free, and a position takes 8\.00 KiB\. .*cacheDtype: 'f16', a smaller quantisation.* at most 96 is kept\.$/,
      ),
    },
  ]);
  expect((await loaded({ maxContext: 512 })).warnings).toEqual([]);
  expect((await loaded({ maxContext: 96 })).warnings).toEqual([]);
  const narrow = await loaded({ maxContext: 512, cacheDtype: 'bf16' });
  expect(narrow.warnings[0].message).toContain(
    "More fits with cacheDtype: 'q8_0', a smaller quantisation of the model, or several devices",
  );
  const narrowest = await loaded({ maxContext: 512, cacheDtype: 'q8_0' });
  expect(narrowest.warnings[0].message).toContain('More fits with a smaller quantisation of the model');
});

describe('errors', () => {
  it('of a full cache name the weights, what is free, and the context that fits', () => {
    free(3 * MIB);
    const layout = { kvHeads: 2 ** 20, keyDim: 2 ** 10, valueDim: 2 ** 10 };
    const pool = new KvPool([layout], cpu, { weightBytes: 5 * MIB });
    expect(() => pool.take()).toThrow(
      "0 blocks of 32 positions (0 B) are in use and cpu has no memory for more (5.00 MiB are the model's weights, 3.00 MiB are free). " +
        'A context of 0 positions fits, of all sequences together',
    );
    pool.dispose();
    const limited = new KvPool([{ kvHeads: 1, keyDim: 8, valueDim: 8 }], cpu, { maxPositions: 60 });
    limited.take();
    limited.take();
    expect(() => limited.take()).toThrow(
      /2 blocks of 32 positions \(4\.00 KiB\) are in use and its limit of 2 blocks is reached\. A context of 64 .* with a larger maxCachePositions\./,
    );
    limited.dispose();
  });

  it('of a model that does not fit name its bytes, what was free, and the context that would fit', async () => {
    const before = memoryStats();
    const backend = cpu.backend as unknown as { malloc(bytes: number): number };
    const { malloc } = backend;
    const failing = async () => {
      let count = 0;
      const failed = vi.spyOn(backend, 'malloc').mockImplementation(function (this: typeof backend, bytes) {
        if (++count === 6) throw new OutOfMemoryError('OUT_OF_MEMORY', 'the sixth is to fail');
        return malloc.call(this, bytes);
      });
      try {
        return await loadModel(GGUF, { device: cpu }).then(
          () => expect.unreachable('it was loaded'),
          (error) => error as OutOfMemoryError,
        );
      } finally {
        failed.mockRestore();
      }
    };
    free(2 * MIB);
    const none = await failing();
    expect(none).toBeInstanceOf(OutOfMemoryError);
    expect(none).toMatchObject({ code: 'OUT_OF_MEMORY', cause: expect.any(OutOfMemoryError) });
    expect(none.message).toMatch(
      /^loadModel: the model takes about 7\.\d\d MiB of the memory of cpu, of which 2\.00 MiB were free when loading began\. No context fits beside it\. Take a smaller quantisation/,
    );
    free(10 * MIB);
    expect((await failing()).message).toMatch(
      / A context of about 288 positions would fit: give that as maxContext, in place of 512\./,
    );
    free(undefined);
    expect((await failing()).message).toMatch(/takes about 7\.\d\d MiB of the memory of cpu\. Take a smaller/);
    expect(memoryStats()).toEqual(before);
  });
});
