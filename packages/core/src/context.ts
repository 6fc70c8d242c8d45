/**
 * A value that holds while a function runs: the current scope, device and gradient mode.
 *
 * In Node it also holds in what an async function does after an `await`, and concurrent ones do not see each other's. A
 * browser has nothing of the kind yet: there a value holds until the function returns, which is at the first `await` of an
 * async one. What comes after that runs with the surrounding value: dispose tensors explicitly, name devices.
 */
import { ifNode } from './platform';

/** The part of Node's AsyncLocalStorage that is needed, which costs nothing where that is what it is. */
export interface Context<T> {
  getStore(): T | undefined;
  run<R>(value: T, fn: () => R): R;
}

export function createContext<T>(): Context<T> {
  const hooks = ifNode('async_hooks');
  return hooks ? new hooks.AsyncLocalStorage<T>() : new SynchronousContext<T>();
}

/** @internal For browsers; exported for its test. */
export class SynchronousContext<T> implements Context<T> {
  #value: T | undefined;

  getStore(): T | undefined {
    return this.#value;
  }

  run<R>(value: T, fn: () => R): R {
    const outer = this.#value;
    this.#value = value;
    try {
      return fn();
    } finally {
      this.#value = outer;
    }
  }
}
