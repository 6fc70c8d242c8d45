/** Arithmetic with 256 bits behind the point, in bigints, and the functions that fits need, by their Taylor series. */

const BITS = 256n;
export const ONE = 1n << BITS;

export const mul = (a: bigint, b: bigint): bigint => (a * b) >> BITS;
export const div = (a: bigint, b: bigint): bigint => (a << BITS) / b;

/** A double, exactly if it has no bits below 2^-256. */
export function of(value: number): bigint {
  let [whole, shift] = [value, 0n];
  while (!Number.isInteger(whole)) {
    whole *= 2;
    shift++;
  }
  return (BigInt(whole) << BITS) >> shift;
}

/** The nearest double, or its neighbour. */
export function toNumber(a: bigint): number {
  const size = a < 0n ? -a : a;
  // The upper 64 bits, the last of them set if any is below: what Number rounds is rounded as the whole would be.
  const surplus = BigInt(Math.max(0, size.toString(2).length - 64));
  const upper = size >> surplus;
  const sticky = upper << surplus === size ? upper : upper | 1n;
  return Number(sticky) * 2 ** (Number(surplus) - Number(BITS)) * (a < 0n ? -1 : 1);
}

export function sqrt(a: bigint): bigint {
  const square = a << BITS;
  if (square === 0n) return 0n;
  let root = 1n << (BigInt(square.toString(2).length + 1) / 2n);
  for (;;) {
    const next = (root + square / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** The sum of terms, each made of the one before it, until they vanish. */
function sum(first: bigint, next: (term: bigint, k: bigint) => bigint): bigint {
  let total = 0n;
  let term = first;
  for (let k = 1n; term !== 0n && term !== -1n; k++) {
    total += term;
    term = next(term, k);
  }
  return total;
}

export const exp = (x: bigint): bigint => sum(ONE, (term, k) => mul(term, x) / k);

/** exp(x²) erfc(x) for x from 0 to 11, where 256 bits leave enough of the difference. */
export function erfcx(x: bigint): bigint {
  const square = mul(x, x);
  // exp(x²) erf(x) = 2 / sqrt(pi) times the sum of 2^k x^(2k + 1) / (1 · 3 · ... · (2k + 1))
  const series = sum(x, (term, k) => (2n * mul(term, square)) / (2n * k + 1n));
  return exp(square) - div(2n * series, sqrt(PI));
}

export function sin(x: bigint): bigint {
  const square = mul(x, x);
  return sum(x, (term, k) => -mul(term, square) / (2n * k * (2n * k + 1n)));
}

export function cos(x: bigint): bigint {
  const square = mul(x, x);
  return sum(ONE, (term, k) => -mul(term, square) / (2n * k * (2n * k - 1n)));
}

export function tanh(x: bigint): bigint {
  const e = exp(2n * x);
  return div(e - ONE, e + ONE);
}

/** x + x³/3 + x⁵/5 + ... */
export function atanh(x: bigint): bigint {
  const square = mul(x, x);
  let total = 0n;
  for (let [power, k] = [x, 1n]; power !== 0n && power !== -1n; power = mul(power, square), k += 2n) total += power / k;
  return total;
}

/** x - x³/3 + x⁵/5 - ... of 1 / n. */
function arctanOfOneOver(n: bigint): bigint {
  let total = 0n;
  for (let [power, k] = [ONE / n, 1n]; power !== 0n && power !== -1n; power = -power / (n * n), k += 2n) {
    total += power / k;
  }
  return total;
}

/** By Machin's formula. */
export const PI = 16n * arctanOfOneOver(5n) - 4n * arctanOfOneOver(239n);
export const LN_2 = 2n * atanh(ONE / 3n);

/** Solves linear equations by elimination; a row is its coefficients and the right side. */
export function solve(rows: readonly (readonly bigint[])[]): bigint[] {
  const m = rows.map((row) => [...row]);
  const size = m.length;
  const magnitude = (a: bigint) => (a < 0n ? -a : a);
  for (let k = 0; k < size; k++) {
    let pivot = k;
    for (let i = k + 1; i < size; i++) if (magnitude(m[i][k]) > magnitude(m[pivot][k])) pivot = i;
    [m[k], m[pivot]] = [m[pivot], m[k]];
    for (let i = k + 1; i < size; i++) {
      const factor = div(m[i][k], m[k][k]);
      for (let j = k; j <= size; j++) m[i][j] -= mul(factor, m[k][j]);
    }
  }
  const x = new Array<bigint>(size).fill(0n);
  for (let k = size - 1; k >= 0; k--) {
    let rest = m[k][size];
    for (let j = k + 1; j < size; j++) rest -= mul(m[k][j], x[j]);
    x[k] = div(rest, m[k][k]);
  }
  return x;
}
