/**
 * The values that fixtures/reference-bytes.json was made of: eight kinds, 4 rows of 1,024 each. Only additions and
 * products of doubles are used, so every machine gets the same f32 values.
 */
import { random } from '@x/testing/random';

export const ROW = 1024;
const ROWS_A_KIND = 4;

/** Roughly normal in [-2, 2). */
function bell(next: () => number): number {
  return next() + next() + next() + next() - 2;
}

const KINDS: ((next: () => number, i: number) => number)[] = [
  (next) => bell(next) * 0.125,
  (next) => {
    const value = bell(next);
    return value * value * value * 4;
  },
  (next) => next() - 0.5,
  (next) => next() + 3,
  (next) => -next() - 0.5,
  (next) => (next() < 0.0625 ? bell(next) : 0),
  (_, i) => (i % ROW) / 512 - 1,
  // Groups of zeros, and steps of size by powers of two.
  (next, i) => ((i >> 5) % 3 === 0 ? 0 : bell(next) * 2 ** (((i >> 6) % 20) - 14)),
];

export function referenceInputs(): Float32Array {
  const next = random(12345);
  const values: number[] = [];
  for (const kind of KINDS) for (let i = 0; i < ROWS_A_KIND * ROW; i++) values.push(kind(next, i));
  return Float32Array.from(values);
}

/** Importance of a row's values: uneven, never negative, some zeros. */
export function referenceImportance(): Float32Array {
  const next = random(54321);
  const weights = Float32Array.from({ length: ROW }, () => {
    const value = Math.max(0, bell(next) + 1);
    return value * value + 0.0009765625;
  });
  return weights.fill(0, 64, 128);
}
