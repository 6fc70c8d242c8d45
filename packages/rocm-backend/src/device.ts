/**
 * KernelDevice: one device of one platform behind core's `BackendDevice`, after candle's `CudaDevice`
 * (candle-core/src/cuda_backend/device.rs). It serves `rocm:N`, `cuda:N` and, on the host platform, `cpu`: the kernels
 * and everything here are the same, only the driver table differs.
 *
 * It owns one stream, the caching allocator, the module store and the cache of `info` uploads. One stream per device is
 * what makes the allocator's immediate reuse safe.
 */
import {
  type AttentionOps,
  type BackendDevice,
  type BackendOperations,
  type BackendStorage,
  CaptureError,
  type CompiledProgram,
  type CompileOptions,
  type DeviceFileReader,
  type DeviceLocation,
  type DeviceMemory,
  DisposedError,
  type DType,
  kinds,
  type LaunchSize,
  type Layout,
  type Operand,
  OutOfMemoryError,
  type PinnedBytes,
  type StoragePart,
  sizeInBytes,
} from '@x/core';
import { type HipDevice, HipError, type HipFunction, type HipStream, openDevice } from '@x/hip';
import type { KernelModule } from '@x/kernels';
import { CachingAllocator } from './allocator';
import { compileProgram } from './compiled-program';
import { Counters } from './counters';
import { debug, debugLevel } from './debug';
import { FileReads } from './file-reads';
import { KernelGraph } from './graph';
import { IdReport } from './id-report';
import { InfoCache, type StridedInfo, type Transposition, TranspositionCache } from './info';
import { type LaunchShape, LaunchShapes } from './launch-shape';
import { type ConvolutionChoice, DeviceLibraries, type DeviceOptions, type GemmChoice } from './libraries';
import { type MatrixUnits, matrixUnits } from './matrix-units';
import { ModuleStore } from './module-store';
import { DeviceAttentionOps } from './ops/attention';
import { DeviceCollectiveOps } from './ops/collectives';
import { convOps } from './ops/conv';
import { copyOps } from './ops/copy';
import { DeviceDecodeOps } from './ops/decode';
import { elementwiseOps } from './ops/elementwise';
import { DeviceExpertOps } from './ops/experts';
import { fusedOps } from './ops/fused';
import { indexingOps } from './ops/indexing';
import { DeviceLinearOps } from './ops/linear';
import { matmulOps } from './ops/matmul';
import { optimOps } from './ops/optim';
import { DevicePackedAttentionOps } from './ops/packed-attention';
import { DevicePagedAttentionOps } from './ops/paged-attention';
import { DeviceQuantizedOps } from './ops/quantized';
import { DeviceQuantizedExpertOps } from './ops/quantized-experts';
import { DeviceRandom } from './ops/random';
import { DeviceRecurrentOps } from './ops/recurrent';
import { reduceOps } from './ops/reduce';
import { resamplingOps } from './ops/resampling';
import { filled, type ProductRows } from './ops/result';
import { DeviceSamplingOps } from './ops/sampling';
import { scanOps } from './ops/scan';
import { sortOps } from './ops/sort';
import { Peers } from './peers';
import type { RuntimeSource } from './runtime-compile';
import { KernelStorage, type View } from './storage';
import { DeviceStreams } from './streams';

/** The platform behind each device kind. */
const PLATFORMS = { rocm: 'rocm', cuda: 'cuda', cpu: 'host' } as const;

/** A device whose ops are launches of compiled kernels (candle's `CudaDevice`): what {@link KernelDevice.open} gives. */
export class KernelDevice implements BackendDevice {
  readonly location: DeviceLocation;
  readonly description: string;
  readonly ops: BackendOperations = {
    ...elementwiseOps(this),
    ...reduceOps(this),
    ...matmulOps(this),
    ...indexingOps(this),
    ...copyOps(this),
  };
  readonly fused = fusedOps(this);
  readonly conv = convOps(this);
  readonly resampling = resamplingOps(this);
  readonly sorting = sortOps(this);
  readonly scan = scanOps(this);
  readonly random = new DeviceRandom(this);
  readonly optim = optimOps(this);
  readonly quantized: DeviceQuantizedOps;
  readonly quantizedExperts: DeviceQuantizedExpertOps;
  readonly linear: DeviceLinearOps;
  readonly attention: AttentionOps;
  readonly packedAttention: DevicePackedAttentionOps;
  readonly pagedAttention: DevicePagedAttentionOps;
  readonly decode: DeviceDecodeOps;
  readonly recurrent: DeviceRecurrentOps;
  readonly experts: DeviceExpertOps;
  readonly sampling: DeviceSamplingOps;
  readonly collectives = new DeviceCollectiveOps(this);
  readonly hip: HipDevice;
  readonly shapes: LaunchShapes;
  readonly modules: ModuleStore;
  /** Which matrix units the kernels use here, if any. */
  readonly matrixUnits: MatrixUnits | undefined;
  /** Ids out of range: always on the host, on a GPU with `X_DEBUG` of 1 or more, for a launch an operation. */
  readonly idReport: IdReport | undefined;
  /** Which vendor libraries serve the device, and their handles. */
  readonly libraries: DeviceLibraries;
  /** Whether f16 products may sum in f16 (candle's `gemm_reduced_precision_f16`). Default false: f32. */
  gemmReducedPrecisionF16 = false;
  /** Whether bf16 products may sum in bf16 where the library has that. Default false: f32. */
  gemmReducedPrecisionBf16 = false;
  /** Whether f32 products and convolutions may multiply in TF32. Default false: f32. */
  gemmReducedPrecisionF32 = false;
  readonly #allocator: CachingAllocator;
  readonly #info: InfoCache;
  readonly streams: DeviceStreams;
  /** The stream that was last given a library's work: all of it shares one workspace. */
  #libraryStream = 0;
  readonly #peers = new Peers(this);
  readonly #fileReads = new FileReads(this);
  readonly #transpositions = new TranspositionCache();
  /** Whether each launch is waited for and its time printed. Read once: looking at the environment costs as much as a launch. */
  readonly timesLaunches = debugLevel() >= 4;
  /** What puts the streams behind work beside them, whose storages a graph may read without asking. */
  readonly beforeReplays = new Set<() => void>();
  /** What enqueues work that was only noted: a graph may have none from before it in it, and none of its own may be left out. */
  readonly aroundCaptures = new Set<() => void>();
  /** While a product for a sum over ranks is made: where its rows go, unless all go to `out`. */
  splitProduct: ((size: { m: number; n: number }, out: number) => ProductRows[] | undefined) | undefined;
  onCompiled: ((count: number) => void) | undefined;
  /** The graph that is being captured. */
  recording: KernelGraph | undefined;
  /** Made for the first capture. */
  #recorder: HipStream | undefined;
  #launchCount = 0;
  #kernelCount = 0;
  #disposed = false;

  /**
   * Opens a device. Errors: `HipError` with the platform's reason when it cannot be opened, or when the options or
   * `X_GEMM`, `X_CONV` ask for a library that is not there.
   */
  static open(kind: keyof typeof PLATFORMS, ordinal: number, options: DeviceOptions = {}): KernelDevice {
    const hip = openDevice(PLATFORMS[kind], ordinal);
    try {
      return new KernelDevice({ kind, ordinal }, hip, options);
    } catch (error) {
      hip.dispose();
      throw error;
    }
  }

  private constructor(location: DeviceLocation, hip: HipDevice, options: DeviceOptions) {
    this.location = location;
    this.hip = hip;
    this.libraries = new DeviceLibraries(hip, options);
    this.description = `${hip.properties.name} (${hip.properties.arch})`;
    this.shapes = new LaunchShapes(hip.properties, hip.platform);
    this.modules = new ModuleStore(hip, (count) => this.onCompiled?.(count));
    this.matrixUnits = matrixUnits(hip);
    this.#allocator = new CachingAllocator({
      alloc: (bytes) => {
        debug(3, () => `${location.kind}:${location.ordinal} driver allocation of ${bytes} bytes`);
        return hip.alloc(bytes);
      },
      free: (ptr) => hip.free(ptr),
    });
    const counters = new Counters(hip, () => this.streams.current);
    this.streams = new DeviceStreams(hip, {
      refuseInCapture: (op) => this.recording?.refuse(op),
      entered: (stream) => this.#allocator.enter(stream, this.streams),
      closed: (stream) => {
        this.#allocator.leave(stream);
        counters.closed(stream);
      },
    });
    this.#info = new InfoCache({
      // Graphs come and go, what is cached stays.
      alloc: (bytes) => this.#allocator.within(null, () => this.malloc(bytes)),
      free: (ptr) => this.#freeShared(ptr),
      upload: (ptr, words) => this.#uploadShared(ptr, words),
    });
    this.quantized = new DeviceQuantizedOps(this, counters, options.quantized);
    this.quantizedExperts = new DeviceQuantizedExpertOps(this, this.quantized);
    this.linear = new DeviceLinearOps(this);
    this.attention = new DeviceAttentionOps(this);
    this.packedAttention = new DevicePackedAttentionOps(this);
    this.pagedAttention = new DevicePagedAttentionOps(this, counters);
    this.decode = new DeviceDecodeOps(this);
    this.recurrent = new DeviceRecurrentOps(this);
    this.experts = new DeviceExpertOps(this, counters);
    this.sampling = new DeviceSamplingOps(this, counters);
    this.idReport = this.shapes.isHost || debugLevel() >= 1 ? new IdReport(this) : undefined;
    debug(1, () => `opened ${location.kind}:${location.ordinal}, ${this.description}`);
  }

  /** candle's `get_or_load_func`: a kernel of a shipped module, loaded once. */
  getOrLoadFunc(name: string, module: KernelModule): HipFunction {
    this.#check('getOrLoadFunc');
    return this.modules.getOrLoadFunc(name, module);
  }

  /** A kernel from HIP source compiled at run time, cached in memory and on disk. */
  getOrLoadFuncRaw(name: string, source: string, options?: RuntimeSource['options']): HipFunction {
    this.#check('getOrLoadFuncRaw');
    kinds.check('getOrLoadFuncRaw', 'name', name, kinds.STRING);
    return this.modules.getOrLoadFuncRaw(name, source, options);
  }

  /** Kernels from HIP source for `Device.compile`. */
  compile(source: string, options?: CompileOptions): CompiledProgram {
    this.#check('compile');
    return compileProgram(this, source, options);
  }

  /** Launches a shipped kernel on this device's stream. */
  launch(module: KernelModule, kernel: string, shape: LaunchShape, args: readonly (number | bigint)[]): void {
    this.launchFunction(this.getOrLoadFunc(kernel, module), shape, args);
  }

  /** Launches any kernel on this device's stream. */
  launchFunction(loaded: HipFunction, shape: LaunchSize, args: readonly (number | bigint)[]): void {
    const { grid, block, sharedBytes = 0 } = shape;
    this.#launchCount++;
    if (this.recording) this.recording.launches.push(loaded.name);
    else this.#kernelCount++;
    if (this.timesLaunches && !this.recording) {
      const what = () => `${loaded.name} grid ${grid} block ${block}`;
      this.#timed(what, () => loaded.launch(grid, block, sharedBytes, args));
      return;
    }
    loaded.launch(grid, block, sharedBytes, args);
  }

  /** Runs a call that enqueues a vendor library's work on this device's stream. */
  callLibrary(what: () => string, call: () => void): void {
    this.#check('callLibrary');
    this.recording?.launches.push(what());
    this.orderLibraries();
    this.enqueue(what, call);
  }

  /**
   * Puts what the current stream is given next, or the graph that is being captured, behind the libraries' work on other streams:
   * they share a workspace, and a group's ranks make their calls in one order.
   */
  orderLibraries(): void {
    if (this.recording) {
      this.recording.usesLibraries = true;
      return;
    }
    const { current } = this.streams;
    if (current === this.#libraryStream) return;
    this.streams.wait(current, this.#libraryStream);
    this.#libraryStream = current;
  }

  /** Runs a call that enqueues work on this device's stream. @param kernels of a graph that is replayed; default 1 */
  enqueue(what: () => string, call: () => void, kernels = 1): void {
    this.#launchCount++;
    if (!this.recording) this.#kernelCount += kernels;
    if (this.timesLaunches && !this.recording) this.#timed(what, call);
    else call();
  }

  /** Kernels, library calls and graphs that were launched. */
  get launchCount(): number {
    return this.#launchCount;
  }

  /** Kernels and library calls that ran or will, those of a graph at each replay. */
  get kernelCount(): number {
    return this.#kernelCount;
  }

  get isDisposed(): boolean {
    return this.#disposed;
  }

  /** `rocm:0`. */
  get name(): string {
    return `${this.location.kind}:${this.location.ordinal}`;
  }

  capture(record: (divide: (step: () => void) => void) => void): KernelGraph | null {
    this.#check('capture');
    this.recording?.refuse('capture');
    if (this.streams.current !== this.streams.own.id) {
      throw new CaptureError(
        'CAPTURE_UNSUPPORTED',
        `capture on another stream of ${this.name} than its own; capture outside of stream.run().`,
      );
    }
    this.settle();
    this.#recorder ??= this.hip.createStream();
    return KernelGraph.capture(this, { allocator: this.#allocator, info: this.#info, stream: this.#recorder }, record);
  }

  /** Enqueues what was only noted. */
  settle(): void {
    for (const settle of this.aroundCaptures) settle();
  }

  /** `info` of one or more layouts of the same shape; address 0 when all are contiguous. */
  info(layouts: Parameters<InfoCache['get']>[0]): StridedInfo {
    return this.#info.get(layouts);
  }

  /** `info` for exactly these dims and strides. */
  infoFor(dims: readonly number[], ...strides: readonly (readonly number[])[]): StridedInfo {
    return this.#info.upload(dims, strides);
  }

  /** How a view is copied as transposed matrices; null where it is not. */
  transpositionOf(layout: Layout): Transposition | null {
    return this.#transpositions.get(layout);
  }

  /** What matrix products go through. Setting a library that is not there throws its report's reason. */
  get gemm(): GemmChoice {
    return this.libraries.gemm.choice;
  }
  set gemm(choice: GemmChoice) {
    this.#check('gemm');
    this.libraries.gemm.choice = choice;
  }

  /** What convolutions go through. Errors as {@link gemm}. */
  get convolution(): ConvolutionChoice {
    return this.libraries.convolution.choice;
  }
  set convolution(choice: ConvolutionChoice) {
    this.#check('convolution');
    this.libraries.convolution.choice = choice;
  }

  /**
   * A device address with room for `bytes`, 0 for none; {@link free} takes it back.
   * @throws OutOfMemoryError with the bytes that are free; DisposedError
   */
  malloc(bytes: number): number {
    this.#check('alloc');
    try {
      return this.#allocator.alloc(bytes);
    } catch (error) {
      if (!(error instanceof HipError) || error.code !== 'OUT_OF_MEMORY') throw error;
      if (this.quantized.denseWeights.release()) return this.malloc(bytes);
      const { free, total } = this.hip.memoryInfo();
      throw new OutOfMemoryError(
        'OUT_OF_MEMORY',
        `${this.location.kind}:${this.location.ordinal} has no memory for ${bytes} bytes: ${free} of ${total} bytes are free and ` +
          `${this.#allocator.memory().liveBytes} are held by live tensors. Dispose tensors, use a smaller model or batch, or another device`,
      );
    }
  }

  /** Where an operand of this device lies. */
  view({ storage, layout }: Operand): View {
    return KernelStorage.on(this, storage).view(layout);
  }

  /** The same of a part of a storage, contiguous. */
  address([storage, offset]: StoragePart): number {
    return KernelStorage.on(this, storage).ptr + offset * sizeInBytes(storage.dtype);
  }

  /** Whether anything depends on {@link uses}. */
  get isWatched(): boolean {
    return this.recording !== undefined || this.streams.isShared;
  }

  /** A storage is read or written by what is enqueued next. */
  uses(storage: KernelStorage, ptr: number): void {
    this.recording?.uses(storage, ptr);
    if (this.streams.isShared) this.#allocator.used(ptr, this.streams.current);
  }

  /** Takes back what {@link malloc} gave; work that was enqueued before may still use it. Nothing once the device is disposed. */
  free(ptr: number): void {
    if (!this.#disposed) this.#allocator.free(ptr);
  }

  /** @param room elements that there is memory for, where a kernel writes behind the last one */
  allocUninit(elemCount: number, dtype: DType, room = elemCount): KernelStorage {
    return new KernelStorage(this, dtype, elemCount, this.malloc(room * sizeInBytes(dtype)));
  }

  zeros(elemCount: number, dtype: DType): KernelStorage {
    return filled(this, dtype, elemCount, (out) => this.hip.memset(out, 0, elemCount * sizeInBytes(dtype)));
  }

  fromHost(bytes: ArrayBufferView, dtype: DType): KernelStorage {
    return filled(this, dtype, bytes.byteLength / sizeInBytes(dtype), (out) => {
      if (this.recording) this.recording.fromHost(out, bytes);
      else this.hip.memcpyHtoD(out, bytes);
    });
  }

  fromPeer(source: BackendStorage, offset: number, count: number): KernelStorage | null {
    this.#check('fromPeer');
    if (!(source instanceof KernelStorage) || source.device.hip.platform !== this.hip.platform) return null;
    const from = source.device;
    (this.recording ?? from.recording)?.refuse('a copy between devices');
    if (from === this || !this.#peers.reaches(from)) return null;
    const itemBytes = sizeInBytes(source.dtype);
    return filled(this, source.dtype, count, (out) =>
      this.hip.memcpyFrom(from.hip, out, source.ptr + offset * itemBytes, count * itemBytes),
    );
  }

  write(dst: BackendStorage, byteOffset: number, bytes: ArrayBufferView): void {
    if (bytes.byteLength > 0) this.hip.memcpyHtoD(this.#written(dst, byteOffset, bytes.byteLength), bytes);
  }

  pin(bytes: Uint8Array): PinnedBytes | null {
    this.#check('pin');
    const pinned = this.hip.pin(bytes);
    if (!pinned) {
      debug(
        1,
        () => `${this.name} does not page-lock ${bytes.byteLength} bytes of the host: copies from there are slower`,
      );
      return null;
    }
    return {
      write: (dst, byteOffset, from, byteLength) =>
        pinned.copyTo(this.#written(dst, byteOffset, byteLength), from, byteLength),
      dispose: () => pinned.dispose(),
    };
  }

  openFileReader(): DeviceFileReader {
    this.#check('openFileReader');
    return this.#fileReads.open();
  }

  async synchronize(): Promise<void> {
    this.#check('synchronize');
    this.recording?.refuse('synchronize');
    await Promise.all([this.idReport?.read(), this.hip.synchronize()]);
  }

  synchronizeSync(): void {
    this.#check('synchronizeSync');
    this.recording?.refuse('synchronizeSync');
    this.hip.synchronizeSync();
    this.idReport?.readSync();
  }

  memory(): DeviceMemory {
    return this.#allocator.memory();
  }

  availableBytes(): number | undefined {
    this.#check('availableBytes');
    try {
      return this.hip.memoryInfo().free + this.#allocator.memory().cachedBytes;
    } catch (error) {
      // Who asks can go on without.
      if (error instanceof HipError) return undefined;
      throw error;
    }
  }

  emptyCache(): void {
    this.#check('emptyCache');
    this.recording?.refuse('emptyCache');
    this.quantized.denseWeights.release();
    this.hip.synchronizeSync();
    this.#allocator.emptyCache();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.recording?.refuse('dispose');
    this.#disposed = true;
    // Waits, and gives back whatever was made on the device, also where the device has failed.
    this.hip.dispose();
  }

  /** The address of bytes of a storage that the host is about to write. */
  #written(dst: BackendStorage, byteOffset: number, byteLength: number): number {
    this.#check('write');
    this.recording?.refuse('write');
    const storage = KernelStorage.on(this, dst);
    this.quantized.denseWeights.forget(storage);
    return storage.bytesAt(byteOffset, byteLength);
  }

  /** What all streams may read, uploaded once. */
  #uploadShared(ptr: number, words: BigUint64Array): void {
    if (this.recording) this.recording.upload(ptr, words);
    else this.hip.memcpyHtoD(ptr, words);
    this.streams.share();
  }

  #freeShared(ptr: number): void {
    if (this.streams.isShared) for (const stream of this.streams.all) this.#allocator.used(ptr, stream);
    this.free(ptr);
  }

  #timed(what: () => string, enqueue: () => void): void {
    const start = this.hip.createEvent();
    const end = this.hip.createEvent();
    start.record(this.hip.currentStream);
    enqueue();
    end.record(this.hip.currentStream);
    end.synchronizeSync();
    debug(4, () => `${what()} ${(end.elapsedMs(start) * 1000).toFixed(1)} us`);
    start.dispose();
    end.dispose();
  }

  #check(operation: string): void {
    if (this.#disposed) {
      throw new DisposedError(
        'DISPOSED',
        `${operation} on ${this.location.kind}:${this.location.ordinal}, which was disposed. Open the device again`,
      );
    }
  }
}
