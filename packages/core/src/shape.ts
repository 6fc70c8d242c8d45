/**
 * Shapes: plain arrays of sizes, after candle's `Shape` and `Dim` (candle-core/src/shape.rs). Where candle has `D::Minus1`,
 * every dimension here may be given from the end as a negative number. Sizes and their product stay exact up to 2^53.
 */
import { ShapeError } from './errors';
import { show } from './show';

/** Sizes from the outermost dimension to the innermost; `[]` is a scalar. */
export type Shape = readonly number[];

/**
 * candle's names for dimensions counted from the end, for code that reads better with them: `t.sum(D.Minus1)` is
 * `t.sum(-1)`.
 */
export const D = {
  Minus1: -1,
  Minus2: -2,
  /** The `n`th dimension from the end, `n` from 1. */
  Minus: (n: number): number => -n,
} as const;

/** `[2, 3]`, as error messages and printing show it. */
export function formatShape(shape: Shape): string {
  return `[${shape.join(', ')}]`;
}

/**
 * A private copy of a shape that a caller gave, checked: whole sizes >= 0 whose product is exact in a double.
 * @throws ShapeError `INVALID_SHAPE`
 */
export function validateShape(op: string, shape: Shape): number[] {
  if (!Array.isArray(shape)) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `${op}: a shape is an array of sizes and not ${show(shape)}; write e.g. [2, 3].`,
    );
  }
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0) {
      const given = show(shape);
      throw new ShapeError(
        'INVALID_SHAPE',
        `${op}: size ${show(size)} in shape ${given} is no whole number >= 0; correct the shape.`,
      );
    }
  }
  if (!Number.isSafeInteger(elemCount(shape))) {
    const given = formatShape(shape);
    throw new ShapeError('INVALID_SHAPE', `${op}: shape ${given} has more than 2^53 elements; split the tensor.`);
  }
  return shape.slice();
}

/** Product of the sizes; 1 for a scalar. */
export function elemCount(shape: Shape): number {
  let count = 1;
  for (const size of shape) count *= size;
  // A zero anywhere makes the tensor empty, also beside sizes whose product overflows.
  return Number.isNaN(count) ? 0 : count;
}

/** Whether rank and all sizes are equal; nothing is broadcast. */
export function sameShape(a: Shape, b: Shape): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Row-major strides, in elements. */
export function contiguousStrides(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let acc = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = acc;
    acc *= shape[i];
  }
  return strides;
}

/**
 * The dimension that `dim` names in a shape of `rank` dimensions; negative counts from the end.
 * @throws ShapeError `DIM_OUT_OF_RANGE`
 */
export function resolveDim(op: string, dim: number, shape: Shape, rank: number = shape.length): number {
  const resolved = Number.isInteger(dim) ? (dim < 0 ? dim + rank : dim) : -1;
  if (resolved < 0 || resolved >= rank) {
    const allowed = rank === 0 ? 'a scalar has no dimensions' : `use ${-rank}..${rank - 1}`;
    throw new ShapeError(
      'DIM_OUT_OF_RANGE',
      `${op}: dimension ${show(dim)} does not exist in shape ${formatShape(shape)}; ${allowed}.`,
    );
  }
  return resolved;
}

/** Several dimensions at once, each at most once; the result is sorted. */
export function resolveDims(op: string, dims: number | readonly number[], shape: Shape): number[] {
  if (!Array.isArray(dims)) return [resolveDim(op, dims as number, shape)];
  const resolved = dims.map((dim) => resolveDim(op, dim, shape)).sort((a, b) => a - b);
  for (let i = 1; i < resolved.length; i++) {
    if (resolved[i] === resolved[i - 1]) {
      const given = `[${dims.join(', ')}]`;
      throw new ShapeError(
        'INVALID_SHAPE',
        `${op}: dimensions ${given} name dimension ${resolved[i]} of ${formatShape(shape)} twice; name each once.`,
      );
    }
  }
  return resolved;
}

/**
 * The common shape of two operands under numpy's rules: aligned at the right, a size of 1 stretches. An operand's own
 * where it is that one, so that the result can have its layout too.
 * @throws ShapeError `SHAPE_MISMATCH`
 */
export function broadcastShapes(op: string, lhs: Shape, rhs: Shape): Shape {
  if (stretchesTo(rhs, lhs)) return lhs;
  if (stretchesTo(lhs, rhs)) return rhs;
  const rank = Math.max(lhs.length, rhs.length);
  const out = new Array<number>(rank);
  for (let i = 0; i < rank; i++) {
    const a = i < rank - lhs.length ? 1 : lhs[i - rank + lhs.length];
    const b = i < rank - rhs.length ? 1 : rhs[i - rank + rhs.length];
    if (a !== b && a !== 1 && b !== 1) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${op}: shapes ${formatShape(lhs)} and ${formatShape(rhs)} do not broadcast (${a} against ${b}); make those sizes equal or one of them 1.`,
      );
    }
    out[i] = a === 1 ? b : a;
  }
  return out;
}

function stretchesTo(from: Shape, to: Shape): boolean {
  const added = to.length - from.length;
  if (added < 0) return false;
  for (let i = 0; i < from.length; i++) if (from[i] !== 1 && from[i] !== to[i + added]) return false;
  return true;
}

/**
 * The shape that a reshape asks for, its single -1 filled in.
 * @throws ShapeError `INVALID_SHAPE` or `SHAPE_MISMATCH`
 */
export function resolveReshape(op: string, from: Shape, to: readonly number[]): number[] {
  const hole = to.indexOf(-1);
  const count = elemCount(from);
  if (hole === -1) {
    const shape = validateShape(op, to);
    if (elemCount(shape) !== count) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${op}: ${formatShape(from)} has ${count} elements and ${formatShape(to)} has ${elemCount(shape)}; the counts must be equal.`,
      );
    }
    return shape;
  }
  if (to.lastIndexOf(-1) !== hole) {
    throw new ShapeError(
      'INVALID_SHAPE',
      `${op}: ${formatShape(to)} has more than one -1; leave one size open at most.`,
    );
  }
  const rest = elemCount(
    validateShape(
      op,
      to.filter((_, i) => i !== hole),
    ),
  );
  if (rest === 0 || count % rest !== 0) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: ${formatShape(from)} has ${count} elements, which the other sizes of ${formatShape(to)} do not divide; give sizes whose product divides ${count}.`,
    );
  }
  return to.map((size, i) => (i === hole ? count / rest : size));
}
