/**
 * Arguments that TypeScript would refuse, as JavaScript gives them: every method of `Tensor` and `Var`, called with junk in
 * each place, raises an error of the family or works, on one device.
 */

import { CandleError, Device, type DType, operators, scope, Tensor, Var } from '@x/core';
import { describe, expect, test } from 'vitest';
import { METHODS, STATICS, VAR_METHODS, VAR_STATICS } from '../../../core/src/tensor/signatures';
import { random } from '../random';

/** Numbers of 0..n - 1, the same in every run. */
function dice(seed: number): (n: number) => number {
  const next = random(seed);
  return (n) => Math.floor(next() * n);
}

/** Tensors as JavaScript sees them. */
type Loose = Record<string, (...args: unknown[]) => never>;
const Loosely = Tensor as unknown as Loose;

function endless(): unknown[] {
  const array: unknown[] = [];
  array.push(array);
  return array;
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
    return error instanceof CandleError && /^[A-Z][A-Z_0-9]+$/.test(error.code) ? undefined : error;
  }
  return undefined;
}

/** An argument that is made for the call that takes it. */
class Later {
  constructor(readonly make: () => unknown) {}
}

export function argumentsSuite(name: string, device: () => Device): void {
  /** What is never right, and what may be; a tensor is made when it is taken. */
  function pools(): { junk: unknown[]; fair: unknown[] } {
    const ones = (shape: number[], options: { dtype?: DType; device?: Device } = {}) =>
      new Later(() => Tensor.ones(shape, { device: device(), ...options }));
    const zeros = (shape: number[], dtype?: DType) => new Later(() => Tensor.zeros(shape, { dtype, device: device() }));
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
      new Later(disposed),
      new Later(() => [disposed()]),
      ones([2, 2], { device: name === 'js' ? Device.cpu() : Device.js() }),
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
      ones([2, 2]),
      ones([2]),
      zeros([0, 2]),
      zeros([2, 2], 'u32'),
      zeros([2], 'u32'),
      ones([2, 2], { dtype: 'f16' }),
      ones([1, 2, 2, 2]),
      ones([2, 2, 1]),
      new Later(() => [ones([2, 2]).make(), zeros([2, 2]).make()]),
      new Float32Array(4),
    ];
    return { junk, fair };
  }

  function disposed(): Tensor {
    const tensor = Tensor.ones([2], { device: device() });
    tensor.dispose();
    return tensor;
  }

  const receivers: (() => Tensor)[] = [
    () => Tensor.ones([2, 2], { device: device() }),
    () => Tensor.ones([2], { dtype: 'i64', device: device() }),
    () => Tensor.ones([2], { dtype: 'u32', device: device() }),
    () => Tensor.ones([], { dtype: 'f16', device: device() }),
    () => Tensor.zeros([0, 2], { device: device() }),
    () => Tensor.ones([1, 2, 2, 2], { device: device() }),
    () => Tensor.ones([1, 2, 2], { device: device() }).transpose(1, 2),
    () => Tensor.ones([1], { device: device() }).expand([1000]),
    () => Var.ones([2, 2], { device: device() }),
    disposed,
  ];

  describe(`arguments on ${name}`, () => {
    const groups: [string, (readonly [string, number])[], (() => object)[]][] = [
      ['a tensor', sizes(METHODS), receivers],
      ['Tensor', sizes(STATICS), [() => Tensor]],
      ['Var', sizes(VAR_STATICS), [() => Var]],
      ['a variable', sizes(VAR_METHODS), [() => Var.ones([2, 2], { device: device() })]],
    ];
    for (const [what, methods, makers] of groups) {
      test(`junk for the methods of ${what} gives errors of the family`, { timeout: 120_000 }, async () => {
        const failures: string[] = [];
        const roll = dice(7);
        for (const [method, count] of methods) {
          if (WRITERS.includes(method)) continue;
          for (let round = 0; round < 60; round++) {
            const { junk, fair } = pools();
            const receiver = makers[roll(makers.length)]();
            // One place too many now and then, and one that is junk.
            const length = count + (roll(6) === 0 ? 1 : 0);
            const bad = roll(length + 1);
            const from = (pool: unknown[]) => pool[roll(pool.length)];
            const taken = Array.from({ length }, (_, i) => from(i === bad ? junk : fair));
            const args = taken.map((one) => (one instanceof Later ? one.make() : one));
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

    const mistakes: [string, (t: never) => unknown, string, RegExp][] = [
      ['a string to add', (t: Loose) => t.add('1'), 'INVALID_ARGUMENT', /add: rhs is "1"; .* add\(1\)\.$/],
      ['a list to add', (t: Loose) => t.add([1]), 'INVALID_ARGUMENT', /rhs is \[1\]; .*Tensor\.from\(\[1\]\)/],
      ['nothing to add', (t: Loose) => t.add(undefined), 'INVALID_ARGUMENT', /rhs is undefined/],
      ['a number for a matrix', (t: Loose) => t.matmul(3), 'INVALID_ARGUMENT', /matmul: rhs is 3/],
      ['no dimension', (t: Loose) => t.sum(), 'DIM_OUT_OF_RANGE', /sum: dims is undefined.*sumAll\(\)/],
      ['one argument too many', (t: Loose) => t.sum(0, true), 'INVALID_ARGUMENT', /argument 2 is true.*sum\(dims\)/],
      ['sizes in a row', (t: Loose) => t.reshape(2, 2), 'INVALID_SHAPE', /write reshape\(\[2, 2\]\)/],
      ['dimensions in a row', (t: Loose) => t.permute(1, 0), 'DIM_OUT_OF_RANGE', /write permute\(\[1, 0\]\)/],
      ['no bound', (t: Loose) => t.clamp(null, undefined), 'INVALID_ARGUMENT', /no bound/],
      ['a negative pad', (t: Loose) => t.padWithZeros(0, -1, 0), 'INVALID_ARGUMENT', /left is -1.*from 0/],
      ['half a pad', (t: Loose) => t.padWithZeros(0, 0.5, 0.5), 'INVALID_ARGUMENT', /left is 0\.5/],
      ['no pad', (t: Loose) => t.padWithZeros(0, 0, Number.NaN), 'INVALID_ARGUMENT', /right is NaN/],
      ['a negative repeat', (t: Loose) => t.padWithSame(0, 1, -1), 'INVALID_ARGUMENT', /right is -1/],
      ['too large a pad', (t: Loose) => t.padWithZeros(0, 2 ** 53 - 1, 2), 'INVALID_SHAPE', /no whole number|2\^53/],
      ['an unknown device', (t: Loose) => t.toDeviceSync('gpu'), 'DEVICE_UNKNOWN', /"gpu"/],
      ['a device for options', () => Loosely.zeros([2], Device.js()), 'DTYPE_MISMATCH', /\{ device: "js" \}/],
      ['undefined data', () => Loosely.from(undefined), 'INVALID_ARGUMENT', /undefined is no number/],
      ['text', () => Loosely.from(['a']), 'INVALID_ARGUMENT', /"a"/],
      ['a set', () => Loosely.from(new Set([1])), 'INVALID_ARGUMENT', /\[\.\.\.values\]/],
      // biome-ignore lint/suspicious/noSparseArray: it is what the test is about
      ['a hole', () => Loosely.from([1, , 3]), 'INVALID_ARGUMENT', /undefined/],
      ['null', () => Loosely.from([null]), 'INVALID_ARGUMENT', /null/],
      ['an array in itself', () => Loosely.from(endless()), 'INVALID_SHAPE', /64/],
      ['a bigint that a float rounds', (t: Loose) => t.add(16777217n), 'DTYPE_MISMATCH', /16777217n.*f32/],
      ['a bigint beyond i64', () => Loosely.full(2n ** 63n, [1], 'i64'), 'DTYPE_MISMATCH', /i64/],
      ['no function', () => scope(1 as never), 'INVALID_ARGUMENT', /fn is 1/],
      ['no tensor to negate', () => operators.neg(1 as never), 'INVALID_ARGUMENT', /x is 1/],
    ];
    test.each(mistakes)('%s', (_, run, wanted, message) => {
      const t = Tensor.ones([2, 2], { device: device() });
      expect(() => run(t as never)).toThrow(expect.objectContaining({ code: wanted }));
      expect(() => run(t as never)).toThrow(message);
    });

    test('methods that return promises reject', async () => {
      const t = Tensor.ones([2], { device: device() }) as unknown as Loose;
      await expect(t.toDevice(7)).rejects.toThrow(CandleError);
      await expect(t.toArray('f65')).rejects.toThrow(CandleError);
    });

    test('bigints are exact', () => {
      const odd = 2n ** 53n + 1n;
      const x = Tensor.from([2n ** 53n, -7n], { device: device() });
      const values = (t: Tensor) => t.toVecSync();
      expect(values(x.add(1n))).toEqual([odd, -6n]);
      expect(values(x.sub(-1n))).toEqual([odd, -6n]);
      expect(values(x.mul(3n))).toEqual([3n * 2n ** 53n, -21n]);
      expect(values(x.div(2n))).toEqual([2n ** 52n, -3n]);
      expect(values(x.affine(1n, 1n))).toEqual([odd, -6n]);
      expect(values(x.affine(2, 1n))).toEqual([2n ** 54n + 1n, -13n]);
      expect(values(x.clamp(odd, null))).toEqual([odd, odd]);
      expect(values(x.add(1n).eq(odd))).toEqual([1, 0]);
      expect(values(x.lt(odd))).toEqual([1, 1]);
      expect(values(Tensor.full(odd, [1], { dtype: 'i64', device: device() }))).toEqual([odd]);
      expect(values(operators.sub(odd, x))).toEqual([1n, odd + 7n]);
      expect(values(Tensor.ones([1], { device: device() }).add(2n))).toEqual([3]);
      expect(values(Tensor.from([8], { dtype: 'u8', device: device() }).mul(2n))).toEqual([16]);
    });

    test('one bound is enough to clamp', () => {
      const x = Tensor.from([-2, 0, 2], { device: device() });
      expect(x.clamp(undefined, 1).toVecSync()).toEqual([-2, 0, 1]);
      expect(x.clamp(-1).toVecSync()).toEqual([-1, 0, 2]);
      expect(x.clamp(null, x.zerosLike()).toVecSync()).toEqual([-2, 0, 0]);
    });

    test('devices go by their names', async () => {
      const named = String(device());
      const x = Tensor.ones([2], { device: named });
      expect(x.device).toBe(Device.parse(named));
      expect(Tensor.zeros([1], 'f64', named).device).toBe(x.device);
      expect(x.toDeviceSync('js').device).toBe(Device.js());
      expect((await x.toDevice('js')).toVecSync()).toEqual([1, 1]);
      expect(Var.zeros([1], { device: named }).device).toBe(x.device);
      expect(Tensor.fromShared(x.toSharedSync(), named).device).toBe(x.device);
    });

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
