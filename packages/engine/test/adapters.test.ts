// LoRA adapters: against PEFT, alone and in batches with others, with prompts that begin alike, while they come and go.
import { cpSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Device, memoryStats, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { GgufFile, gguf, writeGguf } from '@x/quantized';
import { random } from '@x/testing/random';
import { describeConfig, openLora } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdapterChoice, argmax, type LanguageModel, type LoadModelOptions, loadModel } from '../src';
import type { Runner } from '../src/runner';
import type { BatchScheduler } from '../src/schedule/scheduler';
import { deviceNames, GGUF, maxDifference, openDevice, settledMemory, temporaryDirectory } from './helpers';
import {
  type AdapterChanges,
  type AdapterName,
  adapterGolden,
  adapterPath,
  changedAdapter,
  modelFile,
  writeGgufAdapter,
} from './lora-files';

const inside = (model: LanguageModel) => model as unknown as { runner: Runner; scheduler: BatchScheduler };
const { path: folder, remove } = temporaryDirectory();
afterAll(remove);

async function written(
  model: LanguageModel,
  prompt: readonly number[],
  adapter?: AdapterChoice,
  maxTokens = 12,
): Promise<number[]> {
  const ids: number[] = [];
  for await (const { id } of model.generate(prompt, { maxTokens, ignoreEos: true, adapter })) ids.push(id);
  return ids;
}

/** Logits of the token after a prompt, of a sequence of its own. */
async function logitsOf(model: LanguageModel, ids: readonly number[], adapter?: AdapterChoice): Promise<Float32Array> {
  const { runner } = inside(model);
  const cache = runner.cache(runner.adapters.use(adapter));
  using logits = runner.step([{ cache, ids }]);
  const values = await logits.toArray<Float32Array>();
  cache.dispose();
  return values;
}

const names: AdapterName[] = ['llama-all', 'llama-some', 'qwen2-all'];
const ggufAdapters = new Map<AdapterName, string>();
beforeAll(async () => {
  for (const name of names) ggufAdapters.set(name, await writeGgufAdapter(join(folder, `${name}.gguf`), name));
});

describe.each(deviceNames)('adapters on %s', (deviceName) => {
  let device: Device;
  beforeAll(() => {
    device = openDevice(deviceName);
  });

  // Weights of the GGUF files are f16, which rounds bf16 of the checkpoints nowhere in this range.
  it.each(names)('%s of either kind on a model of either kind give what PEFT gives', async (name) => {
    const { model: base, std, changed, prompts } = adapterGolden[name];
    expect(changed).toBeGreaterThan(std / 2);
    for (const file of ['model.safetensors', 'model-f16.gguf'] as const) {
      using model = await loadModel(modelFile(base, file), { device, adapters: { peft: adapterPath(name) } });
      await model.loadAdapter('gguf', ggufAdapters.get(name)!);
      for (const adapter of ['peft', 'gguf']) {
        for (const { ids, last, greedy } of prompts) {
          const difference = maxDifference(await logitsOf(model, ids, adapter), last);
          expect(difference / std, `${adapter} on ${file}`).toBeLessThan(2e-3);
          expect(await written(model, ids, adapter), `${adapter} on ${file}`).toEqual(greedy);
        }
      }
    }
  });

  it('gives each sequence of a batch what it gives alone', async () => {
    const { prompts } = adapterGolden['llama-all'];
    const adapters = { all: adapterPath('llama-all'), some: adapterPath('llama-some') };
    using model = await loadModel(modelFile('llama', 'model.safetensors'), { device, adapters });
    const choices: (AdapterChoice | undefined)[] = [
      'some',
      undefined,
      'all',
      { name: 'all', scale: 0.5 },
      undefined,
      'some',
      'all',
    ];
    const texts = choices.map((_, i) => prompts[i % 2].ids.map((id) => (id + i) % 512));
    const alone: number[][] = [];
    for (const [i, choice] of choices.entries()) alone.push(await written(model, texts[i], choice));
    // Steps of several sequences, of which each adapter has some.
    const { runner } = inside(model);
    const sizes: number[] = [];
    const { pass } = runner;
    runner.pass = function (steps, logits) {
      sizes.push(new Set(steps.map(({ cache }) => cache.adapter?.key)).size);
      return pass.call(this, steps, logits);
    };
    const together = await Promise.all(choices.map((choice, i) => written(model, texts[i], choice)));
    expect(together).toEqual(alone);
    expect(Math.max(...sizes)).toBe(4);
    // Others than the model's own, and than one another.
    expect(new Set(alone.map(String)).size).toBe(choices.length);
    const [{ ids }] = prompts;
    const [own, half, full] = [undefined, { name: 'all', scale: 0.5 }, 'all'];
    const each = [await written(model, ids, own), await written(model, ids, half), await written(model, ids, full)];
    expect(new Set(each.map(String)).size).toBe(3);
    expect(await written(model, ids, { name: 'all', scale: 0 })).toEqual(each[0]);
  });

  it('takes the beginning of a prompt from texts of the same adapter only', async () => {
    const { prompts } = adapterGolden['llama-all'];
    const [, { ids, greedy }] = prompts;
    const adapters = { all: adapterPath('llama-all'), some: adapterPath('llama-some') };
    using model = await loadModel(modelFile('llama', 'model.safetensors'), { device, adapters });
    const reused = async (adapter?: AdapterChoice) => {
      const generation = model.generate(ids, { maxTokens: 12, ignoreEos: true, adapter });
      const made: number[] = [];
      for await (const { id } of generation) made.push(id);
      return { made, reused: generation.stats.reusedTokens };
    };
    const own = await reused();
    expect(own.reused).toBe(0);
    expect(await reused('all')).toEqual({ made: greedy, reused: 0 });
    expect((await reused('some')).reused).toBe(0);
    expect((await reused({ name: 'all', scale: 2 })).reused).toBe(0);
    expect(await reused('all')).toEqual({ made: greedy, reused: 32 });
    expect(await reused()).toEqual({ ...own, reused: 32 });
    // One of the same name that was loaded again is another one.
    model.unloadAdapter('all');
    await model.loadAdapter('all', adapterPath('llama-all'));
    expect(await reused('all')).toEqual({ made: greedy, reused: 0 });
  });

  it('gives what it takes for adapters back, when the last text with one ends', async () => {
    const { prompts } = adapterGolden['llama-some'];
    const [{ ids, greedy }] = prompts;
    using model = await loadModel(modelFile('llama', 'model.safetensors'), { device });
    const plain = await written(model, ids);
    const before = settledMemory(model);
    await expect(model.loadAdapter(5 as never, adapterPath('llama-some'))).rejects.toThrow('name is of type number');
    await expect(model.loadAdapter('some', undefined as never)).rejects.toThrow('path is of type undefined');
    await model.loadAdapter('some', adapterPath('llama-some'));
    expect(model.adapters).toEqual(['some']);
    expect(await written(model, ids, 'some')).toEqual(greedy);
    const running = model.generate(ids, { maxTokens: 12, ignoreEos: true, adapter: 'some' });
    const late = model.generate(ids, { maxTokens: 12, ignoreEos: true, adapter: 'some' });
    const made: number[] = [];
    for await (const { id } of running) {
      made.push(id);
      if (made.length === 6) model.unloadAdapter('some');
    }
    expect(made).toEqual(greedy);
    expect(model.adapters).toEqual([]);
    await expect(late.text()).rejects.toThrow('the adapter "some" was unloaded; load it again');
    expect(() => model.generate(ids, { adapter: 'some' })).toThrow(
      'generate: there is no adapter "some". None is loaded: use loadAdapter.',
    );
    expect(settledMemory(model)).toEqual(before);
    expect(await written(model, ids)).toEqual(plain);
  });

  it('replays steps of an adapter, from graphs that go with it', async () => {
    const { prompts } = adapterGolden['llama-some'];
    const [{ ids, greedy }] = prompts;
    const adapters = { some: adapterPath('llama-some') };
    using model = await loadModel(modelFile('llama', 'model.safetensors'), { device, adapters });
    const { runner } = inside(model);
    const { graphs } = runner as unknown as {
      graphs?: { usable: boolean; graphs: { graphs: Map<string, { lora?: unknown } | null> } };
    };
    const captured = () => [...(graphs?.graphs.graphs.values() ?? [])].filter((entry) => entry?.lora).length;
    const caches = ['some', { name: 'some', scale: 0 }, undefined].map((choice) =>
      runner.cache(runner.adapters.use(choice)),
    );
    for (const cache of caches) runner.step([{ cache, ids }]).dispose();
    const [adapted, zero, plain] = caches;
    for (let i = 0; i + 1 < greedy.length; i++) {
      const next = { ids: [greedy[i]] };
      using logits = runner.step([{ cache: adapted, ...next }]);
      expect(argmax(await logits.toArray<Float32Array>())).toBe(greedy[i + 1]);
      // The same kind of step with other adapters in between.
      using first = runner.step([{ cache: zero, ...next }]);
      using second = runner.step([{ cache: plain, ...next }]);
      const difference = maxDifference(await first.toArray<Float32Array>(), await second.toArray<Float32Array>());
      expect(difference).toBeLessThan(1e-3);
    }
    const most = graphs?.usable ? 2 : 0;
    expect(captured()).toBe(most);
    model.unloadAdapter('some');
    adapted.dispose();
    adapted.dispose();
    expect(captured()).toBe(most);
    zero.dispose();
    expect(captured()).toBe(0);
    plain.dispose();
  });

  it('changes a model in blocks, whose products read numbers then', async () => {
    // Against the same adapter on the same weights as numbers.
    const adapter = join(folder, `blocks-${deviceName}.gguf`);
    await writeRandomAdapter(adapter);
    const options: LoadModelOptions = { device, maxContext: 64, adapters: { it: adapter } };
    using model = await loadModel(GGUF, options);
    const { X_DEQUANTIZE_ALL } = process.env;
    process.env.X_DEQUANTIZE_ALL = '1';
    using dense = await loadModel(GGUF, options).finally(() => {
      if (X_DEQUANTIZE_ALL === undefined) delete process.env.X_DEQUANTIZE_ALL;
      else process.env.X_DEQUANTIZE_ALL = X_DEQUANTIZE_ALL;
    });
    const ids = [1, 17, 300, 41, 7, 999, 5];
    const [plain, adapted, wanted] = [
      await logitsOf(model, ids),
      await logitsOf(model, ids, 'it'),
      await logitsOf(dense, ids, 'it'),
    ];
    const error = maxDifference(adapted, wanted);
    expect(error).toBeLessThan(device.backend.quantized ? 0.25 : 2e-3);
    expect(maxDifference(plain, wanted)).toBeGreaterThan(2);
    // A step of both kinds in one batch.
    const { runner } = inside(model);
    const caches = [undefined, 'it'].map((choice) => runner.cache(runner.adapters.use(choice)));
    using logits = runner.step(caches.map((cache) => ({ cache, ids })));
    const [first, second] = (await logits.toVec<number[][]>()) as number[][];
    expect(maxDifference(first, plain)).toBeLessThan(device.backend.quantized ? 0.25 : 2e-3);
    expect(maxDifference(second, wanted)).toBeLessThan(device.backend.quantized ? 0.25 : 2e-3);
    for (const cache of caches) cache.dispose();
  });

  it('computes in the dtype of activations', async () => {
    const { std, prompts } = adapterGolden['llama-all'];
    const [{ ids, last }] = prompts;
    const adapters = { it: adapterPath('llama-all') };
    for (const dtype of ['f16', 'bf16'] as const) {
      using model = await loadModel(modelFile('llama', 'model.safetensors'), {
        device,
        dtype,
        activations: dtype,
        cacheDtype: 'f32',
        adapters,
      });
      const difference = maxDifference(await logitsOf(model, ids, 'it'), last) / std;
      // The matrices are as large as the weights; bf16 has an eighth of f16's steps.
      expect(difference).toBeLessThan(dtype === 'f16' ? 0.05 : 0.4);
      expect(difference).toBeGreaterThan(1e-4);
    }
  });
});

/** Of the query, the value and one of gate and up of a model in blocks. */
async function writeRandomAdapter(path: string): Promise<void> {
  const base = GgufFile.open(GGUF);
  const next = random(3);
  const tensors = ['attn_q', 'attn_v', 'attn_output', 'ffn_up', 'ffn_down'].flatMap((name) => {
    const target = `blk.0.${name}.weight`;
    const [out, width] = base.tensors.get(target)!.shape;
    return (
      [
        ['a', [4, width], 2 / Math.sqrt(width)],
        ['b', [out, 4], 1],
      ] as const
    ).map(([part, shape, size]) => {
      const values = Float32Array.from({ length: shape[0] * shape[1] }, () => size * (next() - 0.5));
      return {
        name: `${target}.lora_${part}`,
        shape: [...shape],
        type: 'f32' as const,
        data: new Uint8Array(values.buffer),
      };
    });
  });
  base.close();
  const metadata = {
    'general.architecture': gguf.string('llama'),
    'general.type': gguf.string('adapter'),
    'adapter.type': gguf.string('lora'),
    'adapter.lora.alpha': gguf.float32(8),
  };
  await writeGguf(path, { metadata: new Map(Object.entries(metadata)), tensors });
}

it('of weights whose rows lie by heads are those of a model that has them in its weights', async () => {
  const [alpha, rank] = [3, 2];
  const layers = ['in_proj_qkvz', 'in_proj_ba'].map((name) => `model.layers.0.linear_attn.${name}`);
  const file = SafetensorsFile.open(modelFile('qwen3_next', 'model.safetensors'));
  const [adapter, merged] = ['heads-adapter', 'heads-merged'].map((name) => join(folder, name));
  for (const path of [adapter, merged]) mkdirSync(path);
  const config = { peft_type: 'LORA', r: rank, lora_alpha: alpha, target_modules: ['in_proj_qkvz', 'in_proj_ba'] };
  writeFileSync(join(adapter, 'adapter_config.json'), JSON.stringify(config));
  const base = modelFile('qwen3_next', 'model.safetensors').replace(/model\.safetensors$/, '');
  for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json'])
    cpSync(join(base, name), join(merged, name));
  const [all, deltas] = scope(() => {
    const all: Record<string, Tensor> = {};
    for (const name of file.names) all[name] = file.loadSync(name, Device.js(), { dtype: 'f32' });
    const deltas: Record<string, Tensor> = {};
    for (const [i, name] of layers.entries()) {
      const weight = `${name}.weight`;
      const [out, width] = all[weight].shape;
      const numbers = (shape: number[], seed: number) =>
        Tensor.from(
          Float32Array.from({ length: shape[0] * shape[1] }, (_, at) => 0.4 * Math.sin(at * 12.9898 + seed * 78.233)),
          { shape, device: 'js' },
        );
      const [a, b] = [numbers([rank, width], i), numbers([out, rank], i + 5)];
      all[weight] = all[weight].add(b.matmul(a).mul(alpha / rank));
      deltas[`base_model.model.${name}.lora_A.weight`] = a;
      deltas[`base_model.model.${name}.lora_B.weight`] = b;
    }
    return [all, deltas];
  });
  file.close();
  await saveSafetensors(join(merged, 'model.safetensors'), all);
  await saveSafetensors(join(adapter, 'adapter_model.safetensors'), deltas);
  for (const tensor of [...Object.values(all), ...Object.values(deltas)]) tensor.dispose();
  using plain = await loadModel(base, { device: 'js', adapters: { heads: adapter } });
  using whole = await loadModel(merged, { device: 'js' });
  const ids = [3, 17, 44, 9, 120];
  const expected = await logitsOf(whole, ids);
  expect(maxDifference(await logitsOf(plain, ids, 'heads'), expected)).toBeLessThan(1e-4);
  expect(maxDifference(await logitsOf(plain, ids), expected)).toBeGreaterThan(1e-2);
});

it('made for a model of texts and images change the layers of its text part', async () => {
  const config = JSON.parse(readFileSync(join(modelFile('llama', 'model.safetensors'), '../config.json'), 'utf8'));
  const base = { ...describeConfig(config), pairs: 'half' } as const;
  const targets = (path: string) => {
    const file = openLora(path, base);
    file.close();
    return file.deltas.map(({ target, rank, scale }) => [target, rank, scale].join(' ')).sort();
  };
  const expected = targets(adapterPath('llama-all'));
  for (const part of ['model.language_model.', 'language_model.model.']) {
    const path = await changedAdapter(join(folder, part), 'llama-all', { part });
    expect(targets(path)).toEqual(expected);
  }
});

describe('adapters that do not load', () => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(modelFile('llama', 'model.safetensors'), { device: 'js' });
  });
  afterAll(() => model.dispose());

  const Q = 'base_model.model.model.layers.0.self_attn.q_proj';
  const cases: [what: string, changes: AdapterChanges, code: string, message: RegExp][] = [
    ['DoRA', { config: { use_dora: true } }, 'UNSUPPORTED_ADAPTER', /is a DoRA adapter \(use_dora\)/],
    ['magnitudes', { add: { [`${Q}.lora_magnitude_vector`]: [128] } }, 'UNSUPPORTED_ADAPTER', /is a DoRA adapter/],
    ['whole modules', { config: { modules_to_save: ['lm_head'] } }, 'UNSUPPORTED_ADAPTER', /modules_to_save/],
    [
      'whole weights',
      { add: { 'base_model.model.lm_head.weight': [512, 64] } },
      'UNSUPPORTED_ADAPTER',
      /a whole weight/,
    ],
    ['biases', { config: { bias: 'all' } }, 'UNSUPPORTED_ADAPTER', /bias = "all"/],
    [
      'embeddings',
      { add: { 'base_model.model.model.embed_tokens.lora_embedding_A': [8, 512] } },
      'UNSUPPORTED_ADAPTER',
      /changes embeddings/,
    ],
    ['another method', { config: { peft_type: 'LOHA' } }, 'UNSUPPORTED_ADAPTER', /type "LOHA"/],
    ['another base', { config: { init_lora_weights: 'pissa_niter_16' } }, 'UNSUPPORTED_ADAPTER', /pissa_niter_16/],
    ['ranks that differ', { config: { r: 5 } }, 'BAD_ADAPTER', /has rank 8 in .*, and 5 in adapter_config\.json/],
    ['no rank', { config: { r: 0 } }, 'BAD_ADAPTER', /r = 0, not a whole number of 1 or more/],
    ['no alpha', { config: { lora_alpha: 'much' } }, 'BAD_ADAPTER', /lora_alpha = "much", not a number/],
    ['a list of ranks', { config: { rank_pattern: [4] } }, 'BAD_ADAPTER', /rank_pattern = \[4\], no object/],
    ['an expression', { config: { alpha_pattern: { '(': 4 } } }, 'UNSUPPORTED_ADAPTER', /cannot be read \("\("\)/],
    [
      'one matrix of two',
      { drop: [`${Q}.lora_B.weight`] },
      'BAD_ADAPTER',
      /only one of the two matrices of model\.layers\.0\.self_attn\.q_proj/,
    ],
    [
      'other widths',
      { drop: [`${Q}.lora_A.weight`], add: { [`${Q}.lora_A.weight`]: [8, 60] } },
      'BAD_ADAPTER',
      /q_proj by \[128, 60\], and the model's weight is \[128, 64\]/,
    ],
    [
      'other ranks',
      { drop: [`${Q}.lora_A.weight`], add: { [`${Q}.lora_A.weight`]: [6, 64] } },
      'BAD_ADAPTER',
      /do not go together: \[6, 64\] and \[128, 8\]/,
    ],
    [
      'a convolution',
      { drop: [`${Q}.lora_A.weight`], add: { [`${Q}.lora_A.weight`]: [8, 64, 1] } },
      'UNSUPPORTED_ADAPTER',
      /no matrix of a linear layer/,
    ],
    [
      'a layer of another architecture',
      addPair('model.layers.0.self_attn.wq'),
      'BAD_ADAPTER',
      /changes model\.layers\.0\.self_attn\.wq, which a model of the architecture "llama" has not/,
    ],
    [
      'a layer too many',
      addPair('model.layers.7.self_attn.q_proj'),
      'BAD_ADAPTER',
      /has no linear layer of that name that adapters can change/,
    ],
  ];

  it.each(cases)('%s', async (what, changes, code, message) => {
    const before = memoryStats();
    const path = await changedAdapter(join(folder, what), 'llama-some', changes);
    await expect(model.loadAdapter('bad', path)).rejects.toThrow(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    );
    expect(model.adapters).toEqual([]);
    expect(memoryStats()).toEqual(before);
  });

  it('files that are missing, of other kinds or of other models', async () => {
    const code = (code: string) => expect.objectContaining({ code });
    await expect(model.loadAdapter('bad', join(folder, 'nothing'))).rejects.toThrow(code('FILE_NOT_FOUND'));
    const empty = join(folder, 'empty');
    mkdirSync(empty);
    await expect(model.loadAdapter('bad', empty)).rejects.toThrow(/adapter_config\.json/);
    const pickled = await changedAdapter(join(folder, 'pickled'), 'llama-some', {});
    renameSync(join(pickled, 'adapter_model.safetensors'), join(pickled, 'adapter_model.bin'));
    await expect(model.loadAdapter('bad', pickled)).rejects.toThrow(/adapter_model\.bin\. Save it once more/);
    const text = join(folder, 'text.gguf');
    writeFileSync(text, 'not an adapter');
    await expect(model.loadAdapter('bad', text)).rejects.toThrow(expect.objectContaining({ name: 'FileFormatError' }));
    await expect(model.loadAdapter('bad', GGUF)).rejects.toThrow(/is none: the file's general\.type is "model"/);
    const qwen = ggufAdapters.get('qwen2-all')!;
    await expect(model.loadAdapter('bad', qwen)).rejects.toThrow(
      /was made for the architecture "qwen2", and the model's is "llama"/,
    );
    const other = await writeGgufAdapter(join(folder, 'other.gguf'), 'llama-some', {
      'adapter.type': gguf.string('control_vector'),
    });
    await expect(model.loadAdapter('bad', other)).rejects.toThrow(code('UNSUPPORTED_ADAPTER'));
    // Qwen's layers have the same names, and other sizes.
    await expect(model.loadAdapter('bad', adapterPath('qwen2-all'))).rejects.toThrow(code('BAD_ADAPTER'));
    expect(model.adapters).toEqual([]);
  });

  it('as models', async () => {
    for (const path of [adapterPath('llama-some'), ggufAdapters.get('llama-some')!])
      await expect(loadModel(path, { device: 'js' })).rejects.toThrow(/holds an adapter, .* or to loadAdapter\./);
  });

  it('one whose model goes meanwhile', async () => {
    const before = memoryStats();
    const other = await loadModel(modelFile('llama', 'model.safetensors'), { device: 'js' });
    const loading = other.loadAdapter('it', adapterPath('llama-some'));
    other.dispose();
    await expect(loading).rejects.toThrow(/the model was disposed while the adapter was loaded/);
    expect(memoryStats()).toEqual(before);
  });

  it('names and options', async () => {
    const path = adapterPath('llama-some');
    await model.loadAdapter('it', path);
    await expect(model.loadAdapter('it', path)).rejects.toThrow(/there is an adapter "it"; unload it/);
    await expect(model.loadAdapter('', path)).rejects.toThrow(/the name is empty/);
    expect(() => model.unloadAdapter('its')).toThrow(/there is no adapter "its".*Adapters: it\./);
    expect(() => model.generate([5], { adapter: 'at' })).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }));
    for (const adapter of [3, { name: 'it', scale: '1' }, { scale: 1 }, { name: 'it', much: 1 }])
      expect(() => model.generate([5], { adapter: adapter as never })).toThrow(/give the name of an adapter, or/);
    const aborted = AbortSignal.abort();
    await expect(model.loadAdapter('more', path, { signal: aborted })).rejects.toThrow(/abort/i);
    const both = [model.loadAdapter('twice', path), model.loadAdapter('twice', path)];
    expect((await Promise.allSettled(both)).map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect(model.adapters).toEqual(['it', 'twice']);
    for (const name of model.adapters) model.unloadAdapter(name);
    const before = memoryStats();
    const file = modelFile('llama', 'model.safetensors');
    const adapters = { good: path, bad: join(folder, 'nothing') };
    await expect(loadModel(file, { device: 'js', adapters })).rejects.toThrow(/nothing: there is no such file/);
    await expect(loadModel(file, { device: 'js', adapters: 'path' as never })).rejects.toThrow(/an object of paths/);
    expect(memoryStats()).toEqual(before);
  });
});

function addPair(module: string): AdapterChanges {
  const at = `base_model.model.${module}`;
  return { add: { [`${at}.lora_A.weight`]: [8, 64], [`${at}.lora_B.weight`]: [128, 8] } };
}
