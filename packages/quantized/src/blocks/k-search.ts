/**
 * Searching scales for the K formats, whose blocks carry a quantised scale for each group of 16 or 32 values. What is
 * minimised is ggml's measure, a squared error weighted towards large values; the search is ours (a handful of candidate
 * steps, each improved by least squares), so the bytes may differ from ggml's while the error is of the same size.
 */
import { roundHalfEven } from './half';

/** value ≈ scale * q, q in [-half, half - 1]; the scale is signed. */
export interface SymmetricFit {
  scale: number;
}

/** value ≈ scale * q - min, q in [0, top]; neither is negative. */
export interface OffsetFit {
  scale: number;
  min: number;
}

export function clamp(value: number, low: number, high: number): number {
  return value > low ? Math.min(value, high) : low;
}

/** Best scale for `n` values at `x[at]`, each weighted by its square. */
export function fitSymmetric(x: Float32Array, at: number, n: number, half: number): SymmetricFit {
  let extreme = 0;
  for (let i = 0; i < n; i++) if (Math.abs(x[at + i]) > Math.abs(extreme)) extreme = x[at + i];
  if (!(Math.abs(extreme) > 1e-15)) return { scale: 0 };
  let best = Number.NEGATIVE_INFINITY;
  let scale = 0;
  // The extreme value sits on the far negative level, or a little inside or outside it.
  for (let step = -8; step <= 8; step += 2) {
    const inverse = -(half + 0.1 * step) / extreme;
    let xq = 0;
    let qq = 0;
    for (let i = 0; i < n; i++) {
      const value = x[at + i];
      const q = clamp(roundHalfEven(inverse * value), -half, half - 1);
      const weight = value * value;
      xq += weight * value * q;
      qq += weight * q * q;
    }
    // For fixed levels the least-squares scale is xq / qq, and it removes xq² / qq from the error.
    if (qq > 0 && (xq * xq) / qq > best) {
      best = (xq * xq) / qq;
      scale = xq / qq;
    }
  }
  return { scale };
}

/** Best scale and offset for `n` values at `x[at]`; larger values weigh more. */
export function fitOffset(x: Float32Array, at: number, n: number, top: number): OffsetFit {
  let low = 0;
  let high = x[at];
  let squares = 0;
  for (let i = 0; i < n; i++) {
    const value = x[at + i];
    low = Math.min(low, value);
    high = Math.max(high, value);
    squares += value * value;
  }
  if (!(high > low)) return { scale: 0, min: -low };
  const typical = Math.sqrt(squares / n);
  let best = { scale: (high - low) / top, min: -low };
  let mostRemoved = Number.NEGATIVE_INFINITY;
  for (let step = -10; step <= 10; step += 2) {
    const inverse = (top + 0.1 * step) / (high - low);
    let w = 0;
    let wq = 0;
    let wqq = 0;
    let wx = 0;
    let wxq = 0;
    for (let i = 0; i < n; i++) {
      const value = x[at + i];
      const q = clamp(roundHalfEven(inverse * (value - low)), 0, top);
      const weight = typical + Math.abs(value);
      w += weight;
      wq += weight * q;
      wqq += weight * q * q;
      wx += weight * value;
      wxq += weight * value * q;
    }
    // The line that fits these levels best: value = scale * q + base.
    const determinant = w * wqq - wq * wq;
    if (!(determinant > 0)) continue;
    let scale = (w * wxq - wx * wq) / determinant;
    let base = (wqq * wx - wq * wxq) / determinant;
    if (base > 0) {
      // The stored offset cannot raise values: fit the line through zero.
      base = 0;
      scale = wxq / wqq;
    }
    // What a least-squares line takes off the error.
    const removed = scale * wxq + base * wx;
    if (removed > mostRemoved) {
      mostRemoved = removed;
      best = { scale: Math.max(scale, 0), min: -base };
    }
  }
  return best;
}

/** Levels of `n` values for a given step and offset, written to `levels[to ...]`. */
export function setLevels(
  levels: Uint8Array,
  to: number,
  x: Float32Array,
  at: number,
  n: number,
  fit: OffsetFit,
  top: number,
): void {
  const inverse = fit.scale > 0 ? 1 / fit.scale : 0;
  for (let i = 0; i < n; i++) levels[to + i] = clamp(roundHalfEven((x[at + i] + fit.min) * inverse), 0, top);
}
