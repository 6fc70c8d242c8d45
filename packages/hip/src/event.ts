/** A mark in a stream: something to wait for, and to measure time between. */
import type { DeviceContext } from './context';
import { DeviceObject } from './device-object';
import type { HipStream } from './stream';

/** A mark in a stream: what `device.createEvent()` gives. */
export class HipEvent extends DeviceObject {
  /** @internal Use `device.createEvent()`. */
  constructor(context: DeviceContext, handle: number) {
    super(context, handle, 'event', 'eventDestroy');
  }

  /** Marks the stream's present end. Recording again moves the mark. */
  record(stream: HipStream): void {
    const event = this.handle;
    this.context.native.eventRecord(this.context.id, event, stream.handleOn(this.context));
  }

  /** Resolves when the mark has passed; at once when it was never recorded. */
  async synchronize(): Promise<void> {
    return this.context.native.eventSynchronize(this.context.id, this.handle);
  }

  /** As {@link synchronize}, blocking the event loop. */
  synchronizeSync(): void {
    this.context.native.eventSynchronizeSync(this.context.id, this.handle);
  }

  /** Whether the mark has passed. */
  query(): boolean {
    return this.context.native.eventQuery(this.context.id, this.handle);
  }

  /** Milliseconds from `since` to this event. Both must have been recorded and have passed. */
  elapsedMs(since: HipEvent): number {
    const end = this.handle;
    return this.context.native.eventElapsed(this.context.id, since.handleOn(this.context), end);
  }
}
