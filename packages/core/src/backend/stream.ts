/** Streams and events of a device. */

/** A place in a {@link BackendStream}. */
export interface BackendEvent {
  /** Whether the work before it has run. */
  readonly isDone: boolean;
  /** Resolves when it has. */
  synchronize(): Promise<void>;
  dispose(): void;
}

/** Work that runs in the order in which it was enqueued. Streams of a device run side by side. */
export interface BackendStream {
  /**
   * Enqueues here what `fn`, a synchronous function, makes the device do. Storages are not bound to a stream, and their
   * memory is safe whichever stream frees it, but only {@link wait} orders one stream's work behind another's: whoever reads
   * on one stream what was computed on another one puts a wait in between.
   */
  run<T>(fn: () => T): T;
  /** Marks the present end of the stream. */
  record(): BackendEvent;
  /** What is enqueued here from now on runs after `event`, of this stream or another one of the device. The host goes on. */
  wait(event: BackendEvent): void;
  /** Resolves when everything enqueued here has run. */
  synchronize(): Promise<void>;
  /** Waits for the stream. The device's own one stays. */
  dispose(): void;
}

/** Streams beside the one that a device has anyway: for copies that run while it computes. */
export interface StreamOps {
  /** What work goes to outside of `run`. */
  readonly own: BackendStream;
  /** A new stream, the caller's to dispose. */
  create(): BackendStream;
}
