/**
 * What runs from layer to layer. A layer's part gives what is to be added, and the next part's norm adds it: one kernel where
 * the device has one, which also leaves the norm in the form that the next product reads.
 */
import type { Tensor } from '@x/core';
import { type ActivationForm, type Activations, LayerNorm, type Module, normAdd, RmsNorm } from '@x/nn';

export interface Residual {
  /** [tokens, hidden], f32 */
  x: Tensor;
  /** What is still to be added, of the same shape. */
  delta?: Tensor;
  /** A norm of the delta, before it is added. */
  deltaNorm?: RmsNorm;
  /** Multiplies the delta, behind its norm. Default 1. */
  deltaScale?: number;
  /** Added to the delta first: of the product that made it. */
  deltaBias?: Tensor;
}

/** The sum, and its norm (or itself, without a norm) as a product wants it: {@link readsOf}. */
export function normed(at: Residual, norm: Module | undefined, as: ActivationForm): { x: Tensor; input: Activations } {
  const { x, delta, deltaNorm, deltaScale = 1, deltaBias } = at;
  if (norm === undefined || norm instanceof RmsNorm || norm instanceof LayerNorm) {
    const options = { as, deltaScale, ...(deltaNorm && { deltaNorm }), ...(deltaBias && { deltaBias }) };
    const { sum, normed: input } = normAdd(x, delta, norm, options);
    return { x: sum, input };
  }
  const biased = delta && deltaBias ? delta.broadcastAdd(deltaBias) : delta;
  const before = biased && deltaNorm ? deltaNorm.forward(biased) : biased;
  const added = before && deltaScale !== 1 ? before.mul(deltaScale) : before;
  const sum = added ? x.add(added) : x;
  return { x: sum, input: norm.forward(sum) };
}

/** The rows `ids` of it, [rows], u32. */
export function rowsAt({ x, delta, ...how }: Residual, ids: Tensor): Residual {
  return { ...how, x: x.indexSelect(ids, 0), ...(delta && { delta: delta.indexSelect(ids, 0) }) };
}
