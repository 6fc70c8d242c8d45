/**
 * What events, modules, graphs and their instances have in common: a number that the addon gave out and takes back once.
 *
 * HipStream is none of them: each launch asks for its number, which a fifth subclass would make 40 ns slower, for V8 finds
 * the fields of at most four classes without a search.
 */
import type { DeviceContext } from './context';

type Destroyer = 'eventDestroy' | 'moduleUnload' | 'graphDestroy' | 'execDestroy';

export abstract class DeviceObject implements Disposable {
  readonly #context: DeviceContext;
  readonly #handle: number;
  readonly #noun: string;
  readonly #destroyer: Destroyer;
  #disposed = false;

  constructor(context: DeviceContext, handle: number, noun: string, destroyer: Destroyer) {
    this.#context = context;
    this.#handle = handle;
    this.#noun = noun;
    this.#destroyer = destroyer;
  }

  protected get context(): DeviceContext {
    return this.#context;
  }

  /** The object's number, after checking that it lives. */
  protected get handle(): number {
    return this.handleOn(this.#context);
  }

  get isDisposed(): boolean {
    return this.#disposed || this.#context.disposed;
  }

  /** @internal The object's number, after checking that it lives and belongs to the device. */
  handleOn(context: DeviceContext): number {
    if (this.#context !== context) context.same(this.#context, this.#noun);
    if (this.#disposed || context.disposed) context.check(this.#disposed, this.#noun);
    return this.#handle;
  }

  /** Gives it back. A module and a graph instance wait for the device first. */
  dispose(): void {
    if (this.isDisposed) return;
    this.#disposed = true;
    this.#context.native[this.#destroyer](this.#context.id, this.#handle);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
