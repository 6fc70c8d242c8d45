// Experts in host memory: the same numbers and texts as with all of them on the device, whatever there is room for.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, formatBytes, memoryStats, OutOfMemoryError, scope } from '@x/core';
import { ExpertSlots, GgufFile, QTensor, writeGguf } from '@x/quantized';
import { readGolden } from '@x/testing/golden';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, type LoadModelOptions, loadModel } from '../src';
import { deviceNames, maxDifference, openDevice, TINY, temporaryDirectory } from './helpers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));

interface Prompt {
  ids: number[];
  greedy?: { ids: number[] };
}
interface Golden {
  logits_std: number;
  prompts: Prompt[];
  gguf?: { prompts: Prompt[] };
}

/** Kinds of mixtures: with shared experts, groups, biases, dense layers in front, states beside. */
const MIXTURES = [
  'mixtral/model.safetensors',
  'mixtral/model-f16.gguf',
  'qwen3_moe/model.safetensors',
  'gpt_oss/model.safetensors',
  'gpt_oss/model-f16.gguf',
  'granitemoe/model.safetensors',
  'deepseek_v2/model.safetensors',
  'deepseek_v3/model-f16.gguf',
  'glm4_moe/model.safetensors',
  'qwen3_next/model.safetensors',
];
const MIXTRAL = join(models, MIXTURES[0]);
/** Experts of a layer that a token takes. */
const chosenBy = (file: string) => (file.startsWith('deepseek_v2') ? 3 : 2);

const load = (path: string, device: string, options: LoadModelOptions = {}) =>
  loadModel(path, { device: openDevice(device), cacheDtype: 'f32', ...options });

function promptsOf(file: string): { logitsStd: number; prompts: { ids: number[]; text: number[] }[] } {
  const golden = readGolden<Golden>(join(models, file, '..'));
  const all = (file.endsWith('.gguf') && golden.gguf?.prompts) || golden.prompts;
  const prompts = all.flatMap(({ ids, greedy }) => (greedy ? [{ ids, text: greedy.ids.slice(0, 8) }] : []));
  return { logitsStd: golden.logits_std, prompts: prompts.slice(0, 3) };
}

async function logitsOf(model: LanguageModel, ids: readonly number[], position = 0): Promise<Float32Array> {
  using logits = model.forward(ids, position);
  return (await logits.toArray()) as Float32Array;
}

/** A prompt and a token behind it, of each text. */
async function allLogits(model: LanguageModel, texts: readonly { ids: number[] }[]): Promise<Float32Array[]> {
  const logits: Float32Array[] = [];
  for (const { ids } of texts) {
    model.reset();
    logits.push(await logitsOf(model, ids), await logitsOf(model, [ids[0]], ids.length));
  }
  return logits;
}

async function write(model: LanguageModel, ids: readonly number[], maxTokens = 8): Promise<number[]> {
  const written: number[] = [];
  for await (const { id } of model.generate(ids, { temperature: 0, maxTokens, ignoreEos: true })) written.push(id);
  return written;
}

const largest = (these: Float32Array[], those: Float32Array[]) =>
  Math.max(...these.map((logits, i) => maxDifference(logits, those[i])));

describe.each(deviceNames)('on %s', (device) => {
  it.each(MIXTURES)('%s is what it is with all experts on the device', async (file) => {
    const { logitsStd, prompts } = promptsOf(file);
    const before = memoryStats();
    const whole = await load(join(models, file), device);
    expect(whole.expertStats).toBeUndefined();
    const expected = await allLogits(whole, prompts);
    whole.dispose();
    for (const hotExperts of [1000, chosenBy(file)]) {
      const model = await load(join(models, file), device, { experts: 'host', hotExperts });
      const stats = model.expertStats!;
      const isAll = hotExperts > stats.experts;
      expect(stats.hotExperts).toBe(isAll ? stats.experts : hotExperts);
      expect(stats.hostBytes / stats.experts).toBe(stats.deviceBytes / stats.hotExperts);
      expect([stats.hits, stats.uploads, stats.uploadedBytes]).toEqual([0, 0, 0]);
      // One round is the same products in the same order.
      const difference = largest(await allLogits(model, prompts), expected);
      expect(difference).toBeLessThanOrEqual(isAll ? 0 : logitsStd * 2e-4);
      const { uploads, hits } = model.expertStats!;
      if (isAll) expect(uploads).toBeLessThanOrEqual(stats.layers * stats.experts);
      else expect(uploads).toBeGreaterThan(stats.layers * stats.experts);
      expect(hits).toBeGreaterThan(0);
      const texts = prompts.map(({ text }) => text);
      for (const [i, { ids }] of prompts.entries()) expect(await write(model, ids)).toEqual(texts[i]);
      expect(await Promise.all(prompts.map(({ ids }) => write(model, ids)))).toEqual(texts);
      model.dispose();
    }
    expect(memoryStats()).toEqual(before);
  });

  it('copies an expert once where it is wanted again', async () => {
    const model = await load(MIXTRAL, device, { experts: 'host', hotExperts: 4 });
    await logitsOf(model, [7]);
    const first = model.expertStats!;
    // A token takes two experts in each layer.
    expect([first.hits, first.uploads]).toEqual([0, 2 * first.layers]);
    model.reset();
    await logitsOf(model, [7]);
    const second = model.expertStats!;
    expect([second.hits, second.uploads]).toEqual([2 * second.layers, 2 * second.layers]);
    expect(second.uploadedBytes).toBe(second.uploads * (second.deviceBytes / (second.layers * second.hotExperts)));
    model.dispose();
  });

  it.runIf(device !== 'js')(
    'replays steps of as many sequences as there are slots for, in a part for each layer',
    async () => {
      const model = await load(MIXTRAL, device, { experts: 'host', hotExperts: 4 });
      const on = openDevice(device);
      const { layers } = model.expertStats!;
      /** Launches and kernels a token of so many sequences at once, without the first ones, which are computed and captured. */
      const measure = async (sequences: number) => {
        const texts = Array.from({ length: sequences }, (_, i) => [3 + i, 4, 5]);
        const counts: [number, number][] = [];
        const note = () => counts.push([on.launchCount, on.kernelCount]);
        await Promise.all(
          texts.map(async (ids, i) => {
            for await (const _ of model.generate(ids, { temperature: 0, maxTokens: 16, ignoreEos: true }))
              if (i === 0) note();
          }),
        );
        const [from, to] = [counts[8], counts[14]];
        return [to[0] - from[0], to[1] - from[1]].map((count) => count / 6);
      };
      for (const sequences of [1, 2]) {
        const [launches, kernels] = await measure(sequences);
        expect(kernels).toBeGreaterThan(10 * layers);
        expect(launches).toBeLessThan(layers + 8);
      }
      // Three may want six experts.
      const [launches, kernels] = await measure(3);
      expect(launches).toBe(kernels);
      model.dispose();
    },
  );

  it('writes the same with drafts, and when tokens of several texts are read together', async () => {
    const { prompts } = promptsOf(MIXTURES[0]);
    const [{ ids, text }] = prompts;
    const model = await load(MIXTRAL, device, { experts: 'host', hotExperts: 3 });
    await model.warmUp({ sequences: 2 });
    const options = { temperature: 0, maxTokens: 8, ignoreEos: true } as const;
    const written: number[] = [];
    const looped = [...ids, ...text, ...ids];
    for await (const { id } of model.generate(looped, { ...options, speculative: 'lookup' })) written.push(id);
    expect(written).toEqual(await write(model, looped));
    const many = Array.from({ length: 12 }, (_, i) => prompts[i % prompts.length]);
    const texts = await Promise.all(many.map((one) => write(model, one.ids)));
    expect(texts).toEqual(many.map((one) => one.text));
    model.dispose();
  });

  it('gives all back when loading is stopped, and when a copy fails goes on', async () => {
    const before = memoryStats();
    const stop = new AbortController();
    const onProgress = (loaded: number, total: number) => loaded > total / 2 && stop.abort(new Error('enough'));
    await expect(load(MIXTRAL, device, { experts: 'host', signal: stop.signal, onProgress })).rejects.toThrow('enough');
    expect(memoryStats()).toEqual(before);
    const model = await load(MIXTRAL, device, { experts: 'host', hotExperts: 2 });
    const expected = await logitsOf(model, [7, 8, 9]);
    model.reset();
    const failing = vi.spyOn(ExpertSlots.prototype, 'put').mockImplementation(() => {
      throw new Error('no such luck');
    });
    expect(() => model.forward([10, 11, 12], 0)).toThrow('no such luck');
    failing.mockRestore();
    model.reset();
    expect(await logitsOf(model, [7, 8, 9])).toEqual(expected);
    model.dispose();
    expect(memoryStats()).toEqual(before);
  });
});

it.each(deviceNames)('gives all back where there is no memory for the slots, on %s', async (device) => {
  const before = memoryStats();
  const { backend } = openDevice(device);
  const allocate = backend.allocUninit.bind(backend);
  // Five experts of one of the matrices of a layer; the model's host copies and other weights have other sizes.
  const none = vi.spyOn(backend, 'allocUninit').mockImplementation((count, ...more) => {
    if (count === 5 * 64 * 32) throw new OutOfMemoryError('OUT_OF_MEMORY', 'none left');
    return allocate(count, ...more);
  });
  await expect(load(MIXTRAL, device, { experts: 'host', hotExperts: 5 })).rejects.toMatchObject({
    code: 'OUT_OF_MEMORY',
    message: expect.stringContaining('few hotExperts'),
    cause: { message: 'none left' },
  });
  none.mockRestore();
  expect(memoryStats()).toEqual(before);
});

describe.each(deviceNames)('experts in blocks, on %s', (device) => {
  const directory = temporaryDirectory();
  const path = join(directory.path, 'blocks.gguf');
  beforeAll(() =>
    scope(async () => {
      const from = GgufFile.open(join(models, 'mixtral/model-f16.gguf'));
      const tensors = [];
      for (const { name, shape, format } of from.tensors.values()) {
        const type = name.endsWith('_exps.weight') ? 'q8_0' : format!.type;
        const isSame = type === format!.type;
        const numbers = isSame ? undefined : QTensor.fromGguf(from, name, 'js').dequantize('f32');
        const data = numbers ? await (await QTensor.quantize(numbers, type)).toBytes() : from.readTensorBytes(name);
        tensors.push({ name, shape, type, data });
      }
      await writeGguf(path, { metadata: from.metadata, tensors });
      from.close();
    }),
  );
  afterAll(() => directory.remove());

  it('stay blocks on both', async () => {
    const prompts = [{ ids: [3, 1, 4, 1, 5, 9, 2, 6] }, { ids: Array.from({ length: 70 }, (_, i) => (7 * i) % 400) }];
    const before = memoryStats();
    const whole = await load(path, device);
    const expected = await allLogits(whole, prompts);
    const wholeBytes = memoryStats().byDevice[device].liveBytes;
    whole.dispose();
    for (const hotExperts of [8, 2]) {
      const model = await load(path, device, { experts: 'host', hotExperts });
      const { hostBytes, deviceBytes, experts, layers } = model.expertStats!;
      const numbers = layers * experts * 3 * model.config.hiddenSize * model.config.intermediateSize;
      expect(hostBytes).toBe((numbers / 32) * 34);
      expect(deviceBytes).toBe((hostBytes * hotExperts) / experts);
      const difference = largest(await allLogits(model, prompts), expected);
      expect(difference).toBeLessThanOrEqual(hotExperts === 8 ? 0 : 0.05);
      if (device !== 'js' && hotExperts === 2)
        expect(memoryStats().byDevice[device].liveBytes).toBeLessThan(wholeBytes - hostBytes / 2);
      model.dispose();
    }
    expect(memoryStats()).toEqual(before);
  });
});

describe('experts: auto', () => {
  const cpu = Device.cpu();
  /** As if the device were one with memory of its own. */
  const loadWith = async (freeBytes: number | undefined, options: LoadModelOptions = {}) => {
    if (freeBytes !== undefined) {
      vi.spyOn(cpu, 'kind', 'get').mockReturnValue('rocm');
      vi.spyOn(cpu, 'availableBytes').mockReturnValue(freeBytes);
    }
    const model = await load(MIXTRAL, 'cpu', { maxContext: 64, ...options });
    const { expertStats } = model;
    model.dispose();
    vi.restoreAllMocks();
    return expertStats;
  };

  it('says so where the memory cannot be page-locked', async () => {
    const listen = async (freeBytes?: number) => {
      const warnings: unknown[][] = [];
      vi.spyOn(process, 'emitWarning').mockImplementation((...warning: unknown[]) => void warnings.push(warning));
      const { hostBytes } = (await loadWith(freeBytes, { experts: 'host' }))!;
      return { warnings, hostBytes };
    };
    expect((await listen()).warnings).toEqual([]);
    const { warnings, hostBytes } = await listen(2 ** 30);
    const bytes = formatBytes(hostBytes);
    expect(warnings).toEqual([
      [
        expect.stringContaining(`of ${bytes} of experts in host memory ${bytes} could not be page-locked`),
        expect.objectContaining({ code: 'EXPERTS_NOT_PINNED' }),
      ],
    ]);
  });

  it('has them on the device where there is room', async () => {
    expect(await loadWith(undefined)).toBeUndefined();
    expect(await loadWith(2 ** 30)).toBeUndefined();
    expect(await loadWith(2 ** 10, { experts: 'device' })).toBeUndefined();
  });

  it('has as many there as there is room for', async () => {
    expect((await loadWith(2 ** 30, { experts: 'host' }))!.hotExperts).toBe(8);
    expect((await loadWith(undefined, { experts: 'host' }))!.hotExperts).toBe(2);
    const { hostBytes, ...little } = (await loadWith(2 ** 10))!;
    expect(little.hotExperts).toBe(2);
    const counts: number[] = [];
    for (let free = 2 ** 20; free < 2 ** 21; free += 2 ** 15) counts.push((await loadWith(free))?.hotExperts ?? 8);
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
    expect([counts[0], counts.at(-1), new Set(counts).size > 3]).toEqual([2, 8, true]);
    expect((await loadWith(2 ** 10, { hotExperts: 5 }))!.hotExperts).toBe(5);
  });
});

it('has nothing to do where a model has no experts', async () => {
  const model = await loadModel(TINY, { device: 'cpu', experts: 'host', hotExperts: 4 });
  expect(model.expertStats).toBeUndefined();
  model.dispose();
});

it('refuses what does not go together', async () => {
  const refused = (path: string, options: LoadModelOptions) =>
    expect(loadModel(path, { device: 'cpu', ...options })).rejects;
  const invalid = (option: string, message: RegExp) => ({
    code: 'INVALID_OPTION',
    option,
    message: expect.stringMatching(message),
  });
  await refused(MIXTRAL, { experts: 'hots' as 'host' }).toMatchObject(
    invalid('experts', /use one of auto, device, host/),
  );
  await refused(MIXTRAL, { hotExperts: 1.5 }).toMatchObject(invalid('hotExperts', /whole number/));
  await refused(MIXTRAL, { hotExperts: 1 }).toMatchObject(
    invalid('hotExperts', /takes 2 of 8 experts; give 2 or more/),
  );
  await refused(MIXTRAL, { experts: 'device', hotExperts: 4 }).toMatchObject(invalid('hotExperts', /leave it out/));
  const devices = { device: undefined, devices: ['cpu', 'cpu'] };
  await refused(MIXTRAL, { ...devices, experts: 'host' }).toMatchObject(invalid('experts', /one device/));
});
