import { expect, test } from 'vitest';
import { show, showField } from './show';

class Named {
  describe() {
    return 'a thing with a name';
  }
}

const cyclic: Record<string, unknown> = { a: 1 };
cyclic.self = cyclic;
const revoked = Proxy.revocable([], {});
revoked.revoke();
const hostile = new Proxy(
  {},
  {
    getPrototypeOf: () => {
      throw new Error('no');
    },
  },
);
class Broken {
  describe() {
    throw new Error('no');
  }
}

test.each<[unknown, string]>([
  [undefined, 'undefined'],
  [null, 'null'],
  [-0.5, '-0.5'],
  [Number.NaN, 'NaN'],
  [5n, '5n'],
  [1n << 2000n, 'a bigint of more than 256 bits'],
  [Symbol('s'), 'Symbol(s)'],
  [() => 1, 'a function'],
  ['a "b"\n', '"a \\"b\\"\\n"'],
  ['x'.repeat(1e6), `"${'x'.repeat(120)}…"`],
  [[], '[]'],
  [[2, '3', [4], { a: 1 }, null], '[2, "3", […], {…}, null]'],
  [new Array(1e6).fill(7), '[7, 7, 7, 7, 7, 7, 7, 7, …]'],
  // biome-ignore lint/suspicious/noSparseArray: what is shown of one
  [[, 1], '[undefined, 1]'],
  [
    ['y'.repeat(99), 'y'.repeat(99), 'y'.repeat(99), 1],
    `["${'y'.repeat(40)}…", "${'y'.repeat(40)}…", "${'y'.repeat(40)}…", …]`,
  ],
  [{}, '{}'],
  [{ stride: 2, 'a b': 'x' }, '{ stride: 2, "a b": "x" }'],
  [Object.create(null, { k: { value: 1, enumerable: true } }), '{ k: 1 }'],
  [new Float32Array([1, 0.5]), 'Float32Array [1, 0.5]'],
  [new DataView(new ArrayBuffer(1)), 'an object of class DataView'],
  [new Map(), 'an object of class Map'],
  [new Named(), 'a thing with a name'],
  [[new Named()], '[a thing with a name]'],
  [new Broken(), 'an object'],
  [cyclic, '{ a: 1, self: {…} }'],
  [hostile, 'an object'],
])('a value of any kind is shown in a few words (%#)', (value, text) => {
  expect(show(value)).toBe(text);
});

test('a proxy that has ended is an object', () => {
  expect([show(revoked.proxy), showField(revoked.proxy)]).toEqual(['an object', 'an object']);
});

test('no getter is called', () => {
  let calls = 0;
  const value = {
    get size() {
      return ++calls;
    },
    get broken() {
      throw new Error('no');
    },
  };
  expect(show(value)).toBe('{ size: …, broken: … }');
  expect(calls).toBe(0);
});

test.each<[unknown, string]>([
  [undefined, 'missing'],
  [true, 'true'],
  ['short', '"short"'],
  ['x'.repeat(65), 'a long text'],
  [['secret'], 'a list'],
  [{ secret: 1 }, 'an object'],
])('what a request holds is named and not repeated (%#)', (value, text) => {
  expect(showField(value)).toBe(text);
});
