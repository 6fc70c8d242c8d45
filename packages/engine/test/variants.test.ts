// Settings that the small models do not have, with their weights: what transformers computes (tools/golden/variants.py).
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, maxDifference, temporaryDirectory } from './helpers';

interface Variant {
  model: string;
  changes: Record<string, unknown>;
  std: number;
  /** The first logits of the last position. */
  last: number[];
}

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const fixture = new URL('./fixtures/variants.json', import.meta.url);
const { ids, variants } = JSON.parse(readFileSync(fixture, 'utf8')) as { ids: number[]; variants: Variant[] };
const { path: root, remove } = temporaryDirectory();
afterAll(remove);

const shown = (changes: object) => JSON.stringify(changes).slice(0, 120);

it.each(variants.map((variant, i) => [variant.model, shown(variant.changes), variant, i] as const))(
  '%s with %s',
  async (model, _, { changes, std, last }, i) => {
    const [from, folder] = [join(models, model), join(root, String(i))];
    mkdirSync(folder);
    for (const name of ['model.safetensors', 'tokenizer.json']) copyFileSync(join(from, name), join(folder, name));
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
