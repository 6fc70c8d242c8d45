// Every encoder against transformers: random weights in every layer kind, golden hidden states, vectors and scores.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats, scope, Tensor } from '@x/core';
import { saveSafetensors } from '@x/core/files';
import { goldenNames, readGolden } from '@x/testing/golden';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type EmbeddingModel, loadEmbeddingModel } from '../src';
import { deviceNames, maxDifference, openDevice, temporaryDirectory } from './helpers';

const models = fileURLToPath(new URL('../../../models/encoders/', import.meta.url));

interface Golden {
  embedding?: { rows: { ids: number[]; pooled: number[] }[] };
  batch?: { input_ids: number[][]; attention_mask: number[][]; cls: number[][]; mean: number[][]; last: number[][] };
  tokenizer_samples: { text: string; ids: number[] }[];
}

const goldenOf = (name: string) => readGolden<Golden>(join(models, name));

/** Of numbers of a unit vector of 64. */
const TOLERANCES: Record<string, number> = {
  'model.safetensors': 2e-5,
  'model-f16.gguf': 2e-5,
  'model-q8_0.gguf': 1.5e-2,
};

let before: ReturnType<typeof memoryStats>;
beforeEach(() => {
  before = memoryStats();
});
afterEach(() => expect(memoryStats()).toEqual(before));

const names = goldenNames(models);
for (const name of names) {
  const golden = goldenOf(name);
  const { embedding, batch, tokenizer_samples: samples } = golden;
  if (!embedding || !batch) continue;
  const files = Object.keys(TOLERANCES).filter((file) => existsSync(join(models, name, file)));
  describe.each(deviceNames)(`${name} on %s`, (device) => {
    const each = async (check: (model: EmbeddingModel, tolerance: number) => Promise<void>, options = {}) => {
      for (const file of files) {
        const model = await loadEmbeddingModel(join(models, name, file), { device, ...options });
        try {
          await check(model, TOLERANCES[file] * (device === 'js' ? 0.1 : 1) * (file.includes('q8_0') ? 10 : 1));
        } finally {
          model.dispose();
        }
      }
    };

    it('gives the vectors that transformers gives, together and alone', () =>
      each(async (model, tolerance) => {
        const together = await model.embed(embedding.rows.map(({ ids }) => ids));
        for (const [i, { ids, pooled }] of embedding.rows.entries()) {
          expect(together[i].tokens).toBe(ids.length);
          expect(maxDifference(together[i].vector, pooled)).toBeLessThan(tolerance);
          const [alone] = await model.embed([ids]);
          expect(maxDifference(alone.vector, pooled)).toBeLessThan(tolerance);
        }
      }));

    it.each(['cls', 'mean', 'last'] as const)('pools by %s as transformers does in a padded batch', (pooling) =>
      each(
        async (model, tolerance) => {
          const texts = batch.input_ids.map((ids, i) => ids.filter((_, at) => batch.attention_mask[i][at] === 1));
          const vectors = await model.embed(texts);
          for (const [i, { vector }] of vectors.entries())
            expect(maxDifference(vector, batch[pooling][i])).toBeLessThan(tolerance);
        },
        { pooling },
      ),
    );

    it('is near them with weights made blocks while loading', async () => {
      const { rows } = embedding;
      using model = await loadEmbeddingModel(join(models, name), { device, quantize: 'q8_0' });
      for (const [i, { vector }] of (await model.embed(rows.map(({ ids }) => ids))).entries()) {
        const cosine = vector.reduce((sum, x, at) => sum + x * rows[i].pooled[at], 0);
        expect(cosine).toBeGreaterThan(0.998);
        // Rows of 48 and 80 numbers are no whole blocks, and stay.
        if (name !== 'jina_bert') expect(cosine).toBeLessThan(1 - 1e-7);
      }
    });

    it('gives texts the ids that tokenizers gives', () =>
      each(async ({ tokenizer }) => {
        for (const { text, ids } of samples) expect(tokenizer.encodeInput(text).ids).toEqual(ids);
      }));
  });
}

// Whole texts against sentence-transformers: tokens, truncation, prompts, modules behind pooling, rerankers.
interface SentenceTransformers {
  texts: string[];
  query: string;
  models: Record<string, { texts: number[]; vectors: number[][] }>;
  dense: { files: Record<string, unknown>; query: number[][]; documents: number[][]; first8: number[][] };
  rerank: number[];
}

describe.each(deviceNames)('as sentence-transformers on %s', (device) => {
  const expected = JSON.parse(readFileSync(join(models, 'sentence-transformers.json'), 'utf8')) as SentenceTransformers;

  it.each(Object.keys(expected.models).filter((name) => names.includes(name)))('embeds texts with %s', async (name) => {
    const { texts, vectors } = expected.models[name];
    using model = await loadEmbeddingModel(join(models, name), { device, dtype: 'f32' });
    const made = await model.embed(texts.map((i) => expected.texts[i]));
    for (const [i, { vector }] of made.entries()) expect(maxDifference(vector, vectors[i])).toBeLessThan(1e-5);
    // As they are stored: what layers take of many tokens is rounded to bf16 where the device multiplies that.
    const rounds = openDevice(device).backend.linear?.formOf('bf16', 4096) === 'bf16';
    using stored = await loadEmbeddingModel(join(models, name), { device });
    for (const [i, { vector }] of (await stored.embed(texts.map((i) => expected.texts[i]))).entries())
      expect(maxDifference(vector, vectors[i])).toBeLessThan(rounds ? 5e-3 : 1e-5);
    // The last text is longer than most models take.
    const { tokens, dropped } = made.at(-1)!;
    expect(tokens).toBeLessThanOrEqual(model.maxTokens);
    expect(dropped > 0).toBe(tokens === model.maxTokens);
  });

  it('puts prompts in front, leaves them out of the mean, and computes Dense modules', async () => {
    const folder = await withDense(expected.dense.files);
    try {
      using model = await loadEmbeddingModel(folder.path, { device, dtype: 'f32' });
      expect([model.dimensions, model.maxTokens, model.pooling]).toEqual([24, 32, ['mean']]);
      const query = await model.embed(expected.query, { promptName: 'query' });
      expect(maxDifference(query.vector, expected.dense.query[0])).toBeLessThan(1e-5);
      const documents = await model.embed(expected.texts, { promptName: 'document' });
      for (const [i, { vector }] of documents.entries())
        expect(maxDifference(vector, expected.dense.documents[i])).toBeLessThan(1e-5);
      const short = await model.embed(expected.texts.slice(0, 2), { dimensions: 8 });
      for (const [i, { vector }] of short.entries())
        expect(maxDifference(vector, expected.dense.first8[i])).toBeLessThan(1e-5);
      await expect(model.embed('x', { promptName: 'querry' })).rejects.toThrow('query, document');
    } finally {
      folder.remove();
    }
  });

  it('scores pairs as a cross-encoder', async () => {
    using model = await loadEmbeddingModel(join(models, 'bert_rerank'), { device, dtype: 'f32' });
    expect(model.labels).toEqual(['LABEL_0']);
    const ranked = await model.rerank(expected.query, expected.texts);
    expect(ranked.map(({ score }) => score)).toEqual(ranked.map(({ score }) => score).sort((a, b) => b - a));
    for (const { index, score, dropped, tokens } of ranked) {
      expect(Math.abs(score - expected.rerank[index])).toBeLessThan(1e-5);
      expect(dropped > 0).toBe(tokens === 128);
    }
    const best = await model.rerank(expected.query, expected.texts, { topN: 2 });
    expect(best).toEqual(ranked.slice(0, 2));
    const [{ labels }] = await model.classify([expected.texts[0]]);
    expect(labels).toEqual([{ label: 'LABEL_0', score: expect.any(Number) }]);
  });
});

/** The BERT with the modules of tools/golden/embeddings.py, whose weights are the sines and cosines there. */
async function withDense(files: Record<string, unknown>): Promise<{ path: string; remove: () => void }> {
  const folder = temporaryDirectory();
  const from = join(models, 'bert');
  for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'])
    copyFileSync(join(from, name), join(folder.path, name));
  for (const name of ['1_Pooling', '2_Dense']) mkdirSync(join(folder.path, name));
  const write = (name: string, value: unknown) => writeFileSync(join(folder.path, name), JSON.stringify(value));
  write('modules.json', files.modules);
  write('1_Pooling/config.json', files.pooling);
  write('2_Dense/config.json', files.dense);
  write('config_sentence_transformers.json', files.prompts);
  write('sentence_bert_config.json', { max_seq_length: 32, do_lower_case: false });
  const weight = Float32Array.from({ length: 24 * 64 }, (_, i) => Math.sin(i * 12.9898) * 0.25);
  const bias = Float32Array.from({ length: 24 }, (_, i) => Math.cos(i) * 0.1);
  await scope(() =>
    saveSafetensors(join(folder.path, '2_Dense', 'model.safetensors'), {
      'linear.weight': Tensor.from(weight, { shape: [24, 64], device: 'js' }),
      'linear.bias': Tensor.from(bias, { device: 'js' }),
    }),
  );
  return folder;
}
