/** Functions of one number that JavaScript lacks, or defines otherwise than C and the kernels. */

const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);

/** The error function to about 1e-15: a series of positive terms up to 1/2, 1 - erfc beyond. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (Number.isNaN(a)) return a;
  if (a > 6) return Math.sign(x);
  if (a >= 0.5) return Math.sign(x) * (1 - Math.exp(-a * a) * scaledErfc(a));
  let term = a;
  let sum = a;
  for (let n = 1; term > sum * 1e-17; n++) {
    term *= (2 * a * a) / (2 * n + 1);
    sum += term;
  }
  return Math.sign(x) * TWO_OVER_SQRT_PI * Math.exp(-a * a) * sum;
}

/** exp(-(n / 2)²) of n from 1, up to what a double keeps of a sum with 1. */
const WEIGHTS = Float64Array.from({ length: 12 }, (_, n) => Math.exp(-((n + 1) ** 2) / 4));

/**
 * exp(a²) erfc(a) of a from 1/2, to a few units in the last place: the trapezoidal rule for a / π · ∫ exp(-t²) / (t² + a²) dt in steps
 * of 1/2, whose error is the residue at t = ia and a part of 1e-17 (Chiarella and Reichel 1968).
 */
function scaledErfc(a: number): number {
  let sum = 0;
  for (let n = WEIGHTS.length; n > 0; n--) sum += WEIGHTS[n - 1] / (n * n * 0.25 + a * a);
  const residue = a < 6 ? (2 * Math.exp(a * a)) / Math.expm1(4 * Math.PI * a) : 0;
  return (a / Math.PI) * (0.5 / (a * a) + sum) - residue;
}

/** The standard normal distribution function, to a few units in the last place where it is small, too. */
export function normalBelow(x: number): number {
  // Beyond 40 a double has 0 and 1 only.
  const a = Math.min(Math.abs(x), 40);
  if (!(a * Math.SQRT1_2 >= 0.5)) return 0.5 + 0.5 * erf(x * Math.SQRT1_2);
  // The square of the upper half of the bits is exact: the rounding of a² would be x² times as large in its exponential.
  const high = Math.fround(a);
  const density = Math.exp(-0.5 * high * high) * Math.exp(-0.5 * (a - high) * (a + high));
  const tail = 0.5 * density * scaledErfc(a * Math.SQRT1_2);
  return x < 0 ? tail : 1 - tail;
}

/** Halves away from zero, exact for every double. */
export function round(x: number): number {
  const whole = Math.trunc(x);
  return Math.abs(x - whole) >= 0.5 ? whole + Math.sign(x) : whole;
}

/** C's pow: 1 to every power is 1, and so is -1 to an infinite one; JavaScript has NaN for some of these. */
export function pow(x: number, y: number): number {
  return x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y;
}

export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x));
}

/** ln(1 + eˣ) without the overflow of eˣ. */
export function softplus(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}
