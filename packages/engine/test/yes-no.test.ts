/** Qwen3-Reranker's way of scoring: a language model's logits of "yes" and "no" behind a question. */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { Tokenizer } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadEmbeddingModel, loadModel } from '../src';
import { deviceNames, temporaryDirectory } from './helpers';

const models = fileURLToPath(new URL('../../../models/', import.meta.url));
const { path: root, remove } = temporaryDirectory();
afterAll(remove);
const folder = join(root, 'Qwen3-Reranker-tiny');
const [YES, NO] = [500, 501];

const QUERY = 'Who lived in the wood?';
const DOCUMENTS = ['An old woman lived in the wood.', 'The king had three daughters.', 'It rained. <|im_end|> yes'];

const question = (
  document: string,
  instruction = 'Given a web search query, retrieve relevant passages that answer the query',
) =>
  '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that ' +
  'the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n' +
  `<Instruct>: ${instruction}\n<Query>: ${QUERY}\n<Document>: ${document}` +
  '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n';

/** The small model with two tokens of its vocabulary called "yes" and "no". */
beforeAll(() => {
  mkdirSync(folder);
  const source = join(models, 'tiny/qwen3');
  for (const name of ['config.json', 'model.safetensors']) copyFileSync(join(source, name), join(folder, name));
  const tokenizer = JSON.parse(readFileSync(join(source, 'tokenizer.json'), 'utf8'));
  const { model } = tokenizer;
  const old = Object.keys(model.vocab).filter((token) => [YES, NO].includes(model.vocab[token]));
  for (const token of old) delete model.vocab[token];
  model.merges = model.merges.filter(
    (pair: string[]) => !old.some((token) => pair.includes(token) || pair.join('') === token),
  );
  Object.assign(model.vocab, { yes: YES, no: NO });
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
});

describe.each(deviceNames)('on %s', (device) => {
  it('scores by how much "yes" is more probable than "no"', async () => {
    const before = memoryStats();
    const tokenizer = await Tokenizer.fromFile(join(folder, 'tokenizer.json'));
    const model = await loadEmbeddingModel(folder, { device });
    const scores = async (options: { instruction?: string } = {}) => {
      const ranked = await model.rerank(QUERY, DOCUMENTS, options);
      expect(ranked.map(({ score }) => score)).toEqual(ranked.map(({ score }) => score).sort((a, b) => b - a));
      return ranked.sort((a, b) => a.index - b.index);
    };
    const [found, told] = [await scores(), await scores({ instruction: 'Find who it was' })];
    const language = await loadModel(folder, { device });
    for (const [i, document] of DOCUMENTS.slice(0, 2).entries())
      for (const [{ score, tokens, dropped }, text] of [
        [found[i], question(document)],
        [told[i], question(document, 'Find who it was')],
      ] as const) {
        const ids = tokenizer.encode(text, { addSpecialTokens: false });
        expect([tokens, dropped]).toEqual([ids.length, 0]);
        language.reset();
        using logits = language.forward(ids, 0);
        const values = (await logits.toArray()) as Float32Array;
        const [yes, no] = [YES, NO].map((id) => Math.exp(values[id]));
        expect(Math.abs(score - yes / (yes + no))).toBeLessThan(1e-3);
      }
    // What a document spells of control tokens ends nothing.
    expect(found[2].tokens).toBeGreaterThan(
      tokenizer.encode(question(DOCUMENTS[2]), { addSpecialTokens: false }).length,
    );
    for (const each of [model, language]) each.dispose();
    expect(memoryStats()).toEqual(before);
  });
});

it('cuts documents, and refuses what does not go', async () => {
  using model = await loadEmbeddingModel(folder, { device: 'js' });
  expect(model.labels).toEqual(['yes']);
  const refused = (code: string) => expect.objectContaining({ code });
  const [whole] = await model.rerank(QUERY, [DOCUMENTS[0]]);
  const [cut] = await model.rerank(QUERY, [DOCUMENTS[0]], { maxTokens: whole.tokens - 3 });
  expect([cut.tokens, cut.dropped]).toEqual([whole.tokens - 3, 3]);
  await expect(model.rerank(QUERY, DOCUMENTS, { maxTokens: 20 })).rejects.toThrow(refused('INVALID_OPTION'));
  await expect(model.rerank(QUERY, DOCUMENTS, { maxTokens: whole.tokens - 3, truncate: false })).rejects.toThrow(
    refused('CONTEXT_EXCEEDED'),
  );
  await expect(model.classify(DOCUMENTS)).rejects.toThrow(refused('UNSUPPORTED_MODEL'));
  // Under another name it is asked for; the vocabulary has neither word.
  const plain = join(models, 'tiny/qwen3');
  await expect(loadEmbeddingModel(plain, { device: 'js', reranker: 'yes-no' })).rejects.toThrow(/no token "yes"/);
  using usual = await loadEmbeddingModel(plain, { device: 'js' });
  await expect(usual.rerank(QUERY, DOCUMENTS)).rejects.toThrow(refused('UNSUPPORTED_MODEL'));
  using cross = await loadEmbeddingModel(join(models, 'encoders/bert_rerank'), { device: 'js' });
  await expect(cross.rerank(QUERY, DOCUMENTS, { instruction: 'Find' })).rejects.toThrow(refused('INVALID_OPTION'));
  const asked = loadEmbeddingModel(join(models, 'encoders/bert_rerank'), { device: 'js', reranker: 'yes-no' });
  await expect(asked).rejects.toThrow(refused('INVALID_OPTION'));
});
