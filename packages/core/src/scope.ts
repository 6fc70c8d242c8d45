/**
 * Scopes: what a function makes and does not return is disposed when it ends. candle has no need of them, Rust drops
 * tensors by itself; here they are the everyday way to give GPU memory back at a known moment.
 *
 * The current scope lives in an AsyncLocalStorage, so scopes of concurrent async functions do not see each other's
 * tensors. A scope knows handles, not tensors: a forgotten tensor can still be collected while its scope is open.
 */
import { check, FUNCTION } from './check';
import { createContext } from './context';
import { shared } from './one-core';
import type { TensorHandle } from './storage-ref';

/**
 * An object may implement this method to say which values it carries out of a scope; without it the fields of class
 * instances are not searched.
 */
export const TENSORS: unique symbol = Symbol.for('x.core.tensors') as never;

/** Open scopes of this thread: without any, nobody need ask the AsyncLocalStorage, which costs as much as a launch. */
const scopes = shared('scopes', () => ({ open: 0, context: createContext<Scope>() }));

export class Scope {
  readonly parent: Scope | undefined;
  readonly #handles = new Set<TensorHandle>();
  /** Not `#open`: scopes of other copies of this package are asked too. */
  private open = true;

  constructor(parent: Scope | undefined) {
    this.parent = parent;
    scopes.open++;
  }

  adopt(handle: TensorHandle): void {
    this.#handles.add(handle);
    handle.scope = this;
  }

  forget(handle: TensorHandle): void {
    this.#handles.delete(handle);
    handle.scope = undefined;
  }

  /** Disposes what is left; handles in `survivors` move to the nearest open scope around this one. */
  close(survivors: ReadonlySet<TensorHandle>): void {
    this.open = false;
    scopes.open--;
    const outer = openScope(this.parent);
    for (const handle of [...this.#handles]) {
      if (!survivors.has(handle)) {
        handle.release();
        continue;
      }
      this.forget(handle);
      outer?.adopt(handle);
    }
  }

  static nearestOpen(scope: Scope | undefined): Scope | undefined {
    let found = scope;
    while (found && !found.open) found = found.parent;
    return found;
  }
}

const openScope = Scope.nearestOpen;

/** The scope that a tensor made now belongs to. */
export function currentScope(): Scope | undefined {
  return scopes.open === 0 ? undefined : openScope(scopes.context.getStore());
}

/**
 * Runs `fn`; tensors made meanwhile are disposed when it ends, also by an error, unless they are in what it returns
 * (a tensor, or arrays, plain objects, Maps and Sets of such, or objects with {@link TENSORS}) or were given to
 * {@link keep}. With an async `fn` the scope ends when its promise settles.
 * @returns what `fn` returns; its tensors belong to the surrounding scope, if there is one
 */
export function scope<T>(fn: () => T): T {
  check('scope', 'fn', fn, FUNCTION);
  const inner = new Scope(scopes.context.getStore());
  let result: T;
  try {
    result = scopes.context.run(inner, fn);
  } catch (error) {
    inner.close(new Set());
    throw error;
  }
  if (isThenable(result)) {
    const settled = Promise.resolve(result).then(
      (value) => closed(inner, value),
      (error) => {
        inner.close(new Set());
        throw error;
      },
    );
    return settled as T;
  }
  return closed(inner, result);
}

/** Ends a scope whose function gave `result`; searching it calls getters and {@link TENSORS}, which may fail. */
function closed<T>(inner: Scope, result: T): T {
  let survivors: ReadonlySet<TensorHandle> = new Set();
  try {
    survivors = handlesIn(result);
  } finally {
    inner.close(survivors);
  }
  return result;
}

/** A value with a share in a storage: a tensor, or something built on one. */
export interface Scoped {
  readonly handle: TensorHandle;
}

/**
 * Takes tensors out of every scope: they live until they are disposed or collected. `value` is a tensor or anything that
 * {@link scope} would search for tensors. Returns it.
 */
export function keep<T>(value: T): T {
  for (const handle of handlesIn(value)) handle.scope?.forget(handle);
  return value;
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';
}

function isScoped(value: object): value is Scoped {
  const handle = (value as { handle?: { release?: unknown } }).handle;
  return typeof handle === 'object' && handle !== null && typeof handle.release === 'function';
}

/** The handles of all tensors that can be reached from a value. */
function handlesIn(root: unknown): Set<TensorHandle> {
  const found = new Set<TensorHandle>();
  const seen = new Set<object>();
  const pending: unknown[] = [root];
  while (pending.length > 0) {
    const value = pending.pop();
    if (typeof value !== 'object' || value === null || seen.has(value)) continue;
    seen.add(value);
    if (isScoped(value)) {
      found.add(value.handle);
      continue;
    }
    // One at a time: as arguments of one call a hundred thousand are too many.
    for (const child of childrenOf(value)) if (typeof child === 'object') pending.push(child);
  }
  return found;
}

function childrenOf(value: object): Iterable<unknown> {
  if (Array.isArray(value) || value instanceof Set) return value;
  if (value instanceof Map) return [...value.keys(), ...value.values()];
  const own = (value as { [TENSORS]?: unknown })[TENSORS];
  if (typeof own === 'function') return own.call(value) as Iterable<unknown>;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null ? Object.values(value) : [];
}
