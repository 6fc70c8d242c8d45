/** Products with weights in f16 or bf16 and activations in f32 or the same dtype: the `linear_*` kernels of GEMM (kernels/gemm/linear.h). */
import { type HalfDType, Layout, type LinearOps, type Operand, type StoragePart, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchLinear, launchLinearExperts } from '../launchers/gemm';
import type { KernelStorage } from '../storage';
import { activationRows, MAX_GRID_Y, MAX_VECTOR_ROWS } from './activations';
import { cast } from './elementwise';
import { libraryRows, linearThroughLibrary, ROUNDED_ROWS, roundedThroughLibrary, roundRows } from './gemm-library';
import { GEMM_TILE, unitsShape } from './matmul';
import { filled, filledRows, rowsOfProduct } from './result';

/** Most warps of a block of `linear_upto*`. */
const FEW_WARPS = 4;
/** Rows of `linear_upto*` beside cuBLAS: with more, arithmetic in f32 takes longer than reading the weights. */
const VECTOR_ROWS_CUDA = 2;
/** Weights that a thread loads at once. */
const LOAD_VALUES = 8;
const LOAD_BYTES = 16;

interface ProductSize {
  m: number;
  n: number;
  k: number;
}

export class DeviceLinearOps implements LinearOps {
  readonly #device: KernelDevice;
  /** Whether this is a host with products of bf16. */
  readonly #multipliesPairs: boolean;

  constructor(device: KernelDevice) {
    this.#device = device;
    this.#multipliesPairs = device.shapes.isHost && device.hip.properties.archFull.includes(':bf16');
  }

  /**
   * Few rows cost the reading of the weights, which are widened as they come. For many, GPUs' libraries and matrix units, and hosts
   * with products of bf16, multiply operands of one dtype, which is worth the rounding of activations.
   */
  formOf(dtype: HalfDType, rows: number): 'f32' | HalfDType {
    const { shapes, libraries, matrixUnits } = this.#device;
    if (rows < ROUNDED_ROWS) return 'f32';
    if (shapes.isHost) return dtype === 'bf16' && this.#multipliesPairs ? dtype : 'f32';
    return matrixUnits || libraries.gemm.handle()?.takes(dtype, 'f32') ? dtype : 'f32';
  }

  matmul(weight: StoragePart, x: Operand, size: ProductSize): KernelStorage {
    const device = this.#device;
    const type = this.#typeOf('matmul', weight, x);
    const weights = device.address(weight);
    const { ptr } = device.view(x);
    const rows = { rows: size.m, room: libraryRows(device, size.m), width: size.n };
    const rowBytes = size.k * sizeInBytes(x.storage.dtype);
    return filledRows(device, 'f32', rows, (out) => {
      for (const { first, count, to } of rowsOfProduct(device, size, out)) {
        const part = { ...size, m: count };
        if (x.storage.dtype === type) this.#ofHalves(type, part, ptr + first * rowBytes, weights, to);
        else this.#ofWide(type, part, ptr + first * rowBytes, weights, to);
      }
    });
  }

  /** Rows up to which `linear_upto*` is used. The library multiplies few rows in two parts, which in bf16 are less exact. */
  #vectorRows(type: HalfDType): number {
    const { location, libraries } = this.#device;
    const throughLibrary = type === 'f16' && location.kind === 'cuda' && libraries.gemm.handle()?.takes(type, 'f32');
    return throughLibrary ? VECTOR_ROWS_CUDA : MAX_VECTOR_ROWS;
  }

  #ofWide(type: HalfDType, size: ProductSize, x: number, weights: number, out: number): void {
    if (size.m <= this.#vectorRows(type)) this.#few(type, size, x, weights, out);
    else this.#many(type, size, x, weights, out);
  }

  /** Of activations in the weights' dtype: many rows as they are on the host and where they would be rounded to it, others widened. */
  #ofHalves(type: HalfDType, size: ProductSize, x: number, weights: number, out: number): void {
    const device = this.#device;
    const { m, k } = size;
    const product = { ...size, x, weights, out };
    if (device.shapes.isHost && m > this.#vectorRows(type)) {
      this.#asTheyAre(type, product);
      return;
    }
    const asTheyAre = this.formOf(type, m) === type;
    if (asTheyAre && (roundedThroughLibrary(device, type, product) || this.#onUnits(type, product))) return;
    const wide = device.malloc(m * k * sizeInBytes('f32'));
    try {
      cast(device, type, 'f32', { ptr: x, layout: Layout.contiguous([m * k]), itemBytes: sizeInBytes(type) }, wide);
      this.#ofWide(type, size, wide, weights, out);
    } finally {
      device.free(wide);
    }
  }

  /** On the host: x in the weights' dtype. */
  #asTheyAre(type: HalfDType, product: ProductSize & { x: number; weights: number; out: number }): void {
    const { shapes } = this.#device;
    const tiles = Math.ceil(product.m / GEMM_TILE) * Math.ceil(product.n / GEMM_TILE);
    launchLinear(this.#device, `linear_mma_${type}`, { grid: shapes.hostBlocks(tiles), block: 1 }, product);
  }

  /** On matrix units: x in the weights' dtype. False where these do not take the operands. */
  #onUnits(type: HalfDType, product: ProductSize & { x: number; weights: number; out: number }): boolean {
    const { matrixUnits } = this.#device;
    const { m, n, k, x, weights } = product;
    if (!matrixUnits || m < ROUNDED_ROWS || !fitsUnits(k, weights) || x % LOAD_BYTES !== 0) return false;
    launchLinear(
      this.#device,
      `linear_mma_${type}`,
      unitsShape(this.#device, matrixUnits, { batches: 1, m, n }),
      product,
    );
    return true;
  }

  #few(type: HalfDType, size: ProductSize, x: number, weights: number, out: number): void {
    const kernel = `linear_upto${activationRows(size.m)}_${type}`;
    const { grid, block } = this.#fewShape(size.n, size.k);
    launchLinear(this.#device, kernel, { grid, block }, { ...size, x, weights, out });
  }

  #many(type: HalfDType, size: ProductSize, x: number, weights: number, out: number): void {
    const device = this.#device;
    const { m, n, k } = size;
    if (linearThroughLibrary(device, type, { m, n, k, x, weights, out })) return;
    const onUnits = device.matrixUnits !== undefined && m >= ROUNDED_ROWS && fitsUnits(k, weights);
    if (onUnits || (device.shapes.isHost && this.formOf(type, m) === type)) {
      const rounded = device.malloc(m * k * 2);
      try {
        roundRows(device, type, m * k, x, rounded);
        const product = { m, n, k, x: rounded, weights, out };
        if (onUnits) this.#onUnits(type, product);
        else this.#asTheyAre(type, product);
      } finally {
        device.free(rounded);
      }
      return;
    }
    const down = clamp(Math.ceil(m / GEMM_TILE), 1, MAX_GRID_Y);
    const across = device.shapes.blocks(Math.ceil(n / GEMM_TILE), 256);
    const grid = device.shapes.isHost ? device.shapes.hostBlocks(across * down) : ([across, down, 1] as const);
    const shape: LaunchShape = { grid, block: 256 };
    launchLinear(device, `linear_many_${type}`, shape, { m, n, k, x, weights, out });
  }

  indexedMoe(
    weight: StoragePart,
    x: Operand,
    ids: Operand,
    { n, k, topk, shared }: { n: number; k: number; topk: number; shared: boolean },
  ): KernelStorage {
    const device = this.#device;
    const type = this.#typeOf('indexedMoe', weight, x);
    const pairs = ids.layout.elemCount;
    const { grid, block } = this.#fewShape(n, k);
    return filled(device, 'f32', pairs * n, (out) => {
      const shape: LaunchShape = { grid: [grid, Math.min(pairs, MAX_GRID_Y), 1], block };
      const pointers = { x: device.view(x).ptr, weights: device.address(weight), ids: device.view(ids).ptr, out };
      launchLinearExperts(device, kernelName('linear_experts', type), shape, {
        pairs,
        n,
        k,
        topk,
        shared,
        ...pointers,
      });
    });
  }

  #typeOf(op: string, [{ dtype }]: StoragePart, x: Operand): HalfDType {
    if (dtype !== 'f16' && dtype !== 'bf16') throw unsupported(`linear.${op} with weights`, dtype, this.#device);
    const isRounded = op === 'matmul' && x.storage.dtype === dtype;
    if (x.storage.dtype !== 'f32' && !isRounded) throw unsupported(`linear.${op}`, x.storage.dtype, this.#device);
    return dtype;
  }

  /**
   * A warp takes a pair of weight rows, or a block of as many warps as have work where warps for all pairs would leave the device
   * half empty. On the host each chunk of rows is one call.
   */
  #fewShape(n: number, k: number): { grid: number; block: number } {
    const { multiprocessorCount, warpSize } = this.#device.hip.properties;
    if (this.#device.shapes.isHost) return { grid: clamp(Math.ceil(n / 16), 1, multiprocessorCount * 4), block: 1 };
    const pairs = Math.ceil(n / 2);
    const warps = Math.min(Math.floor(k / LOAD_VALUES / warpSize), FEW_WARPS);
    if (pairs < multiprocessorCount * 20 && warps > 1) return { grid: pairs, block: warps * warpSize };
    return { grid: Math.ceil(pairs / FEW_WARPS), block: FEW_WARPS * warpSize };
  }
}

/** Whether the kernels on matrix units take rows of k values of such weights: they load {@link LOAD_VALUES} at once. */
function fitsUnits(k: number, weights: number): boolean {
  return k > 0 && k % LOAD_VALUES === 0 && weights % LOAD_BYTES === 0;
}
