/** Adapters on the command line: merged into weights while they are quantised, and beside them when text is generated. */
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { loadModel } from '@x/engine';
import { GgufFile } from '@x/quantized';
import { InvalidArgumentError } from 'commander';
import { afterAll, describe, expect, test } from 'vitest';
import { quantizeModel } from '../src/commands/quantize';
import { generateOptionsOf } from '../src/generate-options';
import { loadForCommand } from '../src/load-model';
import { adapterSource, adapterSources } from '../src/merge-adapters';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const fixtures = join(root, 'packages/engine/test/fixtures/lora');
const LLAMA = join(root, 'models/tiny/llama');
const [ALL, SOME] = ['llama-all', 'llama-some'].map((name) => join(fixtures, name));
const golden: Record<string, { std: number; prompts: { ids: number[]; last: number[]; greedy: number[] }[] }> =
  JSON.parse(readFileSync(join(fixtures, 'golden.json'), 'utf8'));
const folder = mkdtempSync(join(tmpdir(), 'candle-adapters-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let count = 0;
const place = () => join(folder, `${count++}.gguf`);

async function logitsOf(path: string, ids: readonly number[]): Promise<Float32Array> {
  const model = await loadModel(path, { device: 'js' });
  const logits = model.forward(ids, 0);
  const values = await logits.toArray<Float32Array>();
  logits.dispose();
  model.dispose();
  return values;
}

function distance(actual: Float32Array, expected: ArrayLike<number>): number {
  return Math.max(...actual.map((value, i) => Math.abs(value - expected[i])));
}

describe('quantize --lora', () => {
  test.each([
    ['a checkpoint', join(LLAMA, 'model.safetensors')],
    ['a GGUF file', join(LLAMA, 'model-f16.gguf')],
  ])('merges an adapter into %s', async (_, input) => {
    const { std, prompts } = golden['llama-all'];
    const output = place();
    const before = memoryStats();
    const report = await quantizeModel(input, output, 'f32', { adapters: [{ path: ALL, scale: 1 }] });
    expect(memoryStats()).toEqual(before);
    // Seven of each of three layers, and the head.
    expect(report.merged).toBe(22);
    for (const { ids, last } of prompts) expect(distance(await logitsOf(output, ids), last) / std).toBeLessThan(1e-3);
    const small = place();
    await quantizeModel(input, small, 'q8_0', { adapters: [{ path: ALL, scale: 1 }] });
    const [{ ids, last }] = prompts;
    const error = distance(await logitsOf(small, ids), last) / std;
    expect(error).toBeLessThan(0.3);
    expect(error).toBeGreaterThan(1e-3);
  });

  test('merges several at their scales, as the engine adds them up', async () => {
    const { std, prompts } = golden['llama-all'];
    const [{ ids, last }] = prompts;
    const base = join(LLAMA, 'model.safetensors');
    // What two of opposite scales leave is the third.
    const adapters = [
      { path: SOME, scale: 2 },
      { path: ALL, scale: 1 },
      { path: SOME, scale: -2 },
    ];
    const output = place();
    await quantizeModel(base, output, 'f32', { adapters });
    expect(distance(await logitsOf(output, ids), last) / std).toBeLessThan(2e-3);
    const half = place();
    await quantizeModel(base, half, 'f32', { adapters: [{ path: SOME, scale: 0.5 }] });
    using model = await loadModel(base, { device: 'js', adapters: { some: SOME } });
    using merged = await loadModel(half, { device: 'js' });
    const [first, second] = await Promise.all([
      model.generate(ids, { maxTokens: 12, ignoreEos: true, adapter: { name: 'some', scale: 0.5 } }).text(),
      merged.generate(ids, { maxTokens: 12, ignoreEos: true }).text(),
    ]);
    expect(second).toBe(first);
  });

  test('copies the blocks of weights that adapters leave alone, and refuses to quantise others twice', async () => {
    const quantised = place();
    await quantizeModel(join(LLAMA, 'model.safetensors'), quantised, 'q8_0');
    const adapters = [{ path: SOME, scale: 1 }];
    const output = place();
    await expect(quantizeModel(quantised, output, 'q8_0', { adapters })).rejects.toThrow(
      /(ffn_up|attn_[qv])\.weight' is q8_0 already, and the adapter changes it/,
    );
    const report = await quantizeModel(quantised, output, 'q8_0', { adapters, allowRequantize: true });
    expect(report.merged).toBe(9);
    const [before, after] = [GgufFile.open(quantised), GgufFile.open(output)];
    for (const name of before.tensors.keys()) {
      const same = Buffer.from(before.readTensorBytes(name)).equals(Buffer.from(after.readTensorBytes(name)));
      expect(same, name).toBe(!/attn_q|attn_v|ffn_up/.test(name));
    }
    for (const file of [before, after]) file.close();
  });

  test('says which adapter does not fit', async () => {
    const bad = (input: string, path: string) =>
      quantizeModel(input, place(), 'f16', { adapters: [{ path, scale: 1 }] });
    await expect(bad(join(root, 'models/tiny/qwen2/model.safetensors'), ALL)).rejects.toThrow(
      // Qwen's head is its table of embeddings.
      /changes lm_head, and the model has no linear layer of that name/,
    );
    await expect(bad(join(LLAMA, 'model.safetensors'), join(folder, 'none'))).rejects.toThrow(/none: there is no such/);
    const file = SafetensorsFile.open(join(LLAMA, 'model.safetensors'));
    const weights = await file.loadAll('js');
    file.close();
    const loose = join(folder, 'loose.safetensors');
    await saveSafetensors(loose, weights);
    for (const weight of weights.values()) weight.dispose();
    await expect(bad(loose, ALL)).rejects.toThrow(/the names of its weights are not known/);
  });
});

test('an adapter is neither written over nor merged with what is no number', async () => {
  const own = mkdtempSync(join(folder, 'own-'));
  cpSync(SOME, own, { recursive: true });
  const path = join(own, 'adapter_model.safetensors');
  const before = readFileSync(path);
  for (const adapter of [own, path])
    await expect(quantizeModel(LLAMA, path, 'f16', { adapters: [{ path: adapter, scale: 1 }] })).rejects.toThrow(
      /adapter_model\.safetensors is an input/,
    );
  expect(readFileSync(path).equals(before)).toBe(true);
  // The bytes of the last matrix, all NaN.
  writeFileSync(path, before.fill(0xff, before.length - 64));
  const output = place();
  await expect(quantizeModel(LLAMA, output, 'f16', { adapters: [{ path: own, scale: 1 }] })).rejects.toThrow(
    expect.objectContaining({ code: 'BAD_ADAPTER', message: expect.stringMatching(/adds to .* is no finite number/) }),
  );
  expect(existsSync(output)).toBe(false);
});

test('--lora of run and chat', async () => {
  const { prompts } = golden['llama-some'];
  const [{ ids, greedy }] = prompts;
  const flags = { device: 'js', temperature: 0, lora: adapterSource(`${SOME}=1.0`) };
  const { model } = await loadForCommand(LLAMA, { ...flags, json: true }, new AbortController().signal);
  const made: number[] = [];
  for await (const { id } of model.generate(ids, { ...generateOptionsOf(flags), maxTokens: 12, ignoreEos: true }))
    made.push(id);
  expect(made).toEqual(greedy);
  model.dispose();
});

test('PATH=scale', () => {
  expect(adapterSource('a/b')).toEqual({ path: 'a/b', scale: 1 });
  expect(adapterSource('a=b=-0.5')).toEqual({ path: 'a=b', scale: -0.5 });
  expect(adapterSource('a=x')).toEqual({ path: 'a=x', scale: 1 });
  expect(adapterSources('b=2', adapterSources('a'))).toEqual([
    { path: 'a', scale: 1 },
    { path: 'b', scale: 2 },
  ]);
  expect(() => adapterSource('')).toThrow(InvalidArgumentError);
  expect(() => adapterSource('a=1e999')).toThrow(InvalidArgumentError);
});
