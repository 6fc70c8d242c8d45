/**
 * When and how `mul_mat_stream_*` is launched: products of few activation rows with quantized weights on matrix units, bound by
 * the weight's bytes (kernels/quantized/stream.h, whose sizes these are).
 */
import { BLOCK_TYPES, type BlockType } from '@x/core';
import type { KernelDevice } from '../device';
import type { LaunchShape } from '../launch-shape';

/** The types that have these kernels, and what the elements of one share: minima, and whether scales are of 16 or of 32. */
const FACTS: Partial<Record<BlockType, { minima: boolean; halves: boolean }>> = {
  q4_0: { minima: false, halves: false },
  q4_1: { minima: true, halves: false },
  q5_0: { minima: false, halves: false },
  q5_1: { minima: true, halves: false },
  q8_0: { minima: false, halves: false },
  q2_K: { minima: true, halves: true },
  q3_K: { minima: false, halves: true },
  q4_K: { minima: true, halves: false },
  q5_K: { minima: true, halves: false },
  q6_K: { minima: false, halves: true },
};

/** Elements of a row that a warp takes at once, and groups of 32 of them. */
const SPAN = 256;
const GROUPS = SPAN / 32;
/** Bytes of 128 activations in blocks. */
const QUARTER_BYTES = 144;
/** Warps of a block, slabs of rows, columns and scales that are held at a time, and columns of the smallest tile. */
const NVIDIA = { warps: 8, rows: 2, columns: 3, scales: 2, least: 8 };
const AMD = { warps: 4, rows: 1, columns: 1, scales: 1, least: 16 };
/** What the hardware takes of the shared memory for each block. */
const RESERVED_BYTES = 1024;

export interface StreamLaunch {
  kernel: string;
  shape: LaunchShape;
}

/**
 * The launch for m activation rows and n weight rows; undefined where the device or the type has no such kernel.
 * @param columns of a tile: 8, 16 or 32; default: as fits m
 */
export function streamLaunch(
  device: KernelDevice,
  type: BlockType,
  { m, n }: { m: number; n: number },
  columns: number = m <= 8 ? 8 : m <= 16 ? 16 : 32,
): StreamLaunch | undefined {
  const facts = FACTS[type];
  const { matrixUnits, hip } = device;
  if (!facts || !matrixUnits) return undefined;
  const { warpSize, sharedMemoryPerBlock, multiprocessorCount } = hip.properties;
  const { warps, rows, columns: stages, scales, least } = matrixUnits === 'nvidia' ? NVIDIA : AMD;
  const across = columns > 16 ? warps / 2 : warps / 4;
  const along = warps / across;
  const held = Math.max(columns, least);
  const parts = facts.halves ? 2 : 1;
  const blocks = rows * 16 * across * rowBytes(type, along);
  const scaled = warps * GROUPS * parts * 16 * (facts.minima ? 2 : 1) * 4;
  const slab = along * (SPAN / 128) * held * QUARTER_BYTES;
  const records = along * GROUPS * held * (facts.minima ? 2 * parts : 1) * 4;
  const sharedBytes = blocks + scaled + stages * slab + scales * records;
  if (sharedBytes > sharedMemoryPerBlock) return undefined;
  const tiles = Math.ceil(n / (16 * across)) * Math.ceil(m / held);
  // A block goes from tile to tile, so there are as many as run at once.
  const together = Math.floor((sharedMemoryPerBlock + RESERVED_BYTES) / (sharedBytes + RESERVED_BYTES));
  const grid = Math.min(tiles, multiprocessorCount * Math.min(together, 2));
  return {
    kernel: `mul_mat_stream_${type}_${columns}`,
    shape: { grid, block: warps * warpSize, sharedBytes },
  };
}

/** Bytes of so many spans of a row in shared memory: the 16-byte pieces that hold them wherever they begin, an odd number. */
function rowBytes(type: BlockType, spans: number): number {
  const { blockSize, blockBytes } = BLOCK_TYPES[type];
  const skew = blockBytes % 16 === 0 ? 0 : blockBytes % 4 === 0 ? 12 : 14;
  return (Math.ceil((((spans * SPAN) / blockSize) * blockBytes + skew) / 16) | 1) * 16;
}
