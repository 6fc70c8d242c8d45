/** Work captured from a stream. It is a description; {@link HipGraph.instantiate} makes what can be launched. */
import type { DeviceContext } from './context';
import { HipGraphExec } from './graph-exec';

export class HipGraph {
  readonly #context: DeviceContext;
  readonly #handle: number;
  #disposed = false;

  /** @internal Use `stream.endCapture()`. */
  constructor(context: DeviceContext, handle: number) {
    this.#context = context;
    this.#handle = handle;
  }

  get isDisposed(): boolean {
    return this.#disposed || this.#context.disposed;
  }

  /** @internal */
  handleOn(context: DeviceContext): number {
    if (this.#context !== context) context.same(this.#context, 'graph');
    context.check(this.#disposed, 'graph');
    return this.#handle;
  }

  /** The graph may be disposed afterwards. Modules and buffers it uses must outlive the instance. */
  instantiate(): HipGraphExec {
    const exec = this.#context.native.graphInstantiate(this.#context.id, this.handleOn(this.#context));
    return new HipGraphExec(this.#context, exec);
  }

  dispose(): void {
    if (this.isDisposed) return;
    this.#disposed = true;
    this.#context.native.graphDestroy(this.#context.id, this.#handle);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
