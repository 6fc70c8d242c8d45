/** Functions, layers and optimisers called as TypeScript would refuse: an error of the family, or a result. */
import { CandleError, Device, scope, Tensor, Var } from '@x/core';
import { random } from '@x/testing/random';
import { describe, expect, test } from 'vitest';
import * as nn from '../src';

type Callable = (...args: unknown[]) => unknown;

const device = Device.js();

function pool(): unknown[] {
  const vb = nn.VarBuilder.fromVarMap(new nn.VarMap(), { device: 'js' });
  const fair = [
    Tensor.ones([2, 2], { device }),
    Tensor.ones([2], { device }),
    Tensor.ones([1, 2, 2, 2], { device }),
    Tensor.zeros([2, 2], { dtype: 'u32', device }),
    [Var.ones([2], { device })],
    vb,
    1,
    2,
    0,
    -1,
    true,
    {},
    'silu',
    'js',
    (xs: unknown) => xs,
  ];
  const junk = [undefined, null, '1', [1], 1.5, Number.NaN, 2 ** 53, Symbol('s'), new Set([1])];
  return [...fair, ...fair, ...junk];
}

/** Numbers of 0..n - 1, the same in every run. */
function dice(seed: number): (n: number) => number {
  const next = random(seed);
  return (n) => Math.floor(next() * n);
}

async function strangerFrom(call: () => unknown): Promise<unknown> {
  try {
    await scope(async () => {
      await call();
    });
  } catch (error) {
    return error instanceof CandleError && error.code ? undefined : error;
  }
  return undefined;
}

describe('arguments of @x/nn', () => {
  const isClass = (value: unknown) => /^class\b/.test(Function.prototype.toString.call(value));
  const all = Object.entries(nn).filter(([, value]) => typeof value === 'function') as [string, Callable][];
  /** Tell what a value is, or take functions that they call. */
  const others = ['isActivation', 'fanForShape', 'gainOf', 'wideDType', 'func', 'funcT', 'same'];

  test('functions and constructors', { timeout: 120_000 }, async () => {
    const roll = dice(11);
    const failures = new Set<string>();
    for (const [name, call] of all) {
      if (others.includes(name)) continue;
      for (let round = 0; round < 150; round++) {
        const values = pool();
        const args = Array.from({ length: roll(6) }, () => values[roll(values.length)]);
        const stranger = await strangerFrom(() => (isClass(call) ? Reflect.construct(call, args) : call(...args)));
        if (stranger) failures.add(`${name}: ${String(stranger)} ${(stranger as Error).stack?.split('\n')[1]?.trim()}`);
      }
    }
    expect([...failures]).toEqual([]);
  });

  /** Constructors, methods that TypeScript keeps private or protected, and one that writes files. */
  const INNER = new Set(
    `constructor dispose save byFeature check scaled follow convolve weightFor zeros gates own checked checkShard created existing
    missing advance fillWindow average change next update factors decayOf direction beforeStep state forget open`.split(
      /\s+/,
    ),
  );
  const vb = () => nn.VarBuilder.fromVarMap(new nn.VarMap(), { device: 'js' });
  const makers: Record<string, () => object> = {
    Linear: () => nn.linear(2, 2, vb()),
    Embedding: () => nn.embedding(2, 2, vb()),
    LayerNorm: () => nn.layerNorm(2, 1e-5, vb()),
    RmsNorm: () => nn.rmsNorm(2, 1e-5, vb()),
    BatchNorm: () => nn.batchNorm(2, 1e-5, vb()),
    GroupNorm: () => nn.groupNorm(1, 2, 1e-5, vb()),
    Conv1d: () => nn.conv1d(2, 2, 1, {}, vb()),
    Conv2d: () => nn.conv2d(2, 2, 1, {}, vb()),
    ConvTranspose2d: () => nn.convTranspose2d(2, 2, 1, {}, vb()),
    PReLU: () => nn.prelu(2, vb()),
    LSTM: () => nn.lstm(2, 2, {}, vb()),
    GRU: () => nn.gru(2, 2, {}, vb()),
    Dropout: () => new nn.Dropout(0.5),
    Sequential: () => nn.seq().add(nn.linear(2, 2, vb())),
    Cache: () => new nn.Cache(0, 4),
    KvCache: () => new nn.KvCache(2, 4),
    ConcatKvCache: () => new nn.ConcatKvCache(2),
    RotatingCache: () => new nn.RotatingCache(0, 4),
    RotatingKvCache: () => new nn.RotatingKvCache(2, 4),
    ScatteredCacheBuilder: () => new nn.ScatteredCacheBuilder(2, 4, 'f32', 'js'),
    VarMap: () => new nn.VarMap(),
    VarBuilder: vb,
    SGD: () => new nn.SGD([Var.ones([2], { device })], 0.1),
    AdamW: () => new nn.AdamW([Var.ones([2], { device })]),
  };

  test.each(Object.entries(makers))('methods of %s', async (_, make) => {
    const roll = dice(13);
    const failures = new Set<string>();
    const methods = new Set<string>();
    for (let link = make(); link !== Object.prototype; link = Object.getPrototypeOf(link)) {
      for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(link))) {
        if (typeof value === 'function' && !INNER.has(key)) methods.add(key);
      }
    }
    for (const name of methods) {
      for (let round = 0; round < 60; round++) {
        const receiver = make() as Record<string, Callable>;
        const values = pool();
        const args = Array.from({ length: roll(4) }, () => values[roll(values.length)]);
        const stranger = await strangerFrom(() => receiver[name](...args));
        if (stranger) failures.add(`${name}: ${String(stranger)} ${(stranger as Error).stack?.split('\n')[1]?.trim()}`);
      }
    }
    expect([...failures]).toEqual([]);
  });

  test('static methods of VarBuilder', async () => {
    const roll = dice(17);
    const failures = new Set<string>();
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(nn.VarBuilder))) {
      for (let round = 0; round < 60 && typeof value === 'function'; round++) {
        const values = pool();
        const args = Array.from({ length: roll(4) }, () => values[roll(values.length)]);
        const stranger = await strangerFrom(() => value.apply(nn.VarBuilder, args));
        if (stranger) failures.add(`${name}: ${String(stranger)}`);
      }
    }
    expect([...failures]).toEqual([]);
  });

  const heads = Tensor.ones([1, 2, 2, 2], { device });
  const none = null as never;
  test.each<[string, () => unknown]>([
    ['sdpa: options is null', () => nn.sdpa(heads, heads, heads, none)],
    ['flashAttn: options is null', () => nn.flashAttn(heads, heads, heads, 1, none)],
    ['conv2d: options is null', () => heads.conv2d(heads.narrow(2, 0, 1), none)],
    ['conv1d: options is null', () => heads.squeeze(0).conv1d(heads.squeeze(0), none)],
    ['VarBuilder.fromTensors: options is null', () => nn.VarBuilder.fromTensors({}, none)],
    ['VarBuilder.fromVarMap: map is {}; give a VarMap', () => nn.VarBuilder.fromVarMap({} as never)],
    ['VarBuilder.fromSafetensors: files is [1]', () => nn.VarBuilder.fromSafetensors([1] as never)],
  ])('%s', (message, call) => {
    expect(call).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT', message: expect.stringContaining(message) }),
    );
  });

  test('devices go by their names', () => {
    const map = new nn.VarMap();
    const builder = nn.VarBuilder.fromVarMap(map, { device: 'js' });
    expect(builder.device).toBe(device);
    expect(builder.setDevice('cpu').device).toBe(Device.cpu());
    expect(map.get([2], 'w', nn.Init.const(0), 'f32', 'js').device).toBe(device);
    expect(nn.linear(2, 3, builder).forward(Tensor.ones([1, 2], { device: 'js' })).shape).toEqual([1, 3]);
  });
});
