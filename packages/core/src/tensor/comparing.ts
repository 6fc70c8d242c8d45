/** Comparisons, whose results are u8 tensors of 0 and 1, and choosing by them. */
import type { CmpOp } from '../backend';
import { isInt } from '../dtype';
import { DTypeError } from '../errors';
import { broadcastShapes, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, sameDType, shapesDiffer, storageOf } from './base';
import { TensorElementwise, withScalar } from './elementwise';

export abstract class TensorComparing extends TensorElementwise {
  eq(this: Tensor, rhs: Tensor | number): Tensor {
    return compare('eq', this, rhs);
  }
  ne(this: Tensor, rhs: Tensor | number): Tensor {
    return compare('ne', this, rhs);
  }
  lt(this: Tensor, rhs: Tensor | number): Tensor {
    return compare('lt', this, rhs);
  }
  le(this: Tensor, rhs: Tensor | number): Tensor {
    return compare('le', this, rhs);
  }
  gt(this: Tensor, rhs: Tensor | number): Tensor {
    return compare('gt', this, rhs);
  }
  ge(this: Tensor, rhs: Tensor | number): Tensor {
    return compare('ge', this, rhs);
  }

  broadcastEq(this: Tensor, rhs: Tensor): Tensor {
    return broadcastCompare('eq', this, rhs);
  }
  broadcastNe(this: Tensor, rhs: Tensor): Tensor {
    return broadcastCompare('ne', this, rhs);
  }
  broadcastLt(this: Tensor, rhs: Tensor): Tensor {
    return broadcastCompare('lt', this, rhs);
  }
  broadcastLe(this: Tensor, rhs: Tensor): Tensor {
    return broadcastCompare('le', this, rhs);
  }
  broadcastGt(this: Tensor, rhs: Tensor): Tensor {
    return broadcastCompare('gt', this, rhs);
  }
  broadcastGe(this: Tensor, rhs: Tensor): Tensor {
    return broadcastCompare('ge', this, rhs);
  }

  /** This integer tensor chooses: `onTrue` where it is not 0, else `onFalse`. All three have one shape. */
  whereCond(this: Tensor, onTrue: Tensor, onFalse: Tensor): Tensor {
    if (!isInt(this.dtype)) {
      throw new DTypeError(
        'DTYPE_MISMATCH',
        `whereCond: the condition is ${this.dtype}; make it an integer with a comparison such as ne(0).`,
      );
    }
    sameDType('whereCond', onTrue, onFalse);
    for (const value of [onTrue, onFalse]) {
      if (!sameShape(this.shape, value.shape)) {
        throw shapesDiffer('whereCond', this.shape, value.shape, 'stretch the smaller one with broadcastAs');
      }
    }
    return compute('whereCond', [this, onTrue, onFalse], this.shape, onTrue.dtype, () =>
      storageOf('whereCond', this).whereCond(
        this.layout,
        storageOf('whereCond', onTrue),
        onTrue.layout,
        storageOf('whereCond', onFalse),
        onFalse.layout,
      ),
    );
  }
}

function compare(op: CmpOp, lhs: Tensor, rhs: Tensor | number): Tensor {
  if (typeof rhs === 'number') {
    return compute(op, [lhs], lhs.shape, 'u8', () =>
      withScalar(op, lhs, rhs, (scalar, layout) => storageOf(op, lhs).cmp(op, scalar, lhs.layout, layout)),
    );
  }
  if (!sameShape(lhs.shape, rhs.shape)) {
    const broadcast = `broadcast${op[0].toUpperCase()}${op.slice(1)}`;
    throw shapesDiffer(op, lhs.shape, rhs.shape, `make them equal, or use ${broadcast}`);
  }
  return broadcastCompare(op, lhs, rhs);
}

function broadcastCompare(op: CmpOp, lhs: Tensor, rhs: Tensor): Tensor {
  const shape = broadcastShapes(op, lhs.shape, rhs.shape);
  sameDType(op, lhs, rhs);
  return compute(op, [lhs, rhs], shape, 'u8', () =>
    storageOf(op, lhs).cmp(op, storageOf(op, rhs), lhs.layout.broadcastAs(shape), rhs.layout.broadcastAs(shape)),
  );
}
