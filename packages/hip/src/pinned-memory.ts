/**
 * Memory of the host that a device copies from by itself: page-locked where it lies. Copies from other memory go through the
 * driver's own page-locked memory, which takes the host's time and is several times slower.
 */
import type { HostView } from './addon';
import type { DeviceContext } from './context';
import { HipError, invalidArgument } from './errors';
import type { HipStream } from './stream';

/** Page-locked memory of the host: what `device.pin()` gives. */
export class PinnedMemory implements Disposable {
  readonly byteLength: number;
  readonly #context: DeviceContext;
  readonly #id: number;
  readonly #view: HostView;
  readonly #current: () => HipStream;
  #disposed = false;

  /** @internal Use `device.pin()`. */
  constructor(context: DeviceContext, id: number, view: HostView, current: () => HipStream) {
    this.#context = context;
    this.#id = id;
    this.#view = view;
    this.#current = current;
    this.byteLength = view.byteLength;
    // The memory must not go before it is unlocked.
    forgotten.register(this, { context, id, view }, this);
  }

  /**
   * Copies bytes [from, from + bytes) to `dst`. Returns at once: they must stay as they are until `stream` has passed the copy.
   * @throws HipError as a copy to the device; INVALID_ARGUMENT when the memory was transferred or made smaller
   */
  copyTo(dst: number, from: number, bytes: number, stream: HipStream = this.#current()): void {
    this.#context.check(this.#disposed, 'page-locked memory');
    if (this.#view.byteLength !== this.byteLength) {
      throw invalidArgument(
        `page-locked memory had ${this.byteLength} bytes and has ${this.#view.byteLength}: its buffer was transferred or resized. Keep it until dispose()`,
        this.#context.platform,
      );
    }
    this.#context.native.htodPinned(this.#context.id, this.#id, from, dst, bytes, stream.handleOn(this.#context));
  }

  /** Waits for the device and unlocks the memory. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    if (!this.#context.disposed) this.#context.native.unpin(this.#context.id, this.#id);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Unlocks memory whose object was collected without having been disposed. */
const forgotten = new FinalizationRegistry<{ context: DeviceContext; id: number; view: HostView }>(
  ({ context, id }) => {
    try {
      if (!context.disposed) context.native.unpin(context.id, id);
    } catch (error) {
      // What the device failed with is for those who read its results.
      if (!(error instanceof HipError)) throw error;
    }
  },
);
