/**
 * Parts of a weight along one dimension, for ranks that share it: which bytes of a file they are, so that a rank reads its own
 * and no more. Parts of the last dimension are whole blocks of each row.
 */
import { elemCount, formatShape, ShapeError } from '@x/core';
import { type BlockFormat, byteLengthOf } from './blocks';
import type { Pieces } from './load';

export interface PartRange {
  /** The first index of the dimension. */
  start: number;
  count: number;
}

/** Ranges of one dimension, one behind the other in the part. */
export interface TensorPart {
  /** From 0, the outermost one. */
  dim: number;
  ranges: readonly PartRange[];
}

/** Bytes read at once, at most; whole blocks. */
const PIECE = 4 * 2 ** 20;

/**
 * The shape of a part of a tensor.
 * @throws ShapeError `SHAPE_MISMATCH` for ranges outside of the dimension, and for parts of blocks
 */
export function partShape({ type, blockSize }: BlockFormat, shape: readonly number[], part: TensorPart): number[] {
  const { dim, ranges } = part;
  const unit = dim === shape.length - 1 ? blockSize : 1;
  const inside = ({ start, count }: PartRange) =>
    [start, count].every((value) => Number.isSafeInteger(value) && value >= 0 && value % unit === 0) &&
    start + count <= shape[dim];
  if (shape[dim] === undefined || !ranges.every(inside)) {
    const asked = ranges.map(({ start, count }) => `${start} to ${start + count}`).join(', ');
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `part of ${type} ${formatShape(shape)}: ${asked || 'nothing'} of dimension ${dim}${unit > 1 ? `, whose rows are blocks of ${unit},` : ''} is not there; give whole blocks inside of it.`,
    );
  }
  return shape.map((size, i) => (i === dim ? ranges.reduce((sum, { count }) => sum + count, 0) : size));
}

/** The bytes of a part in order, read by `read`. */
export function* partPieces(
  read: (offset: number, into: Uint8Array) => void,
  format: BlockFormat,
  shape: readonly number[],
  { dim, ranges }: TensorPart,
): Pieces & Generator {
  const { blockBytes } = format;
  const outer = elemCount(shape.slice(0, dim));
  const inner = elemCount(shape.slice(dim + 1));
  const bytesAt = (index: number) => byteLengthOf(format, index * inner);
  const whole = bytesAt(shape[dim]);
  const bytes = ranges.reduce((sum, { count }) => sum + outer * bytesAt(count), 0);
  const atOnce = Math.min(PIECE - (PIECE % blockBytes), bytes);
  const buffer = new Uint8Array(atOnce);
  let [offset, filled] = [0, 0];
  for (let o = 0; o < outer; o++) {
    for (const { start, count } of ranges) {
      const end = o * whole + bytesAt(start + count);
      for (let at = o * whole + bytesAt(start); at < end; ) {
        const length = Math.min(end - at, atOnce - filled);
        read(at, buffer.subarray(filled, filled + length));
        at += length;
        filled += length;
        if (filled < atOnce) continue;
        yield { offset, bytes: buffer };
        offset += filled;
        filled = 0;
      }
    }
  }
  if (filled > 0) yield { offset, bytes: buffer.subarray(0, filled) };
}
