/**
 * The polynomials by which exp, tanh, erfc, sine, cosine and logarithm are computed here, fitted by the method of Remez in exact
 * arithmetic: of all polynomials of a degree, the one whose largest error is smallest.
 *
 *   tsx tools/kernels/fit.ts        writes the three files that FITTED names, and prints the errors
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as fixed from './fixed-point';

/** What to approximate: `value` is the polynomial's, `weight` what an error of it means for the result, relative to that. */
interface Target {
  name: string;
  about: string;
  /** Ends of the argument's range, as fixed-point numbers. */
  from: bigint;
  to: bigint;
  coefficients: number;
  type: 'f32' | 'f64';
  at(x: bigint): { value: bigint; weight: bigint };
}

export interface Fit {
  target: Target;
  /** Rounded to the type, the constant one first. */
  coefficients: number[];
  /** Largest error of the result with these coefficients in exact arithmetic, relative. */
  error: number;
}

const { ONE, mul, div, of } = fixed;

/** Targets whose argument z is the square of x, and whose range is 0 to that of `most`. */
const ofSquare = (most: bigint, at: (x: bigint, z: bigint) => { value: bigint; weight: bigint }) => ({
  from: 0n,
  to: mul(most, most),
  at: (z: bigint) => at(fixed.sqrt(z), z),
});

const EXP_RANGE = div(of(347), of(1000));
const exponential = (r: bigint) => {
  const e = fixed.exp(r);
  const square = mul(r, r);
  return { value: div(e - ONE - r, square), weight: div(square, e) };
};

export const TARGETS: readonly Target[] = [
  {
    name: 'exponential',
    about: '(exp(r) - 1 - r) / r² for |r| < 0.347',
    from: -EXP_RANGE,
    to: EXP_RANGE,
    coefficients: 5,
    type: 'f32',
    at: exponential,
  },
  {
    name: 'exponentialBrief',
    about: '(exp(r) - 1 - r) / r² for |r| < 0.347, for results of 16 bits',
    from: -EXP_RANGE,
    to: EXP_RANGE,
    coefficients: 3,
    type: 'f32',
    at: exponential,
  },
  {
    name: 'tangent',
    about: '(tanh(x) / x - 1) / z of z = x² for |x| < 0.63',
    coefficients: 6,
    type: 'f32',
    ...ofSquare(div(of(63), of(100)), (x, z) => {
      const ratio = div(fixed.tanh(x), x);
      return { value: div(ratio - ONE, z), weight: div(z, ratio) };
    }),
  },
  {
    name: 'complement',
    about: 'exp(z²) erfc(z) / t of t = 1 / (1 + z / 2) for z up to 10.5',
    from: div(ONE, of(6.25)),
    to: ONE,
    coefficients: 11,
    type: 'f32',
    at(t) {
      const value = div(fixed.erfcx(2n * (div(ONE, t) - ONE)), t);
      return { value, weight: div(ONE, value) };
    },
  },
  {
    name: 'sine',
    about: 'sin(2 pi t) / t of z = t² for |t| up to 1/8',
    coefficients: 7,
    type: 'f64',
    ...ofSquare(ONE / 8n, (t) => {
      const value = div(fixed.sin(mul(2n * fixed.PI, t)), t);
      return { value, weight: div(ONE, value) };
    }),
  },
  {
    name: 'cosine',
    about: '(cos(2 pi t) - 1) / z of z = t² for |t| up to 1/8',
    coefficients: 7,
    type: 'f64',
    ...ofSquare(ONE / 8n, (t, z) => {
      const result = fixed.cos(mul(2n * fixed.PI, t));
      return { value: div(result - ONE, z), weight: div(z, result) };
    }),
  },
  {
    name: 'logarithm',
    about: '(log((1 + f) / (1 - f)) / f - 2) / z of z = f² for (1 + f) / (1 - f) from sqrt(1/2) to sqrt(2)',
    coefficients: 7,
    type: 'f64',
    // The largest f is (sqrt(2) - 1) / (sqrt(2) + 1) = 3 - 2 sqrt(2).
    ...ofSquare(3n * ONE - 2n * fixed.sqrt(2n * ONE), (f, z) => {
      const ratio = div(2n * fixed.atanh(f), f);
      return { value: div(ratio - 2n * ONE, z), weight: div(z, ratio) };
    }),
  },
];

const GRID = 600;
const ROUNDS = 30;

/** Places of the error's extremes of a Chebyshev polynomial, which are near those of most functions. */
function firstPoints(target: Target, count: number): bigint[] {
  const middle = (target.from + target.to) / 2n;
  const reach = (target.to - target.from) / 2n;
  return Array.from({ length: count }, (_, i) => middle - mul(reach, of(Math.cos((Math.PI * (i + 0.5)) / count))));
}

function polynomial(coefficients: readonly bigint[], x: bigint): bigint {
  let sum = 0n;
  for (let k = coefficients.length - 1; k >= 0; k--) sum = mul(sum, x) + coefficients[k];
  return sum;
}

/** The polynomial whose weighted errors at the points are equal and of alternating sign. */
function levelled(target: Target, points: readonly bigint[]): bigint[] {
  const rows = points.map((x, i) => {
    const { value, weight } = target.at(x);
    const powers: bigint[] = [ONE];
    while (powers.length < target.coefficients) powers.push(mul(powers[powers.length - 1], x));
    const level = div(ONE, weight);
    return [...powers, i % 2 === 0 ? level : -level, value];
  });
  return fixed.solve(rows).slice(0, target.coefficients);
}

interface Sample {
  x: bigint;
  value: bigint;
  weight: bigint;
}

function samplesOf(target: Target): Sample[] {
  const step = (target.to - target.from) / BigInt(GRID);
  // The ends of the grid may be 0, where values are quotients of zeros.
  const inside = Array.from({ length: GRID }, (_, i) => target.from + BigInt(i) * step + step / 2n);
  return [...inside, target.to].map((x) => ({ x, ...target.at(x) }));
}

const errorAt = (coefficients: readonly bigint[], { x, value, weight }: Sample) =>
  mul(polynomial(coefficients, x) - value, weight);

/** The largest error of each run of errors of one sign. */
function extremes(coefficients: readonly bigint[], samples: readonly Sample[]): { x: bigint; size: bigint }[] {
  const found: { x: bigint; size: bigint; negative: boolean }[] = [];
  for (const sample of samples) {
    const error = errorAt(coefficients, sample);
    const size = error < 0n ? -error : error;
    const last = found[found.length - 1];
    if (!last || last.negative !== error < 0n) found.push({ x: sample.x, size, negative: error < 0n });
    else if (size > last.size) Object.assign(last, { x: sample.x, size });
  }
  return found;
}

/** The coefficients of a target, and what is left of error when they are rounded to its type. */
export function fitOf(target: Target): Fit {
  const samples = samplesOf(target);
  let points = firstPoints(target, target.coefficients + 1);
  let exact = levelled(target, points);
  for (let round = 0; round < ROUNDS; round++) {
    const found = extremes(exact, samples);
    while (found.length > points.length) found.splice(found[0].size < found[found.length - 1].size ? 0 : -1, 1);
    const next = found.map(({ x }) => x);
    if (next.length < points.length || next.every((x, i) => x === points[i])) break;
    points = next;
    exact = levelled(target, points);
  }
  const round = target.type === 'f32' ? Math.fround : Number;
  const coefficients = exact.map((c) => round(fixed.toNumber(c)));
  const rounded = coefficients.map(of);
  const error = samples.reduce((most, sample) => Math.max(most, Math.abs(fixed.toNumber(errorAt(rounded, sample)))), 0);
  return { target, coefficients, error };
}

/** ln 2 in two parts, of which the first has few enough bits that its product with an exponent is exact. */
export function splitLn2(type: 'f32' | 'f64'): [high: number, low: number] {
  const bits = type === 'f32' ? 15 : 41;
  const high = Math.round(fixed.toNumber(fixed.LN_2) * 2 ** bits) / 2 ** bits;
  const low = fixed.toNumber(fixed.LN_2 - of(high));
  return [high, type === 'f32' ? Math.fround(low) : low];
}

const ROOT = new URL('../../', import.meta.url);
const HOST_SERIES = fileURLToPath(new URL('kernels/include/x/series.h', ROOT));
const NORMAL_SERIES = fileURLToPath(new URL('kernels/shared/normal-series.h', ROOT));
const CORE_SERIES = fileURLToPath(new URL('packages/core/src/philox-series.ts', ROOT));

/** A number that reads back as itself: nine digits are enough for an f32, and a point makes it no integer. */
function literal(value: number, type: 'f32' | 'f64'): string {
  const text = type === 'f32' ? String(Number(value.toPrecision(9))) : String(value);
  const whole = /^-?\d+$/.test(text) ? `${text}.0` : text;
  return type === 'f32' ? `${whole}f` : whole;
}

const bound = (error: number) => `2^${Math.log2(error).toFixed(1)}`;

/** Horner's scheme, from the highest power down, `step` being `sum * x + c`. */
function horner({ target, coefficients }: Fit, step: (c: string) => string, end: string): string[] {
  const [first, ...rest] = coefficients.map((c) => literal(c, target.type)).reverse();
  return [`sum = ${first}${end}`, ...rest.map((c) => `sum = ${step(c)}${end}`)];
}

function deviceFunction(result: Fit): string {
  const { target, error } = result;
  const [type, step] =
    target.type === 'f32'
      ? ['float', (c: string) => `sum * x + ${c}`]
      : ['double', (c: string) => `multiplyThenAdd(sum, x, ${c})`];
  const [first, ...rest] = horner(result, step, ';').map((line) => `  ${line}`);
  const body = [first.replace('  sum', `  ${type} sum`), ...rest, '  return sum;'].join('\n');
  const about = `/** ${target.about}: the result within ${bound(error)}, relative. */`;
  return `${about}\nX_DEVICE ${type} ${target.name}(${type} x) {\n${body}\n}\n`.replaceAll('+ -', '- ');
}

function typescriptFunction(result: Fit): string {
  const { target, error } = result;
  const [first, ...rest] = horner(result, (c) => `sum * x + ${c}`, ';').map((line) => `  ${line}`);
  const body = [first.replace('  sum', '  let sum'), ...rest, '  return sum;'].join('\n');
  const about = `/** ${target.about}: the result within ${bound(error)}, relative. */`;
  return `${about}\nexport function ${target.name}(x: number): number {\n${body}\n}\n`.replaceAll('+ -', '- ');
}

const NOTE = 'Written by tools/kernels/fit.ts, which fits them.';

/** The text of every file that has fitted numbers. */
export function fittedFiles(): { path: string; text: string; fits: Fit[] }[] {
  const fits = TARGETS.map(fitOf);
  const [narrow, wide] = (['f32', 'f64'] as const).map((type) => fits.filter(({ target }) => target.type === type));
  const [high, low] = splitLn2('f32');
  const [wideHigh, wideLow] = splitLn2('f64');
  return [
    {
      path: HOST_SERIES,
      fits: narrow,
      text: [
        `// Polynomials of the host's exp, tanh and erfc. ${NOTE}\n#pragma once\n\nnamespace series {\n`,
        '// ln 2, and in two parts of which the first times a whole number up to 2^9 is exact.',
        `constexpr float LN_2 = ${literal(Math.fround(Math.LN2), 'f32')};`,
        `constexpr float LN_2_HIGH = ${literal(high, 'f32')};\nconstexpr float LN_2_LOW = ${literal(low, 'f32')};`,
        `constexpr float LOG2_E = ${literal(Math.fround(Math.LOG2E), 'f32')};\n`,
        `${narrow.map(deviceFunction).join('\n')}\n}  // namespace series\n`,
      ].join('\n'),
    },
    {
      path: NORMAL_SERIES,
      fits: wide,
      text: [
        `// Polynomials of normal numbers, as in packages/core/src/philox-series.ts. ${NOTE}`,
        '#pragma once\n#include "shared/exact.h"\n\nnamespace series {\n',
        '// ln 2 in two parts, of which the first times an exponent is exact.',
        `constexpr double LN_2_WIDE_HIGH = ${literal(wideHigh, 'f64')};`,
        `constexpr double LN_2_WIDE_LOW = ${literal(wideLow, 'f64')};\n`,
        `${wide.map(deviceFunction).join('\n')}\n}  // namespace series\n`,
      ].join('\n'),
    },
    {
      path: CORE_SERIES,
      fits: wide,
      text: [
        `/** Polynomials of normal numbers, as in kernels/shared/normal-series.h. ${NOTE} */\n`,
        '/** ln 2 in two parts, of which the first times an exponent is exact. */',
        `export const LN_2_HIGH = ${literal(wideHigh, 'f64')};\nexport const LN_2_LOW = ${literal(wideLow, 'f64')};\n`,
        wide.map(typescriptFunction).join('\n'),
      ].join('\n'),
    },
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const { path, text, fits } of fittedFiles()) {
    writeFileSync(path, text);
    for (const { target, error, coefficients } of fits) {
      console.log(`${target.name}: ${bound(error)}, ${coefficients.join(' ')}`);
    }
  }
}
