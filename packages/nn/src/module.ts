/**
 * What every layer is: candle-nn's `Module` trait, plus `dispose`, because JavaScript does not drop.
 *
 * A layer owns the tensors that its constructor is given: they leave the surrounding scope, and `dispose` gives them back.
 * To share a weight between layers (tied embeddings), give one of them `weight.detach()`, a view of the same memory.
 */
import { keep, type Tensor } from '@x/core';

export interface Module {
  /** Never disposes its input; the result belongs to the caller's scope. */
  forward(xs: Tensor): Tensor;
  /** Gives the weights back. Harmless when repeated; using the module afterwards raises a `DisposedError`. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** Keeps track of what a module owns. */
export abstract class OwningModule implements Module {
  private readonly owned: { dispose(): void }[] = [];

  abstract forward(xs: Tensor): Tensor;

  /** Takes a tensor out of its scope and disposes it with this module. */
  protected own<T extends Tensor>(tensor: T): T {
    this.owned.push(keep(tensor));
    return tensor;
  }

  dispose(): void {
    for (const thing of this.owned.splice(0)) thing.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
