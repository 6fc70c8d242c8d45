/**
 * When and how `mul_mat_stream_*` is launched: products of few activation rows with quantized weights on matrix units, bound by
 * the weight's bytes (kernels/quantized/stream.h, whose sizes these are).
 */
import { BLOCK_TYPES, type BlockType } from '@x/core';
import type { KernelDevice } from '../device';
import type { LaunchShape } from '../launch-shape';

/** Elements of a row that are taken at once. */
const SPAN = 256;
/** Bytes of so many activations in blocks. */
const COLUMN_BYTES = 288;
/** Their bytes as an operand, how many operands are held at a time, and columns of the smallest tile. */
const NVIDIA = { operandBytes: 512, operands: 2, least: 8 };
const AMD = { operandBytes: 528, operands: 1, least: 16 };
/** What the hardware takes of the shared memory for each block, and the kernels themselves beside what is asked for. */
const RESERVED_BYTES = 1024;
const STATIC_BYTES = 1024;
/** Spans that a block takes at least: for fewer it takes longer to begin than to multiply. */
const LEAST_SPANS = 2;

export interface StreamLaunch {
  kernel: string;
  shape: LaunchShape;
  /** Tiles of the result, which each have a counter, and f32 of the parts of them that blocks leave to each other. */
  tiles: number;
  parts: number;
}

/**
 * The launch for m activation rows and n weight rows of k values; undefined where the device has no such units or
 * no room for the kernel. `UNIT_TYPES` have them.
 * @param columns of a tile: 8, 16, 32 or 64; default: as fits m and the device's shared memory
 * @param inGroups whether columns come as operands: {@link groupedStreamLaunch}
 */
export function streamLaunch(
  device: KernelDevice,
  type: BlockType,
  size: { m: number; n: number; k: number },
  columns: number = size.m <= 8 ? 8 : size.m <= 16 ? 16 : size.m <= 32 ? 32 : 64,
  inGroups = false,
): StreamLaunch | undefined {
  const { matrixUnits, hip } = device;
  if (!matrixUnits) return undefined;
  const { m, n, k } = size;
  const { warpSize, sharedMemoryPerBlock, multiprocessorCount } = hip.properties;
  const nvidia = matrixUnits === 'nvidia';
  const { operandBytes, operands, least } = nvidia ? NVIDIA : AMD;
  const held = Math.max(columns, least);
  const { blockSize, blockBytes } = BLOCK_TYPES[type];
  const spanBytes = (SPAN / blockSize) * blockBytes;
  const warps = !nvidia ? 4 : columns === 64 && spanBytes <= SPAN ? 16 : 8;
  const rows = warps * 16;
  const stages = nvidia ? (columns <= 16 && spanBytes <= SPAN ? 3 : 2) : 1;
  const copied = rows * rowBytes(spanBytes, blockBytes) + (nvidia && !inGroups ? held * COLUMN_BYTES : 0);
  const operandsAtOnce = inGroups ? stages : operands;
  const sharedBytes = Math.ceil((operandsAtOnce * held * operandBytes + stages * copied) / 1024) * 1024;
  if (sharedBytes + (nvidia ? STATIC_BYTES : 64) > sharedMemoryPerBlock)
    return columns > least && !inGroups ? streamLaunch(device, type, size, columns / 2) : undefined;
  const tiles = Math.ceil(n / rows) * Math.ceil(m / held);
  const spans = tiles * Math.ceil(k / SPAN);
  const each = sharedBytes + STATIC_BYTES + RESERVED_BYTES;
  const together = Math.min(
    Math.floor((sharedMemoryPerBlock + RESERVED_BYTES) / each),
    columns > 32 ? 1 : columns > 8 ? 2 : 3,
  );
  const grid = Math.max(1, Math.min(Math.floor(spans / LEAST_SPANS), multiprocessorCount * Math.max(1, together)));
  // The kernels count in 32 bits.
  if (spans * (grid + 1) >= 2 ** 32) return undefined;
  return {
    kernel: `mul_mat_stream_${type}_${columns}`,
    shape: { grid, block: warps * warpSize, sharedBytes },
    tiles,
    parts: grid * 2 * rows * held,
  };
}

/**
 * The same for columns in groups, `count` tiles of at most `most` columns each, 16, 64 or 128, with n weight rows of k values: of
 * NVIDIA alone.
 */
export function groupedStreamLaunch(
  device: KernelDevice,
  type: BlockType,
  { count, n, k }: { count: number; n: number; k: number },
  most: number,
): StreamLaunch | undefined {
  if (device.matrixUnits !== 'nvidia') return undefined;
  const launch = streamLaunch(device, type, { m: count * most, n, k }, most, true);
  return launch && { ...launch, kernel: `mul_mat_stream_grouped_${type}_${most}` };
}

/** Bytes of a span of a row in shared memory: the 16-byte pieces that hold it wherever it begins, an odd number. */
function rowBytes(spanBytes: number, blockBytes: number): number {
  const skew = blockBytes % 16 === 0 ? 0 : blockBytes % 4 === 0 ? 12 : blockBytes % 2 === 0 ? 14 : 15;
  return (Math.ceil((spanBytes + skew) / 16) | 1) * 16;
}
