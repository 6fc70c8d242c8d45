/**
 * Gradients by tensor id, after candle's `GradStore` (candle-core/src/backprop.rs).
 *
 * Differs: only variables have entries (candle leaves zeros for constants too), and the store owns its gradients:
 * `dispose()` gives them all back, and they live in the scope that the store was made in, so a store outside of a loop
 * accumulates what scopes inside of the loop compute.
 */
import { brand } from '../brand';
import { kind, NUMBER } from '../check';
import { checkCalls } from '../checked-calls';
import { LINE } from '../one-core';
import { currentScope, Scope, TENSORS } from '../scope';
import type { Tensor } from '../tensor';
import { TENSOR } from '../tensor/signatures';

/** What `backward` gives: a gradient for each variable, which the store owns. */
export class GradStore {
  /** Not `#grads`: `extend` takes the store of another copy of this package. */
  private readonly grads = new Map<number, Tensor>();
  readonly #scope = currentScope();

  /** The gradient of a tensor, undefined when it has none. It stays the store's. */
  get(tensor: Tensor): Tensor | undefined {
    return this.grads.get(tensor.id);
  }

  /** As {@link get}, by `Tensor.id`. */
  getId(id: number): Tensor | undefined {
    return this.grads.get(id);
  }

  /** Puts a gradient in, which becomes the store's; returns the previous one, which becomes the caller's. */
  insert(tensor: Tensor, grad: Tensor): Tensor | undefined {
    return this.insertId(tensor.id, grad);
  }

  /** As {@link insert}, by `Tensor.id`. */
  insertId(id: number, grad: Tensor): Tensor | undefined {
    const previous = this.grads.get(id);
    this.#adopt(grad);
    this.grads.set(id, grad);
    return previous === grad ? undefined : previous;
  }

  /** Takes a gradient out, which becomes the caller's. */
  remove(tensor: Tensor): Tensor | undefined {
    return this.removeId(tensor.id);
  }

  /** As {@link remove}, by `Tensor.id`. */
  removeId(id: number): Tensor | undefined {
    const grad = this.grads.get(id);
    this.grads.delete(id);
    return grad;
  }

  /** The gradient of a tensor; zeros are put in when there is none. */
  orInsert(tensor: Tensor): Tensor {
    const known = this.get(tensor);
    if (known) return known;
    const zeros = tensor.zerosLike();
    this.insert(tensor, zeros);
    return zeros;
  }

  /** Adds to the gradient of a tensor id. `grad` becomes the store's, or is disposed when a sum takes its place. */
  accumulateId(id: number, grad: Tensor): void {
    const known = this.grads.get(id);
    if (!known) {
      this.insertId(id, grad);
      return;
    }
    this.insertId(id, known.add(grad))?.dispose();
    grad.dispose();
  }

  /** Moves all gradients of another store into this one, adding where both have one: gradient accumulation. */
  extend(other: GradStore): void {
    if (other === this) return;
    for (const [id, grad] of other.grads) this.accumulateId(id, grad);
    other.grads.clear();
  }

  /** The ids of all tensors with a gradient. */
  getIds(): IterableIterator<number> {
    return this.grads.keys();
  }

  /** Number of gradients. */
  get size(): number {
    return this.grads.size;
  }

  /** Disposes all gradients; the store is empty afterwards. */
  dispose(): void {
    for (const grad of this.grads.values()) grad.dispose();
    this.grads.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Returned from a scope, a store brings its gradients along. */
  [TENSORS](): Iterable<unknown> {
    return this.grads.values();
  }

  #adopt(grad: Tensor): void {
    const { handle } = grad;
    handle.scope?.forget(handle);
    Scope.nearestOpen(this.#scope)?.adopt(handle);
  }
}

brand(GradStore, 'x.core.grad-store', LINE);
checkCalls(
  GradStore.prototype,
  {
    get: { tensor: TENSOR },
    getId: { id: NUMBER },
    insert: { tensor: TENSOR, grad: TENSOR },
    insertId: { id: NUMBER, grad: TENSOR },
    remove: { tensor: TENSOR },
    removeId: { id: NUMBER },
    orInsert: { tensor: TENSOR },
    accumulateId: { id: NUMBER, grad: TENSOR },
    extend: { other: kind((value) => value instanceof GradStore, 'give what backward gave') },
  },
  'GradStore.',
);
