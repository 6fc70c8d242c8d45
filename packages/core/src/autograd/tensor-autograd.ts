/**
 * The link of the `Tensor` chain with what belongs to differentiation: `backward`, and custom operations. Mirrors candle's
 * backprop.rs and custom_op.rs as far as they are methods of a tensor.
 */
import type { Tensor } from '../tensor';
import { TensorSorting } from '../tensor/sorting';
import { type BackwardOptions, backward, sortedRecords } from './backward';
import * as custom from './custom-op';
import type { GradStore } from './grad-store';
import type { GradRecord } from './record';

export abstract class TensorAutograd extends TensorSorting {
  /**
   * The gradients of all variables that this tensor was computed from, of any shape: ones are the start, so for more than
   * one element it is the gradient of their sum.
   *
   * ```ts
   * const w = Var.from([1, 2]);
   * const grads = w.sqr().sumAll().backward();
   * grads.get(w)?.toVecSync(); // [2, 4]
   * ```
   * @throws CandleError `NO_GRADIENT` when no variable is behind it, `BACKWARD_NOT_SUPPORTED` for an operation without a
   *   gradient on the way, `CHANGED_IN_PLACE` when a value that is needed was overwritten meanwhile
   */
  backward(this: Tensor, options: BackwardOptions = {}): GradStore {
    return backward(this, options);
  }

  /** Whether this is a `Var`. */
  get isVariable(): boolean {
    return this.handle.record?.isVariable ?? false;
  }

  /** Whether a variable is behind this tensor, so that `backward` has something to do. */
  get trackOp(): boolean {
    return this.handle.record !== null;
  }

  /**
   * The records that lead to this tensor, its own first, each before those of its operands; empty when nothing is tracked.
   * candle gives the tensors themselves, which here may be disposed already.
   */
  sortedNodes(): GradRecord[] {
    return this.handle.record ? sortedRecords(this.handle.record) : [];
  }

  /** The result of a custom operation, differentiated by its `bwd`. */
  applyOp1(this: Tensor, op: custom.CustomOp1): Tensor {
    return custom.apply(op, [this], true);
  }
  /** As {@link applyOp1}; without a record, whatever `op` has. */
  applyOp1NoBwd(this: Tensor, op: custom.CustomOp1): Tensor {
    return custom.apply(op, [this], false);
  }
  /** candle's form for an operation that several tensors share: {@link applyOp1}. */
  applyOp1Arc(this: Tensor, op: custom.CustomOp1): Tensor {
    return this.applyOp1(op);
  }

  /** As {@link applyOp1}, of two operands. */
  applyOp2(this: Tensor, rhs: Tensor, op: custom.CustomOp2): Tensor {
    return custom.apply(op, [this, rhs], true);
  }
  /** As {@link applyOp1NoBwd}, of two operands. */
  applyOp2NoBwd(this: Tensor, rhs: Tensor, op: custom.CustomOp2): Tensor {
    return custom.apply(op, [this, rhs], false);
  }
  /** As {@link applyOp1Arc}, of two operands. */
  applyOp2Arc(this: Tensor, rhs: Tensor, op: custom.CustomOp2): Tensor {
    return this.applyOp2(rhs, op);
  }

  /** As {@link applyOp1}, of three operands. */
  applyOp3(this: Tensor, t2: Tensor, t3: Tensor, op: custom.CustomOp3): Tensor {
    return custom.apply(op, [this, t2, t3], true);
  }
  /** As {@link applyOp1NoBwd}, of three operands. */
  applyOp3NoBwd(this: Tensor, t2: Tensor, t3: Tensor, op: custom.CustomOp3): Tensor {
    return custom.apply(op, [this, t2, t3], false);
  }
  /** As {@link applyOp1Arc}, of three operands. */
  applyOp3Arc(this: Tensor, t2: Tensor, t3: Tensor, op: custom.CustomOp3): Tensor {
    return this.applyOp3(t2, t3, op);
  }

  /**
   * Changes this tensor's memory by a custom operation, and views see the change. A gradient that would have to go through
   * it raises an error in `backward`.
   * @throws CandleError `GRADIENT_IN_PLACE` as `sliceSet`
   */
  inplaceOp1(this: Tensor, op: custom.InplaceOp1): void {
    custom.applyInPlace(op, [this]);
  }
  /** As {@link inplaceOp1}, reading another tensor. */
  inplaceOp2(this: Tensor, rhs: Tensor, op: custom.InplaceOp2): void {
    custom.applyInPlace(op, [this, rhs]);
  }
  /** As {@link inplaceOp1}, reading two other tensors. */
  inplaceOp3(this: Tensor, t2: Tensor, t3: Tensor, op: custom.InplaceOp3): void {
    custom.applyInPlace(op, [this, t2, t3]);
  }
}
