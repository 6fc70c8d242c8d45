/**
 * Batched matrix product, through the device's BLAS library where one is chosen (gemm-library.ts). candle refuses operands
 * that are neither row-major nor transposed; the kernels here take any row, column and batch stride of any dtype (integers
 * wrap), so a copy is made only when the batch dims cannot be walked with one stride.
 */
import { Layout, type MatmulSize, type Operand } from '@x/core';
import { launchGemm, type MatrixOperand } from '../gemm-kernels';
import { Copy, run } from '../ops';
import { gemmThroughLibrary } from './gemm-library';
import type { RocmStorage } from './index';

export function matmul(
  lhs: RocmStorage,
  rhs: RocmStorage,
  size: MatmulSize,
  lhsLayout: Layout,
  rhsLayout: Layout,
  into?: Operand,
): RocmStorage {
  const { device, dtype } = lhs;
  const a = matrixOperand(lhs, lhsLayout);
  const b = matrixOperand(rhs, rhsLayout);
  try {
    const fill = (out: number) => {
      if (gemmThroughLibrary(device, dtype, size, a.matrix, b.matrix, out)) return;
      launchGemm(device, dtype, size, a.matrix, b.matrix, out);
    };
    return run(device, dtype, size.b * size.m * size.n, fill, into);
  } finally {
    a.copy?.dispose();
    b.copy?.dispose();
  }
}

function matrixOperand(storage: RocmStorage, layout: Layout): { matrix: MatrixOperand; copy?: RocmStorage } {
  const batchStride = singleBatchStride(layout);
  if (batchStride !== undefined) return { matrix: describe(storage, layout, batchStride) };
  const copy = new Copy().map(storage, layout);
  const contiguous = Layout.contiguous(layout.shape);
  return { matrix: describe(copy, contiguous, singleBatchStride(contiguous)!), copy };
}

function describe(storage: RocmStorage, layout: Layout, batchStride: number): MatrixOperand {
  const { strides, rank } = layout;
  const { ptr } = storage.operand(layout);
  return { ptr, batchStride, rowStride: strides[rank - 2], colStride: strides[rank - 1] };
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
