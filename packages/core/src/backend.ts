/**
 * The one interface between tensors and devices, after candle's `BackendDevice` and `BackendStorage`
 * (candle-core/src/backend.rs). A backend sees storages and {@link Layout}s, never tensors: reference counting, shape
 * checks and broadcasting happen above it, so a backend may assume that shapes agree and dtypes are what it declares.
 *
 * Conventions for every op:
 * - the storage it is called on is the op's first operand, described by `layout`; strides may be zero (broadcast) or
 *   permuted, and the offset non-zero, unless the method says "contiguous";
 * - it returns a new, contiguous storage at offset 0 and leaves its operands alone; the methods that write in place
 *   return nothing;
 * - a dtype it has no kernel for raises an `UnsupportedError` naming op, dtype and device;
 * - work is enqueued, not awaited: only `toHost`, `toHostSync` and `synchronize` wait.
 */

import type { DecodeOps } from './backend-decode';
import type { PagedAttentionOps } from './backend-paged';
import type { DType } from './dtype';
import type { BinaryOp, CmpOp } from './elementwise/binary';
import type { UnaryOp } from './elementwise/unary';
import type { IdRange } from './id-range';
import type { Layout } from './layout';
import type { BlockType } from './quantized-types';

export {
  BINARY_NAMES,
  BINARY_OPS,
  type BinaryOp,
  type BinaryRow,
  binaryRow,
  CMP_NAMES,
  CMP_OPS,
  type CmpOp,
} from './elementwise/binary';
export {
  type IntegerReference,
  UNARY_NAMES,
  UNARY_OPS,
  type UnaryOp,
  type UnaryRow,
  unaryRow,
} from './elementwise/unary';

export type ReduceOp = 'sum' | 'min' | 'max' | 'argmin' | 'argmax';
/**
 * `interleaved` pairs neighbours (candle `rope_i`), `half` pairs element i with i + d/2 (candle `rope`); `thd` pairs as
 * `half` in a tensor [b, t, h, d] (candle `rope_thd`), where the others are [b, h, t, d].
 */
export type RopeKind = 'interleaved' | 'half' | 'thd';

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

/** Sizes of a batched product: out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]. */
export interface MatmulSize {
  b: number;
  m: number;
  n: number;
  k: number;
}

/** Element strides and offsets of a 2-D copy (candle `copy2d`): `d1` rows of `d2` elements. */
export interface Copy2d {
  d1: number;
  d2: number;
  srcStride: number;
  dstStride: number;
  srcOffset: number;
  dstOffset: number;
}

/**
 * Sizes of a 1-D convolution (candle `ParamsConv1D`): input [b, cIn, lIn], kernel [cOut, cIn, k], result [b, cOut, lOut]
 * with lOut = floor((lIn + 2 padding - dilation (k - 1) - 1) / stride) + 1. Groups are split above the backend.
 */
export interface Conv1dParams {
  b: number;
  cIn: number;
  cOut: number;
  lIn: number;
  lOut: number;
  k: number;
  /** Zeros on either side of the input. */
  padding: number;
  stride: number;
  dilation: number;
}

/**
 * Sizes of a transposed 1-D convolution (candle `ParamsConvTranspose1D`): kernel [cIn, cOut, k], and
 * lOut = (lIn - 1) stride - 2 padding + dilation (k - 1) + outputPadding + 1.
 */
export interface ConvTranspose1dParams extends Conv1dParams {
  outputPadding: number;
}

/** Sizes of a 2-D convolution (candle `ParamsConv2D`): input [b, cIn, hIn, wIn], kernel [cOut, cIn, kH, kW]. */
export interface Conv2dParams {
  b: number;
  cIn: number;
  cOut: number;
  hIn: number;
  wIn: number;
  hOut: number;
  wOut: number;
  kH: number;
  kW: number;
  padding: number;
  stride: number;
  dilation: number;
}

/** Sizes of a transposed 2-D convolution (candle `ParamsConvTranspose2D`): kernel [cIn, cOut, kH, kW]. */
export interface ConvTranspose2dParams extends Conv2dParams {
  outputPadding: number;
}

/** Windows of a 2-D pooling over [b, c, h, w], without padding; result [b, c, hOut, wOut]. */
export interface Pool2dParams {
  kH: number;
  kW: number;
  strideH: number;
  strideW: number;
  hOut: number;
  wOut: number;
}

/** Target of a bilinear resize. A scale, where given, replaces the ratio of sizes as PyTorch's `scale_factor` does. */
export interface BilinearParams {
  hOut: number;
  wOut: number;
  /** The corner elements of input and output coincide; scales have no effect then. */
  alignCorners: boolean;
  scaleH?: number;
  scaleW?: number;
}

export interface BackendStorage {
  readonly dtype: DType;
  readonly device: BackendDevice;
  /** Elements that the buffer holds (for a quantized weight: bytes, its dtype being u8). */
  readonly elemCount: number;
  /** Gives the memory back. Called once, by the reference count. */
  dispose(): void;
  /** Copies out elements [offset, offset + count), default all, as raw little-endian bytes. */
  toHost(offset?: number, count?: number): Promise<ArrayBuffer>;
  toHostSync(offset?: number, count?: number): ArrayBuffer;

  /** x * mul + add, the scalars rounded to the dtype. All ten dtypes. */
  affine(layout: Layout, mul: number, add: number): BackendStorage;
  powf(layout: Layout, exponent: number): BackendStorage;
  elu(layout: Layout, alpha: number): BackendStorage;
  unary(op: UnaryOp, layout: Layout): BackendStorage;
  binary(op: BinaryOp, rhs: BackendStorage, lhsLayout: Layout, rhsLayout: Layout): BackendStorage;
  /** Elementwise comparison; the result is u8, 0 or 1. */
  cmp(op: CmpOp, rhs: BackendStorage, lhsLayout: Layout, rhsLayout: Layout): BackendStorage;
  toDtype(layout: Layout, dtype: DType): BackendStorage;
  /** Reduces `dims` (sum: any; others: exactly one). The result has them removed; argmin/argmax give u32. */
  reduce(op: ReduceOp, layout: Layout, dims: readonly number[]): BackendStorage;
  /** This storage is the condition (an integer dtype): cond != 0 ? onTrue : onFalse. All layouts have one shape. */
  whereCond(
    layout: Layout,
    onTrue: BackendStorage,
    trueLayout: Layout,
    onFalse: BackendStorage,
    falseLayout: Layout,
  ): BackendStorage;
  matmul(rhs: BackendStorage, size: MatmulSize, lhsLayout: Layout, rhsLayout: Layout): BackendStorage;

  /** Correlation with a kernel, as candle and PyTorch define convolution. Any strides; integers wrap. */
  conv1d(layout: Layout, kernel: BackendStorage, kernelLayout: Layout, params: Conv1dParams): BackendStorage;
  convTranspose1d(
    layout: Layout,
    kernel: BackendStorage,
    kernelLayout: Layout,
    params: ConvTranspose1dParams,
  ): BackendStorage;
  conv2d(layout: Layout, kernel: BackendStorage, kernelLayout: Layout, params: Conv2dParams): BackendStorage;
  convTranspose2d(
    layout: Layout,
    kernel: BackendStorage,
    kernelLayout: Layout,
    params: ConvTranspose2dParams,
  ): BackendStorage;
  /** Mean of each window; an integer mean is truncated. */
  avgPool2d(layout: Layout, params: Pool2dParams): BackendStorage;
  /** Largest element of each window, NaN if it has one. */
  maxPool2d(layout: Layout, params: Pool2dParams): BackendStorage;
  /** [b, c, l] to [b, c, lOut]: element min(l - 1, floor(i * l / lOut)). */
  upsampleNearest1d(layout: Layout, lOut: number): BackendStorage;
  /** [b, c, h, w] to [b, c, hOut, wOut], each axis as in `upsampleNearest1d`. */
  upsampleNearest2d(layout: Layout, hOut: number, wOut: number): BackendStorage;
  /** [b, c, h, w] to [b, c, hOut, wOut]; weights in f64, the result cast to the dtype as `toDtype` does. */
  upsampleBilinear2d(layout: Layout, params: BilinearParams): BackendStorage;
  /** u32 positions that sort each row of the last dim. Stable in both directions; NaN is greater than every number. */
  argSortLastDim(layout: Layout, descending: boolean): BackendStorage;
  /** What `argSortLastDim` gives, and the values in that order: both contiguous. */
  sortLastDim(layout: Layout, descending: boolean): { values: BackendStorage; positions: BackendStorage };
  /** The first `k` columns of what `argSortLastDim` gives: [..., k]. 0 < k <= the size of the last dim. */
  topkLastDim(layout: Layout, k: number, descending: boolean): BackendStorage;

  /**
   * This storage holds ids of `op`, integers of any layout: one outside `range` is an `INDEX_OUT_OF_RANGE` error. It is raised
   * here, or by a device that cannot know yet when it is next waited for (`toHost`, `toHostSync`, `synchronize`). Called
   * before each operation by ids, which may take them to be inside but reaches no other memory where they are not.
   */
  checkIds(op: string, layout: Layout, range: IdRange): void;
  /** out[..., i, ...] = self[..., ids[i], ...] along `dim`; ids rank 1. */
  indexSelect(layout: Layout, ids: BackendStorage, idsLayout: Layout, dim: number): BackendStorage;
  /** out[.., j, ..] = self[.., ids[.., j, ..], ..] in the shape of the ids, which is no larger than self's but for `dim`. */
  gather(layout: Layout, ids: BackendStorage, idsLayout: Layout, dim: number): BackendStorage;
  /** A copy of self with src's slices added at ids along `dim`. */
  indexAdd(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): BackendStorage;
  /**
   * In place, self contiguous: self[.., ids[.., i, ..], ..] = src[.., i, ..]. Source and ids have one shape, which is no larger
   * than self's but for `dim`.
   */
  scatterSet(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): void;
  scatterAddSet(
    layout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
    src: BackendStorage,
    srcLayout: Layout,
    dim: number,
  ): void;

  /** In place into `dst` (same device and dtype): dst[dstOffset + i] = i-th element of self in row-major order. */
  copyStridedInto(dst: BackendStorage, dstOffset: number, layout: Layout): void;
  copy2d(dst: BackendStorage, copy: Copy2d): void;
  /** In place: every element that `layout` addresses becomes `value`. */
  constSet(value: number | bigint, layout: Layout): void;

  /** Softmax over the last dim; f16/bf16 accumulate in f32. Contiguous. Source: candle-nn SoftmaxLastDim. */
  softmaxLastDim(layout: Layout): BackendStorage;
  /** x / sqrt(mean(x²) + eps) * alpha over the last dim; alpha [d]. Contiguous. Source: candle-nn RmsNorm. */
  rmsNorm(layout: Layout, alpha: BackendStorage, alphaLayout: Layout, eps: number): BackendStorage;
  layerNorm(
    layout: Layout,
    alpha: BackendStorage,
    alphaLayout: Layout,
    beta: BackendStorage,
    betaLayout: Layout,
    eps: number,
  ): BackendStorage;
  /** self [b, h, t, d] or, for `thd`, [b, t, h, d]; cos and sin [t, d/2] or [b, t, d/2]. Contiguous. Source: candle-nn RotaryEmb. */
  rope(
    kind: RopeKind,
    layout: Layout,
    cos: BackendStorage,
    cosLayout: Layout,
    sin: BackendStorage,
    sinLayout: Layout,
  ): BackendStorage;
}

/**
 * Block-quantized weights on a device. A weight is a u8 storage of ggml blocks, row after row, `n` rows of `k` values, made
 * by `allocate`. `type` is the ggml name in candle's spelling (see {@link BLOCK_TYPES}).
 */
export interface QuantizedOps {
  supports(type: string): boolean;
  /** Bytes that the blocks of `elemCount` values take in this device's memory, with what its kernels need behind them. */
  allocatedBytes(type: BlockType, elemCount: number): number;
  /**
   * Memory of {@link allocatedBytes} for the blocks of `elemCount` values, whole blocks. What kernels need behind the blocks
   * is set, the blocks are not: they are written from byte 0 on.
   */
  allocate(type: BlockType, elemCount: number): BackendStorage;
  /** All `elemCount` values as f32 or f16. */
  dequantize(weight: BackendStorage, type: BlockType, elemCount: number, dtype: 'f32' | 'f16'): BackendStorage;
  /**
   * x [m, k] in f32, f16 or bf16, contiguous at xLayout's offset, times the transpose of `n` rows of the weight from row
   * `firstRow` (default 0) on: [m, n] f32.
   */
  matmul(
    weight: BackendStorage,
    type: BlockType,
    size: { m: number; n: number; k: number; firstRow?: number },
    x: BackendStorage,
    xLayout: Layout,
  ): BackendStorage;
  /** x [m, k] as for {@link matmul}, in the blocks (u8) that {@link matmulActivations} takes: for several products of one x. */
  quantizeActivations(x: BackendStorage, xLayout: Layout, size: { m: number; k: number }): BackendStorage;
  /** As {@link matmul}, of m rows of activations in blocks. */
  matmulActivations(
    weight: BackendStorage,
    type: BlockType,
    size: { m: number; n: number; k: number; firstRow?: number },
    activations: BackendStorage,
  ): BackendStorage;
  /**
   * For every id the product of a row of x with the expert's weights: weight [experts, n, k], ids [tokens * topk] (u32,
   * contiguous, each below the number of experts), x contiguous [tokens * topk, k], or [tokens, k] with `shared`, in f32,
   * f16 or bf16; [tokens * topk, n] f32.
   */
  indexedMoe(
    weight: BackendStorage,
    type: BlockType,
    size: { n: number; k: number; topk: number; shared: boolean },
    x: BackendStorage,
    xLayout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
  ): BackendStorage;
  /** Rows of the weight [.., k] at ids (u32, contiguous): [ids, k] f32. */
  embedding(weight: BackendStorage, type: BlockType, k: number, ids: BackendStorage, idsLayout: Layout): BackendStorage;
}

/** Attention of `heads` query heads, a multiple of `kvHeads`: softmax(q · kᵀ · scale) · v. */
export interface AttentionProblem {
  b: number;
  heads: number;
  kvHeads: number;
  seq: number;
  kv: number;
  /** Size of a head, of the values too. */
  d: number;
  scale: number;
  /** The last query sees all keys, the one before it all but one, and so on; a query that sees none gives NaN. */
  causal: boolean;
}

/** Attention in one kernel, whose scores never lie in memory. */
export interface AttentionOps {
  /** Whether the device has a kernel that is faster here than two products and a softmax. */
  supports(dtype: DType, problem: AttentionProblem): boolean;
  /** q [b, heads, seq, d], k and v [b, kvHeads, kv, d], any strides: [b, heads, seq, d]. Sums are made in f32. */
  forward(
    problem: AttentionProblem,
    q: BackendStorage,
    qLayout: Layout,
    k: BackendStorage,
    kLayout: Layout,
    v: BackendStorage,
    vLayout: Layout,
  ): BackendStorage;
}

/** The random stream of a device: the numbers of a call follow from the seed and the number of calls before it. */
export interface RandomStream {
  readonly seed: number;
  readonly calls: number;
  /** Goes to a place where a stream was, so that the same numbers come again. */
  restore(seed: number, calls: number): void;
}

/** What a kernel is called with: numbers, storages (their first element), or storages from an element on. */
export type KernelArgument = number | bigint | BackendStorage | readonly [storage: BackendStorage, offset: number];

/** How many threads run a kernel. On the CPU a block is one thread whatever `block` says. */
export interface LaunchSize {
  /** Blocks, in one or three dimensions. */
  grid: number | readonly [number, number, number];
  /** Threads of a block. */
  block: number | readonly [number, number, number];
  /** Bytes of dynamic shared memory a block. Default 0. */
  sharedBytes?: number;
}

export interface CompiledKernel {
  readonly name: string;
  /**
   * Enqueues the kernel. `size` is the number of elements for a grid-stride kernel, for which the device chooses grid and
   * block, or both in full. Arguments are those of the kernel's declaration, in its order and number.
   */
  launch(size: number | LaunchSize, args: readonly KernelArgument[]): void;
}

/** Kernels compiled from source at run time. */
export interface CompiledProgram {
  /** @throws an error that names the kernels there are when there is no such one */
  kernel(name: string): CompiledKernel;
}

export interface CompileOptions {
  /** Compiler options such as `-DTILE=64`. */
  defines?: readonly string[];
}

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
  create(): BackendStream;
}

/** Work of a device that was captured: enqueued again as a whole, by one call of the driver. */
export interface BackendGraph {
  /** Names of its kernels and library calls, in their order. */
  readonly launches: readonly string[];
  /**
   * Enqueues the work.
   * @throws DisposedError when a storage that it uses was disposed
   */
  replay(): void;
  /** Waits for the device and gives back the memory that belongs to the graph. */
  dispose(): void;
}

export interface BackendDevice {
  readonly location: DeviceLocation;
  /** A sentence for people: "AMD Radeon RX 7900 XTX (gfx1100)". */
  readonly description: string;
  /** Present when the device has kernels for quantized weights; without it `@x/quantized` computes on the host. */
  readonly quantized?: QuantizedOps;
  /** Present when the device has attention kernels. */
  readonly attention?: AttentionOps;
  /** Present when the device has kernels for attention over a cache in blocks. */
  readonly pagedAttention?: PagedAttentionOps;
  /** Present when the device has fused kernels for what lies between products. */
  readonly decode?: DecodeOps;
  /** The stream behind `randUniform` and `randNormal`; without it a checkpoint cannot repeat random numbers. */
  readonly random?: RandomStream;
  /**
   * Calls `record` and makes a graph of what it enqueues, none of which runs before {@link BackendGraph.replay}. What is
   * allocated meanwhile belongs to the graph: nothing else gets that memory while the graph lives. Null, without having
   * called `record`, where the platform has no graphs. An error of `record` is thrown on, with the device as it was before.
   */
  capture?(record: () => void): BackendGraph | null;
  /** Present when the device can run several streams. */
  readonly streams?: StreamOps;
  /** Kernels, library calls and graphs that were launched since the device was opened. */
  readonly launchCount?: number;
  /**
   * Elements [offset, offset + count) of a storage of another device of the same kind, copied without the host and ordered
   * behind what either device was given. Null where the devices do not reach each other.
   */
  fromPeer?(source: BackendStorage, offset: number, count: number): BackendStorage | null;
  /** Compiles HIP C++ for this device; only devices that run kernels have it. See `Device.compile`. */
  compile?(source: string, options?: CompileOptions): CompiledProgram;
  allocUninit(elemCount: number, dtype: DType): BackendStorage;
  zeros(elemCount: number, dtype: DType): BackendStorage;
  /** Raw little-endian bytes; their length is a multiple of the dtype's size. The view may be reused afterwards. */
  fromHost(bytes: ArrayBufferView, dtype: DType): BackendStorage;
  /** Overwrites bytes [byteOffset, byteOffset + view length) of a storage: how large weights are streamed in. */
  write(dst: BackendStorage, byteOffset: number, bytes: ArrayBufferView): void;
  randUniform(elemCount: number, dtype: DType, lo: number, up: number): BackendStorage;
  randNormal(elemCount: number, dtype: DType, mean: number, std: number): BackendStorage;
  setSeed(seed: number): void;
  /** The seed set last, or the default one. */
  getCurrentSeed(): number;
  synchronize(): Promise<void>;
  synchronizeSync(): void;
  memory(): DeviceMemory;
  /** Gives cached memory back to the driver. */
  emptyCache(): void;
  /** Afterwards every use of the device or its storages raises a `DisposedError`. */
  dispose(): void;
}

/** How a backend package announces itself to core: see `registerBackend` in device.ts. */
export interface BackendProvider {
  readonly kind: DeviceLocation['kind'];
  /** Devices that can be opened now, or why there are none. Never throws. */
  list(): { devices: { ordinal: number; description: string }[]; reason?: string };
  open(ordinal: number): BackendDevice;
}
