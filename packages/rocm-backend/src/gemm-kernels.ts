/** Launches of the GEMM module, as kernels.ts has them for the other modules: which kernel takes a product, and its grid. */
import type { DType } from '@x/core';
import { GEMM } from '@x/kernels';
import type { RocmDevice } from './device';
import { kernelName } from './kernel-name';
import { clamp, type LaunchShape } from './launch-shape';

/** A matrix operand of a batched product, strides in elements. */
export interface MatrixOperand {
  ptr: number;
  batchStride: number;
  rowStride: number;
  colStride: number;
}

const GEMM_TILE = 64;
/** Rows up to which a warp per output column beats a tile of the output. */
const GEMV_MAX_ROWS = 8;
/** Tiles of `gemm_mma_{t}`, and the dynamic shared memory of a slab of both operands (kernels/gemm/mma.h). */
const MMA_TILES = {
  nvidia: { rows: 128, columns: 256, slabBytes: (128 + 256) * 64 * 2 },
  amd: { rows: 128, columns: 128, slabBytes: 0 },
};
/** Slabs that are there at once, where so many fit. */
const MMA_SLABS = 4;

/** `gemm_{t}`, `gemm_mma_{t}` or `gemv_{t}(b, m, n, k, lhs, strides, rhs, strides, out)`. */
export function launchGemm(
  device: RocmDevice,
  dtype: DType,
  size: { b: number; m: number; n: number; k: number },
  lhs: MatrixOperand,
  rhs: MatrixOperand,
  out: number,
): void {
  const { b, m, n, k } = size;
  const args = [
    b,
    m,
    n,
    k,
    lhs.ptr,
    lhs.batchStride,
    lhs.rowStride,
    lhs.colStride,
    rhs.ptr,
    rhs.batchStride,
    rhs.rowStride,
    rhs.colStride,
    out,
  ];
  const { shapes } = device;
  const batches = clamp(b, 1, 65535);
  if (m <= GEMV_MAX_ROWS) {
    device.launch(GEMM, kernelName('gemv', dtype), gemvShape(device, n, batches, rhs.rowStride === 1), args);
    return;
  }
  const units = device.matrixUnits;
  if (units && (dtype === 'f16' || dtype === 'bf16') && k < 2 ** 31 && fitsUnits(lhs, b) && fitsUnits(rhs, b)) {
    const { rows, columns, slabBytes } = MMA_TILES[units];
    const { sharedMemoryPerBlock } = device.hip.properties;
    const slabs = slabBytes === 0 ? 0 : Math.min(MMA_SLABS, Math.floor(sharedMemoryPerBlock / slabBytes));
    const grid = shapes.blocks(Math.ceil(m / rows) * Math.ceil(n / columns) * batches, 256);
    device.launch(GEMM, kernelName('gemm_mma', dtype), { grid, block: 256, sharedBytes: slabs * slabBytes }, args);
  } else {
    const down = clamp(Math.ceil(m / GEMM_TILE), 1, 65535);
    const grid = [shapes.blocks(Math.ceil(n / GEMM_TILE), 256), down, batches] as const;
    device.launch(GEMM, kernelName('gemm', dtype), { grid, block: 256 }, args);
  }
}

/** Whether loads of 16 bytes reach every element: one stride is 1, the others are multiples of 8 elements of 2 bytes. */
function fitsUnits({ ptr, batchStride, rowStride, colStride }: MatrixOperand, batches: number): boolean {
  const [inner, outer] = colStride === 1 ? [colStride, rowStride] : [rowStride, colStride];
  return inner === 1 && outer % 8 === 0 && (batches === 1 || batchStride % 8 === 0) && ptr % 16 === 0;
}

/** A warp per output column of a transposed weight; a lane per column otherwise, so that loads stay coalesced. */
function gemvShape(device: RocmDevice, n: number, batches: number, transposed: boolean): LaunchShape {
  const { warpSize, multiprocessorCount } = device.hip.properties;
  if (device.shapes.isHost)
    return { grid: [clamp(Math.ceil(n / 64), 1, multiprocessorCount * 4), 1, batches], block: 1 };
  const block = transposed ? warpSize * 4 : 512;
  return { grid: [device.shapes.blocks(Math.ceil(n / (transposed ? 4 : warpSize)), block), 1, batches], block };
}
