/** Matrix products. Operands may have any strides: views need no `contiguous()` first (candle refuses most of them). */

import * as rules from '../autograd/rules/products';
import type { BackendDevice } from '../backend';
import { ShapeError } from '../errors';
import type { Layout } from '../layout';
import { broadcastShapes, elemCount, formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { checkOperands, compute, operandOf, sameDType, shapesDiffer, withTemporaries } from './base';
import { TensorIndexing } from './indexing';

export abstract class TensorProducts extends TensorIndexing {
  /**
   * [..., m, k] times [..., k, n] gives [..., m, n]; leading dimensions must be equal. One dtype, any strides.
   * @throws ShapeError `SHAPE_MISMATCH` with both shapes, DTypeError
   * @example
   * ```ts
   * const a = Tensor.from([[1, 2], [3, 4]]);
   * a.matmul(Tensor.from([[1], [10]])).toVecSync(); // => [[21], [43]]
   * ```
   */
  matmul(this: Tensor, rhs: Tensor): Tensor {
    const { rank } = this;
    const fits =
      rank >= 2 && rhs.rank === rank && this.shape.every((size, i) => i >= rank - 2 || size === rhs.shape[i]);
    if (!fits || this.shape[rank - 1] !== rhs.shape[rank - 2]) {
      throw shapesDiffer(
        'matmul',
        this.shape,
        rhs.shape,
        'the inner sizes [.., m, k] and [.., k, n] and all leading ones must be equal (broadcastMatmul stretches leading ones)',
      );
    }
    return product('matmul', this, rhs, this.layout, rhs.layout);
  }

  /**
   * {@link matmul} with the leading dimensions stretched to their common shape.
   * @throws ShapeError `SHAPE_MISMATCH`, DTypeError
   * @example
   * ```ts
   * Tensor.ones([5, 2, 3]).broadcastMatmul(Tensor.ones([3, 4])).shape; // => [5, 2, 4]
   * ```
   */
  broadcastMatmul(this: Tensor, rhs: Tensor): Tensor {
    if (this.rank < 2 || rhs.rank < 2 || this.dim(-1) !== rhs.dim(-2)) {
      throw shapesDiffer(
        'broadcastMatmul',
        this.shape,
        rhs.shape,
        'the inner sizes [.., m, k] and [.., k, n] must be equal',
      );
    }
    const batch = broadcastShapes('broadcastMatmul', this.shape.slice(0, -2), rhs.shape.slice(0, -2));
    const stretched = ({ layout, shape }: Tensor) => layout.broadcastAs([...batch, ...shape.slice(-2)]);
    return product('broadcastMatmul', this, rhs, stretched(this), stretched(rhs));
  }

  /** This [m, k] matrix times a vector [k]: [m]. @throws ShapeError `SHAPE_MISMATCH`, DTypeError */
  mv(this: Tensor, vector: Tensor): Tensor {
    if (this.rank !== 2 || vector.rank !== 1) {
      throw shapesDiffer('mv', this.shape, vector.shape, 'they must be [m, k] and [k]');
    }
    return withTemporaries((temporary) => temporary(this.matmul(temporary(vector.unsqueeze(1)))).squeeze(1));
  }

  /**
   * The scalar product of two vectors of one size, of rank 0. Any dtype, as for `sum`: products and sum of u8 are made in u32.
   * @throws ShapeError `SHAPE_MISMATCH`, DTypeError
   * @example
   * ```ts
   * Tensor.from([1, 2]).dot(Tensor.from([3, 4])).toScalarSync(); // => 11
   * ```
   */
  dot(this: Tensor, rhs: Tensor): Tensor {
    if (this.rank !== 1 || rhs.rank !== 1) {
      throw shapesDiffer('dot', this.shape, rhs.shape, 'both must have one dimension');
    }
    return withTemporaries((temporary) => {
      if (this.dtype !== 'u8' || rhs.dtype !== 'u8') return temporary(this.mul(rhs)).sumAll();
      return temporary(temporary(this.toDtype('u32')).mul(temporary(rhs.toDtype('u32')))).sumAll();
    });
  }
}

/** lhs times rhs as `left` and `right` show them: of one batch. */
function product(op: string, lhs: Tensor, rhs: Tensor, left: Layout, right: Layout): Tensor {
  checkOperands(op, [lhs, rhs]);
  sameDType(op, lhs, rhs);
  const inner = left.rank - 1;
  const k = left.shape[inner];
  const shape = left.shape.slice();
  shape[inner] = right.shape[inner];
  const [m, n] = [shape[inner - 1], shape[inner]];
  const b = elemCount(shape.slice(0, -2));
  if (!Number.isSafeInteger(b * m * n)) {
    throw new ShapeError('INVALID_SHAPE', `${op}: the result ${formatShape(shape)} is too large; split the product.`);
  }
  const run = (backend: BackendDevice) => {
    if (k === 0) return backend.zeros(b * m * n, lhs.dtype);
    return backend.ops.matmul(operandOf(op, lhs, left), operandOf(op, rhs, right), { b, m, n, k });
  };
  return compute(op, [lhs, rhs], shape, lhs.dtype, run, rules.matmul, [
    isTransposed(lhs.layout),
    isTransposed(rhs.layout),
  ]);
}

/** Whether columns lie together in memory, and not rows. */
function isTransposed({ strides }: Layout): boolean {
  return strides[strides.length - 2] === 1 && strides[strides.length - 1] > 1;
}
