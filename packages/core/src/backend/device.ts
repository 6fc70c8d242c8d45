/**
 * The one interface between tensors and devices, after candle's `BackendDevice` and `BackendStorage`
 * (candle-core/src/backend.rs). A device allocates memory ({@link BackendStorage}), moves it, and computes: `ops` are
 * required, and all there is to write for a new backend; the capabilities behind it make it fast.
 */
import type { DType } from '../dtype';
import type { AttentionOps, PackedAttentionOps, PagedAttentionOps } from './attention';
import type { ConvOps, FusedOps, RandomOps, ResamplingOps, ScanOps, SortOps } from './capabilities';
import type { CollectiveOps } from './collectives';
import type { CompiledProgram, CompileOptions } from './compile';
import type { DecodeOps } from './decode';
import type { ExpertOps } from './experts';
import type { DeviceFileReader } from './file-reader';
import type { BackendGraph } from './graph';
import type { LinearOps } from './linear';
import type { BackendOperations } from './operations';
import type { OptimOps } from './optim';
import type { PinnedBytes } from './pinned-bytes';
import type { QuantizedOps } from './quantized';
import type { QuantizedExpertOps } from './quantized-experts';
import type { RecurrentOps } from './recurrent';
import type { SamplingOps } from './sampling';
import type { BackendStorage } from './storage';
import type { StreamOps } from './stream';

/** Where a device is: `js`, `cpu`, `rocm:0`, `cuda:1`. */
export interface DeviceLocation {
  readonly kind: 'js' | 'cpu' | 'rocm' | 'cuda';
  readonly ordinal: number;
}

/** Bytes and counts of one device; `cached`, `graph` and `driver` are 0 on devices without a caching allocator. */
export interface DeviceMemory {
  /** Storages not yet disposed. */
  liveStorages: number;
  /** Bytes those storages hold. */
  liveBytes: number;
  /** Bytes that the allocator keeps for reuse. */
  cachedBytes: number;
  /** Bytes that captured graphs keep for their temporaries: neither live nor cached. */
  graphBytes: number;
  /** Bytes obtained from the driver (live + cached + graphs + rounding). */
  driverBytes: number;
  peakBytes: number;
}

/** What a new backend implements: memory, transfers and `ops`. What is optional makes it faster. */
export interface BackendDevice {
  readonly location: DeviceLocation;
  /** A sentence for people: "AMD Radeon RX 7900 XTX (gfx1100)". */
  readonly description: string;
  /** What every backend computes. */
  readonly ops: BackendOperations;
  /** Capabilities: what is missing is composed of `ops`, see capabilities.ts. */
  readonly fused?: Partial<FusedOps>;
  readonly conv?: Partial<ConvOps>;
  readonly resampling?: Partial<ResamplingOps>;
  readonly sorting?: Partial<SortOps>;
  readonly scan?: Partial<ScanOps>;
  /** Without it numbers are made on the host. */
  readonly random?: RandomOps;
  /** Present when the device has kernels for quantized weights; without it `@x/quantized` computes on the host. */
  readonly quantized?: QuantizedOps;
  /** Present when the device has fused kernels for experts whose weights are in blocks; there is `quantized` then. */
  readonly quantizedExperts?: QuantizedExpertOps;
  /** Present when the device has kernels for weights in f16 and bf16 with activations in f32. */
  readonly linear?: LinearOps;
  /** Present when the device has attention kernels. */
  readonly attention?: AttentionOps;
  /** Present when the device has kernels for attention over a cache in blocks. */
  readonly pagedAttention?: PagedAttentionOps;
  /** Present when the device has kernels for attention of packed sequences. */
  readonly packedAttention?: PackedAttentionOps;
  /** Present when the device has fused kernels for what lies between products. */
  readonly decode?: DecodeOps;
  /** Present when the device has kernels for layers that carry a state. */
  readonly recurrent?: RecurrentOps;
  /** Present when the device makes a step of an optimiser in one kernel. */
  readonly optim?: OptimOps;
  /** Present when the device has kernels for mixtures of experts. */
  readonly experts?: ExpertOps;
  /** Present when the device chooses tokens; without it `@x/engine` does on the host. */
  readonly sampling?: SamplingOps;
  /** Present when devices of this kind compute together. */
  readonly collectives?: CollectiveOps;
  /**
   * Calls `record` and makes a graph of what it enqueues, none of which runs before {@link BackendGraph.replay}. What is
   * allocated meanwhile belongs to the graph: nothing else gets that memory while the graph lives. Null, without having
   * called `record`, where the platform has no graphs. An error of `record` is thrown on, with the device as it was before.
   * Where `record` calls `divide`, replays call `step` between what was enqueued before and what is enqueued afterwards.
   */
  capture?(record: (divide: (step: () => void) => void) => void): BackendGraph | null;
  /** Present when the device can run several streams. */
  readonly streams?: StreamOps;
  /** Kernels, library calls and graphs that were launched since the device was opened. */
  readonly launchCount?: number;
  /** Kernels and library calls that ran or will: those of a graph at each replay. */
  readonly kernelCount?: number;
  /**
   * Elements [offset, offset + count) of a storage of another device of the same kind, copied without the host and ordered
   * behind what either device was given. Null where the devices do not reach each other.
   */
  fromPeer?(source: BackendStorage, offset: number, count: number): BackendStorage | null;
  /** Compiles HIP C++ for this device; only devices that run kernels have it. See `Device.compile`. */
  compile?(source: string, options?: CompileOptions): CompiledProgram;
  /** Memory for `elemCount` elements, with any values. */
  allocUninit(elemCount: number, dtype: DType): BackendStorage;
  /** As {@link allocUninit}, all elements 0. */
  zeros(elemCount: number, dtype: DType): BackendStorage;
  /** Raw little-endian bytes; their length is a multiple of the dtype's size. The view may be reused afterwards. */
  fromHost(bytes: ArrayBufferView, dtype: DType): BackendStorage;
  /** Overwrites bytes [byteOffset, byteOffset + view length) of a storage: how large weights are streamed in. */
  write(dst: BackendStorage, byteOffset: number, bytes: ArrayBufferView): void;
  /**
   * Page-locks memory of the host where it lies, so that copies from it are fast and the host need not wait for them. The memory
   * must stay until the result is disposed. Null where that is refused; absent where there is nothing to gain.
   */
  pin?(bytes: Uint8Array): PinnedBytes | null;
  /** Reads files into storages; present when the device does that faster than {@link write} of what was read. */
  openFileReader?(): DeviceFileReader;
  /** Resolves when all enqueued work is done. */
  synchronize(): Promise<void>;
  /** As {@link synchronize}, blocking the event loop. */
  synchronizeSync(): void;
  /** What `Device.memory` gives. */
  memory(): DeviceMemory;
  /** Bytes that may be allocated still, those kept for reuse among them; undefined where nobody says. */
  availableBytes?(): number | undefined;
  /**
   * Called after each kernel that the driver compiled, with how many there were: it does so once a machine, and whoever waits may want to
   * know why. Who sets it has it.
   */
  onCompiled?: ((count: number) => void) | undefined;
  /** Gives cached memory back to the driver. */
  emptyCache(): void;
  /** Afterwards every use of the device or its storages raises a `DisposedError`. */
  dispose(): void;
}

/** How a backend package announces itself to core: see `registerBackend` in device.ts. */
export interface BackendProvider {
  readonly kind: DeviceLocation['kind'];
  /** URL of the module whose import registers it, for other threads to import too. */
  readonly module?: string;
  /** Devices that can be opened now, or why there are none. Never throws. */
  list(): { devices: { ordinal: number; description: string }[]; reason?: string };
  /** @throws a CandleError, or anything else, of which `Device` makes a DeviceError `DEVICE_UNAVAILABLE` */
  open(ordinal: number): BackendDevice;
}
