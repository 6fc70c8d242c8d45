// Prompts on disk: found by later prompts as if they had been read in this process, and refused when they are not the model's.
import { copyFileSync, mkdirSync, readFileSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { memoryStats } from '@x/core';
import { SafetensorsFile } from '@x/core/files';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { deviceNames, openDevice, settledMemory, TINY, temporaryDirectory } from './helpers';

const { path: root, remove } = temporaryDirectory();
afterAll(remove);
const ids = Array.from({ length: 75 }, (_, i) => 5 + ((i * 7919) % 500));

async function continued(model: LanguageModel, prompt: readonly number[]) {
  const generation = model.generate(prompt, { maxTokens: 6, ignoreEos: true, logprobs: true });
  const pieces: { id: number; logprob?: number }[] = [];
  for await (const piece of generation) pieces.push(piece);
  return { ids: pieces.map(({ id }) => id), first: pieces[0].logprob!, reused: generation.stats.reusedTokens };
}

describe.each(deviceNames)('saved prompts on %s', (name) => {
  const device = openDevice(name);
  const path = join(root, `${name.replace(':', '-')}.prompt`);

  it('are reused by prompts that begin alike, with the same result', async () => {
    for (const cacheDtype of ['f32', 'f16', 'bf16', 'q8_0'] as const) {
      const options = { device, cacheDtype, maxContext: 128 };
      let expected: Awaited<ReturnType<typeof continued>>;
      {
        using model = await loadModel(TINY, options);
        await continued(model, ids);
        // With the blocks of the first time, as it will be with those of the file.
        expected = await continued(model, ids);
        const before = memoryStats();
        expect(await model.savePrompt(path, ids)).toEqual({ tokens: 64 });
        expect(memoryStats()).toEqual(before);
      }
      using model = await loadModel(TINY, options);
      const before = settledMemory(model);
      const { tokens } = await model.loadPrompt(path);
      expect([tokens, model.cacheStats.usedBlocks]).toEqual([ids.slice(0, 64), 0]);
      expect(expected.reused).toBe(64);
      expect(await continued(model, ids)).toEqual(expected);
      // One that leaves it half-way, one that is elsewhere from the start, one that is no longer than it.
      expect((await continued(model, [...ids.slice(0, 40), 7, 7])).reused).toBe(32);
      expect((await continued(model, [9, ...ids])).reused).toBe(0);
      expect((await continued(model, ids.slice(0, 64))).reused).toBe(32);
      // Loaded again it changes nothing.
      const { blocks } = model.cacheStats;
      await model.loadPrompt(path);
      expect(model.cacheStats.blocks).toBe(blocks);
      expect(settledMemory(model)).toEqual(before);
    }
  });

  it('computes what is missing once, and saves what another saved prompt begins', async () => {
    using model = await loadModel(TINY, { device, maxContext: 128 });
    await model.savePrompt(path, ids.slice(0, 64));
    using other = await loadModel(TINY, { device, maxContext: 128 });
    await other.loadPrompt(path);
    expect(await other.savePrompt(path, [...ids, ...ids.slice(0, 30)])).toEqual({ tokens: 96 });
    using third = await loadModel(TINY, { device, maxContext: 90 });
    // Two blocks of three fit.
    expect((await third.loadPrompt(path)).tokens).toEqual(ids.slice(0, 64));
    const expected = await continued(model, ids);
    const again = await continued(third, ids);
    expect([again.ids, again.reused]).toEqual([expected.ids, 64]);
  });
});

describe('files that are not the prompt of this model', () => {
  const device = openDevice('js');
  const good = join(root, 'good.prompt');
  const bad = join(root, 'bad.prompt');

  let plain: LanguageModel;
  beforeAll(async () => {
    plain = await loadModel(TINY, { device, maxContext: 64 });
  });
  afterAll(() => plain.dispose());

  /** What loading the file gives, and whether the model goes on as it should. */
  async function load(model = plain) {
    const before = settledMemory(model);
    const error = await model.loadPrompt(bad).catch((caught) => caught);
    if (error instanceof Error) expect(memoryStats()).toEqual(before);
    expect((await continued(model, ids.slice(0, 50))).reused).toBe(error instanceof Error ? 0 : 32);
    return error;
  }

  it('are refused with what is wrong', async () => {
    await plain.savePrompt(good, ids.slice(0, 40));
    const bytes = readFileSync(good);
    const text = bytes.toString('latin1');
    const edited = (from: string, to: string) => writeFileSync(bad, Buffer.from(text.replace(from, to), 'latin1'));
    writeFileSync(bad, bytes);
    expect(await load()).toEqual({ tokens: ids.slice(0, 32) });

    const refused = async (code: string, message: RegExp, model?: LanguageModel) => {
      const error = await load(model);
      expect(error).toMatchObject({ name: 'FileFormatError', code, path: bad });
      expect(error.message).toMatch(message);
    };
    using other = await loadModel(TINY.replace('llama', 'qwen3'), { device, maxContext: 64 });
    await refused('PROMPT_MISMATCH', /another model/, other);
    using narrow = await loadModel(TINY, { device, maxContext: 64, cacheDtype: 'f16' });
    await refused('PROMPT_MISMATCH', /are f32, and those of the model's cache f16/, narrow);
    edited('"version":"1"', '"version":"2"');
    await refused('PROMPT_MISMATCH', /version 2/);
    edited('x-candle-prompt', 'x-candle-prompx');
    await refused('FILE_INVALID', /no saved prompt/);
    edited('"layer.0.keys"', '"layer.9.keys"');
    await refused('FILE_INVALID', /no layer\.0\.keys of f32 \[32, /);
    for (const at of [bytes.length - 1, bytes.length - 5000]) {
      const damaged = Buffer.from(bytes);
      damaged[at] ^= 1;
      writeFileSync(bad, damaged);
      await refused('FILE_INVALID', /damaged/);
    }
    for (const length of [0, 7, 100, bytes.length - 1]) {
      writeFileSync(bad, bytes.subarray(0, length));
      expect(await load()).toMatchObject({ name: 'FileFormatError' });
    }
    writeFileSync(bad, 'no prompt at all, but a text of some length');
    expect(await load()).toMatchObject({ name: 'FileFormatError' });
    expect(await plain.loadPrompt(join(root, 'none')).catch((error) => error)).toMatchObject({
      code: 'FILE_NOT_FOUND',
    });
    expect(await plain.loadPrompt(root).catch((error) => error)).toMatchObject({ name: 'FileFormatError' });
  });

  it('a model of the same shapes and other weights is another one', async () => {
    const directory = join(root, 'other');
    mkdirSync(directory);
    for (const file of ['config.json', 'tokenizer.json', 'model.safetensors'])
      copyFileSync(join(dirname(TINY), file), join(directory, file));
    const weights = join(directory, 'model.safetensors');
    const bytes = readFileSync(weights);
    for (let at = 50_000; at < bytes.length; at += 5001) bytes[at] ^= 0x10;
    writeFileSync(weights, bytes);
    copyFileSync(good, bad);
    using model = await loadModel(directory, { device, maxContext: 64 });
    expect(await load(model)).toMatchObject({ code: 'PROMPT_MISMATCH' });
    // One that changed under a model that is loaded.
    utimesSync(weights, new Date(), new Date(1));
    await expect(model.savePrompt(bad, ids)).rejects.toMatchObject({ code: 'FILE_CHANGED' });
    truncateSync(weights, 100);
    await expect(model.loadPrompt(bad)).rejects.toMatchObject({ code: 'FILE_CHANGED' });
  });

  it('models with states have none', async () => {
    using model = await loadModel(TINY.replace('llama', 'lfm2'), { device, maxContext: 64 });
    await expect(model.savePrompt(bad, ids.slice(0, 40))).rejects.toMatchObject({ code: 'UNSUPPORTED_MODEL' });
    await expect(model.loadPrompt(good)).rejects.toMatchObject({ code: 'UNSUPPORTED_MODEL' });
  });

  it('what cannot be saved is refused, and leaves no file', async () => {
    using model = await loadModel(TINY, { device, maxContext: 64, maxCachePositions: 64 });
    const before = settledMemory(model);
    const path = join(root, 'never.prompt');
    await expect(model.savePrompt(path, ids.slice(0, 31))).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining('31 tokens'),
    });
    await expect(model.savePrompt(path, ids)).rejects.toMatchObject({ code: 'CONTEXT_EXCEEDED' });
    await expect(model.savePrompt(path, null as unknown as string)).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining('savePrompt: the prompt is null'),
    });
    await expect(model.savePrompt(path, [])).rejects.toMatchObject({ code: 'INVALID_OPTION' });
    await expect(model.savePrompt(path, [...ids.slice(0, 40), 1e9])).rejects.toMatchObject({ code: 'BAD_TOKEN' });
    await expect(model.savePrompt(join(root, 'nowhere/x'), ids.slice(0, 40))).rejects.toMatchObject({
      code: 'FILE_UNWRITABLE',
    });
    await expect(model.savePrompt(path, ids.slice(0, 40), { signal: AbortSignal.abort() })).rejects.toMatchObject({
      name: 'AbortError',
    });
    await expect(model.savePrompt(path, ids.slice(0, 40), { sgnal: 1 } as never)).rejects.toMatchObject({
      code: 'INVALID_OPTION',
    });
    expect(() => readFileSync(path)).toThrow('ENOENT');
    await model.savePrompt(path, ids.slice(0, 40));
    expect(SafetensorsFile.open(path).metadata.version).toBe('1');
    await expect(model.loadPrompt(path, { signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' });
    expect(settledMemory(model)).toEqual(before);
    const loading = model.loadPrompt(path);
    model.dispose();
    await expect(loading).rejects.toMatchObject({ code: 'DISPOSED' });
  });
});
