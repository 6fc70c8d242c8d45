/** Layers one after the other: candle-nn's `Sequential` (sequential.rs). It owns its layers. */
import { kinds, scope, type Tensor } from '@x/core';
import { func } from './func';
import { type Module, same } from './module';

/** Layers, each given what the one before it gave; with none, the input comes out. */
export class Sequential implements Module {
  private readonly layers: Module[] = [];

  /** Number of layers. */
  get length(): number {
    return this.layers.length;
  }

  get isEmpty(): boolean {
    return this.layers.length === 0;
  }

  /** Appends a layer, which is disposed with this one. Returns this, so that calls can be chained. */
  add(layer: Module): this {
    this.layers.push(layer);
    return this;
  }

  /** Appends a function as a layer, see {@link func}. Returns this. */
  addFn(f: (xs: Tensor) => Tensor): this {
    return this.add(func(f));
  }

  forward(xs: Tensor): Tensor {
    return scope(() => this.layers.reduce((current, layer) => layer.forward(current), same(xs)));
  }

  /** What each layer gives, in their order. */
  forwardAll(xs: Tensor): Tensor[] {
    const outputs: Tensor[] = [];
    for (const layer of this.layers) outputs.push(layer.forward(outputs.at(-1) ?? xs));
    return outputs;
  }

  dispose(): void {
    for (const layer of this.layers) layer.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** An empty {@link Sequential}. */
export function seq(): Sequential {
  return new Sequential();
}

kinds.checkCalls(
  Sequential.prototype,
  {
    add: {
      layer: kinds.kind(
        (value) => typeof (value as { forward?: unknown } | null | undefined)?.forward === 'function',
        'give an object with forward; addFn takes a function',
      ),
    },
    addFn: { f: kinds.FUNCTION },
    forward: { xs: kinds.TENSOR },
    forwardAll: { xs: kinds.TENSOR },
  },
  'Sequential.',
);
