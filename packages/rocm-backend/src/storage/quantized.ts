/**
 * Quantized weights on a device, after candle's `QCudaStorage` (candle-core/src/quantized/cuda.rs): the activation is
 * quantized to q8_1 blocks once per product, then rows are multiplied in int8. Up to eight activation rows take the
 * matrix-vector kernels, more the tiled ones: on int8 matrix units where the GPU has them, else on dp4a (and on the host).
 * candle's kernels are those of ten types; here every block type of ggml has them, all but the matrix units' ones.
 */
import { type BackendStorage, type Layout, type QuantizedOps, sizeInBytes } from '@x/core';
import { HipError } from '@x/hip';
import { QUANTIZED } from '@x/kernels';
import type { RocmDevice } from '../device';
import type { LaunchShape } from '../launch-shape';
import { clamp } from '../launch-shape';
import { run } from '../ops';
import { RocmStorage } from './index';

/** Values and bytes of a weight block, by candle's spelling of the type. */
interface BlockSize {
  values: 32 | 64 | 256;
  bytes: number;
}

/** Types that candle has kernels for: one matrix-vector kernel a number of activation rows. */
const CANDLE_TYPES: Record<string, BlockSize> = {
  q4_0: { values: 32, bytes: 18 },
  q4_1: { values: 32, bytes: 20 },
  q5_0: { values: 32, bytes: 22 },
  q5_1: { values: 32, bytes: 24 },
  q8_0: { values: 32, bytes: 34 },
  q2_K: { values: 256, bytes: 84 },
  q3_K: { values: 256, bytes: 110 },
  q4_K: { values: 256, bytes: 144 },
  q5_K: { values: 256, bytes: 176 },
  q6_K: { values: 256, bytes: 210 },
};

/** All types. Those of ours have matrix-vector kernels for up to 1, 2, 4 and 8 rows. */
const FORMATS: Record<string, BlockSize> = {
  ...CANDLE_TYPES,
  q8_1: { values: 32, bytes: 36 },
  q8_K: { values: 256, bytes: 292 },
  iq1_s: { values: 256, bytes: 50 },
  iq1_m: { values: 256, bytes: 56 },
  iq2_xxs: { values: 256, bytes: 66 },
  iq2_xs: { values: 256, bytes: 74 },
  iq2_s: { values: 256, bytes: 82 },
  iq3_xxs: { values: 256, bytes: 98 },
  iq3_s: { values: 256, bytes: 110 },
  iq4_nl: { values: 32, bytes: 18 },
  iq4_xs: { values: 256, bytes: 136 },
  tq1_0: { values: 256, bytes: 54 },
  tq2_0: { values: 256, bytes: 66 },
  mxfp4: { values: 32, bytes: 17 },
  nvfp4: { values: 64, bytes: 36 },
};

/** Activations are padded to this many values, as candle's MATRIX_ROW_PADDING. */
const ROW_PADDING = 512;
const Q8_1_VALUES = 32;
const Q8_1_BYTES = 36;
const MAX_VECTOR_ROWS = 8;
/** Values that one launch dequantises: candle's kernels count in i32. */
const DEQUANTIZED_AT_ONCE = 2 ** 30;
/** Rows that one launch looks up: a grid has at most 2^32 threads. */
const ROWS_AT_ONCE = 2 ** 25;
const MAX_GRID_Y = 65535;
/** Weight rows and activation rows of a block's tile, by kernel: `mul_mat_*` with 128 threads, the others with 8 warps. */
const TILES = {
  mul_mat_: { weights: 64, activations: 64 },
  mul_mat_mma_: { weights: 64, activations: 128 },
  mul_mat_mma_few_: { weights: 32, activations: 64 },
};
const MMA_WARPS = 8;
const VECTOR_WARPS = 4;

/**
 * What products of more than eight activation rows use: `dp4a`, int8 matrix units (`mma`, dp4a where there are none), or
 * `auto`: the units where there are any.
 */
export type QuantizedChoice = 'auto' | 'dp4a' | 'mma';
const CHOICES: readonly string[] = ['auto', 'dp4a', 'mma'] satisfies QuantizedChoice[];

export class DeviceQuantizedOps implements QuantizedOps {
  /** May be changed at any time. */
  choice: QuantizedChoice;
  readonly #device: RocmDevice;

  /** Default of `choice`: `X_QUANTIZED`, else `auto`. Errors: INVALID_ARGUMENT for a value that `X_QUANTIZED` may not have. */
  constructor(device: RocmDevice, choice: string = process.env.X_QUANTIZED || 'auto') {
    if (!CHOICES.includes(choice))
      throw new HipError(
        'INVALID_ARGUMENT',
        `X_QUANTIZED=${choice} is none of ${CHOICES.join(', ')}. Set one of these`,
      );
    this.choice = choice as QuantizedChoice;
    this.#device = device;
  }

  supports(type: string): boolean {
    return type in FORMATS;
  }

  /**
   * `dequantize_block_{type}_{dtype}(vx, y[, k])`. The K formats take one block a superblock and no count; the others
   * count in blocks, except q5_0 and q5_1, which count in values (candle's convention).
   */
  dequantize(weight: BackendStorage, type: string, elemCount: number, dtype: 'f32' | 'f16'): RocmStorage {
    const src = RocmStorage.on(this.#device, weight);
    return run(this.#device, dtype, elemCount, (out) => {
      const kernel = `dequantize_block_${type}_${dtype}`;
      const { values, bytes } = FORMATS[type];
      for (let done = 0; done < elemCount; done += DEQUANTIZED_AT_ONCE) {
        const slice = Math.min(DEQUANTIZED_AT_ONCE, elemCount - done);
        const pointers = [src.ptr + (done / values) * bytes, out + done * sizeInBytes(dtype)];
        if (values === 256) {
          this.#device.launch(QUANTIZED, kernel, { grid: slice / 256, block: 64 }, pointers);
        } else {
          const count = type.startsWith('q5') ? slice : slice / values;
          this.#device.launch(QUANTIZED, kernel, this.#device.shapes.elementwise(slice), [...pointers, count]);
        }
      }
    });
  }

  matmul(
    weight: BackendStorage,
    type: string,
    size: { m: number; n: number; k: number; firstRow?: number },
    x: BackendStorage,
    xLayout: Layout,
  ): RocmStorage {
    const { m, n, k, firstRow = 0 } = size;
    const w = RocmStorage.on(this.#device, weight).ptr + firstRow * rowBytes(type, k);
    // Kernels for up to 1, 2, 4 or 8 rows read so many, whatever lies in those past the last.
    const upTo = m > MAX_VECTOR_ROWS ? m : 2 ** Math.ceil(Math.log2(m));
    return run(this.#device, 'f32', m * n, (out) => {
      const rows = { count: m, room: upTo };
      this.#withActivations(x, xLayout, rows, k, (q8, padded) => {
        if (m > MAX_VECTOR_ROWS) {
          const args = [w, q8, out, k, n, m, padded, n];
          const family = this.#tiled(type, n, m);
          this.#device.launch(QUANTIZED, `${family}${type}`, this.#tiledShape(family, n, m), args);
        } else if (type in CANDLE_TYPES) {
          const args = [w, q8, out, k, n, padded, n];
          this.#device.launch(QUANTIZED, `mul_mat_vec_${type}_q8_1_cuda${m}`, this.#vectorShape(n, k), args);
        } else {
          const args = [w, q8, out, k, n, padded, n, m];
          this.#device.launch(QUANTIZED, `mul_mat_vec_${type}_q8_1_upto${upTo}`, this.#vectorShape(n, k), args);
        }
      });
    });
  }

  /** `indexed_moe_forward_{type}_q8_1(all_weights, all_inputs, indices, all_outputs, n, k, batch, topk, k_padded, input_dim1)`. */
  indexedMoe(
    weight: BackendStorage,
    type: string,
    size: { n: number; k: number; topk: number; shared: boolean },
    x: BackendStorage,
    xLayout: Layout,
    ids: BackendStorage,
    idsLayout: Layout,
  ): RocmStorage {
    const { n, k, topk, shared } = size;
    const w = RocmStorage.on(this.#device, weight).ptr;
    const { ptr } = RocmStorage.on(this.#device, ids).operand(idsLayout);
    const tasks = idsLayout.elemCount;
    const tokens = tasks / topk;
    return run(this.#device, 'f32', tasks * n, (out) => {
      const rows = shared ? tokens : tasks;
      this.#withActivations(x, xLayout, { count: rows, room: rows }, k, (q8, padded) => {
        const { grid, block } = this.#vectorShape(n, k);
        const shape: LaunchShape = { grid: [grid, Math.min(tasks, MAX_GRID_Y), 1], block };
        const args = [w, q8, ptr, out, n, k, tokens, topk, padded, shared ? 1 : topk];
        this.#device.launch(QUANTIZED, `indexed_moe_forward_${type.replace('_K', 'k')}_q8_1`, shape, args);
      });
    });
  }

  /** `get_rows_{type}(src0, ids, dst, ne00, nb01)`. */
  embedding(weight: BackendStorage, type: string, k: number, ids: BackendStorage, idsLayout: Layout): RocmStorage {
    const w = RocmStorage.on(this.#device, weight);
    const rows = idsLayout.elemCount;
    return run(this.#device, 'f32', rows * k, (out) => {
      const { ptr } = RocmStorage.on(this.#device, ids).operand(idsLayout);
      for (let row = 0; row < rows; row += ROWS_AT_ONCE) {
        const grid = [Math.min(ROWS_AT_ONCE, rows - row), Math.ceil(k / 256), 1] as const;
        const args = [w.ptr, ptr + row * 4, out + row * k * 4, k, rowBytes(type, k)];
        this.#device.launch(QUANTIZED, `get_rows_${type}`, { grid, block: 64 }, args);
      }
    });
  }

  /**
   * Gives `use` x [rows.count, k] as q8_1 blocks, each row padded to `padded` values, in memory with room for `rows.room`:
   * `quantize_q8_1(x, vy, kx, kx_padded)`, or its f16 and bf16 forms.
   */
  #withActivations(
    x: BackendStorage,
    xLayout: Layout,
    rows: { count: number; room: number },
    k: number,
    use: (q8: number, padded: number) => void,
  ): void {
    const padded = Math.ceil(k / ROW_PADDING) * ROW_PADDING;
    const q8RowBytes = (padded / Q8_1_VALUES) * Q8_1_BYTES;
    const { ptr, itemBytes } = RocmStorage.on(this.#device, x).operand(xLayout);
    const kernel = x.dtype === 'f32' ? 'quantize_q8_1' : `quantize_q8_1_${x.dtype}`;
    const q8 = this.#device.allocUninit(rows.room * q8RowBytes, 'u8');
    try {
      // More rows than a grid's y dimension has go in slices, as in candle.
      for (let row = 0; row < rows.count; row += MAX_GRID_Y) {
        const count = Math.min(MAX_GRID_Y, rows.count - row);
        const shape: LaunchShape = { grid: [Math.ceil(padded / 256), count, 1], block: 256 };
        const args = [ptr + row * k * itemBytes, q8.ptr + row * q8RowBytes, k, padded];
        this.#device.launch(QUANTIZED, kernel, shape, args);
      }
      use(q8.ptr, padded);
    } finally {
      q8.dispose();
    }
  }

  /**
   * Blocks for n weight rows of k elements: a warp takes a pair of rows, or a block where warps for all pairs would leave
   * the device half empty. On the host each chunk of rows is one call.
   */
  #vectorShape(n: number, k: number): { grid: number; block: number } {
    const { multiprocessorCount, warpSize } = this.#device.hip.properties;
    if (this.#device.shapes.isHost) return { grid: clamp(Math.ceil(n / 16), 1, multiprocessorCount * 4), block: 1 };
    const block = VECTOR_WARPS * warpSize;
    const pairs = Math.ceil(n / 2);
    const few = pairs < multiprocessorCount * 20 && k >= 32 * block;
    return { grid: few ? pairs : Math.ceil(pairs / VECTOR_WARPS), block };
  }

  /** The kernels for a product with n weight rows and m > 8 activation rows: the one place that decides. */
  #tiled(type: string, n: number, m: number): keyof typeof TILES {
    const units = this.#device.matrixUnits;
    if (this.choice === 'dp4a' || !units || !(type in CANDLE_TYPES)) return 'mul_mat_';
    // Small tiles where activations fill no large ones, or large tiles would leave compute units idle.
    const few = m <= TILES.mul_mat_mma_few_.activations;
    const idle = tilesOf('mul_mat_mma_', n, m) < this.#device.hip.properties.multiprocessorCount;
    return few || idle ? 'mul_mat_mma_few_' : 'mul_mat_mma_';
  }

  #tiledShape(family: keyof typeof TILES, n: number, m: number): LaunchShape {
    const block = family === 'mul_mat_' ? 128 : MMA_WARPS * this.#device.hip.properties.warpSize;
    return { grid: this.#device.shapes.blocks(tilesOf(family, n, m), block), block };
  }
}

function tilesOf(family: keyof typeof TILES, n: number, m: number): number {
  const { weights, activations } = TILES[family];
  return Math.ceil(n / weights) * Math.ceil(m / activations);
}

function rowBytes(type: string, k: number): number {
  const { values, bytes } = FORMATS[type];
  return (k / values) * bytes;
}
