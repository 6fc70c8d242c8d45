// Encoders with settings and names that the small models do not have (tools/golden/encoder_variants.py).
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { afterAll, expect, it } from 'vitest';
import { loadEmbeddingModel } from '../src';
import { deviceNames, maxDifference, temporaryDirectory } from './helpers';

interface Variant {
  model: string;
  changes: Record<string, unknown>;
  /** The first numbers of the last token's hidden state. */
  last: number[];
}

const models = fileURLToPath(new URL('../../../models/encoders/', import.meta.url));
const fixture = new URL('./fixtures/encoder-variants.json', import.meta.url);
const { ids, variants } = JSON.parse(readFileSync(fixture, 'utf8')) as { ids: number[]; variants: Variant[] };
const { path: root, remove } = temporaryDirectory();
afterAll(remove);

function folderOf(name: string, model: string, changes: Record<string, unknown> = {}): string {
  const folder = join(root, name);
  mkdirSync(folder);
  copyFileSync(join(models, model, 'tokenizer.json'), join(folder, 'tokenizer.json'));
  const config = JSON.parse(readFileSync(join(models, model, 'config.json'), 'utf8'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, ...changes }));
  return folder;
}

async function lastOf(folder: string, device: string, tokens = ids): Promise<Float32Array> {
  using model = await loadEmbeddingModel(folder, { device, pooling: 'last' });
  const [{ vector }] = await model.embed([tokens], { normalize: false });
  return vector;
}

const shown = (changes: object) => JSON.stringify(changes).slice(0, 100);

it.each(variants.map((variant, i) => [variant.model, shown(variant.changes), variant, i] as const))(
  '%s with %s',
  async (model, _, { changes, last }, i) => {
    const folder = folderOf(String(i), model, changes);
    copyFileSync(join(models, model, 'model.safetensors'), join(folder, 'model.safetensors'));
    for (const device of deviceNames) {
      const vector = await lastOf(folder, device);
      expect(maxDifference(vector.slice(0, last.length), last)).toBeLessThan(device === 'js' ? 2e-4 : 1e-3);
    }
  },
);

// Names of the authors' code, under which transformers 5 saves what it has loaded under its own; models with a head have a word in front.
const OWN: Record<string, (name: string) => string> = {
  jina_v3: (name) =>
    `roberta.${name}`
      .replace('embeddings.LayerNorm', 'emb_ln')
      .replace(/layers\.\d/, 'encoder.$&')
      .replace('self_attn.o_proj', 'mixer.out_proj')
      .replace('self_attn.qkv', 'mixer.Wqkv')
      .replace('post_attention_layernorm', 'norm1')
      .replace('post_mlp_layernorm', 'norm2'),
  nomic_bert: (name) => `nomic_bert.${name}`,
};

it.each(Object.keys(OWN))('%s under other names', async (model) => {
  const folder = folderOf(model, model);
  const file = SafetensorsFile.open(join(models, model, 'model.safetensors'));
  const tensors = new Map(file.names.map((name) => [name, file.loadSync(name, 'js')]));
  file.close();
  const written = new Map<string, Tensor>();
  for (const [name, tensor] of tensors) {
    const part = (kind: string) => tensors.get(name.replace('q_proj', `${kind}_proj`))!;
    if (/[kv]_proj/.test(name)) continue;
    const stacked = name.includes('q_proj') ? Tensor.cat([tensor, part('k'), part('v')], 0) : tensor;
    written.set(OWN[model](name.replace('q_proj', 'qkv')), stacked);
  }
  await saveSafetensors(join(folder, 'model.safetensors'), written);
  for (const tensor of [...tensors.values(), ...written.values()]) tensor.dispose();
  for (const device of deviceNames) {
    const expected = await lastOf(join(models, model), device);
    expect(maxDifference(await lastOf(folder, device), expected)).toBeLessThan(1e-5);
  }
});
