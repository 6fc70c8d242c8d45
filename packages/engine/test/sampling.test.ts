// Tokens chosen on the device are those that the host chooses from the same logits with the same data.
import { type Device, memoryStats, NO_TOKEN, Tensor } from '@x/core';
import { testSettings } from '@x/testing/settings';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Choice,
  type Constraint,
  choose,
  type GenerateOptions,
  type LanguageModel,
  LogitsProcessor,
  loadModel,
  type Piece,
  Random,
  type Sampler,
  type SamplingOptions,
} from '../src';
import type { Runner } from '../src/runner';
import { canChoose, enqueueIds, idOfRow, isIdOfRow } from '../src/sampling/device';
import { DeviceChooser } from '../src/sampling/device-chooser';
import { deviceNames, openDevice, settledMemory, TINY } from './helpers';

const kernels = deviceNames.filter((name) => canChoose(openDevice(name), 1000));

/** Logits about as a model's are: a bell with a few that stand out, some of them equal. */
function randomLogits(n: number, random: Random): Float32Array {
  const logits = Float32Array.from({ length: n }, () => {
    const sum = random.nextFloat() + random.nextFloat() + random.nextFloat() + random.nextFloat();
    return 4 * (sum - 2);
  });
  for (let i = 0; i < Math.min(n, 40); i++) logits[Math.floor(random.nextFloat() * n)] = Math.round(i / 2) - 4;
  return logits;
}

const OPTIONS: SamplingOptions[] = [
  {},
  { temperature: 1 },
  { temperature: 0.01 },
  { temperature: 30 },
  { topK: 1 },
  { topK: 2 },
  { topK: 40 },
  { topK: 999_999 },
  { topP: 1e-12 },
  { topP: 0.5 },
  { topP: 0.9, temperature: 1.7 },
  { topP: 0.9999 },
  { minP: 0.05 },
  { minP: 1 },
  { typicalP: 0.3 },
  { typicalP: 0.95, temperature: 2 },
  { topK: 25, topP: 0.8, temperature: 1.4 },
  { topK: 60, minP: 0.1, temperature: 2 },
  { topK: 200, topP: 0.95, minP: 0.02, typicalP: 0.9, temperature: 0.8 },
  { repetitionPenalty: 1.3 },
  { repetitionPenalty: 1.3, repetitionWindow: Number.POSITIVE_INFINITY, temperature: 1 },
  { frequencyPenalty: 0.7, presencePenalty: 0.4, topK: 20 },
  { frequencyPenalty: -0.5, repetitionPenalty: 0.8, topP: 0.7 },
  { logitBias: { 3: 15, 7: 15.5, 9: Number.NEGATIVE_INFINITY }, temperature: 1 },
  { logitBias: { 0: 12, 1: 12 }, presencePenalty: 1, topP: 0.9 },
];

function maskOf(n: number, allows: (id: number) => boolean): Uint32Array {
  const mask = new Uint32Array(Math.ceil(n / 32));
  for (let id = 0; id < n; id++) if (allows(id)) mask[id >>> 5] |= 1 << (id & 31);
  return mask;
}

async function onDevice(device: Device, rows: readonly Float32Array[], samplers: readonly Sampler[]) {
  const n = rows[0].length;
  const all = new Float32Array(rows.length * n);
  rows.forEach((row, i) => {
    all.set(row, i * n);
  });
  using logits = Tensor.fromArray(all, [rows.length, n], { device });
  const chooser = new DeviceChooser(device, n);
  try {
    return await chooser.choose(logits, samplers, false);
  } finally {
    chooser.dispose();
  }
}

function expectSame(actual: Choice | undefined, expected: Choice | undefined, label: string): void {
  expect(actual?.id, label).toBe(expected?.id);
  expect(actual?.logprob === undefined, label).toBe(expected?.logprob === undefined);
  if (expected?.logprob !== undefined) expectNear(actual!.logprob!, expected.logprob, label);
  expect(
    actual?.top?.map(({ id }) => id),
    label,
  ).toEqual(expected?.top?.map(({ id }) => id));
  expected?.top?.forEach(({ logprob }, i) => {
    expectNear(actual!.top![i].logprob, logprob, label);
  });
}

function expectNear(actual: number, expected: number, label: string): void {
  if (Number.isFinite(expected)) expect(Math.abs(actual - expected), label).toBeLessThan(2e-5);
  else expect(actual, label).toBe(expected);
}

describe.each(kernels)('choosing on %s', (name) => {
  const device = openDevice(name);

  it('puts what rows chose in place of their numbers, and never what is no token', async () => {
    const chosen = Array.from({ length: 64 }, (_, row) => (row % 5 === 3 ? NO_TOKEN : 7 * row));
    const ids = Array.from({ length: 64 }, (_, i) => (i % 3 === 0 ? i : idOfRow((i * 11) % 64)));
    using given = Tensor.from(ids, { dtype: 'u32', device });
    using from = Tensor.from(chosen, { dtype: 'u32', device });
    using followed = enqueueIds(given, from, 400);
    const expected = ids.map((id, i) => (isIdOfRow(id) ? Math.min(chosen[(i * 11) % 64], 399) : id));
    expect([...(await followed.toArray())]).toEqual(expected);
    expect(expected).toContain(399);
  });

  it.each([2, 100, 1000, 4096, 33_333])(
    'takes the tokens that the host takes, of %i',
    async (n) => {
      const random = Random.fromSeed(n);
      const before = memoryStats();
      for (let round = 0; round < (n > 5000 ? 1 : 4); round++) {
        const rows = OPTIONS.map(() => randomLogits(n, random));
        const history = Array.from({ length: 100 }, () => Math.floor(random.nextFloat() * n));
        const samplers = OPTIONS.map((options, i) => {
          const logitBias = Object.entries(options.logitBias ?? {}).filter(([id]) => Number(id) < n);
          const own = { ...options, logitBias: Object.fromEntries(logitBias), seed: 1000 * round + i };
          const extras = {
            logprob: i % 3 === 0,
            top: i % 4 === 1 ? 5 : 0,
            ...(round === 1 && { mask: maskOf(n, (id) => id % 3 !== i % 3) }),
          };
          return new LogitsProcessor(own).sampler(history, extras);
        });
        const chosen = await onDevice(device, rows, samplers);
        samplers.forEach((sampler, i) => {
          expectSame(chosen[i], choose(rows[i], sampler), `${JSON.stringify(OPTIONS[i])}, ${n} logits, round ${round}`);
        });
      }
      expect(memoryStats()).toEqual(before);
    },
    300_000,
  );

  // Several blocks share a row.
  it.each([8192, 20_011, 33_333])(
    'takes the tokens that the host takes from single rows of %i',
    async (n) => {
      const random = Random.fromSeed(n);
      const before = memoryStats();
      const bell = randomLogits(n, random);
      // Some of these bins have more tokens than a list has room for, and some rows hold nothing but equals.
      const steps = Float32Array.from({ length: n }, (_, i) => ((i * 7919) % 40) / 4);
      const equal = new Float32Array(n).fill(-2);
      const flat = Float32Array.from({ length: n }, () => random.nextFloat() / 50);
      const bad = bell.map((x, i) => (i === n - 5 ? Number.NaN : x));
      const history = Array.from({ length: 100 }, () => Math.floor(random.nextFloat() * n));
      const more: SamplingOptions[] = [{ topK: 250 }, { topK: 700, topP: 0.9 }, { topK: 3000, topP: 0.5, minP: 0.1 }];
      for (const [name, row] of Object.entries({ bell, steps, equal, flat, bad })) {
        const all =
          testSettings.scale < 1 && name !== 'bell' ? [...OPTIONS.slice(6, 11), ...more] : [...OPTIONS, ...more];
        const samplers = all.map((options, i) => {
          const mask = i % 4 === 2 ? { mask: maskOf(n, (id) => id % 5 > 1) } : {};
          return new LogitsProcessor({ ...options, seed: i }).sampler(history, { logprob: i % 9 === 4, ...mask });
        });
        for (let i = 0; i < samplers.length; i += 2) {
          const own = samplers.slice(i, i + 2);
          const chosen = await onDevice(
            device,
            own.map(() => row),
            own,
          );
          own.forEach((sampler, j) => {
            expectSame(chosen[j], choose(row, sampler), `${name}, ${JSON.stringify(all[i + j])}, ${n} logits`);
          });
        }
      }
      expect(memoryStats()).toEqual(before);
    },
    300_000,
  );

  it('takes the first of equals, and as many of them as filters keep', async () => {
    const n = 500;
    const equal = new Float32Array(n).fill(3);
    const steps = Float32Array.from({ length: n }, (_, i) => (i % 5) / 2);
    for (const row of [equal, steps]) {
      const samplers = [
        {},
        { topK: 7 },
        { topK: 130, topP: 0.5 },
        // The nucleus ends among the equals that topK has cut.
        { topK: 7, topP: 0.99999 },
        { topK: 7, topP: 0.99999, minP: 0.5, typicalP: 0.9 },
        { topP: 0.31 },
        { minP: 0.9 },
        { typicalP: 0.2 },
      ].flatMap((options) =>
        [1, 2, 3].map((seed) => new LogitsProcessor({ ...options, seed }).sampler([], { top: 20 })),
      );
      const chosen = await onDevice(
        device,
        samplers.map(() => row),
        samplers,
      );
      samplers.forEach((sampler, i) => {
        expectSame(chosen[i], choose(row, sampler), `sampler ${i}`);
      });
    }
    expect((await onDevice(device, [equal], [new LogitsProcessor().sampler([])]))[0]).toEqual({ id: 0 });
  });

  it('tells rows without a choice from the others', async () => {
    const good = Float32Array.of(0, 4, 2, 1);
    const bad = [Number.NaN, Number.POSITIVE_INFINITY].map((x) => Float32Array.of(0, x, 9, 1));
    const none = new Float32Array(4).fill(Number.NEGATIVE_INFINITY);
    const rows = [good, bad[0], good, bad[1], none, good];
    for (const options of [{}, { temperature: 1, topK: 2, topP: 0.01, seed: 1 }]) {
      const sampler = new LogitsProcessor(options).sampler([0], { top: 2 });
      const chosen = await onDevice(
        device,
        rows,
        rows.map(() => sampler),
      );
      expect(chosen.map((choice) => choice?.id)).toEqual([1, undefined, 1, undefined, undefined, 1]);
      expect(rows.map((row) => choose(row, sampler)?.id)).toEqual([1, undefined, 1, undefined, undefined, 1]);
    }
    const masked = new LogitsProcessor().sampler([], { mask: maskOf(4, (id) => id === 3), top: 3 });
    const [choice] = await onDevice(device, [good], [masked]);
    expect(choice).toEqual({ id: 3, logprob: 0, top: [{ id: 3, logprob: 0 }] });
  });
});

describe.each(deviceNames)('generating on %s', (name) => {
  const PROMPT = [1, 17, 33];
  let model: LanguageModel;

  beforeAll(async () => {
    model = await loadModel(TINY, { device: openDevice(name), maxContext: 64 });
  });
  afterAll(() => model.dispose());

  async function written(of: LanguageModel, options: GenerateOptions): Promise<Piece[]> {
    const pieces: Piece[] = [];
    for await (const piece of of.generate(PROMPT, { maxTokens: 10, ignoreEos: true, ...options })) pieces.push(piece);
    return pieces;
  }
  const idsOf = (pieces: readonly Piece[]) => pieces.map(({ id }) => id);

  it('gives the text of a seed that js gives', async () => {
    const js = await loadModel(TINY, { device: openDevice('js'), maxContext: 64 });
    for (const options of [
      { seed: 1, temperature: 0.8, topK: 40, topP: 0.95 },
      { seed: 2, temperature: 1.5, minP: 0.02, repetitionPenalty: 1.2 },
      { seed: 3, typicalP: 0.8, frequencyPenalty: 0.5, logitBias: { 5: 2 } },
    ])
      expect(idsOf(await written(model, options))).toEqual(idsOf(await written(js, options)));
    js.dispose();
  });

  it('chooses for each of several sequences as it is told', async () => {
    const before = settledMemory(model);
    const options: GenerateOptions[] = [
      {},
      { temperature: 1, seed: 4 },
      { topK: 5, seed: 5, topLogprobs: 3 },
      { presencePenalty: 2, logprobs: true },
      { logitBias: { 9: 100 }, maxTokens: 4 },
    ];
    const alone: number[][] = [];
    for (const each of options) alone.push(idsOf(await written(model, each)));
    expect(alone[4]).toEqual([9, 9, 9, 9]);
    const together = await Promise.all(options.map((each) => written(model, each)));
    expect(together.map(idsOf)).toEqual(alone);
    for (const { id, logprob, topLogprobs } of together[2]) {
      expect(topLogprobs).toHaveLength(3);
      expect(topLogprobs![0].logprob).toBeGreaterThanOrEqual(topLogprobs![1].logprob);
      expect(logprob).toBeLessThanOrEqual(topLogprobs![0].logprob);
      const listed = topLogprobs!.find((token) => token.id === id);
      if (listed) expect(logprob).toBe(listed.logprob);
    }
    for (const piece of together[3]) expect(piece.logprob).toBeLessThan(0);
    for (const piece of together[0]) expect(piece).not.toHaveProperty('logprob');
    expect(settledMemory(model)).toEqual(before);
  });

  it('ends the sequence whose logits are bad, and no other', async () => {
    const wanted = idsOf(await written(model, {}));
    const inner = (model as unknown as { runner: Runner }).runner.model;
    const { pass } = inner;
    // The second of several sequences gets NaN, in steps as they come and in graphs.
    inner.pass = function* (batch, kv) {
      const logits = yield* pass.call(inner, batch, kv);
      if (batch.outputs === 'all' && batch.tokens.dim(0) > 1) {
        const second = logits!.narrow(0, 1, 1);
        second.constSet(Number.NaN);
        second.dispose();
      }
      return logits;
    };
    try {
      const [first, second] = await Promise.allSettled([written(model, {}), written(model, { temperature: 1 })]);
      expect(first).toMatchObject({ status: 'fulfilled' });
      expect(idsOf((first as PromiseFulfilledResult<Piece[]>).value)).toEqual(wanted);
      expect(second).toMatchObject({ reason: { code: 'BAD_LOGITS', message: expect.stringContaining('NaN') } });
    } finally {
      inner.pass = pass;
      model.emptyCache();
    }
    expect(idsOf(await written(model, {}))).toEqual(wanted);
  });

  it('says that biases leave no token, of all or of those that a form allows', async () => {
    const excluding = (ids: Iterable<number>) =>
      Object.fromEntries([...ids].map((id) => [id, Number.NEGATIVE_INFINITY]));
    const all = excluding(Array(model.config.vocabSize).keys());
    const form = () => {
      const mask = maskOf(model.config.vocabSize, (id) => id === 7 || id === 40);
      const constraint: Constraint = { mask: () => mask, accept: () => {}, fork: () => constraint };
      return constraint;
    };
    const refused: [GenerateOptions, RegExp][] = [
      [{ logitBias: all }, /^logitBias excludes all 512 tokens/],
      [{ logitBias: excluding([7, 40]), constraint: form() }, /^logitBias excludes every token that the form/],
      [{ logitBias: all, constraint: form(), speculative: 'lookup' }, /^logitBias excludes every token that the form/],
    ];
    for (const [options, message] of refused)
      await expect(written(model, options)).rejects.toMatchObject({
        code: 'INVALID_OPTION',
        option: 'logitBias',
        message: expect.stringMatching(message),
      });
    for (const options of [
      { logitBias: excluding([7]) },
      { logitBias: excluding([7]), speculative: 'lookup' } as const,
    ])
      expect(idsOf(await written(model, { ...options, constraint: form() }))).toEqual(Array(10).fill(40));
  });

  it('refuses what means nothing before it begins', () => {
    for (const options of [
      { topLogprobs: 21 },
      { topLogprobs: -1 },
      { topLogprobs: 1.5 },
      { logitBias: { 512: 1 } },
      { logitBias: [1] as never },
      { typicalP: 2 },
    ])
      expect(() => model.generate(PROMPT, options), JSON.stringify(options)).toThrow(
        expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining(Object.keys(options)[0]) }),
      );
  });
});
