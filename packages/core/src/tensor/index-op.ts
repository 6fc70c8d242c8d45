/**
 * Positions and ranges of `i(...)` and `sliceAssign`: candle's `IndexOp` (candle-core/src/indexer.rs), where `t.i((.., 1..3))`
 * is written `t.i(all, range(1, 3))`. A range includes its start and not its end; negative bounds count from the end.
 */
import { CandleError, ShapeError } from '../errors';
import { formatShape, type Shape } from '../shape';
import { show } from '../show';
import type { Tensor } from '../tensor';

/** A half-open range; negative bounds count from the end, a missing or null one is the edge. */
export interface IndexRange {
  start?: number | null;
  end?: number | null;
}

/** A part of a dimension: a range, also as `[start, end]`, or `':'` for all of it. */
export type IndexSlice = ':' | IndexRange | readonly [number | null, (number | null)?];

/**
 * One position of `i`: a number takes one slice and drops the dimension, a range (also as `[start, end]`) keeps part of it,
 * `':'` all of it, null inserts a dimension of size 1, a rank-1 integer tensor selects.
 */
export type Index = number | null | IndexSlice | Tensor;

/** The whole of a dimension: candle's `..`. */
export const all = ':' as const;

/** A new dimension of size 1: candle's `NewAxis`. */
export const newAxis = null;

/**
 * The part [start, end) of a dimension: candle's `start..end`. `range(2)` is `2..`, `range(null, 2)` is `..2`, and
 * `range(-2)` the last two.
 */
export function range(start: number | null = null, end: number | null = null): IndexRange {
  return { start, end };
}

/** Start and length of a range in a dimension of `size` elements; not checked against it. */
export function sliceBounds(slice: IndexSlice, size: number): [start: number, len: number] {
  if (slice === ':') return [0, size];
  const proper = typeof slice === 'object' && slice !== null;
  const [first, last] = Array.isArray(slice)
    ? slice
    : proper
      ? [(slice as IndexRange).start, (slice as IndexRange).end]
      : [];
  const isBound = (value: unknown) => value === null || value === undefined || Number.isSafeInteger(value);
  if (!proper || !isBound(first) || !isBound(last)) {
    const given = proper ? `the range [${show(first)}, ${show(last)})` : show(slice);
    throw new CandleError(
      'INVALID_ARGUMENT',
      `i: ${given} is no position; use a whole number, range(start, end), all, newAxis or a tensor of ids.`,
    );
  }
  const bound = (value: number | null | undefined, edge: number) => {
    if (value === null || value === undefined) return edge;
    return value < 0 ? value + size : value;
  };
  const start = bound(first, 0);
  return [start, Math.max(0, bound(last, size) - start)];
}

/**
 * Start and length of a range for each dimension of a shape; missing ones are whole.
 * @throws ShapeError `DIM_OUT_OF_RANGE` for more ranges than dimensions, `INDEX_OUT_OF_RANGE`
 */
export function resolveSlices(
  op: string,
  shape: Shape,
  slices: readonly IndexSlice[],
): { start: number; len: number }[] {
  if (slices.length > shape.length) {
    throw new ShapeError(
      'DIM_OUT_OF_RANGE',
      `${op}: ${slices.length} ranges are given for shape ${formatShape(shape)}; give at most ${shape.length}.`,
    );
  }
  return shape.map((size, d) => {
    const [start, len] = sliceBounds(slices[d] ?? ':', size);
    if (Number.isInteger(start) && Number.isInteger(len) && start >= 0 && start + len <= size) return { start, len };
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `${op}: the range [${start}, ${start + len}) is outside dimension ${d} of ${formatShape(shape)}; stay within 0..${size}.`,
    );
  });
}
