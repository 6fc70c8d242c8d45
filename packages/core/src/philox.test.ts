import { expect, test } from 'vitest';
import { philox4x32, philoxNormal, philoxUniform } from './philox';
import { PhiloxGenerator } from './random';

const words = (counter: number[], key: number[]) => Array.from(philox4x32(counter, key, new Uint32Array(4)));

test('the known answers of the Random123 distribution', () => {
  const all = 0xffffffff;
  expect(words([0, 0, 0, 0], [0, 0])).toEqual([0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  expect(words([all, all, all, all], [all, all])).toEqual([0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
  const pi = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344];
  expect(words(pi, [0xa4093822, 0x299f31d0])).toEqual([0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
});

test('element i depends on seed, call and i only', () => {
  const long = philoxUniform(7, 3, 100, false);
  expect(philoxUniform(7, 3, 10, false)).toEqual(long.slice(0, 10));
  expect(philoxNormal(7, 3, 9, true)).toEqual(philoxNormal(7, 3, 10, true).slice(0, 9));
  expect(philoxUniform(7, 4, 100, false)).not.toEqual(long);
  expect(philoxUniform(8, 3, 100, false)).not.toEqual(long);
  expect(philoxUniform(7 + 2 ** 40, 3, 100, false)).not.toEqual(long);
});

test('uniform elements are the words’ upper bits', () => {
  const [w0, w1] = words([0, 0, 5, 0], [9, 0]);
  expect(philoxUniform(9, 5, 1, false)[0]).toBe((w0 >>> 8) / 2 ** 24);
  expect(philoxUniform(9, 5, 1, true)[0]).toBe(((w0 >>> 5) * 2 ** 26 + (w1 >>> 6)) / 2 ** 53);
});

test('normal numbers are those of Box and Muller to the last places', () => {
  for (const wide of [false, true]) {
    const [uniform, normal] = [philoxUniform, philoxNormal].map((make) => make(5, 1, 100_000, wide));
    let [worst, apart] = [0, 0];
    for (let i = 0; i < normal.length; i += 2) {
      const u = wide ? 1 - uniform[i] : uniform[i] + 2 ** -24;
      const radius = Math.sqrt(-2 * Math.log(u));
      const [x, y] = [Math.cos, Math.sin].map((f) => radius * f(2 * Math.PI * uniform[i + 1]));
      // The angle in radians is itself off by half a unit in its last place.
      worst = Math.max(worst, Math.abs(normal[i] - x) / radius, Math.abs(normal[i + 1] - y) / radius);
      apart = Math.max(apart, Math.abs(Math.sqrt(normal[i] ** 2 + normal[i + 1] ** 2) / radius - 1));
    }
    expect(worst).toBeLessThan(1.5e-15);
    expect(apart).toBeLessThan(1e-15);
  }
});

test('the moments of normal numbers, and the largest that 24 bits give', () => {
  const values = philoxNormal(11, 0, 1_000_000, false);
  const moment = (power: number) => values.reduce((sum, value) => sum + value ** power, 0) / values.length;
  expect([1, 2, 3, 4].map((power, i) => Math.abs(moment(power) - [0, 1, 0, 3][i]) < 0.02)).toEqual([
    true,
    true,
    true,
    true,
  ]);
  // u1 = 2^-24.
  expect(values.reduce((most, value) => Math.max(most, Math.abs(value)), 0)).toBeLessThan(Math.sqrt(48 * Math.LN2));
});

test('a generator counts calls, and a seed starts anew', () => {
  const generator = new PhiloxGenerator();
  generator.setSeed(1);
  const first = generator.uniform(4, 'f32', -1, 1);
  const second = generator.uniform(4, 'f32', -1, 1);
  expect(second).not.toEqual(first);
  expect(generator.calls).toBe(2);
  generator.setSeed(1);
  expect(generator.uniform(4, 'f32', -1, 1)).toEqual(first);
  expect(() => generator.normal(4, 'i32', 0, 1)).toThrow(/no random numbers of i32/);
});
