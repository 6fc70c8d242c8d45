/**
 * What runs from layer to layer. A layer's part gives what is to be added, and the next part's norm adds it: one kernel where
 * the device has one, which also leaves the norm in the form that the next product reads.
 */
import type { Tensor } from '@x/core';
import { type ActivationForm, type Activations, type Module, normAdd, RmsNorm } from '@x/nn';

export interface Residual {
  /** [tokens, hidden], f32 */
  x: Tensor;
  /** What is still to be added, of the same shape. */
  delta?: Tensor;
  /** A norm of the delta, before it is added. */
  deltaNorm?: RmsNorm;
}

/** The sum, and its norm (or itself, without a norm) as a product wants it: {@link readsOf}. */
export function normed(at: Residual, norm: Module | undefined, as: ActivationForm): { x: Tensor; input: Activations } {
  const { x, delta, deltaNorm } = at;
  if (norm instanceof RmsNorm) {
    const { sum, normed: input } = normAdd(x, delta, norm, { as, ...(deltaNorm && { deltaNorm }) });
    return { x: sum, input };
  }
  const added = delta && deltaNorm ? deltaNorm.forward(delta) : delta;
  const sum = added ? x.add(added) : x;
  return { x: sum, input: norm ? norm.forward(sum) : sum };
}

/** The rows `ids` of it, [rows], u32. */
export function rowsAt({ x, delta, deltaNorm }: Residual, ids: Tensor): Residual {
  return {
    x: x.indexSelect(ids, 0),
    ...(delta && { delta: delta.indexSelect(ids, 0) }),
    ...(deltaNorm && { deltaNorm }),
  };
}
