/** Decimal numbers without a sign that are a multiple of another one, digit by digit. */

export interface Multiple {
  /** The divisor times 10^places, at least 1. */
  readonly of: number;
  /** What the digits so far leave. */
  readonly remainder: number;
  /** Digits behind the point that count; further ones are zeros. */
  readonly places: number;
  /** Of those: how many were there, or -1 before the point. */
  readonly seen: number;
}

/** Largest divisor, less its zeros at the end: there is a state for each remainder. */
export const MOST_DIVISOR = 10_000;

export function multipleAccepts({ of, remainder, places, seen }: Multiple): boolean {
  let rest = remainder;
  for (let place = Math.max(0, seen); place < places && rest !== 0; place++) rest = (rest * 10) % of;
  return rest === 0;
}

export function multipleStep(multiple: Multiple, byte: number): Multiple | undefined {
  const { of, remainder, places, seen } = multiple;
  if (byte === 0x2e) return seen < 0 ? { ...multiple, seen: 0 } : undefined;
  if (byte < 0x30 || byte > 0x39) return undefined;
  if (seen === places) return byte === 0x30 ? multiple : undefined;
  return { of, places, remainder: (remainder * 10 + byte - 0x30) % of, seen: seen < 0 ? -1 : seen + 1 };
}
