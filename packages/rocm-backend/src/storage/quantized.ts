/**
 * Quantized weights on a device, after candle's `QCudaStorage` (candle-core/src/quantized/cuda.rs): the activation is
 * quantized to q8_1 blocks once per product, then rows are multiplied in int8. Up to eight activation rows take the
 * matrix-vector kernels, more the tiled ones: on int8 matrix units where the GPU has them, else on dp4a (and on the host).
 */
import { type BackendStorage, type Layout, type QuantizedOps, sizeInBytes } from '@x/core';
import { HipError } from '@x/hip';
import { QUANTIZED } from '@x/kernels';
import type { RocmDevice } from '../device';
import type { LaunchShape } from '../launch-shape';
import { clamp } from '../launch-shape';
import { matrixUnits } from '../matrix-units';
import { run } from '../ops';
import { RocmStorage } from './index';

/** Values and bytes of a weight block, by candle's spelling of the type. */
const FORMATS: Record<string, { values: number; bytes: number }> = {
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

/** Activations are padded to this many values, as candle's MATRIX_ROW_PADDING. */
const ROW_PADDING = 512;
const Q8_1_VALUES = 32;
const Q8_1_BYTES = 36;
const MAX_VECTOR_ROWS = 8;
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

/** What products of more than eight activation rows use: `auto`, int8 matrix units where the GPU has them, or `dp4a`. */
export type QuantizedChoice = 'auto' | 'dp4a';
const CHOICES: readonly string[] = ['auto', 'dp4a'] satisfies QuantizedChoice[];

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
          const count = type.startsWith('q5') ? slice : slice / 32;
          this.#device.launch(QUANTIZED, kernel, this.#device.shapes.elementwise(slice), [...pointers, count]);
        }
      }
    });
  }

  matmul(
    weight: BackendStorage,
    type: string,
    size: { m: number; n: number; k: number },
    x: BackendStorage,
    xLayout: Layout,
  ): RocmStorage {
    const { m, n, k } = size;
    const w = RocmStorage.on(this.#device, weight);
    const padded = Math.ceil(k / ROW_PADDING) * ROW_PADDING;
    return run(this.#device, 'f32', m * n, (out) => {
      const q8 = this.#device.allocUninit(m * (padded / Q8_1_VALUES) * Q8_1_BYTES, 'u8');
      try {
        this.#quantizeActivations(RocmStorage.on(this.#device, x).operand(xLayout).ptr, q8.ptr, m, k, padded);
        if (m <= MAX_VECTOR_ROWS) {
          const args = [w.ptr, q8.ptr, out, k, n, padded, n];
          this.#device.launch(QUANTIZED, `mul_mat_vec_${type}_q8_1_cuda${m}`, this.#vectorShape(n), args);
        } else {
          const args = [w.ptr, q8.ptr, out, k, n, m, padded, n];
          const family = this.#tiled(n, m);
          this.#device.launch(QUANTIZED, `${family}${type}`, this.#tiledShape(family, n, m), args);
        }
      } finally {
        q8.dispose();
      }
    });
  }

  /** `get_rows_{type}(src0, ids, dst, ne00, nb01)`. */
  embedding(weight: BackendStorage, type: string, k: number, ids: BackendStorage, idsLayout: Layout): RocmStorage {
    const w = RocmStorage.on(this.#device, weight);
    const rows = idsLayout.elemCount;
    return run(this.#device, 'f32', rows * k, (out) => {
      const format = FORMATS[type];
      const rowBytes = (k / format.values) * format.bytes;
      const { ptr } = RocmStorage.on(this.#device, ids).operand(idsLayout);
      for (let row = 0; row < rows; row += ROWS_AT_ONCE) {
        const grid = [Math.min(ROWS_AT_ONCE, rows - row), Math.ceil(k / 256), 1] as const;
        const args = [w.ptr, ptr + row * 4, out + row * k * 4, k, rowBytes];
        this.#device.launch(QUANTIZED, `get_rows_${type}`, { grid, block: 64 }, args);
      }
    });
  }

  /** `quantize_q8_1(x, vy, kx, kx_padded)`. */
  #quantizeActivations(x: number, y: number, rows: number, k: number, padded: number): void {
    // The grid's y limit; more rows than that go in slices, as in candle.
    const slice = 65535;
    for (let row = 0; row < rows; row += slice) {
      const count = Math.min(slice, rows - row);
      const shape: LaunchShape = { grid: [Math.ceil(padded / 256), count, 1], block: 256 };
      const yRow = y + row * (padded / Q8_1_VALUES) * Q8_1_BYTES;
      this.#device.launch(QUANTIZED, 'quantize_q8_1', shape, [x + row * k * 4, yRow, k, padded]);
    }
  }

  /** A warp takes pairs of rows; on the host each chunk of rows is one call. */
  #vectorShape(rows: number): LaunchShape {
    const { multiprocessorCount, warpSize } = this.#device.hip.properties;
    if (this.#device.shapes.isHost) return { grid: clamp(Math.ceil(rows / 16), 1, multiprocessorCount * 4), block: 1 };
    const warps = 4;
    return { grid: Math.ceil(rows / (2 * warps)), block: warpSize * warps };
  }

  /** The kernels for a product with n weight rows and m > 8 activation rows: the one place that decides. */
  #tiled(n: number, m: number): keyof typeof TILES {
    if (this.choice === 'dp4a' || !matrixUnits(this.#device.hip)) return 'mul_mat_';
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
