/**
 * Every linear layer of other architectures, whose weights lie fused, in heads or beside states: an adapter that changes all of
 * them gives beside the weights what it gives merged into them.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Tensor } from '@x/core';
import { readJsonFile, saveSafetensors } from '@x/core/files';
import { type LanguageModel, loadModel, type Runner } from '@x/engine';
import { GgufFile, gguf, QTensor, writeGguf } from '@x/quantized';
import { random } from '@x/testing/random';
import { type CausalModel, describeConfig, type TensorNamePair, TensorNames } from '@x/transformers';
import { afterAll, expect, test } from 'vitest';
import { quantizeModel } from '../src/commands/quantize';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'candle-adapters-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const RANK = 2;
const IDS = [40, 7, 300, 41, 99, 12, 250, 8, 77];

/** Random matrices for all weights of layers that adapters can change. */
async function writeAdapter(path: string, base: string, targets: readonly string[]): Promise<void> {
  using file = GgufFile.open(base);
  const next = random(11);
  const tensors = targets.flatMap((target) => {
    const name = `${target}.weight`;
    const [out, width] = file.tensors.get(name)!.shape;
    const sizes = [
      ['a', [RANK, width], 2 / Math.sqrt(width)],
      ['b', [out, RANK], 1],
    ] as const;
    return sizes.map(([part, shape, size]) => {
      const values = Float32Array.from({ length: shape[0] * shape[1] }, () => size * (next() - 0.5));
      const data = new Uint8Array(values.buffer);
      return { name: `${name}.lora_${part}`, shape: [...shape], type: 'f32' as const, data };
    });
  });
  const metadata = new Map(
    Object.entries({
      'general.architecture': gguf.string(file.metadata.string('general.architecture')),
      'general.type': gguf.string('adapter'),
      'adapter.type': gguf.string('lora'),
      'adapter.lora.alpha': gguf.float32(RANK),
    }),
  );
  await writeGguf(path, { metadata, tensors });
}

/** Names of layers with weights of their own. */
function targetsOf(model: LanguageModel, base: string): string[] {
  const { runner } = model as unknown as { runner: { model: CausalModel } };
  const { sites } = runner.model.lora as unknown as { sites: Map<string, unknown> };
  using file = GgufFile.open(base);
  return [...sites.keys()].filter((name) => file.tensors.has(`${name}.weight`));
}

test.each([
  ['phi3', 4],
  ['gpt2', 4],
  ['gemma3_text', 7],
  ['starcoder2', 6],
  ['cohere2', 7],
  ['mixtral', 4],
  ['deepseek_v3', 3],
  ['glm4', 6],
  ['lfm2', 5],
  ['mamba2', 2],
  ['falcon_mamba', 4],
  ['qwen3_next', 3],
])('%s', async (name, least) => {
  const base = ['model-f16.gguf', 'model-f32.gguf'].map((file) => join(models, name, file)).find(existsSync)!;
  const [adapter, merged] = ['adapter', 'merged'].map((part) => join(folder, `${name}-${part}.gguf`));
  const model = await loadModel(base, { device: 'js' });
  const targets = targetsOf(model, base);
  // Of each layer, on average.
  expect(targets.length / model.config.numLayers).toBeGreaterThanOrEqual(least);
  await writeAdapter(adapter, base, targets);
  await model.loadAdapter('it', adapter);
  const report = await quantizeModel(base, merged, 'f32', { adapters: [{ path: adapter, scale: 1 }] });
  expect(report.merged).toBe(targets.length);
  const other = await loadModel(merged, { device: 'js' });
  const plain = await logitsOf(model);
  const [beside, within] = [await logitsOf(model, 'it'), await logitsOf(other)];
  const size = Math.max(...within.map(Math.abs));
  expect(distance(plain, within) / size).toBeGreaterThan(0.05);
  expect(distance(beside, within) / size).toBeLessThan(1e-4);
  for (const each of [model, other]) each.dispose();
});

// Checkpoints have these weights the other way round, or several in one.
test.each(['gpt2', 'phi3'])('%s as PEFT names its layers', async (name) => {
  const [base, checkpoint] = ['model-f32.gguf', 'model-f16.gguf', 'model.safetensors']
    .map((file) => join(models, name, file))
    .filter(existsSync);
  const model = await loadModel(base, { device: 'js' });
  const path = join(folder, `${name}-peft.gguf`);
  await writeAdapter(path, base, targetsOf(model, base));
  await model.loadAdapter('it', path);
  const peft = join(folder, `${name}-peft`);
  await asPeft(path, peft, describeConfig(readJsonFile(join(models, name, 'config.json'))).architecture.names);
  const other = await loadModel(checkpoint, { device: 'js', adapters: { it: peft } });
  const [first, second] = [await logitsOf(model, 'it'), await logitsOf(other, 'it')];
  expect(distance(first, second) / Math.max(...first.map(Math.abs))).toBeLessThan(1e-4);
  for (const each of [model, other]) each.dispose();
});

/** The same matrices in PEFT's form. */
async function asPeft(path: string, folder: string, list: readonly TensorNamePair[]): Promise<void> {
  const names = new TensorNames(list);
  using file = GgufFile.open(path);
  const tensors = new Map<string, Tensor>();
  for (const stored of file.tensors.keys()) {
    const [, target, part] = /^(.+)\.lora_([ab])$/.exec(stored)!;
    const module = names.toCheckpoint(target)!.name.replace(/\.weight$/, '');
    using matrix = QTensor.fromGguf(file, stored, 'js');
    tensors.set(`base_model.model.${module}.lora_${part.toUpperCase()}.weight`, matrix.dequantize('f32'));
  }
  mkdirSync(folder);
  await saveSafetensors(join(folder, 'adapter_model.safetensors'), tensors);
  for (const tensor of tensors.values()) tensor.dispose();
  const config = { peft_type: 'LORA', r: RANK, lora_alpha: RANK, bias: 'none', fan_in_fan_out: true };
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(config));
}

async function logitsOf(model: LanguageModel, adapter?: string): Promise<Float32Array> {
  const { runner } = model as unknown as { runner: Runner };
  const cache = runner.cache(runner.adapters.use(adapter));
  const logits = runner.step([{ cache, ids: IDS }]);
  const values = await logits.toArray<Float32Array>();
  logits.dispose();
  cache.dispose();
  return values;
}

function distance(actual: Float32Array, expected: Float32Array): number {
  return Math.max(...actual.map((value, i) => Math.abs(value - expected[i])));
}
