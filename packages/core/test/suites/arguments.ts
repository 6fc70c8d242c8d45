/**
 * Arguments that TypeScript would refuse, as JavaScript gives them: every method of `Tensor` and `Var`, called with junk in
 * each place, raises an error of the family or works, on one device.
 */
import { describe, expect, test } from 'vitest';
import { CandleError, Device, scope, Tensor, Var } from '../../src';
import { METHODS, STATICS, VAR_METHODS, VAR_STATICS } from '../../src/tensor/signatures';

/** Numbers of 0..n - 1, the same in every run. */
function dice(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

type Callable = Record<string, (...args: unknown[]) => unknown>;

/** Write files under names of the fuzzer's choice. */
const WRITERS = ['writeNpy', 'saveSafetensors', 'writeNpz'];

/** Calls `receiver[name]`; gives back what it throws, or rejects with, unless that is one of ours. */
async function strangerFrom(receiver: object, name: string, args: unknown[]): Promise<unknown> {
  try {
    await scope(async () => {
      await (receiver as Callable)[name](...args);
    });
  } catch (error) {
    const ours = error instanceof CandleError && /^[A-Z][A-Z_0-9]+$/.test(error.code) && error.message.endsWith('.');
    return ours ? undefined : error;
  }
  return undefined;
}

export function argumentsSuite(name: string, device: () => Device): void {
  /** What is never right, and what may be. */
  function pools(): { junk: unknown[]; fair: unknown[] } {
    const here = { device: device() };
    const disposed = Tensor.ones([2], here);
    disposed.dispose();
    const elsewhere = Tensor.ones([2, 2], { device: name === 'js' ? Device.cpu() : Device.js() });
    const junk = [
      undefined,
      null,
      '1',
      '',
      [1],
      [[]],
      [null],
      {},
      Number.NaN,
      Number.POSITIVE_INFINITY,
      -1,
      1.5,
      2 ** 53,
      -(2 ** 53),
      2 ** 53 - 1,
      2n ** 80n,
      Symbol('s'),
      [Symbol('t')],
      () => 1,
      new Set([1]),
      Object.create(null),
      disposed,
      [disposed],
      elsewhere,
      true,
    ];
    const fair = [
      0,
      1,
      2,
      -1,
      1n,
      [0],
      [0, 1],
      [1, -1],
      [2, 2],
      [],
      { start: 0, end: 1 },
      ':',
      'f16',
      'i64',
      'u8',
      'js',
      'eq',
      true,
      false,
      { stride: 2, padding: 1 },
      { dtype: 'f64' },
      Tensor.ones([2, 2], here),
      Tensor.ones([2], here),
      Tensor.zeros([0, 2], here),
      Tensor.zeros([2, 2], { dtype: 'u32', ...here }),
      Tensor.zeros([2], { dtype: 'u32', ...here }),
      Tensor.ones([2, 2], { dtype: 'f16', ...here }),
      Tensor.ones([1, 2, 2, 2], here),
      Tensor.ones([2, 2, 1], here),
      [Tensor.ones([2, 2], here), Tensor.zeros([2, 2], here)],
      new Float32Array(4),
    ];
    return { junk, fair };
  }

  function receivers(): Tensor[] {
    const here = { device: device() };
    const disposed = Tensor.ones([2], here);
    disposed.dispose();
    return [
      Tensor.ones([2, 2], here),
      Tensor.ones([2], { dtype: 'i64', ...here }),
      Tensor.ones([2], { dtype: 'u32', ...here }),
      Tensor.ones([], { dtype: 'f16', ...here }),
      Tensor.zeros([0, 2], here),
      Tensor.ones([1, 2, 2, 2], here),
      Tensor.ones([1, 2, 2], here).transpose(1, 2),
      Tensor.ones([1], here).expand([1000]),
      Var.ones([2, 2], here),
      disposed,
    ];
  }

  describe(`arguments on ${name}`, () => {
    const groups: [string, (readonly [string, number])[], () => object[]][] = [
      ['a tensor', sizes(METHODS), receivers],
      ['Tensor', sizes(STATICS), () => [Tensor]],
      ['Var', sizes(VAR_STATICS), () => [Var]],
      ['a variable', sizes(VAR_METHODS), () => [Var.ones([2, 2], { device: device() })]],
    ];
    for (const [what, methods, makeReceivers] of groups) {
      test(`junk for the methods of ${what} gives errors of the family`, { timeout: 120_000 }, async () => {
        const failures: string[] = [];
        const roll = dice(7);
        for (const [method, count] of methods) {
          if (WRITERS.includes(method)) continue;
          for (let round = 0; round < 60; round++) {
            const objects = makeReceivers();
            const { junk, fair } = pools();
            const receiver = objects[roll(objects.length)];
            // One place too many now and then, and one that is junk.
            const length = count + (roll(6) === 0 ? 1 : 0);
            const bad = roll(length + 1);
            const from = (pool: unknown[]) => pool[roll(pool.length)];
            const args = Array.from({ length }, (_, i) => from(i === bad ? junk : fair));
            const stranger = await strangerFrom(receiver, method, args);
            if (stranger)
              failures.push(
                `${method} of ${receiver}: ${String(stranger)} ${(stranger as Error)?.stack?.split('\n')[1]}`,
              );
          }
        }
        expect([...new Set(failures)].slice(0, 40)).toEqual([]);
      });
    }

    test('every method has its arguments described', () => {
      const names = new Set<string>();
      for (let link = Tensor.prototype as object; link !== Object.prototype; link = Object.getPrototypeOf(link)) {
        for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(link))) {
          if (typeof value === 'function') names.add(key);
        }
      }
      for (const own of ['constructor', 'make', 'dispose']) names.delete(own);
      expect([...names].filter((key) => !(key in METHODS))).toEqual([]);
      const statics = Object.entries(Object.getOwnPropertyDescriptors(Tensor)).filter(
        ([, d]) => typeof d.value === 'function',
      );
      expect(statics.map(([key]) => key).filter((key) => !(key in STATICS))).toEqual([]);
    });
  });
}

function sizes(signatures: Readonly<Record<string, object>>): (readonly [string, number])[] {
  return Object.entries(signatures).map(([method, signature]) => [method, Object.keys(signature).length]);
}
