/** Training on several ranks: the steps of a batch that ranks share are those of the whole batch on one device. */
import { Communicator, Device, Tensor, Var } from '@x/core';
import { ranks } from '@x/testing/ranks';
import { describe, expect, test } from 'vitest';
import '../../rocm-backend/src';
import { DistributedDataParallel } from '../src';

const modules = { nn: new URL('../src/index.ts', import.meta.url).href };

/** A small network, eight steps, each on this rank's part of twelve rows: losses of the parts, and what the variables became. */
const TRAIN = `
  const { nn } = modules;
  const { Tensor } = core;
  device.setSeed(input.seed + (input.apart ? rank : 0));
  const vars = new nn.VarMap();
  const vb = nn.VarBuilder.fromVarMap(vars, { dtype: 'f32', device });
  const first = nn.linear(5, 16, vb.pp('first'));
  const last = nn.linear(16, 3, vb.pp('last'));
  const together = new nn.DistributedDataParallel(vars.allVars(), communicator, { bucketBytes: input.bucketBytes });
  const optimizer = new nn.SGD(vars.allVars(), 0.1);
  const part = 12 / communicator.size;
  for (let step = 0; step < 8; step++) {
    const numbers = (count, times) => new Float32Array(count).map((_, i) => Math.sin((i + 1) * times + step));
    core.scope(() => {
      const x = Tensor.from(numbers(60, 1.7), { shape: [12, 5], device }).narrow(0, rank * part, part);
      const y = Tensor.from(numbers(36, 0.9), { shape: [12, 3], device }).narrow(0, rank * part, part);
      const loss = nn.loss.mse(last.forward(first.forward(x).tanh()), y);
      const grads = loss.backward();
      together.averageGradients(grads);
      optimizer.step(grads);
    });
  }
  const result = {};
  for (const [name, variable] of vars.data) result[name] = Array.from(await variable.toArray());
  const failure = communicator.failure();
  if (failure) throw failure;
  return result;`;

type Weights = Record<string, number[]>;

describe('DistributedDataParallel', () => {
  test.each([25 * 2 ** 20, 300])('trains as one device does, with buckets of %d bytes', async (bucketBytes) => {
    const input = { seed: 3, bucketBytes };
    const [alone] = await ranks(1, TRAIN, { input, modules });
    expect(alone.error).toBeUndefined();
    const shared = await ranks(2, TRAIN, { input: { ...input, apart: true }, modules });
    for (const { value, error } of shared) {
      expect(error).toBeUndefined();
      for (const [name, numbers] of Object.entries(alone.value as Weights)) {
        (value as Weights)[name].forEach((number, i) => {
          expect(Math.abs(number - numbers[i]), `${name} ${i}`).toBeLessThan(1e-5);
        });
      }
    }
    // Bit for bit: ranks may not drift apart.
    expect(shared[1].value).toEqual(shared[0].value);
  });

  test('refuses other variables on another rank, naming it', async () => {
    const body = `
      const v = core.Var.zeros([rank === 1 ? 3 : 2], { device });
      new modules.nn.DistributedDataParallel([v], communicator);`;
    const outcomes = await ranks(2, body, { modules });
    expect(outcomes[0].error).toMatchObject({ code: 'RANKS_DIFFER', rank: 1 });
    expect(outcomes[1].error).toMatchObject({ code: 'RANKS_DIFFER', rank: 0 });
  });

  test('refuses what is no list of variables or no communicator', async () => {
    const device = Device.cpu();
    const alone = await Communicator.join(device, { id: Communicator.uniqueId(device), rank: 0, size: 1 });
    const v = Var.zeros([2], { device });
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may give
    expect(() => new DistributedDataParallel([1 as any], alone)).toThrow(/vars/);
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may give
    expect(() => new DistributedDataParallel([v], {} as any)).toThrow(/Communicator.join/);
    expect(() => new DistributedDataParallel([v], alone, { bucketBytes: 0 })).toThrow(/bucketBytes/);
    expect(() => new DistributedDataParallel([Var.zeros([2], { device: 'js' })], alone)).toThrow(/on js/);
    const together = new DistributedDataParallel([v], alone);
    const grads = v.sqr().sumAll().backward();
    together.averageGradients(grads);
    expect(Array.from(await grads.get(v)!.toArray<Float32Array>())).toEqual([0, 0]);
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may give
    expect(() => together.averageGradients(Tensor.zeros([1]) as any)).toThrow(/what backward gave/);
    alone.dispose();
    expect(() => together.averageGradients(grads)).toThrow(/disposed/);
  });
});
