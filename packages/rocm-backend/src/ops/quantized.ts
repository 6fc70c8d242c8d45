/**
 * Quantized weights on a device, after candle's `QCudaStorage` (candle-core/src/quantized/cuda.rs): the activation is
 * quantized to q8_1 blocks once per product, then rows are multiplied in int8. Up to eight activation rows take the
 * matrix-vector kernels, more the tiled ones: on int8 matrix units where the GPU has them, else on dp4a (and on the host).
 * NVIDIA's units take few rows through kernels that are bound by the weight's bytes alone. Many rows are worth a weight that is dequantized for the product: then activations and weights are bf16 for the library.
 * candle's kernels are those of ten types; here every block type of ggml has them, and mxfp4 the matrix units' ones, too.
 */
import {
  type BackendStorage,
  BLOCK_TYPES,
  type BlockType,
  type DenseForm,
  type ExpertTiles,
  isBlockType,
  Layout,
  type Operand,
  type QuantizedOps,
  type StoragePart,
  settings,
  sizeInBytes,
} from '@x/core';
import { HipError } from '@x/hip';
import type { Counters } from '../counters';
import type { KernelDevice } from '../device';
import type { LaunchShape } from '../launch-shape';
import {
  launchDequantizeBlock,
  launchDequantizeCounted,
  launchDequantizePairs,
  launchGetRows,
  launchIndexedMoeForward,
  launchMulMat,
  launchMulMatGrouped,
  launchMulMatStream,
  launchMulMatStreamGrouped,
  launchMulMatVec,
  launchMulMatVecBeside,
  launchMulMatVecUpTo,
  type MulMatArguments,
} from '../launchers/quantized';
import { KernelStorage } from '../storage';
import { activationRows, MAX_GRID_Y, MAX_VECTOR_ROWS, paddedWidth, quantizeRows } from './activations';
import { denseCopy } from './copy';
import { DenseWeights } from './dense-weights';
import { cast } from './elementwise';
import { operandsFor, type PairForm, rowsOfPairs } from './expert-rows';
import { EXPERT_TILE } from './experts';
import { gemmIntoF32, libraryRows } from './gemm-library';
import { groupedStreamLaunch, type StreamLaunch, streamLaunch } from './quantized-stream';
import { filled, filledRows, rowsOfProduct } from './result';
import { besideShape, CANDLE_TYPES, UNIT_TYPES, vectorShape } from './vector-shape';

/** Types whose `dequantize_block` kernels count values instead of blocks. */
const COUNTED_IN_VALUES: ReadonlySet<BlockType> = new Set(['q5_0', 'q5_1']);

/**
 * Values' worth of zero blocks behind the last row of a weight, as candle's MATRIX_ROW_PADDING: a kernel that works in
 * tiles of a row may read past its end, and what it finds must neither fault nor be NaN.
 */
const WEIGHT_PADDING = 512;
/** Values that one launch dequantises: candle's kernels count in i32. */
const DEQUANTIZED_AT_ONCE = 2 ** 30;
/** Rows that one launch looks up: a grid has at most 2^32 threads. */
const ROWS_AT_ONCE = 2 ** 25;
/** Weight rows and activation rows of a block's tile, by kernel: `mul_mat_*` with 128 threads, the others with 8 warps. */
const TILES = {
  mul_mat_: { weights: 64, activations: 64 },
  mul_mat_mma_: { weights: 64, activations: 128 },
  mul_mat_mma_few_: { weights: 32, activations: 64 },
};
const MMA_WARPS = 8;
/**
 * Activation rows from which on and up to which `mul_mat_stream_*` is the fastest of all (cuda): weights that are kept as numbers
 * are multiplied faster by more, others would be dequantized for each product.
 */
const STREAM_ROWS = { from: 5, to: 64, toWhereNotKept: 128 };
/** `BesideType` of kernels/quantized/matvec.h, and how many weights the kernel takes. */
const BESIDE_TYPES: readonly BlockType[] = ['q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K', 'q8_0'];
const MOST_BESIDE = 3;
/** Weight rows of a tile of `mul_mat_mma_grouped_*`. */
const GROUPED_MMA_ROWS = 32;
/** Rows from which dequantizing a weight to bf16 for the library's product takes less time than int8 products (cuda). */
const DENSE_ROWS = 16;
/** Values of a weight that is dequantized for a product; larger ones stay in blocks, for the memory that would take. */
const DENSE_VALUES = 2 ** 29;

/**
 * What products of more than eight activation rows use: `dp4a`; int8 matrix units (`mma`, dp4a where there are none); units
 * in f16 with weights straight from memory (`stream`, from two rows on; `mma` where it does not run); weights dequantized for each
 * product (`dense`: in bf16 through the library, in f32 where it has no such product); or `auto`: on cuda `stream` for few rows
 * and `dense` for many where it is bf16, else the units where there are any.
 */
export type QuantizedChoice = 'auto' | 'dp4a' | 'mma' | 'stream' | 'dense';
const CHOICES: readonly string[] = ['auto', 'dp4a', 'mma', 'stream', 'dense'] satisfies QuantizedChoice[];

/** `n` rows of `k` values from a row of the weight on, for `m` rows of activations. */
interface ProductSize {
  m: number;
  n: number;
  k: number;
  firstRow?: number;
}

/** Products of `pairs` rows of `k` values with `n` weight rows of an expert each. */
interface GroupedSize {
  pairs: number;
  n: number;
  k: number;
}

export class DeviceQuantizedOps implements QuantizedOps {
  /** May be changed at any time. */
  choice: QuantizedChoice;
  roundsAs?: number | undefined;
  /** What `dense` products have dequantized and keep. */
  readonly denseWeights: DenseWeights;
  readonly #device: KernelDevice;
  readonly #counters: Counters;

  /** Default of `choice`: `X_QUANTIZED`, else `auto`. Errors: INVALID_ARGUMENT for a value that `X_QUANTIZED` may not have. */
  constructor(device: KernelDevice, counters: Counters, choice: string = settings.quantized()) {
    if (!CHOICES.includes(choice))
      throw new HipError(
        'INVALID_ARGUMENT',
        `X_QUANTIZED=${choice} is none of ${CHOICES.join(', ')}. Set one of these`,
      );
    this.choice = choice as QuantizedChoice;
    this.denseWeights = new DenseWeights(device);
    this.#device = device;
    this.#counters = counters;
  }

  /** There are kernels for every type of the table. */
  supports(type: string): boolean {
    return isBlockType(type);
  }

  allocatedBytes(type: BlockType, elemCount: number): number {
    return bytesOf(type, elemCount) + bytesOf(type, WEIGHT_PADDING);
  }

  allocate(type: BlockType, elemCount: number): KernelStorage {
    const storage = this.#device.allocUninit(this.allocatedBytes(type, elemCount), 'u8');
    try {
      const zeros = bytesOf(type, WEIGHT_PADDING);
      const layout = Layout.contiguous([zeros], storage.elemCount - zeros);
      this.#device.ops.fill({ storage, layout }, 0);
      return storage;
    } catch (error) {
      storage.dispose();
      throw error;
    }
  }

  dequantize(weight: BackendStorage, type: BlockType, elemCount: number, dtype: DenseForm): KernelStorage {
    const { ptr } = KernelStorage.on(this.#device, weight);
    return filled(this.#device, dtype, elemCount, (out) => this.#dequantize(ptr, type, elemCount, dtype, out));
  }

  matmul(weight: BackendStorage, type: BlockType, size: ProductSize, x: Operand): KernelStorage {
    const activations = this.quantizeActivations(x, size);
    try {
      return this.matmulActivations(weight, type, size, activations);
    } finally {
      activations.dispose();
    }
  }

  /** What activations of so many rows are given in: q8_1 blocks, or numbers of a dtype. */
  formOf(rows: number): 'blocks' | 'bf16' | 'f32' {
    const isDense =
      this.choice === 'dense'
        ? rows > MAX_VECTOR_ROWS
        : this.choice === 'auto' && this.#deciding(rows) >= DENSE_ROWS && !this.#streams(rows);
    if (!isDense || (this.choice === 'auto' && this.#device.location.kind !== 'cuda')) return 'blocks';
    if (this.#device.libraries.gemm.handle()?.takes('bf16', 'f32')) return 'bf16';
    return this.choice === 'dense' ? 'f32' : 'blocks';
  }

  quantizeActivations(x: Operand, { m, k }: { m: number; k: number }): KernelStorage {
    const form = this.formOf(m);
    if (form === 'blocks') return quantizeRows(this.#device, x, { count: m, room: activationRows(m) }, k);
    return filled(this.#device, form, libraryRows(this.#device, m) * k, (out) => {
      cast(this.#device, x.storage.dtype, form, this.#device.view(x), out);
    });
  }

  matmulActivations(
    weight: BackendStorage,
    type: BlockType,
    size: ProductSize,
    activations: BackendStorage,
  ): KernelStorage {
    const { m, n, k, firstRow = 0 } = size;
    const blocksOf = KernelStorage.on(this.#device, weight);
    const w = blocksOf.ptr + firstRow * bytesOf(type, k);
    const rows = KernelStorage.on(this.#device, activations);
    if (rows.dtype === 'u8' && this.#isDense(type, size)) {
      const values = this.#numbersOf(rows, size);
      try {
        return this.#dense(blocksOf, type, size, values);
      } finally {
        values.dispose();
      }
    }
    if (rows.dtype === 'u8') return this.#inBlocks(w, type, size, rows);
    if (n * k <= DENSE_VALUES) return this.#dense(blocksOf, type, size, rows);
    const operand = { storage: rows, layout: Layout.contiguous([m, k]) };
    const blocks = quantizeRows(this.#device, operand, { count: m, room: activationRows(m) }, k);
    try {
      return this.#inBlocks(w, type, size, blocks);
    } finally {
      blocks.dispose();
    }
  }

  matmulBeside(
    weights: readonly { weight: BackendStorage; type: BlockType; n: number }[],
    { m, k }: { m: number; k: number },
    activations: BackendStorage,
  ): KernelStorage | undefined {
    const rows = KernelStorage.on(this.#device, activations);
    const types = weights.map(({ type }) => BESIDE_TYPES.indexOf(type));
    if (m !== 1 || rows.dtype !== 'u8' || weights.length > MOST_BESIDE || types.includes(-1)) return undefined;
    const { grid, block, blocks } = besideShape(this.#device, weights, k);
    const [w0, w1, w2] = weights.map(({ weight, n }, i) => ({
      x: KernelStorage.on(this.#device, weight).ptr,
      rows: n,
      blocks: blocks[i],
    }));
    const total = weights.reduce((sum, { n }) => sum + n, 0);
    return filled(this.#device, 'f32', total, (dst) =>
      launchMulMatVecBeside(
        this.#device,
        'mul_mat_vec_beside_q8_1',
        { grid, block },
        {
          ...{ x0: w0.x, rows0: w0.rows, blocks0: w0.blocks },
          ...{ x1: w1?.x ?? 0, rows1: w1?.rows ?? 0, blocks1: w1?.blocks ?? 0 },
          ...{ x2: w2?.x ?? 0, rows2: w2?.rows ?? 0, blocks2: w2?.blocks ?? 0 },
          ...{ y: rows.ptr, dst, columns: k },
          types: types.reduce((all, type, i) => all + type * 16 ** i, 0),
        },
      ),
    );
  }

  /** Whether rows that come in blocks, for the types that are streamed, are worth a weight in bf16 that is not. */
  #isDense(type: BlockType, { m, n, k }: ProductSize): boolean {
    if (this.choice !== 'auto' || this.#deciding(m) < DENSE_ROWS || n * k > DENSE_VALUES) return false;
    if (this.#streamOf(type, { m, n, k })) return false;
    return this.#device.location.kind === 'cuda' && this.#device.libraries.gemm.handle()?.takes('bf16', 'f32') === true;
  }

  /** m rows of k values in bf16, from q8_1 blocks. */
  #numbersOf(blocks: KernelStorage, { m, k }: ProductSize): KernelStorage {
    const padded = paddedWidth(k);
    const values = this.dequantize(blocks, 'q8_1', m * padded, 'bf16');
    if (padded === k) return values;
    try {
      return denseCopy(this.#device, { storage: values, layout: Layout.contiguous([m, padded]).narrow(1, 0, k) });
    } finally {
      values.dispose();
    }
  }

  /** @param x rows in q8_1 blocks */
  #inBlocks(w: number, type: BlockType, { m, n, k }: ProductSize, { ptr: q8 }: KernelStorage): KernelStorage {
    const nrowsY = paddedWidth(k);
    return filled(this.#device, 'f32', m * n, (dst) => {
      const args = { x: w, y: q8, dst, ncolsX: k, nrowsX: n, nrowsY, nrowsDst: n };
      const stream = this.#streams(m) ? this.#streamOf(type, { m, n, k }) : undefined;
      if (stream) {
        this.#stream(stream, { ...args, ncolsY: m });
      } else if (m > MAX_VECTOR_ROWS) {
        const family = this.#tiled(type, n, m);
        launchMulMat(this.#device, `${family}${type}`, this.#tiledShape(family, n, m), { ...args, ncolsY: m });
      } else if (CANDLE_TYPES.has(type)) {
        launchMulMatVec(
          this.#device,
          `mul_mat_vec_${type}_q8_1_cuda${m}`,
          vectorShape(this.#device, type, n, k, m),
          args,
        );
      } else {
        const kernel = `mul_mat_vec_${type}_q8_1_upto${activationRows(m)}`;
        launchMulMatVecUpTo(this.#device, kernel, vectorShape(this.#device, type, n, k, m), { ...args, ncolsY: m });
      }
    });
  }

  #streamOf(type: BlockType, size: ProductSize): StreamLaunch | undefined {
    return UNIT_TYPES.has(type) ? streamLaunch(this.#device, type, size) : undefined;
  }

  #stream(stream: StreamLaunch, product: MulMatArguments): void {
    this.#withParts(stream, (parts) =>
      launchMulMatStream(this.#device, stream.kernel, stream.shape, { ...product, ...parts }),
    );
  }

  /** Memory for what blocks leave to each other, and the counters of tiles. */
  #withParts({ tiles, parts }: StreamLaunch, launch: (args: { parts: number; counters: number }) => void): void {
    const partial = this.#device.allocUninit(parts, 'f32');
    try {
      launch({ parts: partial.ptr, counters: this.#counters.of(tiles) });
    } finally {
      partial.dispose();
    }
  }

  /** @param x rows of numbers, in whose dtype the weight is dequantized */
  #dense(weight: KernelStorage, type: BlockType, size: ProductSize, x: KernelStorage): KernelStorage {
    const { n, k, firstRow = 0 } = size;
    const form = x.dtype as 'bf16' | 'f32';
    const fill = (out: number) => this.#dequantize(weight.ptr + firstRow * bytesOf(type, k), type, n * k, form, out);
    // Rows of a weight are those of an expert, of which others may be wanted next.
    const isWhole = weight.byteLength === this.allocatedBytes(type, n * k);
    const kept = isWhole ? this.denseWeights.of(weight, form, n * k, fill) : undefined;
    if (kept) return this.#denseProduct(x, kept, size);
    const values = filled(this.#device, form, n * k, fill);
    try {
      return this.#denseProduct(x, values, size);
    } finally {
      values.dispose();
    }
  }

  /** x [m, k] times the transpose of the weight's numbers [n, k], of the same dtype. */
  #denseProduct(x: KernelStorage, weight: KernelStorage, { m, n, k }: ProductSize): KernelStorage {
    if (x.dtype === 'bf16') {
      const room = Math.min(libraryRows(this.#device, m), Math.floor(x.elemCount / k));
      return filledRows(this.#device, 'f32', { rows: m, room, width: n }, (out) => {
        for (const { first, count, to } of rowsOfProduct(this.#device, { m, n }, out)) {
          const lhs = x.ptr + first * k * sizeInBytes('bf16');
          const rows = count === m ? room : count;
          gemmIntoF32(this.#device, 'bf16', { m: rows, n, k, lhs, rhsTransposed: weight.ptr, out: to });
        }
      });
    }
    const lhs = { storage: x, layout: Layout.contiguous([1, m, k]) };
    const rhs = { storage: weight, layout: Layout.contiguous([1, n, k]).transpose(1, 2) };
    return this.#device.ops.matmul(lhs, rhs, { b: 1, m, n, k }) as KernelStorage;
  }

  /**
   * candle's kernels of the K formats take one block a superblock and no count; the others
   * count in blocks, except q5_0 and q5_1, which count in values.
   */
  #dequantize(src: number, type: BlockType, elemCount: number, dtype: DenseForm, out: number): void {
    const kernel = `dequantize_block_${type}_${dtype}`;
    const { blockSize: values, blockBytes: bytes } = BLOCK_TYPES[type];
    for (let done = 0; done < elemCount; done += DEQUANTIZED_AT_ONCE) {
      const slice = Math.min(DEQUANTIZED_AT_ONCE, elemCount - done);
      const args = { x: src + (done / values) * bytes, y: out + done * sizeInBytes(dtype) };
      if (dtype === 'bf16') {
        const shape = this.#device.shapes.elementwise(slice, sizeInBytes(dtype));
        launchDequantizePairs(this.#device, kernel, shape, { ...args, blocks: slice / values });
      } else if (values === 256) {
        launchDequantizeBlock(this.#device, kernel, { grid: slice / 256, block: 64 }, args);
      } else {
        const k = COUNTED_IN_VALUES.has(type) ? slice : slice / values;
        launchDequantizeCounted(this.#device, kernel, this.#device.shapes.elementwise(slice), { ...args, k });
      }
    }
  }

  indexedMoe(
    weight: BackendStorage,
    type: BlockType,
    size: { n: number; k: number; topk: number; shared: boolean },
    x: Operand,
    ids: Operand,
  ): KernelStorage {
    const { n, k, topk, shared } = size;
    const w = KernelStorage.on(this.#device, weight).ptr;
    const { ptr } = this.#device.view(ids);
    const tasks = ids.layout.elemCount;
    const tokens = tasks / topk;
    const rows = shared ? tokens : tasks;
    const q8 = quantizeRows(this.#device, x, { count: rows, room: rows }, k);
    try {
      return filled(this.#device, 'f32', tasks * n, (out) => {
        const { grid, block } = vectorShape(this.#device, type, n, k);
        const shape: LaunchShape = { grid: [grid, Math.min(tasks, MAX_GRID_Y), 1], block };
        const pointers = { weights: w, inputs: q8.ptr, indices: ptr, out };
        const sizes = { n, k, batch: tokens, topk, kPadded: paddedWidth(k), inputDim1: shared ? 1 : topk };
        const kernel = `indexed_moe_forward_${type.replace('_K', 'k')}_q8_1`;
        launchIndexedMoeForward(this.#device, kernel, shape, { ...pointers, ...sizes });
      });
    } finally {
      q8.dispose();
    }
  }

  /** In q8_1 blocks with any number of pairs: there are no products of numbers in groups. */
  groupedMatmul(
    weight: BackendStorage,
    type: BlockType,
    size: GroupedSize,
    x: Operand,
    tiles: ExpertTiles,
  ): KernelStorage {
    const rows = this.#pairRows(x, size, this.pairForm(type, size, tiles));
    try {
      return this.groupedPairs([weight, 0], type, size, rows, tiles);
    } finally {
      rows.dispose();
    }
  }

  /** Rows x [pairs, k] in a form. */
  #pairRows(x: Operand, { pairs, k }: GroupedSize, form: PairForm): KernelStorage {
    const device = this.#device;
    if (form === 'blocks') return quantizeRows(device, x, { count: pairs, room: activationRows(pairs) }, k);
    const view = device.view(x);
    if (x.storage.dtype === 'f32') return rowsOfPairs(device, form, { pairs, k }, { x: view.ptr, sources: 0 });
    const numbers = filled(device, 'f32', pairs * k, (out) => cast(device, x.storage.dtype, 'f32', view, out));
    try {
      return rowsOfPairs(device, form, { pairs, k }, { x: numbers.ptr, sources: 0 });
    } finally {
      numbers.dispose();
    }
  }

  /** What {@link groupedPairs} of a weight with `n` rows of `k` values an expert reads. */
  pairForm(type: BlockType, size: { n: number; k: number }, tiles: ExpertTiles): PairForm {
    return this.#groupedStream(type, size, tiles) ? operandsFor(type) : 'blocks';
  }

  /** Whether tiles of {@link groupedPairs} may have so many pairs, which is more than 64. */
  takesTiles(type: BlockType, most: number): boolean {
    return this.#groupedStream(type, { n: 1, k: BLOCK_TYPES[type].blockSize }, { count: 1, most }) !== undefined;
  }

  #groupedStream(
    type: BlockType,
    { n, k }: { n: number; k: number },
    { count, most }: Pick<ExpertTiles, 'count' | 'most'>,
  ): StreamLaunch | undefined {
    const streams = (this.choice === 'auto' || this.choice === 'stream') && this.#device.location.kind === 'cuda';
    return streams && UNIT_TYPES.has(type) ? groupedStreamLaunch(this.#device, type, { count, n, k }, most) : undefined;
  }

  /** As {@link groupedMatmul}, of rows in the form that {@link pairForm} says. */
  groupedPairs(
    weight: StoragePart,
    type: BlockType,
    { pairs, n, k }: GroupedSize,
    rows: KernelStorage,
    order: ExpertTiles,
  ): KernelStorage {
    const device = this.#device;
    const { tiles, count } = order;
    return filled(device, 'f32', pairs * n, (dst) => {
      const sizes = { ncolsX: k, nrowsX: n, nrowsY: paddedWidth(k) };
      const pairsOf = { tiles: device.address(tiles), tileCount: count };
      const args = { x: device.address(weight), y: rows.ptr, dst, ...sizes, ...pairsOf };
      const stream = this.#groupedStream(type, { n, k }, order);
      if (stream) {
        const { kernel, shape } = stream;
        this.#withParts(stream, (parts) => launchMulMatStreamGrouped(device, kernel, shape, { ...args, ...parts }));
        return;
      }
      const onUnits = this.choice !== 'dp4a' && device.matrixUnits !== undefined && UNIT_TYPES.has(type);
      const across = onUnits ? GROUPED_MMA_ROWS : EXPERT_TILE;
      const block = onUnits ? MMA_WARPS * device.hip.properties.warpSize : 128;
      const shape = { grid: device.shapes.blocks(count * Math.ceil(n / across), block), block };
      launchMulMatGrouped(device, `${onUnits ? 'mul_mat_mma_grouped_' : 'mul_mat_grouped_'}${type}`, shape, args);
    });
  }

  embedding(weight: BackendStorage, type: BlockType, k: number, ids: Operand): KernelStorage {
    const w = KernelStorage.on(this.#device, weight);
    const rows = ids.layout.elemCount;
    return filled(this.#device, 'f32', rows * k, (out) => {
      const { ptr } = this.#device.view(ids);
      for (let row = 0; row < rows; row += ROWS_AT_ONCE) {
        const grid = [Math.min(ROWS_AT_ONCE, rows - row), Math.ceil(k / 256), 1] as const;
        const pointers = { src0: w.ptr, ids: ptr + row * 4, dst: out + row * k * 4 };
        const sizes = { ne00: k, nb01: bytesOf(type, k) };
        launchGetRows(this.#device, `get_rows_${type}`, { grid, block: 64 }, { ...pointers, ...sizes });
      }
    });
  }

  /** Rows by which it is decided how m rows are rounded. */
  #deciding(m: number): number {
    return this.roundsAs ?? m;
  }

  /** Whether products with m activation rows are for `mul_mat_stream_*`, where a type has it. */
  #streams(rows: number): boolean {
    const m = this.#deciding(rows);
    if (this.choice !== 'auto') return this.choice === 'stream' && m > 1;
    const to = this.denseWeights.areKept ? STREAM_ROWS.to : STREAM_ROWS.toWhereNotKept;
    return this.#device.location.kind === 'cuda' && m >= STREAM_ROWS.from && m <= to;
  }

  /** The kernels for a product with n weight rows and m > 8 activation rows that is no stream: the one place that decides. */
  #tiled(type: BlockType, n: number, m: number): keyof typeof TILES {
    const units = this.#device.matrixUnits;
    if (this.choice === 'dp4a' || !units || !UNIT_TYPES.has(type)) return 'mul_mat_';
    // Small tiles where activations fill no large ones, or large tiles would leave compute units idle.
    const few = m <= TILES.mul_mat_mma_few_.activations;
    const idle = tilesOf('mul_mat_mma_', n, m) < this.#device.hip.properties.multiprocessorCount;
    return few || idle ? 'mul_mat_mma_few_' : 'mul_mat_mma_';
  }

  #tiledShape(family: keyof typeof TILES, n: number, m: number): LaunchShape {
    const { shapes, hip } = this.#device;
    const block = family === 'mul_mat_' ? 128 : MMA_WARPS * hip.properties.warpSize;
    const tiles = tilesOf(family, n, m);
    return { grid: shapes.isHost ? shapes.hostBlocks(tiles) : shapes.blocks(tiles, block), block };
  }
}

function tilesOf(family: keyof typeof TILES, n: number, m: number): number {
  const { weights, activations } = TILES[family];
  return Math.ceil(n / weights) * Math.ceil(m / activations);
}

/** Bytes of `count` values, whole blocks. */
function bytesOf(type: BlockType, count: number): number {
  const { blockSize, blockBytes } = BLOCK_TYPES[type];
  return (count / blockSize) * blockBytes;
}
