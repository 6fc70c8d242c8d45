/** Bytes that a decode step reads: of models whose layers, experts, caches and tables are not all read, or not once. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device } from '@x/core';
import { describe, expect, it } from 'vitest';
import { loadModel } from '../src';
import { cacheBytesOf, weightBytesOf } from '../src/step-bytes';
import { GGUF } from './helpers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const js = Device.js();
const F32 = 4;

async function of(name: string) {
  const model = await loadModel(join(models, name, 'model.safetensors'), { device: js, dtype: 'f32', maxContext: 64 });
  const config = JSON.parse(readFileSync(join(models, name, 'config.json'), 'utf8')) as Record<string, number>;
  return { model, config, [Symbol.dispose]: () => model.dispose() };
}

describe('weights', () => {
  it('are read once, but for the table of which a token is a row', async () => {
    using llama = await of('llama');
    const { model, config } = llama;
    const { hidden_size: hidden, intermediate_size: inside, vocab_size: vocab, num_hidden_layers: layers } = config;
    const { num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: headDim } = config;
    const attention = 2 * hidden * headDim * (heads + kvHeads);
    const layer = attention + 3 * hidden * inside + 2 * hidden;
    const rest = layers * layer + hidden + vocab * hidden;
    expect(model.bytesPerStep(8).weights).toBe(F32 * (rest + hidden));
    expect(model.bytesPerStep(8, 5).weights).toBe(F32 * (rest + 5 * hidden));
  });

  it('are those of the experts that tokens take', async () => {
    using mixtral = await of('mixtral');
    const { model, config } = mixtral;
    const { hidden_size: hidden, intermediate_size: inside, num_hidden_layers: layers } = config;
    const { num_local_experts: experts, num_experts_per_tok: chosen } = config;
    const expert = F32 * 3 * hidden * inside;
    const all = model.bytesPerStep(1, 1e6).weights;
    const one = model.bytesPerStep(1).weights;
    const table = F32 * hidden * (config.vocab_size - 1);
    expect(all - one).toBeCloseTo(layers * (experts - chosen) * expert + table, 3);
    const two = model.bytesPerStep(1, 2).weights;
    expect(two - one).toBeCloseTo(layers * (chosen - chosen ** 2 / experts) * expert + F32 * hidden, 3);
  });

  it('are the table and a row of it where it is the head, too', () => {
    const reads = [
      { name: 'token_embd.weight', bytes: 1000, rows: 100 },
      { name: 'token_embd.weight', bytes: 1000 },
    ];
    expect(weightBytesOf(reads, {} as never, 1)).toBe(1010);
    expect(weightBytesOf(reads, {} as never, 1000)).toBe(2000);
  });

  it('are what is on the device, in blocks', async () => {
    const before = js.memory().liveBytes;
    using model = await loadModel(GGUF, { device: js, maxContext: 32 });
    const held = js.memory().liveBytes - before;
    const { weights } = model.bytesPerStep(1);
    // Beside them there are tables of rotations, of a sixteenth of a kilobyte a position.
    expect(weights).toBeLessThan(held);
    expect(weights).toBeGreaterThan(0.98 * held);
  });
});

describe('the cache', () => {
  it('is keys and values of all positions', async () => {
    using llama = await of('llama');
    const { model, config } = llama;
    const position = F32 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
    expect(model.bytesPerStep(40).cache).toBe(40 * position);
    expect(model.bytesPerStep(40, 3).cache).toBe(120 * position);
  });

  it('is one latent vector a position', async () => {
    using deepseek = await of('deepseek_v2');
    const { model, config } = deepseek;
    const position = F32 * config.num_hidden_layers * (config.kv_lora_rank + config.qk_rope_head_dim);
    expect(model.bytesPerStep(10).cache).toBe(10 * position);
  });

  it('ends with a window', () => {
    const layout = { kvHeads: 2, keyDim: 8, valueDim: 8 };
    const sizes = { kvLayouts: [layout, undefined, layout] };
    const bytes = (config: object) => cacheBytesOf({ ...sizes, config: config as never }, 100, 256);
    expect(bytes({})).toBe(25_600);
    expect(bytes({ slidingWindow: 10 })).toBe(2560);
    expect(bytes({ slidingWindow: 10, local: [true, true, false] })).toBe(12_800 + 1280);
    expect(bytes({ windows: [undefined, 5, 20] })).toBe(12_800 + 2560);
  });

  it('is states, read and written, of layers that carry one', async () => {
    using mamba = await of('mamba2');
    const { cache } = mamba.model.bytesPerStep(1);
    expect(cache).toBeGreaterThan(0);
    expect(mamba.model.bytesPerStep(60).cache).toBe(cache);
    expect(mamba.model.bytesPerStep(60, 4).cache).toBe(4 * cache);
    using hybrid = await of('qwen3_next');
    const [near, far] = [1, 60].map((positions) => hybrid.model.bytesPerStep(positions).cache);
    const { num_key_value_heads: kvHeads, head_dim: headDim, num_hidden_layers: layers } = hybrid.config;
    // Each fourth layer attends.
    expect(far - near).toBe(59 * F32 * (layers / 4) * 2 * kvHeads * headDim);
  });
});

it('says what is no number of positions', async () => {
  using llama = await of('llama');
  expect(() => llama.model.bytesPerStep(0)).toThrow('bytesPerStep: positions is 0; give a whole number from 1.');
  expect(() => llama.model.bytesPerStep(1, 1.5)).toThrow('bytesPerStep: sequences is 1.5');
});
