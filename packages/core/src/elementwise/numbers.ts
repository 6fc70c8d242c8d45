/** Functions of one number that JavaScript lacks, or defines otherwise than C and the kernels. */

const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);

/** The error function to about 1e-15: a series of positive terms up to 3, a continued fraction of erfc beyond. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (Number.isNaN(a)) return a;
  if (a > 6) return Math.sign(x);
  if (a < 3) {
    let term = a;
    let sum = a;
    for (let n = 1; term > sum * 1e-17; n++) {
      term *= (2 * a * a) / (2 * n + 1);
      sum += term;
    }
    return Math.sign(x) * TWO_OVER_SQRT_PI * Math.exp(-a * a) * sum;
  }
  let fraction = a;
  for (let n = 60; n > 0; n--) fraction = a + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * fraction));
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
