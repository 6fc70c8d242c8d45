/** Comparisons, whose results are u8 tensors of 0 and 1, and choosing by them. */
import * as rules from '../autograd/rules/comparing';
import type { BackendDevice } from '../backend';
import { isInt } from '../dtype';
import { CMP_NAMES, type CmpOp } from '../elementwise/binary';
import { CandleError, DTypeError } from '../errors';
import { broadcastShapes, sameShape } from '../shape';
import { show } from '../show';
import type { Tensor } from '../tensor';
import { compute, operandOf, sameDType } from './base';
import { type Operand, TensorElementwise, withScalar } from './elementwise';

export abstract class TensorComparing extends TensorElementwise {
  /**
   * The comparison that `op` names, `eq`, `ne`, `lt`, `le`, `gt` or `ge`; see {@link eq}.
   * @throws CandleError `INVALID_ARGUMENT` for another name; ShapeError, DTypeError
   */
  cmp(this: Tensor, rhs: Operand, op: CmpOp): Tensor {
    if (!CMP_NAMES.includes(op)) {
      const known = CMP_NAMES.join(', ');
      throw new CandleError('INVALID_ARGUMENT', `cmp: ${show(op)} is no comparison; use one of ${known}.`);
    }
    return compare(op, this, rhs);
  }

  /**
   * Whether this equals rhs, a tensor of this dtype or a number. Shapes stretch to their common one by numpy's rules. Any
   * dtype; NaN equals nothing. The result is u8 of 0 and 1.
   * @throws ShapeError `SHAPE_MISMATCH` for shapes that do not stretch; DTypeError, also for a number that an integer dtype
   *   cannot hold
   * @example
   * ```ts
   * Tensor.from([1, 2, 3]).eq(2).toVecSync(); // => [0, 1, 0]
   * ```
   */
  eq(this: Tensor, rhs: Operand): Tensor {
    return compare('eq', this, rhs);
  }

  /** Whether this is not rhs, so 1 for NaN; operands and errors as {@link eq}. */
  ne(this: Tensor, rhs: Operand): Tensor {
    return compare('ne', this, rhs);
  }

  /** Whether this is less than rhs; operands and errors as {@link eq}. */
  lt(this: Tensor, rhs: Operand): Tensor {
    return compare('lt', this, rhs);
  }

  /** Whether this is less than rhs or equal; operands and errors as {@link eq}. */
  le(this: Tensor, rhs: Operand): Tensor {
    return compare('le', this, rhs);
  }

  /** Whether this is greater than rhs; operands and errors as {@link eq}. */
  gt(this: Tensor, rhs: Operand): Tensor {
    return compare('gt', this, rhs);
  }

  /** Whether this is greater than rhs or equal; operands and errors as {@link eq}. */
  ge(this: Tensor, rhs: Operand): Tensor {
    return compare('ge', this, rhs);
  }

  /**
   * candle's name for {@link eq} of two tensors.
   * @throws ShapeError `SHAPE_MISMATCH`, DTypeError
   * @example
   * ```ts
   * Tensor.from([[1], [2]]).broadcastEq(Tensor.from([1, 2])).toVecSync(); // => [[1, 0], [0, 1]]
   * ```
   */
  broadcastEq(this: Tensor, rhs: Tensor): Tensor {
    return compare('eq', this, rhs);
  }

  /** candle's name for {@link ne} of two tensors. */
  broadcastNe(this: Tensor, rhs: Tensor): Tensor {
    return compare('ne', this, rhs);
  }

  /** candle's name for {@link lt} of two tensors. */
  broadcastLt(this: Tensor, rhs: Tensor): Tensor {
    return compare('lt', this, rhs);
  }

  /** candle's name for {@link le} of two tensors. */
  broadcastLe(this: Tensor, rhs: Tensor): Tensor {
    return compare('le', this, rhs);
  }

  /** candle's name for {@link gt} of two tensors. */
  broadcastGt(this: Tensor, rhs: Tensor): Tensor {
    return compare('gt', this, rhs);
  }

  /** candle's name for {@link ge} of two tensors. */
  broadcastGe(this: Tensor, rhs: Tensor): Tensor {
    return compare('ge', this, rhs);
  }

  /**
   * This integer tensor chooses: `onTrue` where it is not 0, else `onFalse`. All three stretch to their common shape by
   * numpy's rules; the values have one dtype, which may be any.
   * @throws DTypeError for a float condition or values of two dtypes, ShapeError `SHAPE_MISMATCH`
   * @example
   * ```ts
   * const x = Tensor.from([-1, 2]);
   * x.gt(0).whereCond(x, x.zerosLike()).toVecSync(); // => [0, 2]
   * ```
   */
  whereCond(this: Tensor, onTrue: Tensor, onFalse: Tensor): Tensor {
    if (!isInt(this.dtype)) {
      throw new DTypeError(
        'DTYPE_MISMATCH',
        `whereCond: the condition is ${this.dtype}; make it an integer with a comparison such as ne(0).`,
      );
    }
    sameDType('whereCond', onTrue, onFalse);
    const shape = broadcastShapes('whereCond', broadcastShapes('whereCond', this.shape, onTrue.shape), onFalse.shape);
    const stretched = (tensor: Tensor) => {
      const { layout } = tensor;
      return operandOf('whereCond', tensor, sameShape(layout.shape, shape) ? layout : layout.broadcastAs(shape));
    };
    const run = ({ ops }: BackendDevice) => ops.whereCond(stretched(this), stretched(onTrue), stretched(onFalse));
    return compute('whereCond', [this, onTrue, onFalse], shape, onTrue.dtype, run, rules.whereCond);
  }
}

function compare(op: CmpOp, lhs: Tensor, rhs: Operand): Tensor {
  if (typeof rhs !== 'object') {
    return compute(op, [lhs], lhs.shape, 'u8', ({ ops }) =>
      withScalar(op, lhs, rhs, (scalar) => ops.cmp(op, operandOf(op, lhs), scalar)),
    );
  }
  const shape = broadcastShapes(op, lhs.shape, rhs.shape);
  sameDType(op, lhs, rhs);
  return compute(op, [lhs, rhs], shape, 'u8', ({ ops }) => {
    const a = operandOf(op, lhs, lhs.layout.broadcastAs(shape));
    return ops.cmp(op, a, operandOf(op, rhs, rhs.layout.broadcastAs(shape)));
  });
}
