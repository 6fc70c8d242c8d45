/**
 * Reductions. candle has one kernel shape (`fast_*`, a block per result, the reduced dims last); four more of ours serve
 * the cases where that is slow: `rows_*` for many rows, `cols_*` for a reduced dim that is not the last, and `part_*` + `done_*`, which split few
 * long rows over the whole device in two deterministic stages.
 */
import { type DType, type Layout, type ReduceOp, sizeInBytes } from '@x/core';
import { REDUCE } from '@x/kernels';
import type { RocmDevice } from '../device';
import { checkPositions } from '../errors';
import { kernelName } from '../kernel-name';
import { launchReduce, type Operand } from '../kernels';
import { Map1Any } from '../ops';
import type { RocmStorage } from './index';

/** Rows shorter than this are not worth two launches. */
const MIN_SPLIT_ROW = 16384;
const SPLIT_BLOCK = 256;
/** Rows longer than this take a block each. */
const MAX_WARP_ROW = 16384;
const COLUMN_BLOCK = 256;

/** candle's `FastReduce`: a sum over any dims, the others over one. */
class Reduce extends Map1Any {
  override readonly name: string;
  constructor(
    private readonly op: ReduceOp,
    private readonly dims: readonly number[],
  ) {
    super();
    this.name = op;
  }

  override outputDtype(dtype: DType): DType {
    return isArg(this.op) ? 'u32' : dtype;
  }

  override outputCount(layout: Layout): number {
    let count = 1;
    for (let dim = 0; dim < layout.rank; dim++) if (!this.dims.includes(dim)) count *= layout.shape[dim];
    return count;
  }

  override launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
    const block = adjacentDims(src.layout, this.dims);
    if (block && block.right > 1) launchColumns(device, this.op, dtype, block, src.ptr, out);
    else if (block && wantsWarps(device, block, src))
      device.launch(REDUCE, kernelName(kernelName('rows', this.op), dtype), device.shapes.warpRows(block.left), [
        block.left,
        block.size,
        src.ptr,
        out,
      ]);
    else if (block && splits(device, block)) launchSplit(device, this.op, dtype, block, src.ptr, out);
    else this.#launchRows(device, dtype, src, out, block);
  }

  #launchRows(device: RocmDevice, dtype: DType, src: Operand, out: number, block: Block | undefined): void {
    const kernel = kernelName(kernelName('fast', this.op), dtype);
    if (block) {
      launchReduce(device, kernel, [block.left, block.size], [block.size, 1], block.size, src.ptr, out);
      return;
    }
    const { shape, strides } = src.layout;
    const order = [...shape.keys()].filter((dim) => !this.dims.includes(dim)).concat(this.dims);
    const reduced = this.dims.reduce((count, dim) => count * shape[dim], 1);
    launchReduce(
      device,
      kernel,
      order.map((d) => shape[d]),
      order.map((d) => strides[d]),
      reduced,
      src.ptr,
      out,
    );
  }
}

/** A sum over nothing is zero; core refuses the other reductions of an empty dim. */
export function reduce(storage: RocmStorage, op: ReduceOp, layout: Layout, dims: readonly number[]): RocmStorage {
  if (isArg(op))
    checkPositions(
      op,
      dims.reduce((count, dim) => count * layout.shape[dim], 1),
    );
  const reduction = new Reduce(op, dims);
  if (layout.elemCount === 0)
    return storage.device.zeros(reduction.outputCount(layout), reduction.outputDtype(storage.dtype));
  return reduction.map(storage, layout);
}

/** A contiguous [left, size, right] whose middle is reduced. */
interface Block {
  left: number;
  size: number;
  right: number;
}

function isArg(op: ReduceOp): boolean {
  return op === 'argmin' || op === 'argmax';
}

/** The layout as a {@link Block}, when it is contiguous and the reduced dims are neighbours in ascending order. */
function adjacentDims(layout: Layout, dims: readonly number[]): Block | undefined {
  if (!layout.isContiguous()) return undefined;
  for (let i = 1; i < dims.length; i++) if (dims[i] !== dims[i - 1] + 1) return undefined;
  const { shape, rank } = layout;
  // A sum over no dim at all: one of each element.
  const begin = dims.length === 0 ? rank : dims[0];
  const end = begin + dims.length;
  return {
    left: product(shape, 0, begin),
    size: product(shape, begin, end),
    right: product(shape, end, rank),
  };
}

function product(sizes: readonly number[], begin: number, end: number): number {
  let count = 1;
  for (let i = begin; i < end; i++) count *= sizes[i];
  return count;
}

/** Whether rows are enough for a warp each, aligned for its loads, and not so long that a block is better. */
function wantsWarps(device: RocmDevice, { left, size }: Block, src: Operand): boolean {
  const aligned = src.ptr % 16 === 0 && (size * src.itemBytes) % 16 === 0;
  return aligned && size <= MAX_WARP_ROW && left >= device.hip.properties.multiprocessorCount * 8;
}

function splits(device: RocmDevice, { left, size }: Block): boolean {
  return !device.shapes.isHost && size >= MIN_SPLIT_ROW && left < device.hip.properties.multiprocessorCount;
}

/**
 * `cols_{op}_{t}(left, size, right, parts, src, partial, dst)`, for positions `(left, size, right, parts, src, out)`, a
 * block a tile of columns of one share; then `cols_done_*` when there are several shares.
 */
function launchColumns(
  device: RocmDevice,
  op: ReduceOp,
  dtype: DType,
  { left, size, right }: Block,
  src: number,
  out: number,
): void {
  const { tiles, parts } = device.shapes.columns(left, size, right, sizeInBytes(dtype));
  const block = device.shapes.isHost ? 1 : COLUMN_BLOCK;
  const shape = { grid: device.shapes.blocks(left * parts * tiles, block), block };
  if (parts === 1) {
    const args = isArg(op) ? [src, out] : [src, 0, out];
    device.launch(REDUCE, kernelName(kernelName('cols', op), dtype), shape, [left, size, right, 1, ...args]);
    return;
  }
  const partial = allocPartial(device, op, dtype, left * parts * right);
  try {
    const args = isArg(op) ? [src, partial.ptr] : [src, partial.ptr, 0];
    device.launch(REDUCE, kernelName(kernelName('cols', op), dtype), shape, [left, size, right, parts, ...args]);
    const rest = isArg(op) ? [left, size, parts, right, src, partial.ptr, out] : [left, parts, right, partial.ptr, out];
    device.launch(REDUCE, kernelName(kernelName('cols_done', op), dtype), device.shapes.perItem(left * right), rest);
  } finally {
    partial.dispose();
  }
}

/**
 * `part_{op}_{t}(rows, size, parts, src, partial)` then `done_{op}_{t}`; {@link allocPartial} says what partial results are.
 */
function launchSplit(
  device: RocmDevice,
  op: ReduceOp,
  dtype: DType,
  { left: rows, size }: Block,
  src: number,
  out: number,
): void {
  const units = device.hip.properties.multiprocessorCount;
  const parts = Math.max(2, Math.min(Math.ceil(size / 2048), Math.ceil((units * 8) / rows)));
  const partial = allocPartial(device, op, dtype, rows * parts);
  try {
    device.launch(REDUCE, kernelName(kernelName('part', op), dtype), { grid: [parts, rows, 1], block: SPLIT_BLOCK }, [
      rows,
      size,
      parts,
      src,
      partial.ptr,
    ]);
    const args = isArg(op) ? [rows, size, parts, src, partial.ptr, out] : [rows, parts, partial.ptr, out];
    device.launch(REDUCE, kernelName(kernelName('done', op), dtype), { grid: rows, block: 64 }, args);
  } finally {
    partial.dispose();
  }
}

/**
 * Room for `count` partial results: accumulators (f32 for the small floats), f32 sums with what rounding took from them
 * beside each, positions for argmin and argmax.
 */
function allocPartial(device: RocmDevice, op: ReduceOp, dtype: DType, count: number): RocmStorage {
  if (isArg(op)) return device.allocUninit(count, 'u32');
  if (op === 'sum' && dtype === 'f32') return device.allocUninit(count * 2, 'f32');
  return device.allocUninit(count, dtype === 'f16' || dtype === 'bf16' || dtype === 'f8e4m3' ? 'f32' : dtype);
}
