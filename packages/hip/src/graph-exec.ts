/** A graph made ready to launch: all its work enqueued by one call. */
import type { DeviceContext } from './context';
import type { HipGraph } from './graph';
import type { HipStream } from './stream';

export class HipGraphExec {
  readonly #context: DeviceContext;
  readonly #handle: number;
  #disposed = false;

  /** @internal Use `graph.instantiate()`. */
  constructor(context: DeviceContext, handle: number) {
    this.#context = context;
    this.#handle = handle;
  }

  get isDisposed(): boolean {
    return this.#disposed || this.#context.disposed;
  }

  launch(stream: HipStream): void {
    this.#context.check(this.#disposed, 'graph instance');
    this.#context.native.execLaunch(this.#context.id, this.#handle, stream.handleOn(this.#context));
  }

  /** Takes over another graph's parameters. False when its shape differs: then instantiate that graph instead. */
  update(graph: HipGraph): boolean {
    this.#context.check(this.#disposed, 'graph instance');
    return this.#context.native.execUpdate(this.#context.id, this.#handle, graph.handleOn(this.#context));
  }

  /** Waits for the device and destroys the instance. */
  dispose(): void {
    if (this.isDisposed) return;
    this.#disposed = true;
    this.#context.native.execDestroy(this.#context.id, this.#handle);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
