// Prompts on disk of models with adapters, and of models on several devices, of which each has a file.
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { memoryStats } from '@x/core';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { type AdapterChoice, type LanguageModel, loadModel } from '../src';
import type { Group } from '../src/parallel/group';
import { GGUF, openDevice, temporaryDirectory } from './helpers';
import { adapterPath, modelFile } from './lora-files';

const { path: root, remove } = temporaryDirectory();
afterAll(remove);
afterEach(() => vi.restoreAllMocks());
const cpu = openDevice('cpu');
const ids = Array.from({ length: 75 }, (_, i) => 5 + ((i * 7919) % 300));

async function continued(model: LanguageModel, prompt: readonly number[], adapter?: AdapterChoice) {
  const generation = model.generate(prompt, { maxTokens: 6, ignoreEos: true, adapter });
  const tokens: number[] = [];
  for await (const { id } of generation) tokens.push(id);
  return { tokens, reused: generation.stats.reusedTokens };
}

describe('with an adapter', () => {
  const path = join(root, 'adapter.prompt');
  const load = (name: 'llama-all' | 'llama-some') =>
    loadModel(modelFile('llama', 'model.safetensors'), { device: cpu, adapters: { some: adapterPath(name) } });

  it('are of that adapter at that scale, by its files', async () => {
    const adapter = { name: 'some', scale: 0.5 };
    let expected: number[];
    {
      using model = await load('llama-all');
      ({ tokens: expected } = await continued(model, ids, adapter));
      expect(await model.savePrompt(path, ids, { adapter })).toEqual({ tokens: 64 });
    }
    using model = await load('llama-all');
    expect((await model.loadPrompt(path, { adapter })).tokens).toEqual(ids.slice(0, 64));
    expect(await continued(model, ids, adapter)).toEqual({ tokens: expected, reused: 64 });
    // Nobody else finds it.
    expect((await continued(model, ids)).reused).toBe(0);
    expect((await continued(model, ids, 'some')).reused).toBe(0);

    const refusal = (of: LanguageModel, choice?: AdapterChoice) =>
      of.loadPrompt(path, { adapter: choice }).then(
        () => expect.unreachable('it was loaded'),
        (error) => `${error.code} ${error.message}`,
      );
    expect(await refusal(model)).toMatch(/^PROMPT_MISMATCH .*saved with an adapter, which has to be named\./);
    expect(await refusal(model, 'some')).toMatch(/^PROMPT_MISMATCH .*another adapter or scale\./);
    expect(await refusal(model, 'other')).toMatch(/^INVALID_OPTION loadPrompt: there is no adapter "other"/);
    using other = await load('llama-some');
    expect(await refusal(other, adapter)).toMatch(/^PROMPT_MISMATCH .*another adapter or scale\./);
    await model.savePrompt(path, ids);
    expect(await refusal(model, adapter)).toMatch(/^PROMPT_MISMATCH .*saved without an adapter\./);
    await expect(model.savePrompt(path, ids, { adapter: 'other' })).rejects.toThrow(/^savePrompt: there is no adapter/);
    await expect(model.savePrompt(path, ids, { adapter: 7 as never })).rejects.toThrow(/adapter is 7; give the name/);
  });
});

describe('on several devices', () => {
  const devices = ['cpu', 'cpu'];
  const path = join(root, 'devices.prompt');
  const groupOf = (model: LanguageModel) => (model as unknown as { group: Group }).group;

  async function ended(model: LanguageModel) {
    model.dispose();
    // Nothing is left on the other rank's device either.
    expect(await groupOf(model).end()).toBe(0);
  }

  it.each([false, true])('are a file of each device, whole layers: %s', async (pipeline) => {
    const before = memoryStats();
    const first = await loadModel(GGUF, { devices, pipeline });
    const { tokens } = await continued(first, ids);
    expect(await first.savePrompt(path, ids)).toEqual({ tokens: 64 });
    await ended(first);
    const second = await loadModel(GGUF, { devices, pipeline });
    expect((await second.loadPrompt(path)).tokens).toEqual(ids.slice(0, 64));
    expect(await continued(second, ids)).toEqual({ tokens, reused: 64 });
    // And once more, where everything is there.
    await second.loadPrompt(path);

    // A later save of one part, a damaged one, and none.
    copyFileSync(`${path}.1`, `${path}.kept`);
    await second.savePrompt(path, ids);
    copyFileSync(`${path}.kept`, `${path}.1`);
    await expect(second.loadPrompt(path)).rejects.toMatchObject({
      name: 'FileFormatError',
      code: 'PROMPT_MISMATCH',
      message: expect.stringMatching(/prompt\.1: it was written at another time than the parts of the other devices/),
    });
    await second.savePrompt(path, ids);
    const bytes = readFileSync(`${path}.1`);
    bytes[bytes.length - 9] ^= 1;
    writeFileSync(`${path}.1`, bytes);
    await expect(second.loadPrompt(path)).rejects.toMatchObject({ code: 'FILE_INVALID' });
    rmSync(`${path}.1`);
    await expect(second.loadPrompt(path)).rejects.toMatchObject({ code: 'FILE_NOT_FOUND' });
    // The group goes on, and has forgotten all of it.
    second.emptyCache();
    expect(await continued(second, ids)).toEqual({ tokens, reused: 0 });
    await second.savePrompt(path, ids);
    await ended(second);
    expect(memoryStats()).toEqual(before);
  });

  it('are refused by a model that is split in another way', async () => {
    // As whole layers, from the test before.
    const parts = await loadModel(GGUF, { devices });
    await expect(parts.loadPrompt(path)).rejects.toMatchObject({
      code: 'PROMPT_MISMATCH',
      message: expect.stringContaining(
        'it was saved by device 1 of 2 with whole layers, and this is device 1 of 2 with a part of every layer.',
      ),
    });
    using one = await loadModel(GGUF, { device: cpu });
    await expect(one.loadPrompt(path)).rejects.toThrow(
      /saved by device 1 of 2 with whole layers, and this is a single/,
    );
    const alone = join(root, 'alone.prompt');
    await one.savePrompt(alone, ids);
    await expect(parts.loadPrompt(alone)).rejects.toThrow(/saved by a single device, and this is device 1 of 2/);
    await ended(parts);
  });

  it('leave no file where a device cannot write its own, and end with the model', async () => {
    const model = await loadModel(GGUF, { devices });
    const nowhere = join(root, 'nowhere', 'prompt');
    await expect(model.savePrompt(nowhere, ids)).rejects.toMatchObject({ code: 'FILE_UNWRITABLE' });
    const blocked = join(root, 'blocked.prompt');
    await model.savePrompt(blocked, ids);
    expect(existsSync(`${blocked}.1`)).toBe(true);
    const loading = model.loadPrompt(blocked);
    const asked = groupOf(model).ask({ kind: 'forget' });
    model.dispose();
    await expect(asked).rejects.toMatchObject({ code: 'DISPOSED' });
    await expect(groupOf(model).ask({ kind: 'forget' })).rejects.toMatchObject({ code: 'DISPOSED' });
    await expect(loading).rejects.toMatchObject({ code: 'DISPOSED' });
    expect(await groupOf(model).end()).toBe(0);
  });
});
