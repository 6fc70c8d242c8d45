/** Which ids an operation takes, and the error for others: one wording on all devices. */
import { ShapeError } from './errors';

export interface IdRange {
  /** Ids are below this: the size of what they choose from. */
  readonly size: number;
  /** The smallest id. Default 0; -1 where that stands for none. */
  readonly low?: number;
  /** The dimension that the ids choose from, where they choose from a tensor's. */
  readonly dim?: number;
}

/** The error for `id` at row-major `position` among the ids of `op`, which are in `range`. `more` is what else may help. */
export function idOutOfRange(op: string, id: number | bigint, position: number, range: IdRange, more = ''): ShapeError {
  const { size, low = 0, dim } = range;
  const inside = size > low ? `${low}..${size - 1}` : 'nothing';
  const where = dim === undefined ? '' : ` of dimension ${dim}, whose size is ${size}`;
  return new ShapeError(
    'INDEX_OUT_OF_RANGE',
    `${op}: id ${id} at position ${position} is outside ${inside}${where}; correct the ids.${more}`,
  );
}
