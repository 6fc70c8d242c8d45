/**
 * Reductions. candle has one kernel shape (`fast_*`, a block per result, the reduced dims last); four more of ours serve
 * the cases where that is slow: `rows_*` for many rows, `cols_*` for a reduced dim that is not the last, and `part_*` + `done_*`, which split few
 * long rows over the whole device in two deterministic stages.
 */
import { type DType, Layout, type Operand, type ReduceOp, type ReduceOps, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { checkPositions } from '../errors';
import { kernelName } from '../kernel-name';
import type { LaunchShape } from '../launch-shape';
import {
  launchCols,
  launchColsArg,
  launchColsDone,
  launchColsDoneArg,
  launchDone,
  launchDoneArg,
  launchFast,
  launchPart,
  launchRows,
} from '../launchers/reduce';
import type { KernelStorage, View } from '../storage';
import { FLOATS, filled } from './result';

/** Rows shorter than this are not worth two launches. */
const MIN_SPLIT_ROW = 16384;
const SPLIT_BLOCK = 256;
/** Elements of a part on the host, whatever the number of its threads: so results do not hang on it. */
const HOST_PART = 2 ** 15;
/** Rows longer than this take a block each. */
const MAX_WARP_ROW = 16384;
const COLUMN_BLOCK = 256;

export function reduceOps(device: KernelDevice): ReduceOps {
  /** A sum over nothing is zero; core refuses the other reductions of an empty dim. */
  function reduce(op: ReduceOp, x: Operand, dims: readonly number[]): KernelStorage {
    const { layout } = x;
    if (isArg(op)) checkPositions(op, layout.shape[dims[0]]);
    const { dtype } = x.storage;
    const result = isArg(op) ? 'u32' : dtype;
    let count = 1;
    for (let dim = 0; dim < layout.rank; dim++) if (!dims.includes(dim)) count *= layout.shape[dim];
    if (layout.elemCount === 0) return device.zeros(count, result);
    const block = adjacentDims(layout, dims);
    if (!block && isExactInTurn(op, dtype) && layout.isContiguous()) return inTurn(op, x, dims);
    return filled(device, result, count, (out) => {
      const src = device.view(x);
      if (block && block.right > 1) reduceColumns(device, op, dtype, block, src.ptr, out);
      else if (block && wantsWarps(device, block, src)) {
        const { left: rows, size } = block;
        const kernel = kernelName(kernelName('rows', op), dtype);
        launchRows(device, kernel, device.shapes.warpRows(rows), { rows, size, src: src.ptr, dst: out });
      } else if (block && splits(device, block)) reduceInParts(device, op, dtype, block, src.ptr, out);
      else reduceRows(device, kernelName(kernelName('fast', op), dtype), src, dims, block, out);
    });
  }

  /** Over the last of the dims and its neighbours among them, and then over the others. */
  function inTurn(op: ReduceOp, x: Operand, dims: readonly number[]): KernelStorage {
    const ascending = [...dims].sort((a, b) => a - b);
    let last = ascending.length - 1;
    while (last > 0 && ascending[last - 1] === ascending[last] - 1) last--;
    const own = ascending.slice(last);
    const part = reduce(op, x, own);
    if (last === 0) return part;
    try {
      const left = x.layout.shape.filter((_, dim) => !own.includes(dim));
      return reduce(op, { storage: part, layout: Layout.contiguous(left) }, ascending.slice(0, last));
    } finally {
      part.dispose();
    }
  }

  return { reduce };
}

/** Whether what is reduced twice is what is reduced at once, or a rounding of an f32 or f64 sum apart. */
function isExactInTurn(op: ReduceOp, dtype: DType): boolean {
  return !isArg(op) && (op !== 'sum' || sizeInBytes(dtype) >= 4 || !FLOATS.includes(dtype));
}

/** candle's own kernel: a block a result, `src` with the reduced dims last. */
function reduceRows(
  device: KernelDevice,
  kernel: string,
  { ptr: src, layout }: View,
  dims: readonly number[],
  block: Block | undefined,
  dst: number,
): void {
  const srcNumel = layout.elemCount;
  const { sizes, strides, elPerBlock } = block
    ? { sizes: [block.left, block.size], strides: [block.size, 1], elPerBlock: block.size }
    : reducedLast(layout, dims);
  const { numDims, ptr: info } = device.infoFor(sizes, strides);
  const shape = device.shapes.rows(srcNumel / elPerBlock, elPerBlock, 16);
  launchFast(device, kernel, shape, { srcNumel, elPerBlock, numDims, info, src, dst });
}

function reducedLast({ shape, strides }: Layout, dims: readonly number[]) {
  const order = [...shape.keys()].filter((dim) => !dims.includes(dim)).concat(dims);
  return {
    sizes: order.map((dim) => shape[dim]),
    strides: order.map((dim) => strides[dim]),
    elPerBlock: dims.reduce((count, dim) => count * shape[dim], 1),
  };
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
function wantsWarps(device: KernelDevice, { left, size }: Block, src: View): boolean {
  const aligned = src.ptr % 16 === 0 && (size * src.itemBytes) % 16 === 0;
  return aligned && size <= MAX_WARP_ROW && left >= device.hip.properties.multiprocessorCount * 8;
}

function splits(device: KernelDevice, { left, size }: Block): boolean {
  if (device.shapes.isHost) return left === 1 && size >= 2 * HOST_PART;
  return size >= MIN_SPLIT_ROW && left < device.hip.properties.multiprocessorCount;
}

/** A block a tile of columns of one share, then `cols_done_*` when there are several shares. */
function reduceColumns(
  device: KernelDevice,
  op: ReduceOp,
  dtype: DType,
  { left, size, right }: Block,
  src: number,
  out: number,
): void {
  const { tiles, parts } = device.shapes.columns(left, size, right, sizeInBytes(dtype));
  const block = device.shapes.isHost ? 1 : COLUMN_BLOCK;
  const shape = { grid: device.shapes.blocks(left * parts * tiles, block), block };
  const kernel = kernelName(kernelName('cols', op), dtype);
  if (parts === 1) {
    if (isArg(op)) launchColsArg(device, kernel, shape, { left, size, right, parts, src, out });
    else launchCols(device, kernel, shape, { left, size, right, parts, src, partial: 0, dst: out });
    return;
  }
  const shares = allocPartial(device, op, dtype, left * parts * right);
  try {
    const partial = shares.ptr;
    if (isArg(op)) launchColsArg(device, kernel, shape, { left, size, right, parts, src, out: partial });
    else launchCols(device, kernel, shape, { left, size, right, parts, src, partial, dst: 0 });
    const [done, columns] = [kernelName(kernelName('cols_done', op), dtype), device.shapes.perItem(left * right)];
    if (isArg(op)) launchColsDoneArg(device, done, columns, { left, size, parts, right, src, partial, dst: out });
    else launchColsDone(device, done, columns, { left, parts, right, partial, dst: out });
  } finally {
    shares.dispose();
  }
}

/** Few long rows over the whole device; {@link allocPartial} says what partial results are. */
function reduceInParts(
  device: KernelDevice,
  op: ReduceOp,
  dtype: DType,
  { left: rows, size }: Block,
  src: number,
  dst: number,
): void {
  const parts = partsOf(device, rows, size);
  const shares = allocPartial(device, op, dtype, rows * parts);
  try {
    const partial = shares.ptr;
    const kernel = kernelName(kernelName('part', op), dtype);
    const shared: LaunchShape = device.shapes.isHost
      ? device.shapes.rows(parts, size / parts, 16)
      : { grid: [parts, rows, 1], block: SPLIT_BLOCK };
    launchPart(device, kernel, shared, { rows, size, parts, src, partial });
    const block = device.shapes.isHost ? 1 : 64;
    const [done, shape] = [kernelName(kernelName('done', op), dtype), { grid: rows, block }];
    if (isArg(op)) launchDoneArg(device, done, shape, { rows, size, parts, src, partial, dst });
    else launchDone(device, done, shape, { rows, parts, partial, dst });
  } finally {
    shares.dispose();
  }
}

function partsOf({ shapes, hip }: KernelDevice, rows: number, size: number): number {
  if (shapes.isHost) return Math.ceil(size / HOST_PART);
  return Math.max(2, Math.min(Math.ceil(size / 2048), Math.ceil((hip.properties.multiprocessorCount * 8) / rows)));
}

/**
 * Room for `count` partial results: accumulators (f32 for the small floats), f32 sums with what rounding took from them
 * beside each, positions for argmin and argmax.
 */
function allocPartial(device: KernelDevice, op: ReduceOp, dtype: DType, count: number): KernelStorage {
  if (isArg(op)) return device.allocUninit(count, 'u32');
  if (op === 'sum' && dtype === 'f32') return device.allocUninit(count * 2, 'f32');
  return device.allocUninit(count, dtype === 'f16' || dtype === 'bf16' || dtype === 'f8e4m3' ? 'f32' : dtype);
}
