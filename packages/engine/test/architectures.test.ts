// Every architecture against transformers: random weights in every layer kind, golden logits and greedy ids.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { SafetensorsFile } from '@x/core/files';
import { goldenNames, readGolden } from '@x/testing/golden';
import { testSettings } from '@x/testing/settings';
import { holdsHalves } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { deviceNames, maxDifference, openDevice, STATES_IN_BF16 } from './helpers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));

interface Prompt {
  ids: number[];
  last: number[];
  every4?: { positions: number[]; logits: number[][] };
  greedy?: { ids: number[] };
}
interface Golden {
  logits_std: number;
  prompts: Prompt[];
  gguf?: { prompts: Prompt[] };
}

const FILES = ['model.safetensors', 'model-f16.gguf', 'model-f32.gguf'];
/** Those that devices which a program computes run whole; of the others one file and the shorter texts, all as graphs. */
const WHOLE = ['llama', 'mistral', 'qwen2', 'qwen3', 'gemma3_text'];

/** The dtype of a file's matrices, if they have 16 bits. */
function halvesOf(path: string): 'f16' | 'bf16' | undefined {
  if (path.endsWith('-f16.gguf')) return 'f16';
  if (!path.endsWith('.safetensors')) return undefined;
  const file = SafetensorsFile.open(path);
  try {
    return holdsHalves(file) ? 'bf16' : undefined;
  } finally {
    file.close();
  }
}

for (const name of goldenNames(models)) {
  const folder = join(models, name);
  const isScaled = testSettings.scale < 1 && !WHOLE.includes(name);
  const golden = readGolden<Golden>(folder);
  const files = isScaled ? FILES.slice(0, 1) : FILES;
  for (const file of files.filter((candidate) => existsSync(join(folder, candidate)))) {
    const halves = halvesOf(join(folder, file));
    // transformers changes Phi's factors with the length of a text; here the length for which it is loaded decides.
    const asInGguf = file.endsWith('.gguf') || name === 'phi3';
    const all = asInGguf ? (golden.gguf?.prompts ?? golden.prompts) : golden.prompts;
    const prompts = isScaled ? all.slice(0, 2) : all;
    // Decode steps as they come, and as captured graphs; js has none.
    const modes = deviceNames.flatMap((device) =>
      (device === 'js' ? ['0'] : testSettings.scale < 1 ? ['1'] : ['0', '1']).map((graphs) => [device, graphs]),
    );
    describe.each(modes)(`${name}/${file} on %s, X_GRAPHS=%s`, (device, graphs) => {
      const before = memoryStats();
      let model: LanguageModel;
      const exact = golden.logits_std * (device === 'js' ? 2e-4 : 2e-3);
      // Libraries and matrix units round the activations of many rows to the dtype of 16-bit weights.
      const toleranceOf = (rows: number) => {
        if (!halves || openDevice(device).backend.linear?.formOf(halves, rows) !== halves) return exact;
        return golden.logits_std * ((halves === 'bf16' && STATES_IN_BF16[name]) || 3e-2);
      };

      beforeAll(async () => {
        vi.stubEnv('X_GRAPHS', graphs);
        // Narrower caches have tests of their own (cache.test.ts).
        model = await loadModel(join(folder, file), { device: openDevice(device), cacheDtype: 'f32' });
      });
      afterAll(() => {
        model.dispose();
        expect(memoryStats()).toEqual(before);
        vi.unstubAllEnvs();
      });

      const logitsOf = async (ids: readonly number[], position: number) => {
        using logits = model.forward(ids, position);
        return (await logits.toArray()) as Float32Array;
      };

      it('gives the logits that transformers gives, whole and token by token', async () => {
        for (const { ids, last, every4 } of prompts) {
          model.reset();
          expect(maxDifference(await logitsOf(ids, 0), last)).toBeLessThan(toleranceOf(ids.length));
          model.reset();
          for (let at = 0; at < ids.length; at++) {
            const logits = await logitsOf([ids[at]], at);
            const row = every4?.positions.indexOf(at) ?? -1;
            if (row < 0) continue;
            expect(maxDifference(logits, every4!.logits[row])).toBeLessThan(exact);
          }
        }
      });

      // Margins are far above the tolerance.
      const texts = prompts
        .filter(({ greedy }) => greedy)
        .map(({ ids, greedy }) => ({ ids, expected: greedy!.ids.slice(0, isScaled ? 6 : undefined) }));
      const write = async (ids: readonly number[], maxTokens: number) => {
        const written: number[] = [];
        for await (const { id } of model.generate(ids, { temperature: 0, maxTokens, ignoreEos: true }))
          written.push(id);
        return written;
      };

      it('writes what transformers writes, one after the other and several at once', async () => {
        for (const { ids, expected } of texts) expect(await write(ids, expected.length)).toEqual(expected);
        const together = texts.map(({ ids, expected }) => write(ids, expected.length));
        expect(await Promise.all(together)).toEqual(texts.map(({ expected }) => expected));
      });

      it.skipIf(isScaled)('goes on from a beginning that is in the cache', async () => {
        const { ids, expected } = texts.at(-1)!;
        const cut = 33 - ids.length;
        expect(await write([...ids, ...expected.slice(0, cut)], expected.length - cut)).toEqual(expected.slice(cut));
      });
    });
  }
}

it.each(deviceNames)("Phi's factors for short texts, where it is loaded for these, on %s", async (device) => {
  const folder = join(models, 'phi3');
  const golden = readGolden<Golden>(folder);
  for (const file of ['model.safetensors', 'model-f16.gguf']) {
    const options = { device: openDevice(device), maxContext: 16, cacheDtype: 'f32' } as const;
    const model = await loadModel(join(folder, file), options);
    for (const { ids, last } of golden.prompts.slice(0, 2)) {
      model.reset();
      using logits = model.forward(ids, 0);
      const values = (await logits.toArray()) as Float32Array;
      expect(maxDifference(values, last)).toBeLessThan(golden.logits_std * 2e-3);
    }
    model.dispose();
  }
});

it.each(deviceNames)('experts of more sequences than a mixture has, in steps of all of them, on %s', async (device) => {
  const folder = join(models, 'mixtral');
  const golden = readGolden<Golden>(folder);
  const model = await loadModel(join(folder, 'model-f16.gguf'), { device: openDevice(device) });
  const { ids, greedy } = golden.prompts[1];
  const write = async () => {
    const written: number[] = [];
    const options = { temperature: 0, maxTokens: 12, ignoreEos: true };
    for await (const { id } of model.generate(ids, options)) written.push(id);
    return written;
  };
  const texts = await Promise.all(Array.from({ length: 40 }, write));
  for (const text of texts) expect(text).toEqual(greedy!.ids.slice(0, 12));
  model.dispose();
});
