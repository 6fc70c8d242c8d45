/**
 * What a token weighs in a draw: whole numbers, whose sums are exact in any order, made by single precision arithmetic that
 * is the same on every device. So a seed draws the same token everywhere from the same logits; the kernel's form of it is
 * kernels/sampling/weight.h.
 */
const { fround } = Math;

/** The weight of the likeliest token. Sums of 2^20 of them are exact in a double. */
const UNIT = 2 ** 31;
/** Below, a weight is 0. */
const LEAST = -22;
const LOG2_E = fround(1.44269502);
const LN_2_HIGH = fround(0.693145752);
const LN_2_LOW = fround(0.00000142860677);
/** 1.5 * 2^23: the last bits of a number added to it are the nearest integer. */
const SHIFT = 12582912;
/** (exp(r) - 1 - r) / r² for |r| < 0.347. */
const SERIES = [0.00138185068, 0.00836875383, 0.0416683406, 0.166665196, 0.49999994].map(fround);
const [C4, C3, C2, C1, C0] = SERIES;
/** 2^-n. */
const POWERS = Float64Array.from({ length: 40 }, (_, n) => 2 ** -n);

/** exp(z) for z in [LEAST, 0], within 2 units in the last place of an f32. */
function exactExp(z: number): number {
  const n = fround(fround(fround(z * LOG2_E) + SHIFT) - SHIFT);
  const high = fround(z - fround(n * LN_2_HIGH));
  const r = fround(high - fround(n * LN_2_LOW));
  let power = fround(fround(C4 * r) + C3);
  power = fround(fround(power * r) + C2);
  power = fround(fround(power * r) + C1);
  power = fround(fround(power * r) + C0);
  power = fround(fround(power * r) + 1);
  power = fround(fround(power * r) + 1);
  return power * POWERS[-n];
}

/** The weight of a token whose scaled logit lies z below the largest; z is an f32. */
export function weightOf(z: number): number {
  return z < LEAST ? 0 : Math.floor(exactExp(z) * UNIT);
}

/** The same times -z. */
export function momentOf(z: number): number {
  return z < LEAST ? 0 : Math.floor(fround(exactExp(z) * -z) * UNIT);
}

/** floor(part / 2^32 * total). */
export function shareOf(part: number, total: number): number {
  return Number((BigInt(part) * BigInt(total)) >> 32n);
}
