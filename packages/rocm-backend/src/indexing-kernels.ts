/**
 * Launchers of the INDEXING module: one function a kernel signature. Operands are device addresses with the layout's offset
 * already applied.
 */
import type { DType } from '@x/core';
import { INDEXING } from '@x/kernels';
import type { RocmDevice } from './device';
import { kernelName } from './kernel-name';
import type { DimSplit, Operand } from './kernels';

/** `is_{ids}_{t}(numel, num_dims, info, ids, inp, out, left, src_dim, ids_dim, right)`; info describes the ids. */
export function launchIndexSelect(
  device: RocmDevice,
  kernel: string,
  ids: Operand,
  src: number,
  out: number,
  split: DimSplit,
  idsDim: number,
  itemBytes: number,
): void {
  const { numDims, ptr } = device.info([ids.layout]);
  const numel = split.left * idsDim * split.right;
  const args = [numel, numDims, ptr, ids.ptr, src, out, split.left, split.dim, idsDim, split.right];
  device.launch(INDEXING, kernel, device.shapes.elementwise(numel, itemBytes, 'strided'), args);
}

/** `gather_{ids}_{t}(numel, ids, inp, out, left, src_dim, ids_dim, right)`. */
export function launchGather(
  device: RocmDevice,
  kernel: string,
  ids: number,
  src: number,
  out: number,
  split: DimSplit,
  idsDim: number,
): void {
  const numel = split.left * idsDim * split.right;
  device.launch(INDEXING, kernel, device.shapes.elementwise(numel), [
    numel,
    ids,
    src,
    out,
    split.left,
    split.dim,
    idsDim,
    split.right,
  ]);
}

/** `ia_{ids}_{t}(ids, ids_dim, inp, out, left, src_dim, dst_dim, right)`: a thread per column, looping over the ids. */
export function launchIndexAdd(
  device: RocmDevice,
  kernel: string,
  ids: number,
  src: number,
  out: number,
  split: DimSplit,
  dstDim: number,
): void {
  const args = [ids, split.dim, src, out, split.left, split.dim, dstDim, split.right];
  device.launch(INDEXING, kernel, device.shapes.perItem(split.left * split.right), args);
}

/** `s_{ids}_{t}` and `sa_{ids}_{t}(ids, inp, out, left, src_dim, dst_dim, right)`. */
export function launchScatter(
  device: RocmDevice,
  kernel: string,
  ids: number,
  src: number,
  out: number,
  split: DimSplit,
  dstDim: number,
): void {
  const args = [ids, src, out, split.left, split.dim, dstDim, split.right];
  device.launch(INDEXING, kernel, device.shapes.perItem(split.left * split.right), args);
}

/** How kernels that only move values name them: by size. */
const BITS: Record<number, string> = { 1: 'b8', 2: 'b16', 4: 'b32', 8: 'b64' };

/**
 * `gather_view_{ids}_b{bits}(numel, num_dims, info, ids, inp, out, src_dim, src_step)`; both layouts are of the ids' shape,
 * src's has no step along the dim.
 */
export function launchGatherView(
  device: RocmDevice,
  idsDtype: DType,
  ids: Operand,
  src: Operand,
  out: number,
  srcDim: number,
  srcStep: number,
): void {
  const { numDims, ptr } = device.info([ids.layout, src.layout]);
  const numel = ids.layout.elemCount;
  const kernel = kernelName(kernelName('gather_view', idsDtype), BITS[src.itemBytes]);
  const args = [numel, numDims, ptr, ids.ptr, src.ptr, out, srcDim, srcStep];
  device.launch(INDEXING, kernel, device.shapes.elementwise(numel), args);
}

/** Sizes and steps, in elements, along the dim that {@link launchScatterView} indexes. */
export interface ScatterDim {
  ids: number;
  dst: number;
  idsStep: number;
  srcStep: number;
  dstStep: number;
}

/**
 * `s_view_{ids}_b{bits}` and `sa_view_{ids}_{t}(places, num_dims, info, ids, inp, out, ids_dim, dst_dim, ids_step, src_step,
 * dst_step)`; the layouts are of one shape, without the dim.
 */
export function launchScatterView(
  device: RocmDevice,
  op: 's' | 'sa',
  idsDtype: DType,
  dtype: DType,
  ids: Operand,
  src: Operand,
  dst: Operand,
  dim: ScatterDim,
): void {
  const values = op === 's' ? BITS[src.itemBytes] : dtype;
  const kernel = kernelName(kernelName(kernelName(op, 'view'), idsDtype), values);
  const { numDims, ptr } = device.info([ids.layout, src.layout, dst.layout]);
  const places = ids.layout.elemCount;
  const sizes = [dim.ids, dim.dst, dim.idsStep, dim.srcStep, dim.dstStep];
  const args = [places, numDims, ptr, ids.ptr, src.ptr, dst.ptr, ...sizes];
  device.launch(INDEXING, kernel, device.shapes.perItem(places), args);
}

/** `check_ids_{ids}(numel, num_dims, info, ids, low, size, op, dim, report)`. */
export function launchCheckIds(
  device: RocmDevice,
  dtype: DType,
  ids: Operand,
  low: number,
  size: number,
  op: number,
  dim: number,
  report: number,
): void {
  const { numDims, ptr } = device.info([ids.layout]);
  const numel = ids.layout.elemCount;
  const args = [numel, numDims, ptr, ids.ptr, low, size, op, dim, report];
  device.launch(INDEXING, kernelName('check_ids', dtype), device.shapes.elementwise(numel), args);
}
