/** Layers made of closures: candle-nn's `Func` and `FuncT` (func.rs). */
import { scope, type Tensor } from '@x/core';
import type { Module, ModuleT } from './module';

/** Temporaries of `f` are disposed when it returns. */
export class Func implements Module {
  constructor(private readonly f: (xs: Tensor) => Tensor) {}

  forward(xs: Tensor): Tensor {
    return scope(() => this.f(xs));
  }

  dispose(): void {}

  [Symbol.dispose](): void {}
}

/** As {@link Func}, told whether it is trained. */
export class FuncT implements ModuleT {
  constructor(private readonly f: (xs: Tensor, train: boolean) => Tensor) {}

  forwardT(xs: Tensor, train: boolean): Tensor {
    return scope(() => this.f(xs, train));
  }
}

/** A {@link Func}: a layer from a function. */
export function func(f: (xs: Tensor) => Tensor): Func {
  return new Func(f);
}

/** A {@link FuncT}: a layer from a function that is told whether it is trained. */
export function funcT(f: (xs: Tensor, train: boolean) => Tensor): FuncT {
  return new FuncT(f);
}
