/** The committed polynomials are those that the fits give, and as good as they must be. */
import { readFileSync } from 'node:fs';
import { describe, expect, it, test } from 'vitest';
import { fitOf, fittedFiles, splitLn2, TARGETS } from './fit';
import * as fixed from './fixed-point';

/** Largest errors of results, relative: an eighth of a unit in the last place of f32, half of one of f64, 2^-17 for 16 bits. */
const BOUNDS: Record<string, number> = {
  exponential: 2 ** -27,
  exponentialBrief: 2 ** -17,
  tangent: 2 ** -27,
  complement: 2 ** -23.5,
  sine: 2 ** -54,
  cosine: 2 ** -54,
  logarithm: 2 ** -58,
};

describe('fitted polynomials', () => {
  it('are in the sources as tools/kernels/fit.ts gives them', () => {
    for (const { path, text } of fittedFiles()) {
      expect(readFileSync(path, 'utf8'), 'run `tsx tools/kernels/fit.ts`').toBe(text);
    }
  });

  test.each(TARGETS.map((target) => [target.name, target] as const))('%s is within its bound', (name, target) => {
    const { error, coefficients } = fitOf(target);
    expect(coefficients).toHaveLength(target.coefficients);
    expect(error).toBeLessThan(BOUNDS[name]);
    expect(error).toBeGreaterThan(0);
  });

  it('have a logarithm of 2 whose products with exponents are exact', () => {
    for (const [type, bits] of [
      ['f32', 9],
      ['f64', 11],
    ] as const) {
      const [high, low] = splitLn2(type);
      const round = type === 'f32' ? Math.fround : Number;
      for (let n = 0; n <= 2 ** bits; n++) expect(fixed.of(round(n * high))).toBe(BigInt(n) * fixed.of(high));
      expect(Math.abs(fixed.toNumber(fixed.of(high) + fixed.of(low) - fixed.LN_2))).toBeLessThan(
        2 ** (type === 'f32' ? -43 : -94),
      );
    }
  });
});

test('functions in fixed point are those of Math', () => {
  const { exp, sin, cos, tanh } = fixed;
  for (const [name, f] of Object.entries({ exp, sin, cos, tanh })) {
    for (const x of [-0.3, 0.01, 0.17, 0.5, 1.2]) {
      expect(fixed.toNumber(f(fixed.of(x))), name).toBeCloseTo(Math[name as 'exp'](x), 14);
    }
  }
  expect(fixed.toNumber(fixed.atanh(fixed.of(0.25)))).toBeCloseTo(Math.atanh(0.25), 15);
  expect([fixed.PI, fixed.LN_2, fixed.sqrt(fixed.of(2))].map(fixed.toNumber)).toEqual([Math.PI, Math.LN2, Math.SQRT2]);
  expect([1, -0.1, 1e-20, 2 ** 60].map((x) => fixed.toNumber(fixed.of(x)))).toEqual([1, -0.1, 1e-20, 2 ** 60]);
});
