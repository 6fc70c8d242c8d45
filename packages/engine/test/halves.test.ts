/** Models in f16 and bf16, whose matrices stay so on devices with kernels. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, maxDifference, openDevice } from './helpers';

const folder = fileURLToPath(new URL('../../../models/tiny/llama/', import.meta.url));
const { logits_std: deviation } = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as {
  logits_std: number;
};
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

  it('has a cache of f32, unless 16 bits are asked for', async () => {
    using model = await loadModel(join(folder, 'model-f16.gguf'), { device });
    expect(model.cacheDtype).toBe('f32');
    using narrow = await loadModel(join(folder, 'model-f16.gguf'), { device, dtype: 'f16' });
    expect(narrow.cacheDtype).toBe(device.kind === 'cpu' || device.kind === 'js' ? 'f32' : 'f16');
  });
});
