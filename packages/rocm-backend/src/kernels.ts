/**
 * One launch function per kernel family: the only place that knows the parameter order of the kernels
 * (candle-kernels' calling convention). Operands are device addresses with the layout's offset already applied. The CONV
 * module's are in conv-kernels.ts, and so on for GEMM, INDEXING and SORT.
 */
import { type DType, type Layout, sizeInBytes } from '@x/core';
import { AFFINE, BINARY, CAST, FILL, RANDOM, REDUCE, TERNARY, UNARY } from '@x/kernels';
import type { RocmDevice } from './device';
import { kernelName } from './kernel-name';
import type { Work } from './launch-shape';

/** Address of an operand's first element and how it is laid out. */
export interface Operand {
  ptr: number;
  layout: Layout;
  /** Size of an element. */
  itemBytes: number;
}

/** The work of a kernel that is `contiguous` where its info is null. */
function workOf(info: number, contiguous: 'short' | 'long'): Work {
  return info === 0 ? contiguous : 'strided';
}

/** `{kernel}(numel, num_dims, info, [param,] inp, out)`: unary ops, strided copy, elu and powf. */
export function launchUnary(
  device: RocmDevice,
  kernel: string,
  src: Operand,
  out: number,
  cost: 'short' | 'long',
  param?: number,
): void {
  const { numDims, ptr } = device.info([src.layout]);
  const numel = src.layout.elemCount;
  const args = param === undefined ? [numel, numDims, ptr, src.ptr, out] : [numel, numDims, ptr, param, src.ptr, out];
  device.launch(UNARY, kernel, device.shapes.elementwise(numel, src.itemBytes, workOf(ptr, cost)), args);
}

/** Kernels by the size of an element, and elements along a side of a GPU's tile: kernels/fill/transpose.h. */
const TRANSPOSES: Record<number, { kernel: string; tile: number }> = {
  1: { kernel: 'transpose_b8', tile: 128 },
  2: { kernel: 'transpose_b16', tile: 64 },
  4: { kernel: 'transpose_b32', tile: 64 },
  8: { kernel: 'transpose_b64', tile: 32 },
};
const WIDE_TRANSPOSE = { kernel: 'transpose_b16_wide', tile: 128 };
/** The host's tiles have 32 or 64 elements a side; a block takes any number of them. */
const HOST_TILE = 32;

/** NVIDIA's GPUs take larger tiles of 2-byte elements where these keep all of the device busy. */
function transposeOf({ hip }: RocmDevice, bytes: number, elements: number): { kernel: string; tile: number } {
  const many = elements >= WIDE_TRANSPOSE.tile ** 2 * 16 * hip.properties.multiprocessorCount;
  return bytes === 2 && hip.platform === 'cuda' && many ? WIDE_TRANSPOSE : TRANSPOSES[bytes];
}

/**
 * A contiguous copy of a view: `ucopy_{t}`, or where the view's unit stride is not its last dim
 * `transpose_b{bits}(batches, rows, cols, num_dims, info, row_step, col_step, src, dst)`, a block a tile.
 */
export function launchStridedCopy(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
  const cut = device.transpositionOf(src.layout);
  if (!cut) {
    launchUnary(device, kernelName('ucopy', dtype), src, out, 'short');
    return;
  }
  const { rows, cols, rowStep, colStep, batches } = cut;
  const { numDims, ptr } = device.infoFor(batches.dims, batches.inStrides, batches.outStrides);
  const count = batches.dims.reduce((a, b) => a * b, 1);
  const bytes = sizeInBytes(dtype);
  const { kernel, tile } = transposeOf(device, bytes, src.layout.elemCount);
  const shape = device.shapes.tiles(count, rows, cols, device.shapes.isHost ? HOST_TILE : tile);
  const args = [count, rows, cols, numDims, ptr, rowStep, colStep, src.ptr, out];
  device.launch(FILL, kernel, shape, args);
}

/** `affine_{t}(numel, num_dims, info, inp, out, mul, add)`. */
export function launchAffine(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  out: number,
  mul: number | bigint,
  add: number | bigint,
): void {
  const { numDims, ptr } = device.info([src.layout]);
  const numel = src.layout.elemCount;
  device.launch(
    AFFINE,
    kernelName('affine', dtype),
    device.shapes.elementwise(numel, src.itemBytes, workOf(ptr, 'short')),
    [numel, numDims, ptr, src.ptr, out, mul, add],
  );
}

/** `cast_{src}_{dst}(numel, num_dims, info, inp, out)`. */
export function launchCast(device: RocmDevice, from: DType, to: DType, src: Operand, out: number): void {
  const { numDims, ptr } = device.info([src.layout]);
  const numel = src.layout.elemCount;
  const shape = device.shapes.elementwise(numel, Math.max(src.itemBytes, sizeInBytes(to)), workOf(ptr, 'long'));
  device.launch(CAST, kernelName(kernelName('cast', from), to), shape, [numel, numDims, ptr, src.ptr, out]);
}

/** `{kernel}(numel, num_dims, dims_and_strides, lhs, rhs, out)`: arithmetic and comparisons. */
export function launchBinary(device: RocmDevice, kernel: string, lhs: Operand, rhs: Operand, out: number): void {
  const { numDims, ptr } = device.info([lhs.layout, rhs.layout]);
  const numel = lhs.layout.elemCount;
  device.launch(BINARY, kernel, device.shapes.elementwise(numel, lhs.itemBytes, workOf(ptr, 'short')), [
    numel,
    numDims,
    ptr,
    lhs.ptr,
    rhs.ptr,
    out,
  ]);
}

/** `where_{ids}_{t}(numel, num_dims, info, ids, t, f, out)`. */
export function launchTernary(
  device: RocmDevice,
  kernel: string,
  cond: Operand,
  onTrue: Operand,
  onFalse: Operand,
  out: number,
): void {
  const { numDims, ptr } = device.info([cond.layout, onTrue.layout, onFalse.layout]);
  const numel = cond.layout.elemCount;
  const args = [numel, numDims, ptr, cond.ptr, onTrue.ptr, onFalse.ptr, out];
  device.launch(TERNARY, kernel, device.shapes.elementwise(numel, onTrue.itemBytes, workOf(ptr, 'short')), args);
}

/** `const_set_{t}(numel, num_dims, info, value, out)`. */
export function launchConstSet(device: RocmDevice, dtype: DType, value: number | bigint, out: Operand): void {
  const { numDims, ptr } = device.info([out.layout]);
  const numel = out.layout.elemCount;
  device.launch(FILL, kernelName('const_set', dtype), device.shapes.elementwise(numel, out.itemBytes), [
    numel,
    numDims,
    ptr,
    value,
    out.ptr,
  ]);
}

/** `copy2d_{t}(src, dst, d1, d2, src_s, dst_s)`. */
export function launchCopy2d(
  device: RocmDevice,
  dtype: DType,
  src: number,
  dst: number,
  d1: number,
  d2: number,
  srcStride: number,
  dstStride: number,
): void {
  device.launch(FILL, kernelName('copy2d', dtype), device.shapes.elementwise(d1 * d2), [
    src,
    dst,
    d1,
    d2,
    srcStride,
    dstStride,
  ]);
}

/**
 * `fast_{op}_{t}(src_numel, el_per_block, num_dims, info, src, dst)`: one block per output element, `src` with the
 * reduced dims last.
 */
export function launchReduce(
  device: RocmDevice,
  kernel: string,
  dims: readonly number[],
  strides: readonly number[],
  reduced: number,
  src: number,
  dst: number,
): void {
  const numel = dims.reduce((a, b) => a * b, 1);
  const { numDims, ptr } = device.infoFor(dims, strides);
  device.launch(REDUCE, kernel, device.shapes.rows(numel / reduced, reduced, 16), [
    numel,
    reduced,
    numDims,
    ptr,
    src,
    dst,
  ]);
}

/** `softmax_{t}(src, dst, n_cols)`: one block per row. */
export function launchSoftmax(
  device: RocmDevice,
  dtype: DType,
  rows: number,
  cols: number,
  src: number,
  dst: number,
): void {
  const itemBytes = sizeInBytes(dtype);
  const rowBytes = cols * itemBytes;
  device.shapes.rowSlices(rows, cols, itemBytes, (first, shape) => {
    const offset = first * rowBytes;
    device.launch(REDUCE, kernelName('softmax', dtype), shape, [src + offset, dst + offset, cols]);
  });
}

/** `rmsnorm_{t}(src, dst, alpha, n_cols, block_size, eps)` and `layernorm_{t}(src, dst, alpha, beta, ...)`. */
export function launchNorm(
  device: RocmDevice,
  kernel: 'rmsnorm' | 'layernorm',
  dtype: DType,
  rows: number,
  cols: number,
  [src, dst, ...weights]: readonly [number, number, ...number[]],
  eps: number,
): void {
  const itemBytes = sizeInBytes(dtype);
  const rowBytes = cols * itemBytes;
  device.shapes.rowSlices(rows, cols, itemBytes, (first, shape) => {
    const offset = first * rowBytes;
    const args = [src + offset, dst + offset, ...weights, cols, shape.block as number, eps];
    device.launch(REDUCE, kernelName(kernel, dtype), shape, args);
  });
}

/** `rope_{t}(src, cos, sin, dst, bh, td, d, stride_b)` and `rope_i_{t}` without `d`: one thread per pair. */
export function launchRope(
  device: RocmDevice,
  kernel: string,
  operands: readonly number[],
  sizes: readonly number[],
): void {
  device.launch(REDUCE, kernel, device.shapes.elementwise((sizes[0] * sizes[1]) / 2), [...operands, ...sizes]);
}

/** `rope_thd_{t}(src, cos, sin, dst, b, t, h, d, stride_b)`: one thread per pair. */
export function launchRopeThd(
  device: RocmDevice,
  kernel: string,
  operands: readonly number[],
  sizes: readonly [b: number, t: number, h: number, d: number, strideB: number],
): void {
  const [b, t, h, d] = sizes;
  device.launch(REDUCE, kernel, device.shapes.elementwise((b * t * h * d) / 2), [...operands, ...sizes]);
}

/** `rand_{uniform,normal}_{t}(numel, seed, call, mul, add, out)`: element i of the Philox stream, times mul, plus add. */
export function launchRandom(
  device: RocmDevice,
  kernel: string,
  numel: number,
  { seed, call }: { seed: number; call: number },
  mul: number,
  add: number,
  out: number,
): void {
  device.launch(RANDOM, kernel, device.shapes.elementwise(numel), [numel, seed, call, mul, add, out]);
}

/** A shape cut at one dim: elements left of it, its size, elements right of it. */
export interface DimSplit {
  left: number;
  dim: number;
  right: number;
}

export function splitAt(shape: readonly number[], dim: number): DimSplit {
  const product = (dims: readonly number[]) => dims.reduce((a, b) => a * b, 1);
  return { left: product(shape.slice(0, dim)), dim: shape[dim], right: product(shape.slice(dim + 1)) };
}
