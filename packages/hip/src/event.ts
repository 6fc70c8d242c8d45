/** A mark in a stream: something to wait for, and to measure time between. */
import type { DeviceContext } from './context';
import type { HipStream } from './stream';

export class HipEvent {
  readonly #context: DeviceContext;
  readonly #handle: number;
  #disposed = false;

  /** @internal Use `device.createEvent()`. */
  constructor(context: DeviceContext, handle: number) {
    this.#context = context;
    this.#handle = handle;
  }

  get isDisposed(): boolean {
    return this.#disposed || this.#context.disposed;
  }

  /** @internal The event's number, after checking that it lives and belongs to the device. */
  handleOn(context: DeviceContext): number {
    if (this.#context !== context) context.same(this.#context, 'event');
    if (this.#disposed || context.disposed) context.check(this.#disposed, 'event');
    return this.#handle;
  }

  /** Marks the stream's present end. Recording again moves the mark. */
  record(stream: HipStream): void {
    const event = this.handleOn(this.#context);
    this.#context.native.eventRecord(this.#context.id, event, stream.handleOn(this.#context));
  }

  /** Resolves when the mark has passed; at once when it was never recorded. */
  async synchronize(): Promise<void> {
    return this.#context.native.eventSynchronize(this.#context.id, this.handleOn(this.#context));
  }

  synchronizeSync(): void {
    this.#context.native.eventSynchronizeSync(this.#context.id, this.handleOn(this.#context));
  }

  /** Whether the mark has passed. */
  query(): boolean {
    return this.#context.native.eventQuery(this.#context.id, this.handleOn(this.#context));
  }

  /** Milliseconds from `since` to this event. Both must have been recorded and have passed. */
  elapsedMs(since: HipEvent): number {
    const end = this.handleOn(this.#context);
    return this.#context.native.eventElapsed(this.#context.id, since.handleOn(this.#context), end);
  }

  dispose(): void {
    if (this.isDisposed) return;
    this.#disposed = true;
    this.#context.native.eventDestroy(this.#context.id, this.#handle);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
