/** Without graphs, without fused kernels and without both, models write what they write with them: alone, in a batch, on two devices. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, type DeviceLike, memoryStats } from '@x/core';
import { GgufFile, type GgufTensorSource, QTensor, writeGguf } from '@x/quantized';
import { goldenNames, readGolden } from '@x/testing/golden';
import { testSettings } from '@x/testing/settings';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type LanguageModel, type LoadModelOptions, loadModel } from '../src';
import { Group } from '../src/parallel/group';
import { deviceNames, GGUF, openDevice, TINY, temporaryDirectory } from './helpers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const ALL = ['llama', 'mixtral', 'qwen3', 'gemma3_text', 'deepseek_v2', 'deepseek_v3', 'qwen3_next', 'mamba2'];
/** A device without kernels has nothing to switch off; one that a program computes is slow. */
const namesFor = (device: string) =>
  ALL.slice(0, testSettings.scale < 1 ? 1 : device === 'js' ? 2 : undefined).filter((name) => PRESENT.includes(name));
const PRESENT = goldenNames(models);
/** In blocks their routers are undecided between two experts where activations are rounded to 8 bits: each kernel may take another. */
const UNDECIDED = ['deepseek_v2', 'deepseek_v3'];
/** Matrices that files have in blocks. */
const MATRIX = /\.(attn|ffn)_\w+\.weight$|\.ssm_(in|out|ba)\.weight$|^(token_embd|output)\.weight$/;

const COMBINATIONS = [
  { graphs: true, fused: true },
  { graphs: false, fused: true },
  { graphs: true, fused: false },
  { graphs: false, fused: false },
];

/** Kernels of several operations that a device was asked for. */
function watchFused(device: Device): () => number {
  const { decode, quantizedExperts, experts, pagedAttention } = device.backend as unknown as Record<string, object>;
  const spies = [
    ...spiesOf(decode, ['norm', 'gated', 'activated', 'headNorm', 'groupNorm', 'heads', 'promptHeads', 'latent']),
    ...spiesOf(quantizedExperts, ['gated', 'mixed', 'mixedInto']),
    ...spiesOf(experts, ['route', 'router']),
    ...spiesOf(pagedAttention, ['step', 'attendInBlocks']),
  ];
  return () => spies.reduce((sum, spy) => sum + spy.mock.calls.length, 0);
}

function spiesOf(ops: object | undefined, names: readonly string[]) {
  return ops === undefined ? [] : names.map((name) => vi.spyOn(ops as Record<string, () => unknown>, name));
}

/** A GGUF file with its matrices in blocks of q8_0. */
async function inBlocks(source: string, path: string): Promise<string> {
  const file = GgufFile.open(source);
  try {
    const tensors: GgufTensorSource[] = [];
    for (const { name, shape, format } of file.tensors.values()) {
      if (!MATRIX.test(name) || shape[shape.length - 1] % 32 !== 0 || name.includes('_inp')) {
        tensors.push({ name, shape, type: format!.type, data: file.readTensorBytes(name) });
        continue;
      }
      using weight = QTensor.fromGguf(file, name, Device.js());
      using numbers = weight.dequantize('f32');
      using blocks = await QTensor.quantize(numbers, 'q8_0', { device: Device.js() });
      tensors.push({ name, shape, type: 'q8_0', data: blocks.data.toArraySync<Uint8Array>() });
    }
    await writeGguf(path, { metadata: file.metadata, tensors });
    return path;
  } finally {
    file.close();
  }
}

/** Tokens of each text. */
const TOKENS = 12;

async function write(model: LanguageModel, prompt: readonly number[] | string, maxTokens: number): Promise<number[]> {
  const ids: number[] = [];
  for await (const { id } of model.generate(prompt, { temperature: 0, maxTokens, ignoreEos: true })) ids.push(id);
  return ids;
}

/** Each text by itself, and all at once. */
async function textsOf(
  path: string,
  prompts: readonly (readonly number[] | string)[],
  options: LoadModelOptions,
  tokens = TOKENS,
) {
  const model = await loadModel(path, { cacheDtype: 'f32', ...options });
  try {
    const alone: number[][] = [];
    for (const prompt of prompts) alone.push(await write(model, prompt, tokens));
    const together = await Promise.all(prompts.map((prompt) => write(model, prompt, tokens)));
    return { alone, together };
  } finally {
    model.dispose();
    await model.ended();
  }
}

interface Golden {
  prompts: { ids: number[]; greedy?: { ids: number[] } }[];
}

describe.each(deviceNames)('on %s', (name) => {
  let folder: ReturnType<typeof temporaryDirectory>;
  let device: Device;
  beforeAll(() => {
    folder = temporaryDirectory();
    device = openDevice(name);
  });
  afterAll(() => folder.remove());

  for (const architecture of namesFor(name)) {
    const { prompts } = readGolden<Golden>(join(models, architecture));
    const texts = prompts.filter(({ greedy }) => greedy);
    const ids = texts.map((text) => text.ids);

    it(`${architecture} in numbers writes what transformers writes in each combination`, async () => {
      const expected = texts.map(({ greedy }) => greedy!.ids.slice(0, TOKENS));
      const path = join(models, architecture, 'model.safetensors');
      const capture = vi.spyOn(device, 'capture');
      const fusedCalls = watchFused(device);
      try {
        for (const combination of COMBINATIONS) {
          const [before, live] = [fusedCalls(), memoryStats().liveStorages];
          capture.mockClear();
          const { alone, together } = await textsOf(path, ids, { device, ...combination });
          expect({ ...combination, alone, together }).toEqual({ ...combination, alone: expected, together: expected });
          expect(memoryStats().liveStorages).toBe(live);
          const hasKernels = device.backend.pagedAttention !== undefined;
          expect(capture.mock.calls.length > 0).toBe(combination.graphs && hasKernels);
          expect(fusedCalls() > before).toBe(combination.fused && device.backend.decode !== undefined);
        }
      } finally {
        vi.restoreAllMocks();
      }
    });

    const file = ['model-f16.gguf', 'model-f32.gguf'].map((one) => join(models, architecture, one)).find(existsSync);
    it.skipIf(!file || UNDECIDED.includes(architecture))(
      `${architecture} in blocks writes the same in each combination`,
      async () => {
        const path = await inBlocks(file!, join(folder.path, `${architecture}.gguf`));
        const all = [];
        for (const combination of COMBINATIONS) all.push(await textsOf(path, ids, { device, ...combination }));
        const [{ alone }] = all;
        for (const texts of all) expect(texts).toEqual({ alone, together: alone });
      },
    );
  }

  it('a trained model in blocks writes the same in each combination', async () => {
    const prompts = ['Once upon a time', 'The king of the mountain had a daughter'];
    const all = [];
    const tokens = name === 'js' ? 2 : TOKENS;
    for (const combination of COMBINATIONS) {
      const options = { device, cacheDtype: undefined, ...combination };
      all.push(await textsOf(GGUF, prompts, options, tokens));
    }
    const [{ alone }] = all;
    for (const texts of all) expect(texts).toEqual({ alone, together: alone });
  });
});

it('tells every device of a model', async () => {
  const devices: DeviceLike[] = ['cpu', 'cpu'];
  const prompts = ['Once upon a time', 'The king of the mountain had a daughter'];
  const cpu = openDevice('cpu');
  const capture = vi.spyOn(cpu, 'capture');
  const fusedCalls = watchFused(cpu);
  try {
    const usual = await textsOf(GGUF, prompts, { devices });
    const [captures, calls] = [capture.mock.calls.length, fusedCalls()];
    const sendTo = vi.spyOn(Group.prototype, 'sendTo');
    expect(await textsOf(GGUF, prompts, { devices, graphs: false, fused: false })).toEqual(usual);
    expect(sendTo).toHaveBeenCalledWith(1, { type: 'load', plan: expect.objectContaining({ fused: false }) });
    const isCapture = ([, message]: Parameters<Group['sendTo']>) =>
      message.type === 'command' && message.command.kind === 'capture';
    expect(sendTo.mock.calls.some(isCapture)).toBe(false);
    expect([capture.mock.calls.length, fusedCalls()]).toEqual([captures, calls]);
  } finally {
    vi.restoreAllMocks();
  }
});

it('says what is no switch', async () => {
  for (const option of ['graphs', 'fused']) {
    await expect(loadModel(TINY, { device: 'js', [option]: 'no' })).rejects.toThrow(
      `loadModel: ${option} is "no"; give true or false.`,
    );
  }
});
