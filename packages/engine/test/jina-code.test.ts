// jina-embeddings-v2-base-code in a GGUF file, as llama.cpp's converter lays it out: gates apart from what they multiply.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device } from '@x/core';
import { type GgufTensorSource, gguf, writeGguf } from '@x/quantized';
import { readGolden } from '@x/testing/golden';
import { ENCODERS, openSafetensors, WeightFile } from '@x/transformers';
import { afterAll, expect, it } from 'vitest';
import { loadEmbeddingModel } from '../src';
import { deviceNames, maxDifference, temporaryDirectory } from './helpers';

const folder = fileURLToPath(new URL('../../../models/encoders/jina_bert_code/', import.meta.url));
const { path: root, remove } = temporaryDirectory();
afterAll(remove);

const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Record<string, number>;
const LAYERS = config.num_hidden_layers;
const PARTS = [
  'attn_q',
  'attn_k',
  'attn_v',
  'attn_output',
  'attn_q_norm',
  'attn_k_norm',
  'ffn_up',
  'ffn_gate',
  'ffn_down',
];
const NORMS = ['attn_output_norm', 'attn_norm_2', 'layer_output_norm'];

/** @param leaveOut parts of layers */
async function ggufOf(name: string, leaveOut: readonly string[] = []): Promise<string> {
  const { names } = ENCODERS.find(({ gguf: architecture }) => architecture === 'jina-bert-v2')!;
  const file = new WeightFile(openSafetensors([join(folder, 'model.safetensors')]), { names });
  const layers = Array.from({ length: LAYERS }, (_, i) =>
    [...PARTS, ...NORMS].filter((part) => !leaveOut.includes(part)).map((part) => `blk.${i}.${part}`),
  );
  const tensors: GgufTensorSource[] = [];
  for (const part of ['token_embd', 'token_types', 'token_embd_norm', ...layers.flat()]) {
    for (const tensor of [`${part}.weight`, `${part}.bias`]) {
      const shape = file.shapeOf(tensor);
      if (!shape) continue;
      using weight = await file.load(tensor, Device.js(), 'f32');
      const values = (await weight.data.contiguous().toArray()) as Float32Array;
      tensors.push({
        name: tensor,
        type: 'f32',
        shape,
        data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
      });
    }
  }
  file.close();
  const tokens = Object.keys(
    (JSON.parse(readFileSync(join(folder, 'tokenizer.json'), 'utf8')) as { model: { vocab: object } }).model.vocab,
  );
  const path = join(root, `${name}.gguf`);
  const key = (suffix: string) => `jina-bert-v2.${suffix}`;
  await writeGguf(path, {
    metadata: {
      'general.architecture': gguf.string('jina-bert-v2'),
      [key('context_length')]: gguf.uint32(config.max_position_embeddings),
      [key('embedding_length')]: gguf.uint32(config.hidden_size),
      [key('feed_forward_length')]: gguf.uint32(config.intermediate_size),
      [key('block_count')]: gguf.uint32(LAYERS),
      [key('attention.head_count')]: gguf.uint32(config.num_attention_heads),
      [key('attention.layer_norm_epsilon')]: gguf.float32(1e-12),
      [key('attention.causal')]: gguf.bool(false),
      [key('pooling_type')]: gguf.uint32(1),
      'tokenizer.ggml.model': gguf.string('bert'),
      'tokenizer.ggml.tokens': gguf.strings(tokens),
    },
    tensors,
  });
  return path;
}

interface Golden {
  embedding: { rows: { ids: number[]; pooled: number[] }[] };
}

it.each(deviceNames)('gives the vectors of the checkpoint on %s', async (device) => {
  const { rows } = readGolden<Golden>(folder).embedding;
  using model = await loadEmbeddingModel(await ggufOf('whole'), { device });
  const found = await model.embed(rows.map(({ ids }) => ids));
  for (const [i, { pooled }] of rows.entries())
    expect(maxDifference(found[i].vector, pooled)).toBeLessThan(device === 'js' ? 2e-6 : 2e-5);
});

it('is refused where gates and what they multiply are one weight, in an order that the file does not say', async () => {
  const path = await ggufOf('fused', ['ffn_gate']);
  await expect(loadEmbeddingModel(path, { device: 'js' })).rejects.toThrow(/ffn_up/);
});
