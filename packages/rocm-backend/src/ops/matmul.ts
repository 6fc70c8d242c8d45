/**
 * Batched matrix product, through the device's BLAS library where one is chosen (gemm-library.ts). candle refuses operands
 * that are neither row-major nor transposed; the kernels here take any row, column and batch stride of any dtype (integers
 * wrap), so a copy is made only when the batch dims cannot be walked with one stride.
 */
import { type DType, Layout, type MatmulOps, type MatmulSize, type Operand } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchGemm } from '../launchers/gemm';
import type { MatrixUnits } from '../matrix-units';
import type { KernelStorage } from '../storage';
import { denseCopy } from './copy';
import { gemmThroughLibrary, type MatrixOperand } from './gemm-library';
import { filled } from './result';

/** Rows and columns of a block's tile, without matrix units. */
export const GEMM_TILE = 64;
/** Rows up to which a warp per output column beats a tile of the output. */
const GEMV_MAX_ROWS = 8;
/** Tiles of `gemm_mma_{t}`, and the dynamic shared memory of a slab of both operands (kernels/gemm/mma.h). */
const MMA_TILES = {
  nvidia: { rows: 128, columns: 256, slabBytes: (128 + 256) * 64 * 2 },
  amd: { rows: 128, columns: 128, slabBytes: 0 },
};
/** Slabs that are there at once, where so many fit. */
const MMA_SLABS = 4;

export function matmulOps(device: KernelDevice): MatmulOps {
  return {
    matmul(lhs: Operand, rhs: Operand, size: MatmulSize, out?: Operand): KernelStorage {
      const { dtype } = lhs.storage;
      const a = matrixOperand(device, lhs);
      let b: ReturnType<typeof matrixOperand> | undefined;
      try {
        b = matrixOperand(device, rhs);
        const [left, right] = [a.matrix, b.matrix];
        const fill = (to: number) => {
          if (gemmThroughLibrary(device, dtype, size, left, right, to)) return;
          multiply(device, dtype, size, left, right, to);
        };
        return filled(device, dtype, size.b * size.m * size.n, fill, out);
      } finally {
        a.copy?.dispose();
        b?.copy?.dispose();
      }
    },
  };
}

/** `gemv_{t}` for few rows, `gemm_mma_{t}` where matrix units take the operands, else `gemm_{t}`. */
function multiply(
  device: KernelDevice,
  dtype: DType,
  { b, m, n, k }: MatmulSize,
  lhs: MatrixOperand,
  rhs: MatrixOperand,
  out: number,
): void {
  const { shapes } = device;
  const batches = clamp(b, 1, 65535);
  const launch = (family: string, shape: LaunchShape) =>
    launchGemm(device, kernelName(family, dtype), shape, {
      b,
      m,
      n,
      k,
      lhs: lhs.ptr,
      lhsBatchStride: lhs.batchStride,
      lhsRowStride: lhs.rowStride,
      lhsColStride: lhs.colStride,
      rhs: rhs.ptr,
      rhsBatchStride: rhs.batchStride,
      rhsRowStride: rhs.rowStride,
      rhsColStride: rhs.colStride,
      out,
    });
  if (m <= GEMV_MAX_ROWS) {
    launch('gemv', gemvShape(device, n, batches, rhs.rowStride === 1));
    return;
  }
  const narrow = dtype === 'f16' || dtype === 'bf16';
  if (device.matrixUnits && narrow && k < 2 ** 31 && fitsUnits(lhs, b) && fitsUnits(rhs, b)) {
    launch('gemm_mma', unitsShape(device, device.matrixUnits, { batches, m, n }));
  } else {
    const down = clamp(Math.ceil(m / GEMM_TILE), 1, 65535);
    const across = shapes.blocks(Math.ceil(n / GEMM_TILE), 256);
    const grid = shapes.isHost ? shapes.hostBlocks(across * down * batches) : ([across, down, batches] as const);
    launch('gemm', { grid, block: 256 });
  }
}

/** For kernels whose tiles matrix units multiply. */
export function unitsShape(
  { shapes, hip }: KernelDevice,
  units: MatrixUnits,
  { batches, m, n }: { batches: number; m: number; n: number },
): LaunchShape {
  const { rows, columns, slabBytes } = MMA_TILES[units];
  const fitting = slabBytes === 0 ? 0 : Math.floor(hip.properties.sharedMemoryPerBlock / slabBytes);
  const grid = shapes.blocks(Math.ceil(m / rows) * Math.ceil(n / columns) * batches, 256);
  return { grid, block: 256, sharedBytes: Math.min(MMA_SLABS, fitting) * slabBytes };
}

function matrixOperand(device: KernelDevice, x: Operand): { matrix: MatrixOperand; copy?: KernelStorage } {
  const batchStride = singleBatchStride(x.layout);
  if (batchStride !== undefined) return { matrix: describe(device, x, batchStride) };
  const copy = denseCopy(device, x);
  const layout = Layout.contiguous(x.layout.shape);
  return { matrix: describe(device, { storage: copy, layout }, singleBatchStride(layout)!), copy };
}

function describe(device: KernelDevice, x: Operand, batchStride: number): MatrixOperand {
  const { strides, rank } = x.layout;
  return { ptr: device.view(x).ptr, batchStride, rowStride: strides[rank - 2], colStride: strides[rank - 1] };
}

/** The stride that walks all leading dims in row-major order, or undefined when no single one does. */
function singleBatchStride(layout: Layout): number | undefined {
  let stride: number | undefined;
  let expected = 0;
  for (let dim = layout.shape.length - 3; dim >= 0; dim--) {
    if (layout.shape[dim] === 1) continue;
    if (stride === undefined) stride = layout.strides[dim];
    else if (layout.strides[dim] !== expected) return undefined;
    expected = layout.strides[dim] * layout.shape[dim];
  }
  return stride ?? 0;
}

/** Whether loads of 16 bytes reach every element: one stride is 1, the others are multiples of 8 elements of 2 bytes. */
function fitsUnits({ ptr, batchStride, rowStride, colStride }: MatrixOperand, batches: number): boolean {
  const [inner, outer] = colStride === 1 ? [colStride, rowStride] : [rowStride, colStride];
  return inner === 1 && outer % 8 === 0 && (batches === 1 || batchStride % 8 === 0) && ptr % 16 === 0;
}

/** A warp per output column of a transposed weight; a lane per column otherwise, so that loads stay coalesced. */
function gemvShape(device: KernelDevice, n: number, batches: number, transposed: boolean): LaunchShape {
  const { warpSize, multiprocessorCount } = device.hip.properties;
  if (device.shapes.isHost)
    return { grid: [clamp(Math.ceil(n / 64), 1, multiprocessorCount * 4), 1, batches], block: 1 };
  const block = transposed ? warpSize * 4 : 512;
  return { grid: [device.shapes.blocks(Math.ceil(n / (transposed ? 4 : warpSize)), block), 1, batches], block };
}
