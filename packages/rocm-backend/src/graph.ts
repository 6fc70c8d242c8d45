/**
 * Captured graphs of a device: what a stream is given while it records, made into an executable graph of the driver.
 *
 * The stream is one of its own. The device's is not captured, because events that were recorded in it and are waited for
 * meanwhile (by a read that is under way) would spoil the capture on HIP; it is what a graph is launched on.
 *
 * A graph keeps addresses, so all that it touches must stay where it is. What is allocated during the capture is in a pool
 * of its own (allocator.ts), uploads of dims and strides are held in their cache (info.ts), and storages from outside tell
 * the graph when they are disposed: from then on it refuses to run.
 *
 * Host memory cannot be part of a graph. Values that come from there during a capture are copied once, by the device's
 * stream, into a block that nothing else gets; the graph copies them on from there.
 */
import { type BackendGraph, CaptureError, DisposedError } from '@x/core';
import { HipError, type HipGraphExec, type HipStream } from '@x/hip';
import { type CachingAllocator, MemoryPool } from './allocator';
import { debug } from './debug';
import type { KernelDevice } from './device';
import type { InfoCache } from './info';
import type { KernelStorage } from './storage';

/** What HIP and CUDA answer where there are no graphs. */
const NOT_SUPPORTED = 801;

/** The parts of a device that graphs hold on to. */
export interface GraphMemory {
  readonly allocator: CachingAllocator;
  readonly info: InfoCache;
  /** The stream that records. */
  readonly stream: HipStream;
}

/** What is enqueued by one call of the driver, and what the host does behind it. */
interface Part {
  exec: HipGraphExec;
  kernels: number;
  /** Whether it looks at ids, and may so write to the device's report. */
  checksIds: boolean;
  step: (() => void) | undefined;
}

/**
 * A captured graph: what {@link KernelDevice.capture} gives. {@link replay} throws DisposedError once a storage that it uses is
 * disposed.
 */
export class KernelGraph implements BackendGraph {
  readonly launches: string[] = [];
  /** Whether a library's work is among them, in the workspace that the library has on this device. */
  usesLibraries = false;
  /** Whether ids were looked at since the last part ended. */
  checksIds = false;
  readonly #device: KernelDevice;
  readonly #memory: GraphMemory;
  readonly #pool = new MemoryPool();
  readonly #inputs = new Set<KernelStorage>();
  /** Blocks with values from the host. */
  readonly #constants: number[] = [];
  #releaseInfo = () => {};
  readonly #parts: Part[] = [];
  /** What a storage was that is gone. */
  #lost: string | undefined;
  #disposed = false;

  /** Records `record`, or returns null where the platform has no graphs. */
  static capture(
    device: KernelDevice,
    memory: GraphMemory,
    record: (divide: (step: () => void) => void) => void,
  ): KernelGraph | null {
    const graph = new KernelGraph(device, memory);
    const { hip } = device;
    try {
      memory.stream.beginCapture();
    } catch (error) {
      graph.dispose();
      if (error instanceof HipError && error.status === NOT_SUPPORTED) return null;
      throw failed(device, error);
    }
    device.recording = graph;
    hip.currentStream = memory.stream;
    try {
      const divide = (step: () => void) => {
        device.settle();
        graph.#endPart(step);
        memory.stream.beginCapture();
      };
      graph.#releaseInfo = memory.allocator.within(graph.#pool, () =>
        memory.info.holding(() => {
          record(divide);
          device.settle();
        }),
      );
    } catch (error) {
      device.recording = undefined;
      graph.#abandon();
      throw error instanceof HipError ? failed(device, error) : error;
    } finally {
      device.recording = undefined;
      hip.currentStream = hip.defaultStream;
    }
    try {
      graph.#endPart();
    } catch (error) {
      graph.#abandon();
      throw failed(device, error);
    }
    debug(4, () => [`captured on ${device.name}: ${graph.launches.length} launches`, ...graph.launches].join('\n  '));
    return graph;
  }

  private constructor(device: KernelDevice, memory: GraphMemory) {
    this.#device = device;
    this.#memory = memory;
  }

  replay(): void {
    const { hip, streams, name } = this.#device;
    this.#checkAlive();
    if (streams.current !== streams.own.id) {
      throw new CaptureError(
        'CAPTURE_UNSUPPORTED',
        `replay on another stream of ${name} than its own; call replay() outside of stream.run().`,
      );
    }
    for (const { exec, kernels, checksIds, step } of this.#parts) {
      if (this.usesLibraries) this.#device.orderLibraries();
      for (const settle of this.#device.beforeReplays) settle();
      this.#device.enqueue(
        () => `graph of ${kernels} launches`,
        () => exec.launch(hip.defaultStream),
        kernels,
      );
      if (checksIds) this.#device.idReport?.expect();
      if (!step) continue;
      step();
      // It may have done anything.
      this.#checkAlive();
    }
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const storage of this.#inputs) storage.leave(this);
    this.#inputs.clear();
    if (this.#device.isDisposed) return;
    for (const { exec } of this.#parts) {
      try {
        // Waits for the device.
        exec.dispose();
      } catch (error) {
        // What the device failed with is for those who read its results; the memory goes back all the same.
        if (!(error instanceof HipError)) throw error;
      }
    }
    this.#releaseInfo();
    const { allocator } = this.#memory;
    allocator.close(this.#pool);
    for (const ptr of this.#constants) allocator.free(ptr);
    this.#constants.length = 0;
  }

  /** While recording: `storage` is read or written at `ptr`. */
  uses(storage: KernelStorage, ptr: number): void {
    if (ptr === 0 || this.#inputs.has(storage) || this.#memory.allocator.isIn(this.#pool, ptr)) return;
    this.#inputs.add(storage);
    storage.join(this);
    // Its replays are work of the device's own stream.
    this.#memory.allocator.used(ptr, 0);
  }

  /** A storage that the graph uses is being disposed. */
  lose({ dtype, elemCount }: KernelStorage): void {
    this.#lost ??= `a tensor of ${elemCount} elements of ${dtype}`;
  }

  /** While recording: values of the host, copied to `dst` by every replay. */
  fromHost(dst: number, bytes: ArrayBufferView): void {
    // Not from the pool, whose blocks earlier work of the graph may write to again.
    const constant = this.#memory.allocator.within(null, () => this.#device.malloc(bytes.byteLength));
    this.#constants.push(constant);
    this.upload(constant, bytes);
    this.#device.hip.memcpyDtoD(dst, constant, bytes.byteLength);
  }

  /** While recording: a copy that is made now, once. */
  upload(dst: number, bytes: ArrayBufferView): void {
    const { hip } = this.#device;
    hip.memcpyHtoD(dst, bytes, hip.defaultStream);
  }

  /** While recording: in front of what cannot be part of a graph. @throws CaptureError `CAPTURE_UNSUPPORTED` */
  refuse(op: string): never {
    throw new CaptureError(
      'CAPTURE_UNSUPPORTED',
      `${op} on ${this.#device.name} while it is being captured; do it before the capture or after a replay.`,
    );
  }

  #checkAlive(): void {
    const isWhole = this.#lost === undefined && !this.#device.isDisposed;
    if (isWhole && !this.#disposed) return;
    const gone = isWhole ? 'the graph' : `${this.#lost ?? 'the device'} that the graph uses`;
    throw new DisposedError(
      'DISPOSED',
      `replay: ${gone} was disposed; keep it as long as the graph is replayed, or capture again.`,
    );
  }

  /** What was recorded since the last part becomes one. @param step of the host, behind it */
  #endPart(step?: () => void): void {
    const graph = this.#memory.stream.endCapture();
    try {
      const kernels = this.launches.length - this.#parts.reduce((sum, part) => sum + part.kernels, 0);
      this.#parts.push({ exec: graph.instantiate(), kernels, checksIds: this.checksIds, step });
      this.checksIds = false;
    } finally {
      graph.dispose();
    }
  }

  /** Ends the capture, if it has not ended, and gives everything back. */
  #abandon(): void {
    const { stream } = this.#memory;
    try {
      if (stream.isCapturing) stream.endCapture().dispose();
    } catch (error) {
      // A capture that had already failed ends with an error and without a graph.
      if (!(error instanceof HipError)) throw error;
    }
    this.dispose();
  }
}

function failed({ name }: KernelDevice, cause: unknown): CaptureError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new CaptureError(
    'CAPTURE_FAILED',
    `capture: ${name} made no graph: ${why}. X_GRAPHS=0 runs captured functions without graphs.`,
    { cause },
  );
}
