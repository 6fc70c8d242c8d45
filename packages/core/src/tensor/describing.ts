/**
 * What a tensor is, beyond its fields: sizes as tuples of a known length, axes, and where its elements lie in the storage.
 * candle's `dims0` to `dims5`, `normalize_axis`, `strided_index` and `strided_blocks`.
 */
import { ShapeError } from '../errors';
import type { StridedBlocks } from '../layout';
import { formatShape, resolveDim } from '../shape';
import { TensorBase } from './base';

export abstract class TensorDescribing extends TensorBase {
  /**
   * Checks that this is a scalar, of shape [].
   * @throws ShapeError `INVALID_SHAPE` for any other shape
   */
  dims0(): [] {
    return sizes(this, 0) as [];
  }

  /**
   * The size of a tensor of rank 1, as a number.
   * @throws ShapeError `INVALID_SHAPE` for another rank
   * @example
   * ```ts
   * Tensor.zeros([4]).dims1(); // => 4
   * ```
   */
  dims1(): number {
    return sizes(this, 1)[0];
  }

  /**
   * The two sizes of a tensor of rank 2.
   * @throws ShapeError `INVALID_SHAPE` for another rank
   * @example
   * ```ts
   * const [rows, columns] = Tensor.zeros([2, 3]).dims2();
   * rows * columns; // => 6
   * ```
   */
  dims2(): [number, number] {
    return sizes(this, 2) as [number, number];
  }

  /**
   * The three sizes of a tensor of rank 3.
   * @throws ShapeError `INVALID_SHAPE` for another rank
   */
  dims3(): [number, number, number] {
    return sizes(this, 3) as [number, number, number];
  }

  /**
   * The four sizes of a tensor of rank 4, e.g. [b, c, h, w].
   * @throws ShapeError `INVALID_SHAPE` for another rank
   */
  dims4(): [number, number, number, number] {
    return sizes(this, 4) as [number, number, number, number];
  }

  /**
   * The five sizes of a tensor of rank 5.
   * @throws ShapeError `INVALID_SHAPE` for another rank
   */
  dims5(): [number, number, number, number, number] {
    return sizes(this, 5) as [number, number, number, number, number];
  }

  /**
   * A dimension counted from the front: negative ones count from the end.
   * @throws ShapeError `DIM_OUT_OF_RANGE`
   * @example
   * ```ts
   * Tensor.zeros([2, 3, 4]).normalizeAxis(-1); // => 2
   * ```
   */
  normalizeAxis(axis: number): number {
    return resolveDim('normalizeAxis', axis, this.shape);
  }

  /**
   * The offsets in the storage of all elements in row-major order.
   * @example
   * ```ts
   * [...Tensor.zeros([2, 3]).t().stridedIndex()]; // => [0, 3, 1, 4, 2, 5]
   * ```
   */
  stridedIndex(): IterableIterator<number> {
    return this.layout.stridedIndices();
  }

  /** The longest runs of neighbouring elements: their length, number and offsets; one run when contiguous. */
  stridedBlocks(): StridedBlocks {
    return this.layout.stridedBlocks();
  }
}

function sizes(tensor: TensorBase, rank: number): number[] {
  if (tensor.rank === rank) return tensor.shape.slice();
  throw new ShapeError(
    'INVALID_SHAPE',
    `dims${rank}: shape ${formatShape(tensor.shape)} has ${tensor.rank} dimensions, not ${rank}; reshape or squeeze it.`,
  );
}
