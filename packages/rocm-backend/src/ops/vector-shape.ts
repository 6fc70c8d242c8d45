/** How products of few activation rows are spread over a device: the kernels of kernels/quantized/matvec.h and kernels/experts/. */
import { BLOCK_TYPES, type BlockType } from '@x/core';
import type { KernelDevice } from '../device';
import { clamp } from '../launch-shape';

/** Types that candle has kernels for: one matrix-vector kernel a number of activation rows. */
export const CANDLE_TYPES: ReadonlySet<BlockType> = new Set([
  'q4_0',
  'q4_1',
  'q5_0',
  'q5_1',
  'q8_0',
  'q2_K',
  'q3_K',
  'q4_K',
  'q5_K',
  'q6_K',
]);
/** Types that have tiles and streams on matrix units. */
export const UNIT_TYPES: ReadonlySet<BlockType> = new Set([...CANDLE_TYPES, 'mxfp4']);
/** Most warps of a block of matrix-vector kernels. */
const VECTOR_WARPS = 4;
/** Threads and weight rows of a block that takes several columns by way of shared memory: kernels/quantized/staged-columns.h. */
const STAGED = { threads: 256, rows: 16 };
/** Rows of a chunk on the host. */
const HOST_ROWS = 16;

/** Values of a row that a thread takes at once. */
export function valuesAtOnce(type: BlockType): number {
  return CANDLE_TYPES.has(type) && BLOCK_TYPES[type].blockSize === 256 ? 64 : 32;
}

/** Blocks of the host for n rows. */
export function hostBlocks({ hip }: KernelDevice, n: number): number {
  return clamp(Math.ceil(n / HOST_ROWS), 1, hip.properties.multiprocessorCount * 4);
}

/**
 * Blocks for n weight rows of k elements and so many columns: a warp takes a pair of rows, or a block of as many warps as have work
 * where warps for all pairs would leave the device half empty. On the host each chunk of rows is one call.
 */
export function vectorShape(
  device: KernelDevice,
  type: BlockType,
  n: number,
  k: number,
  columns = 1,
): { grid: number; block: number } {
  const { multiprocessorCount, warpSize } = device.hip.properties;
  if (device.shapes.isHost) return { grid: hostBlocks(device, n), block: 1 };
  // Where there are blocks for all processors.
  if (columns > 1 && device.location.kind === 'cuda' && n >= STAGED.rows * multiprocessorCount)
    return { grid: Math.ceil(n / STAGED.rows), block: STAGED.threads };
  const pairs = Math.ceil(n / 2);
  const warps = Math.min(Math.floor(k / valuesAtOnce(type) / warpSize), VECTOR_WARPS);
  if (pairs < multiprocessorCount * 20 && warps > 1) return { grid: pairs, block: warps * warpSize };
  return { grid: Math.ceil(pairs / VECTOR_WARPS), block: VECTOR_WARPS * warpSize };
}

/** One launch for products that {@link vectorShape} has for each weight: all blocks, in their common size, and those of each. */
export function besideShape(
  device: KernelDevice,
  weights: readonly { type: BlockType; n: number }[],
  k: number,
): { grid: number; block: number; blocks: number[] } {
  const shapes = weights.map(({ type, n }) => vectorShape(device, type, n, k));
  const block = Math.max(...shapes.map((shape) => shape.block));
  const blocks = shapes.map(({ grid }) => grid);
  return { grid: blocks.reduce((sum, count) => sum + count, 0), block, blocks };
}
