// Drafts, from the text itself and from another model: what is written is what would be written without them.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Device, memoryStats } from '@x/core';
import { GgufFile } from '@x/quantized';
import { readGolden } from '@x/testing/golden';
import { describeGguf, Tokenizer, Weights } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type Constraint,
  type GenerateOptions,
  LanguageModel,
  LogitsProcessor,
  loadModel,
  type Piece,
  type Speculative,
} from '../src';
import type { Runner } from '../src/runner';
import type { BatchScheduler } from '../src/schedule/scheduler';
import {
  deviceNames,
  GGUF,
  goldenQ8,
  openDevice,
  rewriteGguf,
  settledMemory,
  TOKENIZER,
  temporaryDirectory,
} from './helpers';

const inside = (model: LanguageModel) => model as unknown as { runner: Runner; scheduler: BatchScheduler };
const folder = (name: string) => fileURLToPath(new URL(`../../../models/tiny/${name}`, import.meta.url));

async function run(model: LanguageModel, prompt: string | readonly number[], options: GenerateOptions) {
  const generation = model.generate(prompt, options);
  const pieces: Piece[] = [];
  for await (const piece of generation) pieces.push(piece);
  const { stats } = generation;
  return { pieces, ids: pieces.map(({ id }) => id), text: pieces.map(({ text }) => text).join(''), stats };
}

/** The model without its last layers. */
async function shallow(path: string, layers: number): Promise<string> {
  const file = GgufFile.open(GGUF);
  const most = file.metadata.uint('llama.block_count');
  const drop = [...file.tensors.keys()].filter((name) => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1) >= layers);
  file.close();
  expect(layers).toBeLessThan(most);
  return rewriteGguf(path, { metadata: { 'llama.block_count': { type: 'uint32', value: layers } }, drop });
}

describe.each(deviceNames)('speculative decoding on %s', (name) => {
  let device: Device;
  let model: LanguageModel;
  let small: LanguageModel;
  const directory = temporaryDirectory();
  /** Where the drafts come from, by a name. */
  let sources: [string, Speculative][];
  const { ids: prompt, greedy_ids } = goldenQ8().prompts[0];
  /** Tokens of a text; js takes its time. */
  const length = name === 'js' ? 13 : 40;
  const repeating = [...prompt, ...greedy_ids.slice(0, 40), ...prompt, ...greedy_ids.slice(0, 10)];

  beforeAll(async () => {
    device = openDevice(name);
    model = await loadModel(GGUF, { device, maxContext: 192 });
    small = await loadModel(await shallow(join(directory.path, 'small.gguf'), 3), {
      device,
      maxContext: 192,
      chatTemplate: 'chatml',
    });
    sources = [
      ['lookup', 'lookup'],
      ['lookup of one token', { lookup: { tokens: 5, minMatch: 1 } }],
      ['a smaller model', { draft: small, tokens: 4 }],
      ['the model itself', { draft: model }],
    ];
    if (name === 'js') sources = sources.filter((_, i) => i === 0 || i === 2);
  });
  afterAll(() => {
    small.dispose();
    model.dispose();
    directory.remove();
  });

  it('writes the same, and tells what became of the drafts', async () => {
    const before = settledMemory(small) && settledMemory(model);
    for (const text of [prompt, repeating]) {
      const plain = await run(model, text, { maxTokens: length, ignoreEos: true });
      expect(plain.stats).not.toHaveProperty('speculative');
      for (const [source, speculative] of sources) {
        const { ids, stats, pieces } = await run(model, text, { maxTokens: length, ignoreEos: true, speculative });
        expect(ids, source).toEqual(plain.ids);
        expect(pieces.map(({ index }) => index)).toEqual(ids.map((_, i) => i));
        const { steps, drafted, accepted } = stats.speculative!;
        // The first token is the prompt's; each step adds one beside its drafts.
        expect(steps + accepted, source).toBe(length - 1);
        expect(accepted).toBeLessThanOrEqual(drafted);
        expect(stats).toMatchObject({ tokens: length, finishReason: 'length' });
        if (source === 'the model itself') expect(stats.speculative).toEqual({ steps: 10, drafted: 29, accepted: 29 });
        if (source === 'a smaller model') expect(accepted).toBeLessThan(drafted);
        if (text === repeating && source === 'lookup') expect(accepted).toBeGreaterThan(length / 2);
      }
    }
    settledMemory(small);
    expect(settledMemory(model)).toEqual(before);
  }, 180_000);

  it('draws the same tokens for the same seed', async () => {
    const settings: GenerateOptions[] = [
      { temperature: 0.7, topP: 0.9, seed: 5 },
      { temperature: 1, topK: 20, minP: 0.05, typicalP: 0.9, seed: 6, repetitionPenalty: 1.1, frequencyPenalty: 0.2 },
      { repetitionPenalty: 1.3, repetitionWindow: 12, logitBias: { [greedy_ids[3]]: -4 } },
    ];
    for (const setting of settings) {
      const options = { ...setting, maxTokens: length, ignoreEos: true };
      const plain = await run(model, prompt, options);
      for (const [source, speculative] of sources)
        expect((await run(model, prompt, { ...options, speculative })).ids, source).toEqual(plain.ids);
    }
    // Were the drafts' random numbers others than the text's, half of them would be refused.
    const { stats } = await run(model, prompt, {
      ...settings[0],
      maxTokens: length,
      ignoreEos: true,
      speculative: { draft: model },
    });
    expect(stats.speculative!.accepted).toBe(stats.speculative!.drafted);
  }, 180_000);

  it('ends at stop strings, maxTokens, the end of the text and of the context', async () => {
    const cases = [
      { maxTokens: 20, stop: ['zebra', 'ing who h'] },
      { maxTokens: 4, stop: ' king who had a ' },
      { maxTokens: 7 },
    ];
    const full = [...repeating, ...repeating, ...repeating, ...prompt, ...prompt].slice(0, 187);
    const plain: Awaited<ReturnType<typeof run>>[] = [];
    for (const options of cases) plain.push(await run(model, repeating.slice(0, 45), options));
    const filled = await run(model, full, { ignoreEos: true });
    for (const [source, speculative] of sources) {
      for (const [i, options] of cases.entries()) {
        const drafted = await run(model, repeating.slice(0, 45), { ...options, speculative });
        expect(drafted.pieces, source).toEqual(plain[i].pieces);
        expect(drafted.stats.finishReason).toBe(plain[i].stats.finishReason);
      }
      const { ids, stats } = await run(model, full, { speculative, ignoreEos: true });
      expect(ids, source).toEqual(filled.ids);
      expect(ids).toHaveLength(6);
      expect(stats.finishReason).toBe('context');
    }
    // The end of the text is among the tokens that the drafts would go on with.
    const end = greedy_ids[5];
    const tokenizer = await Tokenizer.fromFile(TOKENIZER, { eosIds: [1, end] });
    const file = GgufFile.open(GGUF);
    const { architecture, config } = describeGguf(file.metadata);
    const inner = await architecture.build(new Weights(file, { device, layout: architecture }), config, 192);
    file.close();
    using early = new LanguageModel({ model: inner, tokenizer, maxContext: 192, loadMs: 0 });
    for (const speculative of ['lookup', { draft: model, tokens: 7 }] as const) {
      const { ids, stats } = await run(early, prompt, { maxTokens: 30, speculative });
      expect(ids).toEqual(greedy_ids.slice(0, greedy_ids.indexOf(end) + 1));
      expect(stats.finishReason).toBe('eos');
    }
  }, 180_000);

  it('tells the log probabilities that it tells without', async () => {
    const options = { maxTokens: 12, logprobs: true, topLogprobs: 3 };
    const plain = await run(model, prompt, options);
    for (const [source, speculative] of sources) {
      const { pieces } = await run(model, prompt, { ...options, speculative });
      pieces.forEach(({ id, logprob, topLogprobs }, i) => {
        const expected = plain.pieces[i];
        expect(id, source).toBe(expected.id);
        expect(logprob).toBeCloseTo(expected.logprob!, 4);
        expect(topLogprobs!.map((top) => top.id)).toEqual(expected.topLogprobs!.map((top) => top.id));
      });
    }
  });

  it('keeps to the form of a text', async () => {
    const forms: GenerateOptions[] = [
      { regex: '( the)?( king| wolf| bird){2,6}\\.' },
      {
        schema: {
          type: 'object',
          properties: { a: { enum: ['x', 'y'] }, b: { type: 'integer', minimum: 0, maximum: 99 } },
          required: ['a', 'b'],
          additionalProperties: false,
        },
      },
      { choices: [' there lived a king', ' there lived a kind wolf', 'nothing'] },
      { regex: '[a-z ]{10,40}', temperature: 0.9, seed: 4 },
    ];
    for (const form of name === 'js' ? forms.slice(1, 3) : forms) {
      const options = { ...form, maxTokens: 60 };
      const plain = await run(model, repeating, options);
      for (const [source, speculative] of sources) {
        // Prompts of more rows, of the text and the draft in one pass, round otherwise there.
        if (name.startsWith('cuda') && source === 'the model itself') continue;
        const drafted = await run(model, repeating, { ...options, speculative });
        expect(drafted.text, source).toBe(plain.text);
        expect(drafted.ids).toEqual(plain.ids);
        expect(drafted.stats.finishReason).toBe(plain.stats.finishReason);
      }
    }
  }, 180_000);

  it('asks forks of a constraint, and moves the constraint itself by what was chosen', async () => {
    const { vocabSize } = model.config;
    /** Even and odd ids by turns; twelve of them. */
    class Turns implements Constraint {
      readonly accepted: number[] = [];
      constructor(private turn = 0) {}
      private static readonly shared = new Uint32Array(Math.ceil(vocabSize / 32));
      mask() {
        // One array for all: whoever keeps it has to copy.
        return Turns.shared.fill(this.turn % 2 === 0 ? 0x55555554 : 0xaaaaaaa8);
      }
      accept(id: number) {
        if (id % 2 !== this.turn % 2) throw new Error(`token ${id} at turn ${this.turn}`);
        this.turn++;
        this.accepted.push(id);
      }
      get isFinished() {
        return this.turn === 12;
      }
      fork() {
        return new Turns(this.turn);
      }
    }
    const plain = await run(model, prompt, { constraint: new Turns() });
    expect(plain.ids).toHaveLength(12);
    for (const [source, speculative] of sources) {
      const constraint = new Turns();
      const { ids, stats } = await run(model, prompt, { constraint, speculative });
      expect(ids, source).toEqual(plain.ids);
      expect(constraint.accepted).toEqual(ids);
      expect(stats.finishReason).toBe('eos');
    }
    const constraint = { mask: () => undefined, accept: () => {} };
    expect(() => model.generate('a', { constraint, speculative: 'lookup' })).toThrow(/no fork\(\)/);
  });

  it('goes along with other sequences in a batch', async () => {
    const other = goldenQ8().prompts.slice(1, 3);
    // Steps of more than four texts round otherwise than those of one on NVIDIA GPUs.
    const most = name.startsWith('cuda') ? 4 : 5;
    const texts = [prompt, repeating, [...prompt].reverse(), ...other.map(({ ids }) => ids)].slice(
      0,
      Math.min(most, sources.length + 1),
    );
    const expected = [];
    for (const text of texts) expected.push((await run(model, text, { maxTokens: length, ignoreEos: true })).ids);
    // The first has none.
    const together = await Promise.all(
      texts.map((text, i) => {
        const speculative = sources[i - 1]?.[1];
        return run(model, text, { maxTokens: length, ignoreEos: true, speculative });
      }),
    );
    expect(together.map(({ ids }) => ids)).toEqual(expected);
    expect(together.map(({ stats }) => stats.speculative !== undefined)).toEqual(texts.map((_, i) => i > 0));
  }, 180_000);

  it('shares out the tokens of a pass among many', async () => {
    const { scheduler } = inside(model);
    const open = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const cache = scheduler.open();
        const { id } = await scheduler.prefill(cache, prompt, new LogitsProcessor().sampler([]));
        return { cache, id };
      }),
    );
    const samplers = Array.from({ length: 6 }, () => new LogitsProcessor().sampler([]));
    const ids = [greedy_ids[0], 9, 9, 9, 9, 9];
    const all = await Promise.all(open.map(({ cache }) => scheduler.verify(cache, ids, samplers)));
    // 64 tokens: one each, and two drafts of each.
    expect(all).toEqual(open.map(() => ({ choices: [{ id: greedy_ids[1] }], drafts: 2 })));
    for (const { cache } of open) {
      expect(cache.tokens).toEqual([...prompt, greedy_ids[0]]);
      scheduler.close(cache);
    }
  });

  it('keeps what was chosen in front of bad logits', async () => {
    const { runner } = inside(model);
    const cache = runner.cache();
    const step = { cache, ids: [5, 6, 7], drafts: 2 };
    const sampler = new LogitsProcessor().sampler([]);
    await runner.choose([step], [sampler, sampler, sampler]).choices;
    expect(cache.tokens).toEqual([5]);
    expect(runner.accept([step], [undefined, { id: 7 }, { id: 8 }])).toEqual([undefined]);
    // The step that begins with 6 meets them again.
    expect(runner.accept([step], [{ id: 6 }, undefined, { id: 8 }])).toEqual([[{ id: 6 }]]);
    expect(cache.tokens).toEqual([5]);
    expect(runner.accept([step], [{ id: 6 }, { id: 7 }, undefined])).toEqual([[{ id: 6 }, { id: 7 }]]);
    expect(cache.tokens).toEqual([5, 6]);
    cache.dispose();
  });

  it('stops for a signal, also while the draft model writes', async () => {
    const before = settledMemory(small) && settledMemory(model);
    for (const [source, speculative] of sources) {
      const controller = new AbortController();
      const reason = new Error('enough');
      const generation = model.generate(prompt, { speculative, signal: controller.signal });
      const seen: number[] = [];
      const loop = (async () => {
        for await (const { index } of generation) {
          seen.push(index);
          if (index === 2) controller.abort(reason);
        }
      })();
      await expect(loop, source).rejects.toBe(reason);
      expect(seen).toEqual([0, 1, 2]);
      expect(generation.stats).toMatchObject({ tokens: 3, finishReason: 'aborted' });
      const slow = run(model, prompt, { speculative, signal: AbortSignal.timeout(15) });
      await expect(slow).rejects.toMatchObject({ name: 'TimeoutError' });
      for await (const { index } of model.generate(prompt, { speculative })) if (index === 5) break;
    }
    settledMemory(small);
    expect(settledMemory(model)).toEqual(before);
  });

  it('shares a full cache', async () => {
    // Who waits for room is read again as a prompt, and prompts round otherwise than steps on NVIDIA GPUs but as dot products.
    const kernels = device.backend.quantized as { choice?: string } | undefined;
    if (name.startsWith('cuda')) kernels!.choice = 'dp4a';
    try {
      const texts = [repeating, prompt, [...prompt].reverse()];
      const roomy = await loadModel(GGUF, { device, maxContext: 192 });
      const expected: number[][] = [];
      for (const text of texts) expected.push((await run(roomy, text, { maxTokens: length, ignoreEos: true })).ids);
      const before = settledMemory(roomy);
      const tight = await loadModel(GGUF, { device, maxContext: 160, maxCachePositions: name === 'js' ? 96 : 160 });
      const drafting = await loadModel(GGUF, { device, maxContext: 160, maxCachePositions: name === 'js' ? 64 : 96 });
      const ways = ['lookup', { draft: drafting }, { draft: tight }] as const;
      for (const speculative of name === 'js' ? ways.slice(1) : ways) {
        const together = await Promise.all(
          texts.map((text) => run(tight, text, { maxTokens: length, ignoreEos: true, speculative })),
        );
        expect(together.map(({ ids }) => ids)).toEqual(expected);
      }
      drafting.dispose();
      tight.dispose();
      expect(settledMemory(roomy)).toEqual(before);
      roomy.dispose();
    } finally {
      if (name.startsWith('cuda')) kernels!.choice = 'auto';
    }
  }, 180_000);

  it('leaves a cache that other texts can begin with', async () => {
    settledMemory(model);
    const written = await run(model, prompt, {
      maxTokens: length + 20,
      ignoreEos: true,
      speculative: { draft: small, tokens: 7 },
    });
    const longer = [...prompt, ...written.ids.slice(0, length + 18)];
    const again = await run(model, longer, { maxTokens: 8, ignoreEos: true });
    expect(again.stats.reusedTokens).toBe(Math.floor((longer.length - 1) / 32) * 32);
    const fresh = await run(model, longer, { maxTokens: 8, ignoreEos: true, reusePrompt: false });
    expect(again.ids).toEqual(fresh.ids);
  });

  it.each(['0', '1'])(
    'computes steps with products that round as without drafts, graphs %s',
    async (graphs) => {
      const { quantized } = device.backend;
      if (!quantized) return;
      vi.stubEnv('X_GRAPHS', graphs);
      const products = vi.spyOn(quantized, 'matmulActivations');
      const rounding: string[] = [];
      products.mockImplementation(function (this: typeof quantized, ...args) {
        rounding.push(`${args[2].m} as ${this.roundsAs}`);
        return Object.getPrototypeOf(this).matmulActivations.apply(this, args);
      });
      const fresh = await loadModel(GGUF, { device, maxContext: 192 });
      try {
        const options = { maxTokens: 24, ignoreEos: true } as const;
        const alone = await run(fresh, repeating, options);
        expect(rounding.filter((what) => !what.endsWith('as undefined'))).toEqual([]);
        rounding.length = 0;
        const texts = [run(fresh, repeating, { ...options, speculative: 'lookup' })];
        expect((await texts[0]).ids).toEqual(alone.ids);
        expect(new Set(rounding)).toContain('4 as 1');
        expect(quantized.roundsAs).toBeUndefined();
        rounding.length = 0;
        for (let i = 0; i < 3; i++) texts.push(run(fresh, repeating, { ...options, speculative: 'lookup' }));
        await Promise.all(texts);
        expect(rounding.some((what) => /^(12|16) as [34]$/.test(what))).toBe(true);
      } finally {
        products.mockRestore();
        fresh.dispose();
        vi.unstubAllEnvs();
      }
    },
    120_000,
  );

  it('replays its steps where the device has graphs', async () => {
    if (!device.backend.capture) return;
    vi.stubEnv('X_GRAPHS', '1');
    const options = { maxTokens: 33, ignoreEos: true, speculative: { draft: small } } as const;
    await run(model, prompt, options);
    await run(model, prompt, options);
    const passes = [model, small].map((one) => {
      const { runner } = inside(one);
      const { pass } = runner;
      const count = { prompts: 0, steps: 0, undo: () => delete (runner as { pass?: unknown }).pass };
      runner.pass = function (steps, logits) {
        count[steps[0].drafts === undefined ? 'prompts' : 'steps']++;
        return pass.call(this, steps, logits);
      };
      return count;
    });
    try {
      await run(model, prompt, options);
      expect(passes).toMatchObject([
        { prompts: 1, steps: 0 },
        { prompts: 1, steps: 0 },
      ]);
    } finally {
      for (const { undo } of passes) undo();
      vi.unstubAllEnvs();
    }
  });

  it('drafts as long as the draft model has room and knows the tokens', async () => {
    const short = await loadModel(GGUF, { device, maxContext: prompt.length + 10 });
    const { ids, stats } = await run(model, prompt, { maxTokens: 20, ignoreEos: true, speculative: { draft: short } });
    expect(ids).toEqual((await run(model, prompt, { maxTokens: 20, ignoreEos: true })).ids);
    expect(stats.speculative!.drafted).toBeGreaterThan(3);
    expect(stats.speculative!.drafted).toBeLessThan(12);
    // A prompt that it has no room for.
    const none = await run(model, repeating, { maxTokens: 4, speculative: { draft: short } });
    expect(none.stats.speculative).toEqual({ steps: 3, drafted: 0, accepted: 0 });
    short.dispose();
  });

  it('takes drafts of a model on another device', async () => {
    using other = await loadModel(GGUF, { device: openDevice('js'), maxContext: 192 });
    const { ids, stats } = await run(model, prompt, { maxTokens: 12, ignoreEos: true, speculative: { draft: other } });
    expect(ids).toEqual((await run(model, prompt, { maxTokens: 12, ignoreEos: true })).ids);
    expect(stats.speculative!.accepted).toBeGreaterThan(4);
  });

  it('refuses what cannot be, before anything runs', async () => {
    const refused = (speculative: unknown, message: RegExp, code = 'INVALID_OPTION') => {
      const make = () => model.generate('a', { speculative: speculative as Speculative });
      expect(make).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }));
    };
    refused('draft', /speculative is "draft"; give 'lookup', \{ lookup: /);
    refused({}, /give 'lookup'/);
    refused(null, /give 'lookup'/);
    refused({ draft: GGUF }, /draft is .*; give a model that loadModel gave/);
    refused({ draft: small, tokens: 0 }, /tokens is 0; give a whole number from 1 to 15/);
    refused({ draft: small, token: 3 }, /no option "token".*tokens/);
    refused({ lookup: true }, /lookup is true; give an object/);
    refused({ lookup: { tokens: 16 } }, /tokens is 16/);
    refused({ lookup: { minMatch: 1.5 } }, /minMatch is 1.5; give a whole number from 1/);
    refused({ lookup: {}, draft: small }, /no option "lookup"/);

    const other = await loadModel(join(folder('llama'), 'model.safetensors'), { device });
    refused({ draft: other }, /another vocabulary \(token \d+ is .* in the draft and .* in the model\)/);
    other.dispose();
    refused({ draft: other }, /disposed/, 'DISPOSED');
    const states = await loadModel(join(folder('mamba2'), 'model.safetensors'), { device });
    refused({ draft: states }, /draft model has layers with states/, 'UNSUPPORTED_MODEL');
    expect(() => states.generate('a', { speculative: 'lookup' })).toThrow(
      expect.objectContaining({ code: 'UNSUPPORTED_MODEL', message: expect.stringMatching(/layers with states/) }),
    );
    states.dispose();
  });

  it('is an option of chats that is not saved with them', () => {
    const chat = small.chat({ speculative: { draft: model }, temperature: 0.5 });
    expect(JSON.parse(JSON.stringify(chat))).toEqual({ version: 1, messages: [], options: { temperature: 0.5 } });
  });
});

// Random weights in every kind of layer, whose choices hang on no rounding: what transformers writes, in steps of several tokens.
const ARCHITECTURES = ['llama', 'qwen3', 'gemma2', 'gemma3_text', 'phi3_window', 'mixtral', 'gpt_oss', 'deepseek_v2'];

describe.each(deviceNames.flatMap((device) => ARCHITECTURES.map((name) => [name, device] as const)))(
  'drafts of %s on %s',
  (name, device) => {
    const { prompts } = readGolden<{ prompts: { ids: number[]; greedy?: { ids: number[] } }[] }>(folder(name));

    it('are kept up to the first that is wrong', async () => {
      const before = memoryStats();
      const model = await loadModel(join(folder(name), 'model.safetensors'), { device: openDevice(device) });
      const { scheduler } = inside(model);
      for (const { ids, greedy } of prompts) {
        if (!greedy) continue;
        const cache = scheduler.open();
        const sampler = new LogitsProcessor().sampler([]);
        const written = [(await scheduler.prefill(cache, ids, sampler)).id];
        // Five drafts a step, of which one more is right each time.
        for (let right = 0; written.length < greedy.ids.length; right = (right + 1) % 6) {
          const drafts = greedy.ids.slice(written.length, written.length + 5);
          if (right < drafts.length) drafts[right] = (drafts[right] + 1) % model.config.vocabSize;
          const samplers = [sampler, ...drafts.map(() => sampler)];
          const { choices } = await scheduler.verify(cache, [written[written.length - 1], ...drafts], samplers);
          expect(choices).toHaveLength(Math.min(right, drafts.length) + 1);
          written.push(...choices.map((choice) => choice.id));
          expect(cache.tokens).toEqual([...ids, ...written.slice(0, -1)]);
        }
        expect(written.slice(0, greedy.ids.length)).toEqual(greedy.ids);
        scheduler.close(cache);
        const { ids: drafted } = await run(model, ids, {
          maxTokens: 16,
          ignoreEos: true,
          speculative: { draft: model, tokens: 6 },
        });
        expect(drafted).toEqual(greedy.ids.slice(0, 16));
      }
      model.dispose();
      expect(memoryStats()).toEqual(before);
    }, 120_000);
  },
);
