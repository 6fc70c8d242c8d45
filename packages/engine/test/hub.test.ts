/** Models by their names on the hub, from a server on this machine; and models whose weights are in several files. */
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Device } from '@x/core';
import { GgufFile, gguf, writeGguf } from '@x/quantized';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FakeHub } from '../../hub/test/hub-server';
import { type LoadModelOptions, loadEmbeddingModel, loadModel } from '../src';
import { GGUF, goldenQ8, temporaryDirectory, writeCheckpoint } from './helpers';

const device = Device.js();
const [golden] = goldenQ8().prompts;
let fake: FakeHub;
const { path: root, remove } = temporaryDirectory();
beforeAll(async () => {
  fake = await FakeHub.start();
});
afterAll(async () => {
  await fake.stop();
  remove();
});

const hub = (more = {}) => ({ endpoint: fake.endpoint, cacheDir: join(root, 'cache'), token: false as const, ...more });

async function textOf(model: string, options: LoadModelOptions = {}): Promise<string> {
  using loaded = await loadModel(model, { device, ...options });
  return await loaded.generate(golden.text, { maxTokens: 4 }).text();
}

/** The model in parts, as llama.cpp's gguf-split makes them. */
async function split(count: number): Promise<string[]> {
  using whole = GgufFile.open(GGUF);
  const all = [...whole.tensors.values()];
  const each = Math.ceil(all.length / count);
  const paths: string[] = [];
  for (let i = 0; i < count; i++) {
    const path = join(root, `tales-Q8_0-0000${i + 1}-of-0000${count}.gguf`);
    const metadata = new Map([
      ...(i === 0 ? whole.metadata : []),
      ['split.no', gguf.uint16(i)],
      ['split.count', gguf.uint16(count)],
      ['split.tensors.count', gguf.int32(all.length)],
    ]);
    const tensors = all.slice(i * each, (i + 1) * each).map(({ name, shape, format }) => {
      return { name, shape, type: format!.type, data: whole.readTensorBytes(name) };
    });
    await writeGguf(path, { metadata, tensors });
    paths.push(path);
  }
  return paths;
}

describe('models of the hub', () => {
  it('in parts: downloaded when they are not here, then taken from the cache', async () => {
    const expected = await textOf(GGUF);
    const paths = await split(3);
    for (const path of paths) expect(await textOf(path)).toBe(expected);
    fake.add('org/tales', Object.fromEntries(paths.map((path) => [path.slice(root.length + 1), readFileSync(path)])));
    const seen: number[] = [];
    const onDownload = ({ bytes, totalBytes }: { bytes: number; totalBytes: number }) => seen.push(bytes / totalBytes);
    expect(await textOf('hf:org/tales:Q8_0', { hub: hub(), onDownload })).toBe(expected);
    expect([seen[0], seen.at(-1)]).toEqual([0, 1]);
    fake.asked.length = 0;
    expect(await textOf('hf:org/tales', { hub: hub(), onDownload })).toBe(expected);
    expect(await textOf('hf:org/tales', { hub: hub({ offline: true }) })).toBe(expected);
    expect(fake.asked).toEqual([]);
    rmSync(paths[1]);
    await expect(loadModel(paths[2], { device })).rejects.toMatchObject({
      code: 'FILE_NOT_FOUND',
      message: expect.stringContaining('there is no tales-Q8_0-00002-of-00003.gguf'),
    });
  }, 120_000);

  it('as checkpoints', async () => {
    const directory = join(root, 'checkpoint');
    mkdirSync(directory);
    await writeCheckpoint(directory, 2);
    fake.add(
      'org/plain',
      Object.fromEntries(readdirSync(directory).map((name) => [name, readFileSync(join(directory, name))])),
    );
    expect(await textOf('hf:org/plain', { hub: hub() })).toBe(await textOf(directory));
  }, 120_000);

  it('that cannot be had: the error says what to do', async () => {
    const fails = (name: string, code: string, options: LoadModelOptions = {}) =>
      expect(loadModel(name, { device, hub: hub(), ...options })).rejects.toMatchObject({ code });
    await fails('hf:org/none', 'NOT_FOUND');
    await fails('hf:org/tales:Q2_K', 'NOT_FOUND');
    await fails('hf:org/../x', 'INVALID_NAME');
    await fails('hf:org/none', 'OFFLINE', { hub: hub({ offline: true }) });
    await fails('hf:org/tales', 'INVALID_OPTION', { hub: 'cache' as never });
    await fails('hf:org/tales', 'INVALID_OPTION', { hub: { cache: 'x' } as never });
    await expect(loadModel('hf:org/other', { device, hub: hub(), signal: AbortSignal.abort() })).rejects.toMatchObject({
      name: 'AbortError',
    });
    await expect(loadEmbeddingModel('hf:org/none', { device, hub: hub() })).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
  });
});
