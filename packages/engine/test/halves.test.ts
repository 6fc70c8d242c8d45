/** Models in f16 and bf16, whose matrices stay so on devices with kernels. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { goldenNames, readGolden } from '@x/testing/golden';
import { testSettings } from '@x/testing/settings';
import { describe, expect, it } from 'vitest';
import { type LoadModelOptions, loadModel, multipliesNarrow } from '../src';
import { deviceNames, maxDifference, openDevice, PROMPTS_IN_BF16 } from './helpers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const folder = join(models, 'llama');
const { logits_std: deviation } = readGolden<{ logits_std: number }>(folder);
const ids = Array.from({ length: 80 }, (_, i) => (i * 37 + 11) % 200);

describe.each(deviceNames)('on %s', (name) => {
  const device = openDevice(name);
  const { linear } = device.backend;

  it.each([
    ['model-f16.gguf', 'f16'],
    ['model.safetensors', 'bf16'],
  ] as const)('%s stays in %s, and gives the logits of f32', async (file, dtype) => {
    const found = [];
    for (const asked of [undefined, 'f32', dtype] as const) {
      const before = device.backend.memory().liveBytes;
      using model = await loadModel(join(folder, file), { device, dtype: asked, cacheDtype: 'f32' });
      const bytes = device.backend.memory().liveBytes - before;
      using whole = model.forward(ids, 0);
      const prompt = (await whole.toArray()) as Float32Array;
      using next = model.forward([5], ids.length);
      found.push({ bytes, prompt, step: (await next.toArray()) as Float32Array });
    }
    const [kept, wide, narrow] = found;
    expect(kept.bytes).toBe(linear ? narrow.bytes : wide.bytes);
    expect(narrow.bytes).toBeLessThan(0.6 * wide.bytes);
    // Keys and values of the prompt are in the step too.
    const bound = linear?.formOf(dtype, ids.length) === dtype ? 3e-2 : 2e-3;
    for (const part of ['prompt', 'step'] as const)
      expect(maxDifference(kept[part], wide[part]) / deviation).toBeLessThan(bound);
  });

  it('has a cache of f32 where heads have no kernels of 16 bits, unless these are asked for', async () => {
    using model = await loadModel(join(folder, 'model-f16.gguf'), { device });
    expect(model.cacheDtype).toBe('f32');
    using narrow = await loadModel(join(folder, 'model-f16.gguf'), { device, dtype: 'f16' });
    expect(narrow.cacheDtype).toBe(device.kind === 'cpu' || device.kind === 'js' ? 'f32' : 'f16');
  });
});

it('knows which heads are multiplied in 16 bits', () => {
  const layouts = (keyDim: number, valueDim = keyDim) => [undefined, { kvHeads: 2, keyDim, valueDim }];
  expect([64, 128, 16, 96].map((size) => multipliesNarrow(layouts(size)))).toEqual([true, true, false, false]);
  expect(multipliesNarrow(layouts(128, 64))).toBe(false);
});

describe('prompts of 80 tokens', () => {
  const names = goldenNames(models);
  // On devices that a program computes: dense, experts, latent attention, states.
  const some = ['llama', 'gpt_oss', 'deepseek_v3', 'qwen3_next'];
  const chosen = testSettings.scale < 1 ? some : names;

  it.each(chosen)('%s in bf16 and f16, as f32 on js', async (name) => {
    const { logits_std } = readGolden<{ logits_std: number }>(join(models, name));
    const logitsOf = async (options: LoadModelOptions) => {
      using model = await loadModel(join(models, name, 'model.safetensors'), { cacheDtype: 'f32', ...options });
      using logits = model.forward(ids, 0);
      return (await logits.toArray()) as Float32Array;
    };
    const exact = await logitsOf({ device: 'js', dtype: 'f32' });
    for (const device of deviceNames.map(openDevice)) {
      const off = async (options: LoadModelOptions) =>
        maxDifference(await logitsOf({ device, ...options }), exact) / logits_std;
      const limit = PROMPTS_IN_BF16[name] ?? 3e-2;
      expect(await off({ dtype: 'bf16', activations: 'bf16' })).toBeLessThan(limit);
      if (device.kind === 'js') continue;
      // Units of matrices round what they are given; what they give is f32.
      expect(await off({ dtype: 'bf16' })).toBeLessThan(limit);
      expect(await off({ dtype: 'f16', activations: 'f16' })).toBeLessThan(3e-2);
    }
  });
});
