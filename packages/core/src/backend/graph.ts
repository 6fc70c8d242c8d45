/** Captured graphs of a device. `Device.capture` is what people call. */

/** Work of a device that was captured: enqueued again as a whole, by one call of the driver for each part between steps of the host. */
export interface BackendGraph {
  /** Names of its kernels and library calls, in their order. */
  readonly launches: readonly string[];
  /**
   * Enqueues the work, and takes the host's steps on the way. @throws what a step throws, with the parts behind it left out
   * @throws DisposedError when a storage that it uses was disposed
   */
  replay(): void;
  /** Waits for the device and gives back the memory that belongs to the graph. */
  dispose(): void;
}
