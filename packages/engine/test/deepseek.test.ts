/** GGUF files of DeepSeek from before llama.cpp kept latent vectors in the cache, which are most of those that are out. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, scope, Tensor } from '@x/core';
import { GgufFile, gguf, QTensor, writeGguf } from '@x/quantized';
import { readGolden } from '@x/testing/golden';
import { expect, it } from 'vitest';
import { loadModel } from '../src';
import { maxDifference, temporaryDirectory } from './helpers';

const folder = fileURLToPath(new URL('../../../models/tiny/deepseek_v3/', import.meta.url));

/** Keys and values of all heads as rows of one weight, and the heads' sizes under the usual keys. */
async function writeOlder(path: string): Promise<void> {
  const file = GgufFile.open(join(folder, 'model-f16.gguf'));
  const numbers = (name: string) => QTensor.fromGguf(file, name, Device.js()).dequantize('f32');
  const raw = (x: Tensor) => new Uint8Array(x.contiguous().toArraySync<Float32Array>().buffer);
  const tensors = [...file.tensors.values()].flatMap(({ name, shape, format }) => {
    if (name.endsWith('attn_v_b.weight')) return [];
    if (!name.endsWith('attn_k_b.weight'))
      return [{ name, shape, type: format!.type, data: file.readTensorBytes(name) }];
    const [keys, values] = [numbers(name).transpose(1, 2), numbers(name.replace('k_b', 'v_b'))];
    const both = Tensor.cat([keys, values], 1).flatten(0, 1);
    return [{ name: name.replace('k_b', 'kv_b'), shape: both.shape, type: 'f32' as const, data: raw(both) }];
  });
  const metadata = new Map(file.metadata);
  for (const key of ['key_length_mla', 'value_length_mla']) metadata.delete(`deepseek2.attention.${key}`);
  metadata.set('deepseek2.attention.head_count_kv', gguf.uint32(4));
  await writeGguf(path, { metadata, tensors });
  file.close();
}

it('loads files with keys and values in one weight', async () => {
  const { path, remove } = temporaryDirectory();
  const older = join(path, 'older.gguf');
  await scope(() => writeOlder(older));
  const model = await loadModel(older, { device: 'js' });
  const { logits_std, prompts } = readGolden<{ logits_std: number; prompts: { ids: number[]; last: number[] }[] }>(
    folder,
  );
  const [, { ids, last }] = prompts;
  using logits = model.forward(ids, 0);
  expect(maxDifference((await logits.toArray()) as Float32Array, last)).toBeLessThan(2e-4 * logits_std);
  model.dispose();
  remove();
});
