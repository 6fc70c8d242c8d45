/**
 * Every architecture with its weights shared by ranks: each rank reads its part, and all get the logits of the whole model, read
 * at once and token by token.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ranks } from '@x/testing/ranks';
import { describe, expect, test } from 'vitest';
import '../../rocm-backend/src';
import { maxDifference } from './helpers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const TALES = fileURLToPath(new URL('../../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url));
const from = (path: string) => new URL(path, import.meta.url).href;
const modules = {
  files: from('../../core/src/files/index.ts'),
  quantized: from('../../quantized/src/index.ts'),
  transformers: from('../../transformers/src/index.ts'),
  runner: from('../src/runner.ts'),
};

/** Text of the tokens that all are given; below every vocabulary. */
const IDS = Array.from({ length: 21 }, (_, i) => (i * 37 + 11) % 90);

/** For each file: this rank's bytes of weights, the logits behind all tokens, and behind the last four, read one by one. */
const BODY = `
  const { join } = await import('node:path');
  const { files, quantized, transformers, runner } = modules;
  const results = [];
  for (const path of input.paths) {
    const isGguf = path.endsWith('.gguf');
    const file = isGguf ? quantized.GgufFile.open(path) : transformers.openSafetensors([path]);
    const { architecture, config } = isGguf
      ? transformers.describeGguf(file.metadata)
      : transformers.describeConfig(files.readJsonFile(join(path, '..', 'config.json')));
    const before = device.memory().liveBytes;
    const { liveTensors } = core.memoryStats();
    let read = 0;
    const shard = communicator.size > 1 ? { rank, size: communicator.size, communicator, split: input.split } : undefined;
    const weights = new transformers.Weights(file, { device, layout: architecture, shard, dtype: input.dtype });
    const model = await architecture.build(weights, config, 64);
    weights.close();
    const bytes = device.memory().liveBytes - before;
    const run = new runner.Runner(model, 64, { dtype: 'f32' });
    const cache = run.cache();
    const steps = [input.ids.slice(0, -4), ...input.ids.slice(-4).map((id) => [id])];
    const logits = [];
    for (const ids of steps) {
      const rows = run.step([{ cache, ids }]);
      // Waits of one thread may not hold up what another one reads from files.
      logits.push(rows.toArraySync());
      rows.dispose();
      const failure = communicator.failure();
      if (failure) throw failure;
    }
    cache.dispose();
    run.dispose();
    model.dispose();
    results.push({ bytes, logits, left: core.memoryStats().liveTensors - liveTensors });
  }
  return results;`;

interface Result {
  bytes: number;
  logits: Float32Array[];
  left: number;
}

async function outcomes(
  paths: string[],
  size: number,
  { dtype, split }: { dtype?: string; split?: string } = {},
): Promise<Result[][]> {
  const all = await ranks(size, BODY, { input: { paths, ids: IDS, dtype, split }, modules, timeoutMs: 120_000 });
  expect(all.map(({ error }) => error)).toEqual(all.map(() => undefined));
  return all.map(({ value }) => value as Result[]);
}

/** Checks the results of ranks against those of one device that has all weights. */
function compare(
  names: readonly string[],
  [whole]: Result[][],
  parts: Result[][],
  tolerances: readonly number[],
): void {
  for (const [i, name] of names.entries()) {
    for (const results of parts) {
      const { logits, left } = results[i];
      expect(left, `${name}: tensors left`).toBe(0);
      for (const [step, row] of logits.entries()) {
        const deviation = Math.sqrt(whole[i].logits[step].reduce((sum, value) => sum + value * value, 0) / row.length);
        const difference = maxDifference(row, whole[i].logits[step]);
        expect(difference, `${name}: logits of step ${step}`).toBeLessThan(tolerances[i] * deviation);
        // All ranks choose the same token.
        expect(row, `${name}: ranks of step ${step}`).toEqual(parts[0][i].logits[step]);
      }
    }
  }
}

const architectures = readdirSync(models).filter((name) => existsSync(join(models, name, 'model.safetensors')));

describe('weights shared by ranks', () => {
  test('give the logits of the whole, for every architecture, on 2', async () => {
    const paths = architectures.map((name) => join(models, name, 'model.safetensors'));
    const whole = await outcomes(paths, 1, { dtype: 'f32' });
    const shared = await outcomes(paths, 2, { dtype: 'f32' });
    compare(
      architectures,
      whole,
      shared,
      architectures.map(() => 2e-3),
    );
    expect(architectures.length).toBeGreaterThan(25);
    for (const [i, name] of architectures.entries()) {
      const share = Math.max(...shared.map((results) => results[i].bytes)) / whole[0][i].bytes;
      expect(share, `${name}: part of the bytes on a rank`).toBeLessThan(0.95);
    }
  }, 300_000);

  test('or its layers, for architectures of each kind of layer', async () => {
    const names = ['llama', 'gemma3_text', 'cohere2', 'mixtral', 'deepseek_v3', 'gpt2', 'granite', 'phi3'];
    const paths = names.map((name) => join(models, name, 'model.safetensors'));
    const whole = await outcomes(paths, 1, { dtype: 'f32' });
    const shared = await outcomes(paths, 2, { dtype: 'f32', split: 'layers' });
    compare(
      names,
      whole,
      shared,
      names.map(() => 1e-5),
    );
  }, 300_000);

  test('of GGUF files, in blocks and in 16 bits, on 2 and 3', async () => {
    const names = ['qwen2', 'phi3', 'qwen3_moe', 'deepseek_v2', 'gpt_oss', 'gpt2'];
    const f16 = names.map((name) => join(models, name, 'model-f16.gguf')).filter((path) => existsSync(path));
    const paths = [TALES, ...f16];
    const whole = await outcomes(paths, 1);
    // Activations are rounded to 8 bits for blocks, which sums in another order may tip: js and cpu differ as much.
    const tolerances = [6e-2, ...f16.map(() => 2e-3)];
    for (const size of [2, 3]) compare(paths, whole, await outcomes(paths, size), tolerances);
    expect(f16.length).toBeGreaterThan(2);
  }, 300_000);
});
