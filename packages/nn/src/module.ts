/**
 * What every layer is: candle-nn's `Module` and `ModuleT` traits, plus `dispose`, because JavaScript does not drop.
 *
 * A layer owns the tensors that its constructor is given: they leave the surrounding scope, and `dispose` gives them back.
 * To share a weight between layers (tied embeddings), give one of them `weight.detach()`, a view of the same memory.
 * Variables are the exception: a `Var` stays its VarMap's, or its maker's scope's, and may be given to several layers.
 */
import { keep, ShapeError, type Tensor, Var } from '@x/core';
import { checkTensors } from './check';

/** A layer, which owns its weights: candle's `Module`, plus `dispose`. */
export interface Module {
  /** Never disposes its input; the result belongs to the caller's scope. */
  forward(xs: Tensor): Tensor;
  /** Gives the weights back. Harmless when repeated; using the module afterwards raises a `DisposedError`. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** A layer that does something else while a model is trained: candle's `ModuleT`. */
export interface ModuleT {
  /** As `Module.forward`. @param train whether gradients will be taken: dropout drops, batch norm uses the batch */
  forwardT(xs: Tensor, train: boolean): Tensor;
}

/** Keeps track of what a module owns. */
export abstract class OwningModule implements Module {
  private readonly owned: { dispose(): void }[] = [];

  abstract forward(xs: Tensor): Tensor;

  /** Takes a tensor out of its scope and disposes it with this module; leaves a variable alone. */
  protected own<T extends Tensor>(tensor: T): T {
    if (!(tensor instanceof Var)) this.owned.push(keep(tensor));
    return tensor;
  }

  dispose(): void {
    for (const thing of this.owned.splice(0)) thing.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Another handle of the same values, through which gradients pass (those of `detach()` stop there). */
export function same(xs: Tensor): Tensor {
  checkTensors('forward', { xs });
  return xs.reshape(xs.shape);
}

/** @throws ShapeError unless `tensor` is [size], or any vector without a size */
export function checkVector(op: string, name: string, tensor: Tensor, size?: number): void {
  checkTensors(op, { [name]: tensor });
  if (tensor.rank === 1 && (size === undefined || tensor.dim(0) === size)) return;
  const wanted = size === undefined ? 'size' : size;
  const code = tensor.rank === 1 ? 'SHAPE_MISMATCH' : 'INVALID_SHAPE';
  throw new ShapeError(code, `${op}: the ${name} has shape [${tensor.shape}]; give [${wanted}].`);
}
