// Settings that the small models do not have, with their weights: what transformers computes (tools/golden/variants.py).
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { afterAll, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, maxDifference, temporaryDirectory } from './helpers';

interface Variant {
  model: string;
  changes: Record<string, unknown>;
  /** Weights that are those of a layer's feed-forward layer, too. */
  dense?: Record<string, string>;
  std: number;
  /** The first logits of the last position. */
  last: number[];
}

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const fixture = new URL('./fixtures/variants.json', import.meta.url);
const { ids, variants } = JSON.parse(readFileSync(fixture, 'utf8')) as { ids: number[]; variants: Variant[] };
const { path: root, remove } = temporaryDirectory();
afterAll(remove);

/** Writes a model's weights, some of them as another layer's, too. */
async function withDense(from: string, to: string, dense: Record<string, string>): Promise<void> {
  const file = SafetensorsFile.open(from);
  const tensors = new Map(file.names.map((name) => [name, file.loadSync(name, 'js')]));
  for (const [layer, front] of Object.entries(dense))
    for (const name of file.names.filter((one) => one.startsWith(front)))
      tensors.set(name.replace(front, `model.layers.${layer}.mlp.`), file.loadSync(name, 'js'));
  file.close();
  await saveSafetensors(to, tensors);
  for (const tensor of tensors.values()) tensor.dispose();
}

const shown = (changes: object) => JSON.stringify(changes).slice(0, 120);

it.each(variants.map((variant, i) => [variant.model, shown(variant.changes), variant, i] as const))(
  '%s with %s',
  async (model, _, { changes, dense, std, last }, i) => {
    const [from, folder] = [join(models, model), join(root, String(i))];
    mkdirSync(folder);
    const [stored, written] = [from, folder].map((one) => join(one, 'model.safetensors'));
    if (dense) await withDense(stored, written, dense);
    else copyFileSync(stored, written);
    copyFileSync(join(from, 'tokenizer.json'), join(folder, 'tokenizer.json'));
    const config = JSON.parse(readFileSync(join(from, 'config.json'), 'utf8'));
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, ...changes }));
    for (const device of deviceNames) {
      using loaded = await loadModel(folder, { device, cacheDtype: 'f32' });
      const logitsOf = async (tokens: readonly number[], position: number) => {
        using logits = loaded.forward(tokens, position);
        return ((await logits.toArray()) as Float32Array).slice(0, last.length);
      };
      const tolerance = std * (device === 'js' ? 2e-4 : 2e-3);
      expect(maxDifference(await logitsOf(ids, 0), last)).toBeLessThan(tolerance);
      // The last token as a step of its own.
      loaded.reset();
      await logitsOf(ids.slice(0, -1), 0);
      expect(maxDifference(await logitsOf(ids.slice(-1), ids.length - 1), last)).toBeLessThan(tolerance);
    }
  },
);
