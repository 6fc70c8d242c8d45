/** Functions, layers and optimisers called as TypeScript would refuse: an error of the family, or a result. */
import { CandleError, Device, scope, Tensor, Var } from '@x/core';
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
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
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
});
