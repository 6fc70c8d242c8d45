// Activations in half precision: the logits of f32 within what their rounding makes, on every architecture and device.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { readGolden } from '@x/testing/golden';
import { describe, expect, it } from 'vitest';
import { loadModel } from '../src';
import { deviceNames, GGUF, maxDifference, openDevice, STATES_IN_BF16 } from './helpers';

interface Golden {
  logits_std: number;
  prompts: { ids: number[]; last: number[] }[];
}

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));

describe.each(deviceNames)('on %s', (device) => {
  for (const name of ['llama', 'qwen2', 'gemma3_text']) {
    const folder = join(models, name);
    const golden = readGolden<Golden & { gguf?: Golden }>(folder);
    const ggufPrompts = golden.gguf?.prompts ?? golden.prompts;
    for (const [file, prompts] of [
      ['model.safetensors', golden.prompts],
      ['model-f16.gguf', ggufPrompts],
    ] as const) {
      it.each([
        ['f16', 'f32'],
        ['f16', 'f16'],
        ['bf16', 'f32'],
      ] as const)(`${name}/${file}: %s activations, %s weights`, async (activations, dtype) => {
        const before = memoryStats();
        const model = await loadModel(join(folder, file), { device: openDevice(device), activations, dtype });
        const [{ ids, last }] = prompts;
        const logits = model.forward(ids, 0);
        expect(logits.dtype).toBe('f32');
        const values = (await logits.toArray()) as Float32Array;
        const difference = maxDifference(values, last) / golden.logits_std;
        // f32 would be below 2e-3: the option does something.
        expect(difference).toBeGreaterThan(activations === 'bf16' ? 1e-3 : 1e-6);
        expect(difference).toBeLessThan(3e-2);
        logits.dispose();
        model.dispose();
        expect(memoryStats()).toEqual(before);
      });
    }
  }

  it.each(Object.entries(STATES_IN_BF16))('%s, whose layers carry states', async (name, bf16) => {
    const { prompts, logits_std } = readGolden<Golden>(join(models, name));
    for (const [activations, limit] of [
      ['f16', 3e-2],
      ['bf16', bf16],
    ] as const) {
      const path = join(models, name, 'model.safetensors');
      using model = await loadModel(path, { device: openDevice(device), activations, dtype: activations });
      for (const { ids, last } of prompts) {
        using logits = model.forward(ids, 0);
        const difference = maxDifference((await logits.toArray()) as Float32Array, last) / logits_std;
        expect(difference).toBeGreaterThan(1e-4);
        expect(difference).toBeLessThan(limit);
      }
    }
  });

  it('blocks take them too', async () => {
    const ids = [0, 3369, 645, 260, 562];
    const logitsWith = async (on: string, activations: 'f32' | 'f16' | 'bf16') => {
      const model = await loadModel(GGUF, { device: openDevice(on), activations });
      using logits = model.forward(ids, 0);
      const values = (await logits.toArray()) as Float32Array;
      model.dispose();
      return values;
    };
    const exact = await logitsWith('js', 'f32');
    const mean = exact.reduce((sum, x) => sum + x, 0) / exact.length;
    const deviation = Math.sqrt(exact.reduce((sum, x) => sum + (x - mean) ** 2, 0) / exact.length);
    // Kernels round what they are given to 8 bits, which has an error of its own.
    const own = maxDifference(await logitsWith(device, 'f32'), exact) / deviation;
    for (const activations of ['f16', 'bf16'] as const)
      expect(maxDifference(await logitsWith(device, activations), exact) / deviation).toBeLessThan(own + 3e-2);
  });
});

it('is refused when it is no such dtype', async () => {
  for (const activations of ['f64', 'u8', '', 16, null])
    await expect(loadModel(GGUF, { activations: activations as never })).rejects.toThrow(
      expect.objectContaining({ code: 'INVALID_OPTION' }),
    );
});
