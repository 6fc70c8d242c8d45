/**
 * Sorting along the last dimension. candle's sort is unstable, needs contiguous rows, and fails on a GPU for wide ones;
 * here it is stable in both directions, takes any view and any width, and NaN is greater than every number on all devices.
 */
import { ShapeError } from '../errors';
import { formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, storageOf, withTemporaries } from './base';
import { TensorResampling } from './resampling';

export abstract class TensorSorting extends TensorResampling {
  /** u32 positions that bring each row of the last dimension into ascending order, or descending order. */
  argSortLastDim(this: Tensor, ascending: boolean): Tensor {
    const op = 'argSortLastDim';
    requireRows(op, this);
    return compute(op, [this], this.shape, 'u32', () => storageOf(op, this).argSortLastDim(this.layout, !ascending));
  }

  /** The rows sorted, and the u32 positions that the elements had. */
  sortLastDim(this: Tensor, ascending: boolean): [values: Tensor, positions: Tensor] {
    requireRows('sortLastDim', this);
    const positions = this.argSortLastDim(ascending);
    return [gathered(this, positions), positions];
  }

  /** The `k` largest elements of each row in descending order, and their u32 positions: both [..., k]. */
  topk(this: Tensor, k: number): [values: Tensor, positions: Tensor] {
    requireRows('topk', this);
    const width = this.dim(-1);
    if (!Number.isInteger(k) || k < 0 || k > width) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `topk: rows of ${formatShape(this.shape)} have no ${k} elements; use a whole number in 0..${width}.`,
      );
    }
    const positions = withTemporaries((temporary) => {
      const all = temporary(this.argSortLastDim(false));
      // A copy, so that the positions of all elements do not stay in memory behind a view.
      return temporary(all.narrow(-1, 0, k)).copy();
    });
    return [gathered(this, positions), positions];
  }
}

function gathered(tensor: Tensor, positions: Tensor): Tensor {
  try {
    return tensor.gather(positions, -1);
  } catch (error) {
    positions.dispose();
    throw error;
  }
}

function requireRows(op: string, tensor: Tensor): void {
  if (tensor.rank > 0) return;
  throw new ShapeError('INVALID_SHAPE', `${op}: a scalar has no last dimension; unsqueeze it first.`);
}
