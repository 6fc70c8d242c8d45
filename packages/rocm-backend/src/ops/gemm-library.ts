/**
 * Matrix products through the device's BLAS library, after candle's `gemm_config`: an operand whose last two strides are
 * row-major or exactly transposed is passed as it is, whatever its batch stride; a dim of size 1 may have any stride. What
 * differs: rows may be further apart than they are long, and where candle fails our kernel, which takes any stride, runs.
 *
 * A host library without f16 and bf16 multiplies them in f32: the operands are widened and the result is rounded once, so
 * nothing is lost.
 */
import { type DType, Layout, type MatmulSize, sizeInBytes } from '@x/core';
import type { BlasHandle, GemmOperand, GemmProblem, LibraryType } from '@x/hip';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import { launchBinary } from '../launchers/binary';
import { launchLinearRound } from '../launchers/gemm';
import { cast } from './elementwise';

/** A matrix operand of a batched product, strides in elements. */
export interface MatrixOperand {
  ptr: number;
  batchStride: number;
  rowStride: number;
  colStride: number;
}

const INT_MAX = 2 ** 31 - 1;
/** Weights of a linear layer that are widened for one product on the host, 256 MiB; larger ones go to our kernels. */
const WIDENED_VALUES = 2 ** 26;

/** Enqueues the product through the library; false when our kernels should do it. */
export function gemmThroughLibrary(
  device: KernelDevice,
  dtype: DType,
  size: MatmulSize,
  lhs: MatrixOperand,
  rhs: MatrixOperand,
  out: number,
): boolean {
  if (!isLibraryType(dtype)) return false;
  const type = dtype;
  const { b, m, n, k } = size;
  if (k === 0 || Math.max(b, m, n, k) > INT_MAX) return false;
  const { gemm } = device.libraries;
  if (!gemm.isForced && device.shapes.isHost && !paysOnHost(device, dtype, size, rhs)) return false;
  const blas = gemm.handle();
  if (!blas) return false;
  try {
    if (device.shapes.isHost && !blas.takes(type)) return throughF32(device, blas, type, size, lhs, rhs, out);
    const a = libraryOperand(lhs, m, k);
    const c = libraryOperand(rhs, k, n);
    if (!a || !c) return false;
    multiply(device, blas, { type, batch: b, m, n, k, lhs: a, rhs: c, out, reduced: isReduced(device, type) });
    return true;
  } catch (error) {
    if (!gemm.worksAround(error)) throw error;
    return false;
  }
}

/** Rows that {@link libraryRows} gives are a multiple of this. */
const ROW_STEP = 32;

/**
 * The rows that a product of m rows is made with where its operand and result have room for them: the library has a kernel for
 * every few rows, and takes 10 to 30 ms to load one when it is wanted first, so that passes of ever other lengths stall.
 */
export function libraryRows(device: KernelDevice, m: number): number {
  return device.location.kind === 'cuda' && m >= ROUNDED_ROWS ? Math.ceil(m / ROW_STEP) * ROW_STEP : m;
}

/** lhs [m, k] times the transpose of [n, k], both row-major, into f32 [m, n]: for types of which the library says it takes that. */
export function gemmIntoF32(
  device: KernelDevice,
  type: LibraryType,
  {
    m,
    n,
    k,
    lhs,
    rhsTransposed,
    out,
  }: { m: number; n: number; k: number; lhs: number; rhsTransposed: number; out: number },
): void {
  const rows = (ptr: number, transposed: boolean): GemmOperand => ({ ptr, transposed, ld: k, batchStride: 0 });
  const operands = { lhs: rows(lhs, false), rhs: rows(rhsTransposed, true), out };
  const reduced = isReduced(device, type);
  multiply(device, device.libraries.gemm.handle()!, { type, outType: 'f32', batch: 1, m, n, k, ...operands, reduced });
}

interface LinearProduct {
  m: number;
  n: number;
  k: number;
  x: number;
  weights: number;
  /** With room for {@link libraryRows}. */
  out: number;
}

/**
 * Rows from which activations are rounded to the dtype of f16 or bf16 weights: fewer cost the reading of the weights, however
 * they are multiplied.
 */
export const ROUNDED_ROWS = 64;

/**
 * A linear layer's product through the library, x [m, k] in f32 times the transpose of weights [n, k] of `type` into f32 [m, n];
 * false when our kernels should do it. On the host weights are widened. GPUs' libraries multiply one dtype: many rows are rounded
 * to it, to bf16 without a limit, to f16 as llama.cpp does, but so that finite values stay finite; few rows go in two parts,
 * whose results are added, and are nearly as exact as in f32.
 */
export function linearThroughLibrary(device: KernelDevice, type: 'f16' | 'bf16', product: LinearProduct): boolean {
  const { m, n, k } = product;
  if (k === 0 || Math.max(2 * m, n, k) > INT_MAX) return false;
  const { gemm } = device.libraries;
  const { isHost } = device.shapes;
  if (!gemm.isForced && isHost && (hasAvx512(device) || !paysWidened(m, m * n * k))) return false;
  if (isHost && n * k > WIDENED_VALUES) return false;
  const blas = gemm.handle();
  if (!blas || (!isHost && !blas.takes(type, 'f32'))) return false;
  try {
    (isHost ? throughWidened : m < ROUNDED_ROWS ? throughTwoParts : throughRounded)(device, type, product);
    return true;
  } catch (error) {
    if (!gemm.worksAround(error)) throw error;
    return false;
  }
}

/** As {@link linearThroughLibrary} for x in `type` already, which GPUs' libraries take as it is. */
export function roundedThroughLibrary(device: KernelDevice, type: 'f16' | 'bf16', product: LinearProduct): boolean {
  const { m, n, k, x, weights, out } = product;
  const { gemm } = device.libraries;
  if (k === 0 || Math.max(m, n, k) > INT_MAX || device.shapes.isHost) return false;
  if (!gemm.handle()?.takes(type, 'f32')) return false;
  try {
    gemmIntoF32(device, type, { m, n, k, lhs: x, rhsTransposed: weights, out });
    return true;
  } catch (error) {
    if (!gemm.worksAround(error)) throw error;
    return false;
  }
}

function throughWidened(device: KernelDevice, type: 'f16' | 'bf16', { m, n, k, x, weights, out }: LinearProduct): void {
  withMemory(device, n * k * sizeInBytes('f32'), (wide) => {
    const source = { ptr: weights, layout: Layout.contiguous([n * k]), itemBytes: sizeInBytes(type) };
    cast(device, type, 'f32', source, wide);
    gemmIntoF32(device, 'f32', { m, n, k, lhs: x, rhsTransposed: wide, out });
  });
}

function throughRounded(device: KernelDevice, type: 'f16' | 'bf16', { m, n, k, x, weights, out }: LinearProduct): void {
  const rows = libraryRows(device, m);
  withMemory(device, rows * k * sizeInBytes(type), (rounded) => {
    roundRows(device, type, m * k, x, rounded);
    gemmIntoF32(device, type, { m: rows, n, k, lhs: rounded, rhsTransposed: weights, out });
  });
}

/** Rows as x in `type`, then rows of what that leaves of x: one product, in which weights are read once. */
function throughTwoParts(
  device: KernelDevice,
  type: 'f16' | 'bf16',
  { m, n, k, x, weights, out }: LinearProduct,
): void {
  const partBytes = m * k * sizeInBytes(type);
  const resultBytes = m * n * sizeInBytes('f32');
  withMemory(device, 2 * (partBytes + resultBytes), (results) => {
    const parts = results + 2 * resultBytes;
    roundRows(device, type, m * k, x, parts);
    roundRows(device, type, m * k, x, parts + partBytes, parts);
    gemmIntoF32(device, type, { m: 2 * m, n, k, lhs: parts, rhsTransposed: weights, out: results });
    const sum = { numel: m * n, numDims: 1, info: 0, lhs: results, rhs: results + resultBytes, out };
    launchBinary(device, 'badd_f32', device.shapes.elementwise(m * n, sizeInBytes('f32')), sum);
  });
}

/** f32 to f16 or bf16; finite values stay finite. With `less`, the same rounded before, what that left of them. */
export function roundRows(
  device: KernelDevice,
  type: 'f16' | 'bf16',
  count: number,
  x: number,
  y: number,
  less = 0,
): void {
  const shape = device.shapes.elementwise(count, sizeInBytes('f32'));
  launchLinearRound(device, kernelName('linear_round', type), shape, { count, x, less, y });
}

function withMemory(device: KernelDevice, bytes: number, use: (ptr: number) => void): void {
  const ptr = device.malloc(bytes);
  try {
    use(ptr);
  } finally {
    device.free(ptr);
  }
}

/**
 * Whether OpenBLAS beats our kernels on the host, as tools/bench/gemm.ts shows it. With AVX-512 it does in f32 alone, of a few
 * rows with a right matrix that is not transposed. Without, such rows up to 16, and many rows from some 30 million operations
 * on; the 16-bit dtypes must be widened for it and gain only when the product is large.
 */
function paysOnHost(device: KernelDevice, dtype: DType, { m, n, k }: MatmulSize, rhs: MatrixOperand): boolean {
  const products = m * n * k;
  const few = m >= 4 && rhs.colStride === 1 && products >= 2 ** 22;
  if (hasAvx512(device)) return dtype === 'f32' && few && m <= 8;
  if (dtype === 'f16' || dtype === 'bf16') return paysWidened(m, products);
  return m >= 48 ? products >= 2 ** 24 : few && m <= 16;
}

function hasAvx512(device: KernelDevice): boolean {
  return device.hip.properties.arch.startsWith('x86-64-v4');
}

function paysWidened(m: number, products: number): boolean {
  return m >= 128 && products >= 2 ** 27;
}

function isLibraryType(dtype: DType): dtype is LibraryType {
  return dtype === 'f32' || dtype === 'f64' || dtype === 'f16' || dtype === 'bf16';
}

function multiply(device: KernelDevice, blas: BlasHandle, problem: GemmProblem): void {
  const { type, batch, m, n, k } = problem;
  device.callLibrary(
    () => `${blas.library} ${type} ${batch} x [${m}, ${k}] * [${k}, ${n}]`,
    () => blas.gemm(problem),
  );
}

function isReduced(device: KernelDevice, type: LibraryType): boolean {
  if (type === 'f16') return device.gemmReducedPrecisionF16;
  if (type === 'bf16') return device.gemmReducedPrecisionBf16;
  return type === 'f32' && device.gemmReducedPrecisionF32;
}

/** The operand as a library takes it, or undefined. */
function libraryOperand(matrix: MatrixOperand, rows: number, cols: number): GemmOperand | undefined {
  const { ptr, batchStride, rowStride, colStride } = matrix;
  const view = (transposed: boolean, ld: number) => (ld <= INT_MAX ? { ptr, transposed, ld, batchStride } : undefined);
  if ((cols === 1 || colStride === 1) && (rows === 1 || rowStride >= cols)) {
    return view(false, rows === 1 ? cols : rowStride);
  }
  if ((rows === 1 || rowStride === 1) && (cols === 1 || colStride >= rows)) {
    return view(true, cols === 1 ? rows : colStride);
  }
  return undefined;
}

function throughF32(
  device: KernelDevice,
  blas: BlasHandle,
  dtype: LibraryType,
  { b, m, n, k }: MatmulSize,
  lhs: MatrixOperand,
  rhs: MatrixOperand,
  out: number,
): boolean {
  const borrowed: number[] = [];
  const borrow = (count: number) => {
    const ptr = device.malloc(count * sizeInBytes('f32'));
    borrowed.push(ptr);
    return ptr;
  };
  // In the order in which the matrix is stored, so that a transposed view stays one; a broadcast one is widened once.
  const widen = (matrix: MatrixOperand, rows: number, cols: number): GemmOperand => {
    const stored = libraryOperand(matrix, rows, cols);
    const count = matrix.batchStride === 0 ? 1 : b;
    const [outer, inner] = stored?.transposed ? [cols, rows] : [rows, cols];
    const strides = stored ? [stored.ld, 1] : [matrix.rowStride, matrix.colStride];
    const ptr = borrow(count * rows * cols);
    const layout = new Layout([count, outer, inner], [matrix.batchStride, ...strides], 0);
    cast(device, dtype, 'f32', { ptr: matrix.ptr, layout, itemBytes: sizeInBytes(dtype) }, ptr);
    const batchStride = count === 1 ? 0 : rows * cols;
    return { ptr, transposed: stored?.transposed ?? false, ld: inner, batchStride };
  };
  const direct = (matrix: MatrixOperand, rows: number, cols: number) => libraryOperand(matrix, rows, cols);
  try {
    const result = borrow(b * m * n);
    const narrow = blas.takes(dtype, 'f32') ? { a: direct(lhs, m, k), c: direct(rhs, k, n) } : {};
    if (narrow.a && narrow.c) {
      const operands = { lhs: narrow.a, rhs: narrow.c, out: result };
      multiply(device, blas, { type: dtype, outType: 'f32', batch: b, m, n, k, ...operands });
    } else {
      const operands = { lhs: widen(lhs, m, k), rhs: widen(rhs, k, n), out: result };
      multiply(device, blas, { type: 'f32', batch: b, m, n, k, ...operands });
    }
    cast(
      device,
      'f32',
      dtype,
      { ptr: result, layout: Layout.contiguous([b * m * n]), itemBytes: sizeInBytes('f32') },
      out,
    );
  } finally {
    for (const ptr of borrowed) device.free(ptr);
  }
  return true;
}
