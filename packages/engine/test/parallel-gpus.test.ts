/**
 * One model on two GPUs, or on two emulated ones (tools/emulator/main.ts with `--devices 2`): what it writes with sums through peer
 * memory is what it writes with the library's, whose sums of two ranks have the same bits.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, memoryStats } from '@x/core';
import type { KernelDevice } from '@x/rocm-backend';
import { kernelDevices } from '@x/testing/devices';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { GGUF, writeCheckpoint } from './helpers';

const gpus = kernelDevices().filter(({ kind }) => kind !== 'cpu');
const second = gpus.find(({ kind }, i) => i > 0 && kind === gpus[0].kind);
const PROMPTS = ['Once upon a time', 'The king of the mountain had a daughter'];
/** An emulated device takes seconds for a token. */
const LENGTH = process.env.FAKE_HIP_KERNELS === undefined ? 48 : 4;

async function texts(model: LanguageModel): Promise<string[]> {
  return Promise.all(
    PROMPTS.map(async (prompt) => {
      let written = '';
      const options = { maxTokens: LENGTH, temperature: 0, ignoreEos: true };
      for await (const piece of model.generate(prompt, options)) written += piece.text;
      return written;
    }),
  );
}

describe.skipIf(!second)('a model on two GPUs', () => {
  let numbers: string;
  beforeAll(async () => {
    numbers = mkdtempSync(join(tmpdir(), 'parallel-gpus-'));
    await writeCheckpoint(numbers);
  });
  afterAll(() => rmSync(numbers, { recursive: true, force: true }));
  afterEach(() => void vi.unstubAllEnvs());

  it.each([
    ['as graphs', 'blocks', '1'],
    ['as they come', 'blocks', '0'],
    ['as they come', 'numbers', '0'],
  ])(
    'writes the same through peer memory and through the library, steps %s, weights in %s',
    async (_, weights, graphs) => {
      vi.stubEnv('X_GRAPHS', graphs);
      const file = weights === 'blocks' ? GGUF : numbers;
      const before = memoryStats();
      const devices = [`${gpus[0]}`, `${second}`];
      const written: string[][] = [];
      const launches: number[] = [];
      const { backend } = Device.of(devices[0]);
      for (const [peers, norms] of ['10', '11', '00']) {
        vi.stubEnv('X_PEER', peers);
        vi.stubEnv('X_PEER_NORMS', norms);
        const begin = (backend as KernelDevice).launchCount;
        const model = await loadModel(file, { devices });
        try {
          written.push(await texts(model));
        } finally {
          model.dispose();
          await model.ended();
        }
        launches.push((backend as KernelDevice).launchCount - begin);
      }
      for (const texts of written) expect(texts).toEqual(written[0]);
      // A launch less for each sum that is part of a norm, which rows in blocks are not.
      if (weights === 'numbers') expect(launches[1]).toBeLessThan(launches[0]);
      for (const text of written[0]) expect(text.length).toBeGreaterThan(LENGTH / 2);
      expect(memoryStats()).toEqual(before);
    },
    600_000,
  );

  // Experts whose sum follows on others, norms of what is added, biases and layers that are not shared.
  it.each(['mixtral', 'deepseek_v3', 'gemma3_text', 'starcoder2'])(
    'gives %s the same logits with sums in norms',
    async (name) => {
      vi.stubEnv('X_GRAPHS', '0');
      const ids = Uint32Array.from({ length: 24 }, (_, i) => (i * 37 + 5) % 200);
      const path = fileURLToPath(new URL(`../../../models/tiny/${name}`, import.meta.url));
      const logits: Float32Array[] = [];
      for (const norms of '01') {
        vi.stubEnv('X_PEER_NORMS', norms);
        const model = await loadModel(path, { devices: [`${gpus[0]}`, `${second}`] });
        const rows = model.forward(ids, 0);
        logits.push(rows.toArraySync<Float32Array>());
        rows.dispose();
        model.dispose();
        await model.ended();
      }
      expect(logits[1]).toEqual(logits[0]);
      expect(logits[0].every((value) => Number.isFinite(value))).toBe(true);
    },
    600_000,
  );
});
