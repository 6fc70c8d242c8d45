/**
 * Searching the scale of a group of values: the four searches that ggml's quantisers share, under its names without the
 * `_quants` (`make_qx`, `make_q3`, `make_qkx2` and `make_qkx3`, which differ in name only once weights are given, and
 * `make_qp`).
 *
 * A search compares sums that nearly tie, so the bytes come out as ggml's only when every addition and product is rounded
 * to f32 where C rounds it, in C's order. That is what the many `Math.fround` are for; V8 compiles them to f32
 * instructions, so they cost nothing. A value that is no number, or is too large to square, gives some block and no error.
 */
import { roundHalfEven } from './half';

const f = Math.fround;

/** Groups whose largest magnitude is below are taken for zeros. */
export const TINY = f(1e-15);

export function clamp(value: number, low: number, high: number): number {
  return value > low ? Math.min(value, high) : low;
}

/** The value with the largest magnitude of `n` at `x[at]`, the first of equals, sign kept; 0 for zeros and NaN alone. */
export function extremeOf(x: Float32Array, at: number, n: number): number {
  let extreme = 0;
  let largest = 0;
  for (let i = 0; i < n; i++) {
    const size = Math.abs(x[at + i]);
    if (size > largest) {
      largest = size;
      extreme = x[at + i];
    }
  }
  return extreme;
}

/** ggml's weights of values by importance: `importance * sqrt(sigma2 + x²)`, written to `weights`. */
export function importanceWeights(
  weights: Float32Array,
  x: Float32Array,
  at: number,
  n: number,
  importance: Float32Array,
  importanceAt: number,
  sigma2: number,
): void {
  for (let i = 0; i < n; i++) {
    const value = x[at + i];
    weights[i] = importance[importanceAt + i] * f(Math.sqrt(f(sigma2 + f(value * value))));
  }
}

/** Sum of the squares of `n` values, added up in f32 in order. */
export function sumOfSquares(x: Float32Array, at: number, n: number): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = f(sum + f(x[at + i] * x[at + i]));
  return sum;
}

export function sumOf(x: Float32Array, n: number): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = f(sum + x[i]);
  return sum;
}

/**
 * value ≈ scale * (level - half), levels 0 to 2 * half - 1, the scale signed. Values weigh `weights[weightsAt ...]`, by
 * default their squares. Returns the scale.
 */
export function fitSigned(
  x: Float32Array,
  at: number,
  n: number,
  half: number,
  levels: Uint8Array,
  to: number,
  weights?: Float32Array,
  weightsAt = 0,
): number {
  const extreme = extremeOf(x, at, n);
  if (!(Math.abs(extreme) >= TINY)) {
    levels.fill(0, to, to + n);
    return 0;
  }
  let best = 0;
  let scale = 0;
  // The extreme value on the far negative level first, then up to nine tenths of a step inside or outside of it.
  for (let tries = 0; tries < 19; tries++) {
    const step = tries === 0 ? 0 : tries < 10 ? tries - 10 : tries - 9;
    const inverse = f(-f(half + f(f(0.1) * step)) / extreme);
    let lx = 0;
    let l2 = 0;
    for (let i = 0; i < n; i++) {
      const value = x[at + i];
      const level = clamp(roundHalfEven(f(inverse * value)), -half, half - 1);
      const weight = weights === undefined ? f(value * value) : weights[weightsAt + i];
      lx = f(lx + f(f(weight * value) * level));
      l2 = f(l2 + f(f(weight * level) * level));
    }
    if (step !== 0 && !(l2 > 0 && f(lx * lx) > f(best * l2))) continue;
    scale = l2 === 0 ? 0 : f(lx / l2);
    best = f(scale * lx);
    for (let i = 0; i < n; i++) {
      levels[to + i] = half + clamp(roundHalfEven(f(inverse * x[at + i])), -half, half - 1);
    }
  }
  return scale;
}

/**
 * As {@link fitSigned} for few levels: one start, then levels are moved one at a time while that helps. Values weigh
 * their squares.
 */
export function fitSignedByMoves(
  x: Float32Array,
  at: number,
  n: number,
  half: number,
  levels: Uint8Array,
  to: number,
): number {
  const extreme = extremeOf(x, at, n);
  if (!(Math.abs(extreme) >= TINY)) {
    levels.fill(0, to, to + n);
    return 0;
  }
  const inverse = f(-half / extreme);
  let lx = 0;
  let l2 = 0;
  for (let i = 0; i < n; i++) {
    const value = x[at + i];
    const level = clamp(roundHalfEven(f(inverse * value)), -half, half - 1);
    levels[to + i] = level + half;
    const weight = f(value * value);
    lx = f(lx + f(f(weight * value) * level));
    l2 = f(l2 + f(f(weight * level) * level));
  }
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < n; i++) {
      const value = x[at + i];
      const old = levels[to + i] - half;
      const weight = f(value * value);
      const wx = f(weight * value);
      const lxRest = f(lx - f(wx * old));
      if (!(lxRest > 0)) continue;
      const l2Rest = f(l2 - f(f(weight * old) * old));
      const level = clamp(roundHalfEven(f(f(value * l2Rest) / lxRest)), -half, half - 1);
      if (level === old) continue;
      const lxNew = f(lxRest + f(wx * level));
      const l2New = f(l2Rest + f(f(weight * level) * level));
      if (!(l2New > 0 && f(f(lxNew * lxNew) * l2) > f(f(lx * lx) * l2New))) continue;
      levels[to + i] = level + half;
      lx = lxNew;
      l2 = l2New;
      changed = true;
    }
    if (!changed) break;
  }
  return l2 > 0 ? f(lx / l2) : 0;
}

/** Steps that {@link fitOffset} tries: `first + i * step` for i up to `last`, in levels beyond the top. */
export interface OffsetSteps {
  readonly first: number;
  readonly step: number;
  readonly last: number;
  /** Sums of absolute differences are compared, not of squares. */
  readonly absolute: boolean;
}

/** Scale and offset of a group: value ≈ scale * level - min, neither negative. */
export interface OffsetFit {
  scale: number;
  min: number;
}

const trial = new Uint8Array(32);

/** Best scale and offset of `n` (at most 32) values, levels 0 to `top`, every value weighing `weights[i]`. */
export function fitOffset(
  x: Float32Array,
  at: number,
  n: number,
  top: number,
  weights: Float32Array,
  levels: Uint8Array,
  to: number,
  steps: OffsetSteps,
): OffsetFit {
  let low = x[at];
  let high = x[at];
  let w = weights[0];
  let wx = f(w * x[at]);
  for (let i = 1; i < n; i++) {
    const value = x[at + i];
    if (value < low) low = value;
    if (value > high) high = value;
    w = f(w + weights[i]);
    wx = f(wx + f(weights[i] * value));
  }
  if (low > 0) low = 0;
  if (!(high > low)) {
    levels.fill(0, to, to + n);
    return { scale: 0, min: -low };
  }
  const plain = f(top / f(high - low));
  let scale = f(1 / plain);
  let min = low;
  setLevels(levels, to, x, at, n, plain, min, top);
  let best = errorOf(levels, to, x, at, n, weights, scale, min, steps.absolute);
  for (let i = 0; i <= steps.last; i++) {
    // From the best offset so far, not from the lowest value.
    const inverse = f(f(f(steps.first + f(steps.step * i)) + top) / f(high - min));
    setLevels(trial, 0, x, at, n, inverse, min, top);
    let wl = 0;
    let wl2 = 0;
    let wxl = 0;
    for (let j = 0; j < n; j++) {
      const level = trial[j];
      const product = f(weights[j] * level);
      wl = f(wl + product);
      wl2 = f(wl2 + f(product * level));
      wxl = f(wxl + f(product * x[at + j]));
    }
    const determinant = f(f(w * wl2) - f(wl * wl));
    if (!(determinant > 0)) continue;
    // The line that fits these levels best; the stored offset cannot raise values, so one through zero if it would.
    let newScale = f(f(f(w * wxl) - f(wx * wl)) / determinant);
    let newMin = f(f(f(wl2 * wx) - f(wl * wxl)) / determinant);
    if (newMin > 0) {
      newMin = 0;
      newScale = f(wxl / wl2);
    }
    const error = errorOf(trial, 0, x, at, n, weights, newScale, newMin, steps.absolute);
    if (!(error < best)) continue;
    for (let j = 0; j < n; j++) levels[to + j] = trial[j];
    best = error;
    scale = newScale;
    min = newMin;
  }
  return { scale, min: -min };
}

function setLevels(
  levels: Uint8Array,
  to: number,
  x: Float32Array,
  at: number,
  n: number,
  inverse: number,
  low: number,
  top: number,
): void {
  for (let i = 0; i < n; i++) levels[to + i] = clamp(roundHalfEven(f(inverse * f(x[at + i] - low))), 0, top);
}

function errorOf(
  levels: Uint8Array,
  to: number,
  x: Float32Array,
  at: number,
  n: number,
  weights: Float32Array,
  scale: number,
  min: number,
  absolute: boolean,
): number {
  let error = 0;
  for (let i = 0; i < n; i++) {
    const difference = f(f(f(scale * levels[to + i]) + min) - x[at + i]);
    error = f(error + f(weights[i] * (absolute ? Math.abs(difference) : f(difference * difference))));
  }
  return error;
}

/** value ≈ scale * level for `n` values of zero or more, levels 0 to `top`: the scales of a block's groups. */
export function fitPositive(
  x: Float32Array,
  n: number,
  top: number,
  levels: Uint8Array,
  weights: Float32Array,
): number {
  let largest = 0;
  for (let i = 0; i < n; i++) if (x[i] > largest) largest = x[i];
  if (!(largest >= TINY)) {
    levels.fill(0, 0, n);
    return 0;
  }
  let inverse = f(top / largest);
  let best = positiveError(x, n, top, weights, inverse);
  for (let step = -4; step <= 4; step++) {
    if (step === 0) continue;
    const other = f(f(f(f(0.1) * step) + top) / largest);
    const error = positiveError(x, n, top, weights, other);
    if (!(error < best)) continue;
    best = error;
    inverse = other;
  }
  let lx = 0;
  let l2 = 0;
  for (let i = 0; i < n; i++) {
    const level = clamp(roundHalfEven(f(inverse * x[i])), 0, top);
    levels[i] = level;
    lx = f(lx + f(f(weights[i] * x[i]) * level));
    l2 = f(l2 + f(f(weights[i] * level) * level));
  }
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < n; i++) {
      const wx = f(weights[i] * x[i]);
      const lxRest = f(lx - f(wx * levels[i]));
      const l2Rest = f(l2 - f(f(weights[i] * levels[i]) * levels[i]));
      if (!(lxRest > 0 && l2Rest > 0)) continue;
      const level = clamp(roundHalfEven(f(f(x[i] * l2Rest) / lxRest)), 0, top);
      if (level === levels[i]) continue;
      const lxNew = f(lxRest + f(wx * level));
      const l2New = f(l2Rest + f(f(weights[i] * level) * level));
      if (!(f(f(lxNew * lxNew) * l2) > f(f(lx * lx) * l2New))) continue;
      levels[i] = level;
      lx = lxNew;
      l2 = l2New;
      changed = true;
    }
    if (!changed) break;
  }
  return l2 > 0 ? f(lx / l2) : 0;
}

function positiveError(x: Float32Array, n: number, top: number, weights: Float32Array, inverse: number): number {
  const scale = f(1 / inverse);
  let error = 0;
  for (let i = 0; i < n; i++) {
    const level = clamp(roundHalfEven(f(inverse * x[i])), 0, top);
    const difference = f(x[i] - f(scale * level));
    error = f(error + f(f(weights[i] * difference) * difference));
  }
  return error;
}

/** Levels of a group once its scale is stored: nearest to `(x + min) / d`. A zero scale leaves them as they were. */
export function requantize(
  levels: Uint8Array,
  to: number,
  x: Float32Array,
  at: number,
  n: number,
  d: number,
  min: number,
  low: number,
  high: number,
): void {
  if (d === 0) return;
  for (let i = 0; i < n; i++) {
    levels[to + i] = clamp(roundHalfEven(f(f(x[at + i] + min) / d)), low, high) - low;
  }
}
