/** An in-order queue of work on a device, and the start and end of graph capture. */
import type { DeviceContext } from './context';
import { invalidArgument } from './errors';
import type { HipEvent } from './event';
import { HipGraph } from './graph';

/** Work that is done in its order: what `device.createStream()` gives, and a device's `defaultStream`. */
export class HipStream {
  readonly #context: DeviceContext;
  readonly #handle: number;
  readonly #permanent: boolean;
  #disposed = false;

  /** @internal Use `device.createStream()`. */
  constructor(context: DeviceContext, handle: number, permanent = false) {
    this.#context = context;
    this.#handle = handle;
    this.#permanent = permanent;
  }

  get isDisposed(): boolean {
    return this.#disposed || this.#context.disposed;
  }

  /** @internal The stream's number, after checking that it lives and belongs to the device. */
  handleOn(context: DeviceContext): number {
    if (this.#context !== context) context.same(this.#context, 'stream');
    if (this.#disposed || context.disposed) context.check(this.#disposed, 'stream');
    return this.#handle;
  }

  /** Resolves when all work enqueued on the stream so far has finished. */
  async synchronize(): Promise<void> {
    return this.#context.native.streamSynchronize(this.#context.id, this.handleOn(this.#context));
  }

  /** As {@link synchronize}, blocking the event loop. */
  synchronizeSync(): void {
    this.#context.native.streamSynchronizeSync(this.#context.id, this.handleOn(this.#context));
  }

  /** Later work on this stream waits until `event`, as last recorded, has passed. */
  waitEvent(event: HipEvent): void {
    const stream = this.handleOn(this.#context);
    this.#context.native.streamWaitEvent(this.#context.id, stream, event.handleOn(this.#context));
  }

  /** From here on, work enqueued on the stream is recorded instead of run. Host copies and waits are refused meanwhile. */
  beginCapture(): void {
    this.#context.native.beginCapture(this.#context.id, this.handleOn(this.#context));
  }

  /** Whether {@link beginCapture} was called and {@link endCapture} was not yet. */
  get isCapturing(): boolean {
    return this.#context.native.streamCapturing(this.#context.id, this.handleOn(this.#context));
  }

  /**
   * What was recorded since {@link beginCapture}, the caller's to dispose. Throws INVALID_ARGUMENT for a stream that is not being
   * captured, DRIVER_ERROR for a capture that was spoiled, such as by a stream that joined it and was not waited for.
   */
  endCapture(): HipGraph {
    const graph = this.#context.native.endCapture(this.#context.id, this.handleOn(this.#context));
    return new HipGraph(this.#context, graph);
  }

  /** Waits for the stream and destroys it. Throws INVALID_ARGUMENT for a device's default stream. */
  dispose(): void {
    if (this.isDisposed) return;
    if (this.#permanent) {
      throw invalidArgument(
        'the default stream lives as long as its device. Dispose the device',
        this.#context.platform,
      );
    }
    this.#disposed = true;
    this.#context.native.streamDestroy(this.#context.id, this.#handle);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
