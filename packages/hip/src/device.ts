/**
 * One open device: memory, streams, modules, events. Mirrors what candle gets from cudarc's `CudaDevice`/`CudaStream`
 * (candle-core/src/cuda_backend/device.rs), on three platforms behind one table. Everything is enqueued on a stream and
 * returns at once; the `...Sync` methods and awaiting a promise are the only waits.
 */
import { addon, type Counters, type HostView, type NativeAddon } from './addon';
import { BlasHandle } from './blas';
import { type GroupMembership, HipCommunicator } from './communicator';
import { DeviceContext } from './context';
import { ConvolutionHandle } from './convolution';
import { invalidArgument } from './errors';
import { HipEvent } from './event';
import { HipFileReader } from './file-reader';
import { type BlasLibrary, type ConvolutionLibrary, type LibraryReport, libraryReports } from './libraries';
import { HipModule } from './module';
import { PeerMemory } from './peer-memory';
import { PinnedMemory } from './pinned-memory';
import { type Platform, platformNumber } from './platforms';
import { HipStream } from './stream';

export interface DeviceProperties {
  readonly name: string;
  /** What code objects are looked up by: `gfx90a`, `sm_90`, `x86-64-v4`. */
  readonly arch: string;
  /** The arch as the driver spells it: `gfx90a:sramecc+:xnack-`. */
  readonly archFull: string;
  /** `0000:c3:00.0`, or empty. */
  readonly pciBusId: string;
  /** Threads that run in lockstep: 32, 64, or 1 on the host. */
  readonly warpSize: number;
  /** Compute units, SMs, or CPU threads. */
  readonly multiprocessorCount: number;
  readonly maxThreadsPerBlock: number;
  readonly maxThreadsPerMultiprocessor: number;
  /** Bytes of shared memory (LDS) that a block may have; on CUDA the opt-in limit, which launches request by themselves. */
  readonly sharedMemoryPerBlock: number;
  readonly clockRateKHz: number;
  readonly memoryClockRateKHz: number;
  readonly memoryBusWidthBits: number;
  readonly l2CacheBytes: number;
  /** Shares memory with the CPU. */
  readonly integrated: boolean;
  /** Bytes. */
  readonly totalMemory: number;
}

/**
 * Opens a device. Throws HipError with the code of the platform's report when there is none, NO_DEVICE for an ordinal beyond the last,
 * INVALID_ARGUMENT for one that is no whole number from 0 to 65535.
 */
export function openDevice(platform: Platform, ordinal = 0): HipDevice {
  const number = platformNumber(platform);
  if (!Number.isInteger(ordinal) || ordinal < 0 || ordinal > 0xffff) {
    throw invalidArgument(
      `device ordinal must be a small non-negative integer, not ${ordinal}. Use 0 for the first`,
      platform,
    );
  }
  const native = addon();
  const opened = native.open(number, ordinal);
  return new HipDevice(new DeviceContext(native, platform, ordinal, opened), opened.properties);
}

/** An open device: what {@link openDevice} gives. Addresses are numbers, sizes are bytes; after {@link dispose} calls throw DISPOSED. */
export class HipDevice {
  readonly platform: Platform;
  readonly ordinal: number;
  readonly properties: DeviceProperties;
  /** The stream that every device has. It lives as long as the device. */
  readonly defaultStream: HipStream;
  #current: HipStream;
  readonly #context: DeviceContext;
  readonly #native: NativeAddon;
  readonly #id: number;
  readonly #blas = new Map<BlasLibrary, BlasHandle>();
  readonly #convolution = new Map<ConvolutionLibrary, ConvolutionHandle>();

  /** @internal Use {@link openDevice}. */
  constructor(context: DeviceContext, properties: DeviceProperties) {
    this.#context = context;
    this.#native = context.native;
    this.#id = context.id;
    this.platform = context.platform;
    this.ordinal = context.ordinal;
    this.properties = Object.freeze(properties);
    this.defaultStream = new HipStream(context, 0, true);
    this.#current = this.defaultStream;
  }

  get isDisposed(): boolean {
    return this.#context.disposed;
  }

  /** The stream used where none is given: {@link defaultStream}, until it is set to another one of this device. */
  get currentStream(): HipStream {
    return this.#current;
  }
  set currentStream(stream: HipStream) {
    this.#context.stream = this.#stream(stream);
    this.#current = stream;
  }

  /** A further stream, the caller's to dispose. Work of different streams is ordered by events alone: {@link HipStream.waitEvent}. */
  createStream(): HipStream {
    this.#context.check();
    return new HipStream(this.#context, this.#native.streamCreate(this.#id));
  }

  /** An event, the caller's to dispose. It marks nothing before {@link HipEvent.record}. */
  createEvent(): HipEvent {
    this.#context.check();
    return new HipEvent(this.#context, this.#native.eventCreate(this.#id));
  }

  /** Bytes free and in all, as the driver sees them now. */
  memoryInfo(): { free: number; total: number } {
    this.#context.check();
    const [free, total] = this.#native.memoryInfo(this.#id);
    return { free, total };
  }

  /**
   * Allocates device memory and returns its address. Throws OUT_OF_MEMORY with requested, free and total bytes, INVALID_ARGUMENT for
   * a size that is no whole number from 1.
   */
  alloc(bytes: number): number {
    this.#context.check();
    if (!Number.isSafeInteger(bytes) || bytes <= 0) {
      throw invalidArgument(
        `alloc of ${bytes} bytes: the size must be a positive integer. Skip empty buffers`,
        this.platform,
      );
    }
    return this.#native.alloc(this.#id, bytes);
  }

  /** Frees an address that {@link alloc} returned. May wait until work that is under way has finished. */
  free(address: number): void {
    this.#context.check();
    this.#native.free(this.#id, address);
  }

  /** Copies the view's bytes to `dst`. The view may be reused at once. */
  memcpyHtoD(dst: number, view: HostView, stream: HipStream = this.#current): void {
    this.#context.check();
    this.#native.htod(this.#id, dst, view, this.#stream(stream));
  }

  /**
   * Page-locks memory where it lies, so that copies from it are fast and wait for nothing; undefined where the platform refuses.
   * The memory must stay, and what is copied must stay as it is until the copy has passed. The caller's to dispose.
   */
  pin(view: HostView): PinnedMemory | undefined {
    this.#context.check();
    const id = this.#native.pin(this.#id, view);
    return id === undefined ? undefined : new PinnedMemory(this.#context, id, view, () => this.#current);
  }

  /** Reads files into this device's memory; give it back when they are read. */
  openFileReader(): HipFileReader {
    this.#context.check();
    return new HipFileReader(this.#context, this.#native.fileReader(this.#id), () => this.#current);
  }

  /** Copies `bytes` bytes from `src` to `dst`. Throws INVALID_ARGUMENT for a range that is not inside of one live allocation. */
  memcpyDtoD(dst: number, src: number, bytes: number, stream: HipStream = this.#current): void {
    this.#context.check();
    this.#native.dtod(this.#id, dst, src, bytes, this.#stream(stream));
  }

  /**
   * Whether this device can copy from memory of `source`, another device of its platform, without the host. Asks the
   * driver, and allows the access.
   */
  reaches(source: HipDevice): boolean {
    this.#context.check();
    source.#context.check();
    return source.platform === this.platform && this.#native.reaches(this.#id, source.#id);
  }

  /**
   * Copies from another device that {@link reaches} is true of, on this device's `stream`: after what `from`, a stream of
   * `source`, was given so far, and before what it is given later.
   */
  memcpyFrom(
    source: HipDevice,
    dst: number,
    src: number,
    bytes: number,
    stream: HipStream = this.#current,
    from: HipStream = source.#current,
  ): void {
    this.#context.check();
    source.#context.check();
    this.#native.copyFrom(this.#id, dst, this.#stream(stream), source.#id, src, source.#stream(from), bytes);
  }

  /** Sets `bytes` bytes at `dst` to `byte` (0 to 255). */
  memset(dst: number, byte: number, bytes: number, stream: HipStream = this.#current): void {
    this.#context.check();
    if (!Number.isInteger(byte) || byte < 0 || byte > 255) {
      throw invalidArgument(`memset value must be a byte from 0 to 255, not ${byte}`, this.platform);
    }
    this.#native.memset(this.#id, dst, byte, bytes, this.#stream(stream));
  }

  /** Fills the view from `src` and waits for it. */
  memcpyDtoHSync(view: HostView, src: number, stream: HipStream = this.#current): void {
    this.#context.check();
    this.#native.dtohSync(this.#id, view, src, this.#stream(stream));
  }

  /**
   * Fills the view from `src`. The copy is enqueued now, so later work on the stream may overwrite the source; the promise
   * resolves when the view holds the bytes. It rejects when the view's buffer was detached meanwhile.
   */
  async memcpyDtoH(view: HostView, src: number, stream: HipStream = this.#current): Promise<void> {
    this.#context.check();
    return this.#native.dtoh(this.#id, view, src, this.#stream(stream));
  }

  /** Loads a code object: HSACO on rocm, PTX or cubin on cuda, a shared object on host. The bytes are copied. */
  loadModule(code: Uint8Array): HipModule {
    this.#context.check();
    return new HipModule(this.#context, this.#native.moduleLoad(this.#id, code));
  }

  /** Resolves when all work enqueued so far on this device has finished. */
  async synchronize(): Promise<void> {
    this.#context.check();
    return this.#native.deviceSynchronize(this.#id);
  }

  /** As {@link synchronize}, blocking the event loop. */
  synchronizeSync(): void {
    this.#context.check();
    this.#native.deviceSynchronizeSync(this.#id);
  }

  /** The vendor libraries for this device's platform: found where and in which version, or what to install. */
  libraries(): LibraryReport[] {
    return libraryReports(this.platform);
  }

  /**
   * Opens a BLAS library on this device; a second call gives the same handle. Throws LIBRARY_NOT_FOUND or SYMBOL_MISSING
   * with the report's reason, and INVALID_ARGUMENT for a library of another platform or while a stream is captured.
   */
  openBlas(library: BlasLibrary): BlasHandle {
    this.#context.check();
    let handle = this.#blas.get(library);
    if (!handle) {
      handle = new BlasHandle(this.#context, library);
      this.#blas.set(library, handle);
    }
    return handle;
  }

  /** Opens a convolution library on this device. Errors as {@link openBlas}. */
  openConvolution(library: ConvolutionLibrary): ConvolutionHandle {
    this.#context.check();
    let handle = this.#convolution.get(library);
    if (!handle) {
      handle = new ConvolutionHandle(this.#context, library);
      this.#convolution.set(library, handle);
    }
    return handle;
  }

  /** Names a new group of devices of this platform. Throws LIBRARY_NOT_FOUND or SYMBOL_MISSING without NCCL or RCCL. */
  groupId(): Uint8Array {
    this.#context.check();
    return this.#native.groupId(this.#id);
  }

  /**
   * Joins a group as one of its ranks; resolves when all have come. Errors: as {@link groupId}; RANK_TIMEOUT, RANK_LOST,
   * RANKS_DIFFER or GROUP_FAILED for a group that does not come together.
   */
  async joinGroup(member: GroupMembership): Promise<HipCommunicator> {
    this.#context.check();
    return HipCommunicator.join(this.#context, member);
  }

  /**
   * Memory that kernels of other devices write to; waits for the default stream.
   * @throws HipError with status 801 where the platform or its driver has none
   */
  peerMemory(bytes: number): PeerMemory {
    this.#context.check();
    return new PeerMemory(this.#context, this.#native.peerMemory(this.#id, bytes));
  }

  /** Calls of the driver since the device was opened. */
  counters(): Counters {
    return this.#native.counters(this.#id);
  }

  /** Waits for the device and gives back everything that was created on it, memory included. */
  dispose(): void {
    if (this.#context.disposed) return;
    this.#context.disposed = true;
    this.#native.close(this.#id);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #stream(stream: HipStream): number {
    return stream.handleOn(this.#context);
  }
}
