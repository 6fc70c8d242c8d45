/** One model on several devices, in threads of one process: the texts of one device, and one error where a rank fails. */
import { CollectiveError, memoryStats } from '@x/core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type GenerateOptions, type LanguageModel, loadModel } from '../src';
import { Group } from '../src/parallel/group';
import { GGUF, maxDifference, openDevice } from './helpers';
import { insideOf, runnerOf } from './readers';

const PROMPTS = [
  'Once upon a time',
  'The king of the mountain had a daughter',
  'In the forest there lived an old wolf who',
];
const LONG = `${PROMPTS.join(' and ')} `.repeat(12);
openDevice('cpu');

async function text(model: LanguageModel, prompt: string, options: GenerateOptions = {}): Promise<string> {
  let written = '';
  const greedy = { maxTokens: 24, temperature: 0 };
  for await (const piece of model.generate(prompt, { ...greedy, ...options })) written += piece.text;
  return written;
}

/** What spies stand in front of. */
const told = Group.prototype.tell;
const groupOf = (model: LanguageModel) => (model as unknown as { group: Group }).group;

/** What a promise is rejected with. */
async function rejection(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => expect.unreachable('nothing was thrown'),
    (error) => error,
  );
}

it('has whole layers on each device where that is asked for', async () => {
  const one = await loadModel(GGUF, { device: 'cpu' });
  const two = await loadModel(GGUF, { devices: ['cpu', 'cpu'], pipeline: true });
  try {
    for (const prompt of [...PROMPTS, LONG]) expect(await text(two, prompt)).toBe(await text(one, prompt));
    const together = await Promise.all(PROMPTS.map((prompt) => text(two, prompt)));
    expect(together).toEqual(await Promise.all(PROMPTS.map((prompt) => text(one, prompt))));
  } finally {
    one.dispose();
    two.dispose();
    expect(await groupOf(two).end()).toBe(0);
  }
  await expect(loadModel(GGUF, { device: 'cpu', pipeline: true })).rejects.toThrow(/pipeline is for several devices/);
});

describe.each([
  ['as graphs', '1'],
  ['as they come', '0'],
])('a model on two devices, steps %s', (_, graphs) => {
  let one: LanguageModel;
  let two: LanguageModel;

  beforeAll(async () => {
    vi.stubEnv('X_GRAPHS', graphs);
    one = await loadModel(GGUF, { device: 'cpu' });
    two = await loadModel(GGUF, { devices: ['cpu', 'cpu'] });
  });
  afterAll(async () => {
    one.dispose();
    two.dispose();
    // Nothing is left on the other rank's device either.
    expect(await groupOf(two).end()).toBe(0);
    vi.unstubAllEnvs();
  });

  it('writes what one device writes, alone and in a batch', async () => {
    expect([one.ranks, two.ranks]).toEqual([1, 2]);
    const alone: string[] = [];
    for (const prompt of PROMPTS) {
      alone.push(await text(one, prompt));
      expect(await text(two, prompt)).toBe(alone.at(-1));
    }
    expect(await Promise.all(PROMPTS.map((prompt) => text(two, prompt)))).toEqual(alone);
  });

  it('reads many tokens in two halves whose steps go out in turn', async () => {
    const runner = runnerOf(two);
    const least = runner.leastHalf;
    const advanced: number[] = [];
    const tell = vi.spyOn(groupOf(two), 'tell').mockImplementation(function (this: Group, command) {
      if (command.kind === 'advance') advanced.push(command.pass);
      return told.call(this, command);
    });
    try {
      runner.leastHalf = 16;
      // One that is cut, and several that are parted.
      expect(await text(two, `Halves: ${LONG}`)).toBe(await text(one, `Halves: ${LONG}`));
      const turns = advanced.findIndex((pass, i) => pass === advanced[i + 2] && pass !== advanced[i + 1]);
      expect(turns).toBeGreaterThanOrEqual(0);
      const several = PROMPTS.map((prompt, i) => `${i} ${prompt} `.repeat(4 + i));
      expect(await Promise.all(several.map((prompt) => text(two, prompt)))).toEqual(
        await Promise.all(several.map((prompt) => text(one, prompt))),
      );
    } finally {
      runner.leastHalf = least;
      tell.mockRestore();
    }
  });

  it.skipIf(graphs === '0')('begins steps before the tokens are known that they begin with', async () => {
    const options = { maxTokens: 40, ignoreEos: true };
    const sampled = { ...options, temperature: 0.9, seed: 5, topK: 30, repetitionPenalty: 1.2 };
    for (const how of [options, sampled, { ...options, regex: '[a-z ]{80,}' }]) {
      const follow = vi.spyOn(runnerOf(two), 'follow');
      try {
        expect(await text(two, PROMPTS[0], how)).toBe(await text(one, PROMPTS[0], how));
        expect(follow.mock.results.filter(({ value }) => value !== undefined).length).toBeGreaterThan(30);
      } finally {
        follow.mockRestore();
      }
    }
    // Prompts are read beside any step, not only beside those of many.
    insideOf(two).scheduler.manyRows = 1;
    const others = PROMPTS.slice(1);
    const alone = [await text(two, PROMPTS[0], options)];
    for (const prompt of others) alone.push(await text(two, prompt, options));
    two.reset();
    const beside = vi.spyOn(runnerOf(two), 'followBeside');
    let [written, joined]: [string, Promise<string[]> | undefined] = ['', undefined];
    for await (const piece of two.generate(PROMPTS[0], { temperature: 0, ...options })) {
      written += piece.text;
      if (piece.index === 10) joined = Promise.all(others.map((prompt) => text(two, prompt, options)));
    }
    expect([written, ...(await joined!)]).toEqual(alone);
    expect(beside).toHaveBeenCalled();
    beside.mockRestore();
  });

  it('reads prompts in pieces while others write, and takes what it has of them', async () => {
    const [long, ...others] = await Promise.all([LONG, ...PROMPTS].map((prompt) => text(two, prompt, { seed: 1 })));
    expect(long).toBe(await text(one, LONG));
    expect(others).toEqual(await Promise.all(PROMPTS.map((prompt) => text(one, prompt))));
    // The blocks of the prompt are there, and the last of them is copied by who writes into it.
    expect(await text(two, `${LONG}The end`)).toBe(await text(one, `${LONG}The end`));
  });

  it.skipIf(graphs === '0')('samples, speculates and goes back', async () => {
    const sampled = { temperature: 0.9, seed: 7, topK: 20 };
    expect(await text(two, PROMPTS[0], sampled)).toBe(await text(one, PROMPTS[0], sampled));
    const speculative = { speculative: 'lookup' } as const;
    expect(await text(two, LONG, speculative)).toBe(await text(one, LONG));
    const ids = two.tokenizer.encode(PROMPTS[1]);
    for (const position of [0, 4, 2]) {
      using ours = two.forward(ids.slice(position), position);
      using theirs = one.forward(ids.slice(position), position);
      const [logits, wanted] = await Promise.all([ours, theirs].map((all) => all.toArray<Float32Array>()));
      expect(maxDifference(logits, wanted)).toBeLessThan(1e-3);
    }
    for (const model of [one, two]) {
      model.reset();
      model.emptyCache();
    }
    expect(await text(two, PROMPTS[2])).toBe(await text(one, PROMPTS[2]));
  });

  it('leaves a text wherever it is aborted, and goes on with others', async () => {
    const expected = await text(one, PROMPTS[0]);
    for (const after of [0, 1, 2, 5]) {
      const stop = new AbortController();
      const other = text(two, PROMPTS[0]);
      const generation = two.generate(LONG.slice(after), {
        maxTokens: 8,
        temperature: 0,
        signal: stop.signal,
        onProgress: () => {
          if (after === 0) stop.abort(new Error('enough'));
        },
      });
      let tokens = 0;
      const left = (async () => {
        for await (const _ of generation) if (++tokens === after) stop.abort(new Error('enough'));
      })();
      await left.catch((error) => expect((error as Error).message).toBe('enough'));
      expect(generation.stats.finishReason).toBe('aborted');
      expect(await other).toBe(expected);
    }
  });

  it.skipIf(graphs === '0')('refuses what is of one device', async () => {
    await expect(two.loadAdapter('a', 'nowhere')).rejects.toThrow('adapters lie on one device, and the model is on 2');
  });
});

describe('ranks that fail', () => {
  it.each([
    ['ends', 'exit', 'RANK_LOST', 'is gone: its thread ended with status 7'],
    ['fails', 'fail', 'GROUP_FAILED', 'failed: the rank was told to fail'],
    ['hangs', 'hang', 'RANK_TIMEOUT', 'has not answered for'],
  ] as const)('ends all with one error when one %s', async (_, how, code, message) => {
    const before = memoryStats();
    const devices = how === 'fail' ? ['cpu', 'cpu', 'cpu'] : ['cpu', 'cpu'];
    const at = devices.length - 1;
    const model = await loadModel(GGUF, { devices, rankTimeoutMs: 1000 });
    // Texts under way, at all stages.
    const again = async (prompt: string) => {
      for (;;) await text(model, prompt, { ignoreEos: true });
    };
    const texts = [...PROMPTS, LONG, LONG.slice(9)].map((prompt) => rejection(again(prompt)));
    await new Promise((resolve) => setTimeout(resolve, 300));
    const begun = performance.now();
    groupOf(model).disturb(at, how);
    const errors = await Promise.all(texts);
    expect(performance.now() - begun).toBeLessThan(8000);
    const [error] = errors;
    expect(error).toBeInstanceOf(CollectiveError);
    expect(error).toMatchObject({ code, rank: at });
    expect((error as Error).message).toContain(`rank ${at} of ${at + 1} (cpu) ${message}`);
    for (const each of errors) expect(each).toBe(error);
    expect(() => model.generate('Once')).toThrow(error as Error);
    expect(() => model.forward([1], 0)).toThrow(error as Error);
    expect(model.failure).toBe(error);
    // What the device was computing has come to its end.
    await vi.waitFor(() => expect(memoryStats()).toEqual(before));
    model.dispose();
    await model.ended();
    if (how !== 'hang') return;
    using other = await loadModel(GGUF, { devices: ['cpu', 'cpu'] });
    expect(await text(other, PROMPTS[0])).not.toBe('');
  });

  it('tells who asks before the origin is known the same error', async () => {
    const model = await loadModel(GGUF, { devices: ['cpu', 'cpu'] });
    const group = groupOf(model);
    // What a rank hears of another one that is ending comes before that one's own end.
    const heard = new CollectiveError('GROUP_FAILED', 'sums are incomplete', { rank: 1 });
    expect(() =>
      group.own(() => {
        throw heard;
      }),
    ).toThrow('rank 1 of 2 (cpu) failed: sums are incomplete');
    expect(model.failure).toBeUndefined();
    const asked = [
      rejection(text(model, 'Once')),
      rejection(text(model, PROMPTS[0])),
      rejection(group.ask({ kind: 'forget' })),
    ];
    group.disturb(1, 'exit');
    const [error, ...others] = await Promise.all(asked);
    expect(error).toMatchObject({ code: 'RANK_LOST', rank: 1 });
    expect(model.failure).toBe(error);
    for (const each of others) expect(each).toBe(error);
    await model.ended();
  });

  it('ends what is under way as one device does when the model is disposed', async () => {
    const names: string[] = [];
    for (const devices of [['cpu'], ['cpu', 'cpu']]) {
      const model = await loadModel(GGUF, { devices });
      const writing = rejection(
        (async () => {
          for (;;) await text(model, PROMPTS[0]);
        })(),
      );
      await new Promise((resolve) => setTimeout(resolve, 300));
      model.dispose();
      names.push(((await writing) as Error).name);
      await model.ended();
    }
    expect(names).toEqual(['DisposedError', 'DisposedError']);
  });

  it('notices a rank that ends while nothing is asked of it', async () => {
    const model = await loadModel(GGUF, { devices: ['cpu', 'cpu'] });
    groupOf(model).disturb(1, 'exit');
    await vi.waitFor(() => expect(model.failure).toMatchObject({ code: 'RANK_LOST', rank: 1 }), 5000);
    await expect(text(model, 'Once')).rejects.toMatchObject({ code: 'RANK_LOST', rank: 1 });
    model.dispose();
  });
});

describe('loading on several devices', () => {
  it('says what is wrong, and leaves nothing', async () => {
    const before = memoryStats();
    const devices = ['cpu', 'cpu'];
    await expect(loadModel('nowhere.gguf', { devices })).rejects.toThrow('there is no such file');
    await expect(loadModel(GGUF, { devices, maxContext: 1e9 })).rejects.toThrow('maxContext is');
    await expect(loadModel(GGUF, { devices, device: 'cpu' })).rejects.toThrow('two answers to one question');
    await expect(loadModel(GGUF, { devices: ['cpu', 'js'] })).rejects.toThrow('devices of one kind');
    await expect(loadModel(GGUF, { devices: ['js', 'js'] })).rejects.toThrow('cannot compute together with others');
    await expect(loadModel(GGUF, { devices: [] })).rejects.toThrow('a list of devices');
    await expect(loadModel(GGUF, { devices, tensorParallel: 3 })).rejects.toThrow('there are 2 devices');
    await expect(loadModel(GGUF, { device: 'cpu', tensorParallel: 2 })).rejects.toThrow('the cpu devices here are cpu');
    await expect(loadModel(GGUF, { device: 'cpu', tensorParallel: 0 })).rejects.toThrow('1 or more');
    expect(memoryStats()).toEqual(before);
  });

  it('counts what all ranks read, and stops with the signal', async () => {
    const before = memoryStats();
    const seen: [number, number][] = [];
    const onProgress = (loaded: number, total: number) => void seen.push([loaded, total]);
    const devices = ['cpu', 'cpu'];
    (await loadModel(GGUF, { devices, onProgress })).dispose();
    const [loaded, total] = seen.at(-1)!;
    expect(loaded).toBe(total);
    const single: number[] = [];
    (await loadModel(GGUF, { device: 'cpu', onProgress: (_, all) => void single.push(all) })).dispose();
    expect(total).toBeGreaterThanOrEqual(single[0]);
    const stop = new AbortController();
    const stopped = loadModel(GGUF, {
      devices,
      signal: stop.signal,
      onProgress: () => stop.abort(new Error('enough')),
    });
    await expect(stopped).rejects.toThrow('enough');
    expect(memoryStats()).toEqual(before);
    // One device in the list is a model as any.
    using one = await loadModel(GGUF, { devices: ['cpu'], tensorParallel: 'auto' });
    expect(one.ranks).toBe(1);
  });
});
