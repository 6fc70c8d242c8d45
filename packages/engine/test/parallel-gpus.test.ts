/**
 * One model on two GPUs, or on two emulated ones (tools/emulator/main.ts with `--devices 2`): what it writes with sums through peer
 * memory is what it writes with the library's, whose sums of two ranks have the same bits.
 */
import { memoryStats } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { GGUF } from './helpers';

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
  afterEach(() => void vi.unstubAllEnvs());

  it.each([
    ['as graphs', '1'],
    ['as they come', '0'],
  ])(
    'writes the same through peer memory and through the library, steps %s',
    async (_, graphs) => {
      vi.stubEnv('X_GRAPHS', graphs);
      const before = memoryStats();
      const devices = [`${gpus[0]}`, `${second}`];
      const written: string[][] = [];
      for (const peers of ['1', '0']) {
        vi.stubEnv('X_PEER', peers);
        const model = await loadModel(GGUF, { devices });
        try {
          written.push(await texts(model));
        } finally {
          model.dispose();
          await model.ended();
        }
      }
      expect(written[0]).toEqual(written[1]);
      for (const text of written[0]) expect(text.length).toBeGreaterThan(LENGTH / 2);
      expect(memoryStats()).toEqual(before);
    },
    600_000,
  );
});
