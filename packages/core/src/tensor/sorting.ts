/**
 * Sorting along the last dimension. candle's sort is unstable, needs contiguous rows, and fails on a GPU for wide ones;
 * here it is stable in both directions, takes any view and any width, and NaN is greater than every number on all devices.
 */
import * as rules from '../autograd/rules/indexing';
import type { BackendDevice, BackendStorage } from '../backend';
import * as composed from '../composed/sorting';
import { ShapeError } from '../errors';
import { formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, operandOf } from './base';
import { TensorResampling } from './resampling';

export abstract class TensorSorting extends TensorResampling {
  /**
   * u32 positions that bring each row of the last dimension into ascending order, or descending order. Stable; NaN is
   * greater than every number. Any dtype.
   * @throws ShapeError `INVALID_SHAPE` for a scalar
   * @example
   * ```ts
   * Tensor.from([3, 1, 2]).argSortLastDim(true).toVecSync(); // => [1, 2, 0]
   * ```
   */
  argSortLastDim(this: Tensor, ascending: boolean): Tensor {
    const op = 'argSortLastDim';
    requireRows(op, this);
    const run = ({ sorting }: BackendDevice) =>
      sorting?.argSortLastDim?.(operandOf(op, this), !ascending) ?? composed.argSortLastDim(this, !ascending);
    return compute(op, [this], this.shape, 'u32', run);
  }

  /**
   * The rows sorted, and the u32 positions that the elements had; order and errors as {@link argSortLastDim}.
   * @example
   * ```ts
   * const [values, positions] = Tensor.from([3, 1, 2]).sortLastDim(false);
   * values.toVecSync(); // => [3, 2, 1]
   * positions.toVecSync(); // => [0, 2, 1]
   * ```
   */
  sortLastDim(this: Tensor, ascending: boolean): [values: Tensor, positions: Tensor] {
    const op = 'sortLastDim';
    requireRows(op, this);
    let values: BackendStorage;
    const positions = compute(op, [this], this.shape, 'u32', ({ sorting }) => {
      const sorted = sorting?.sortLastDim?.(operandOf(op, this), !ascending) ?? composed.sortLastDim(this, !ascending);
      values = sorted.values;
      return sorted.positions;
    });
    // As if the positions had gathered them.
    const gather = () => values;
    return [
      compute('gather', [this, positions], this.shape, this.dtype, gather, rules.gather, this.rank - 1),
      positions,
    ];
  }

  /**
   * The `k` largest elements of each row in descending order, or the smallest in ascending order, and their u32 positions:
   * both [..., k]. Of equal elements those at lower positions come first; NaN is the largest. Any dtype.
   * @throws ShapeError `INDEX_OUT_OF_RANGE` for rows that are shorter, `INVALID_SHAPE` for a scalar
   * @example
   * ```ts
   * Tensor.from([3, 1, 2]).topk(2)[0].toVecSync(); // => [3, 2]
   * ```
   */
  topk(this: Tensor, k: number, largest = true): [values: Tensor, positions: Tensor] {
    const op = 'topk';
    requireRows(op, this);
    const width = this.dim(-1);
    if (!Number.isInteger(k) || k < 0 || k > width) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `topk: rows of ${formatShape(this.shape)} have no ${k} elements; use a whole number in 0..${width}.`,
      );
    }
    const shape = [...this.shape.slice(0, -1), k];
    const positions = compute(
      op,
      [this],
      shape,
      'u32',
      ({ sorting }) =>
        sorting?.topkLastDim?.(operandOf(op, this), k, largest) ?? composed.topkLastDim(this, k, largest),
    );
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
