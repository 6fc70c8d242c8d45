/** Attention of parts of several sequences over a cache in blocks: the kernels `attention_varlen` (kernels/attention/varlen.h). */
import { type DType, type Operand, type PagedPool, sizeInBytes, type VarlenProblem, type VarlenTiles } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchAttentionVarlen } from '../launchers/attention';
import type { KernelStorage } from '../storage';
import { denseCopy } from './copy';
import { filled } from './result';

const DTYPES: readonly DType[] = ['f16', 'bf16'];
const HEAD_SIZES = [64, 128];
/** Rows of a tile, keys that are in shared memory at once (kernels/attention/slabs.h), and threads of a block. */
const ROWS = 128;
const KEYS = 64;
const THREADS = 256;
const HOST_BLOCKS_PER_CU = 8;

/** Rows of a tile at most, where there is a kernel. */
export function varlenRows(device: KernelDevice, dtype: DType, d: number, dv: number): number | undefined {
  const { hip, matrixUnits, shapes } = device;
  const fits = sharedBytes(device, dtype, d) <= hip.properties.sharedMemoryPerBlock;
  const has = matrixUnits !== undefined || shapes.isHost;
  return has && fits && d === dv && HEAD_SIZES.includes(d) && DTYPES.includes(dtype) ? ROWS : undefined;
}

/** A block a tile and head. */
export function attendVarlen(
  device: KernelDevice,
  { tokens, heads, scale, window, sinks }: VarlenProblem,
  q: Operand,
  { keys, values, blocks, blockSize, kvHeads, d, dv }: PagedPool,
  { tiles, count, tables }: VarlenTiles,
): KernelStorage {
  const { dtype } = q.storage;
  if (varlenRows(device, dtype, d, dv) === undefined || keys[0].dtype !== dtype)
    throw unsupported('attendVarlen', dtype, device);
  const copy = hasWholeRows(device, q) ? undefined : denseCopy(device, q);
  try {
    const { strides } = q.layout;
    return filled(device, dtype, tokens * heads * d, (out) =>
      launchAttentionVarlen(device, `attention_varlen_${d}_${dtype}`, shapeOf(device, dtype, count * heads, d), {
        tiles: device.address(tiles),
        count,
        heads,
        kvHeads,
        blockShift: Math.log2(blockSize),
        blocks,
        window,
        scale,
        q: copy ? copy.ptr : device.view(q).ptr,
        qRow: copy ? heads * d : strides[0],
        qHead: copy ? d : strides[1],
        k: device.address(keys),
        v: device.address(values),
        tables: device.address(tables),
        sinks: sinks ? device.address(sinks) : 0,
        out,
      }),
    );
  } finally {
    copy?.dispose();
  }
}

/** Whether heads are contiguous and begin at multiples of 16 bytes. */
function hasWholeRows(device: KernelDevice, q: Operand): boolean {
  const [row, head, each] = q.layout.strides;
  const elements = 16 / sizeInBytes(q.storage.dtype);
  return each === 1 && row % elements === 0 && head % elements === 0 && device.view(q).ptr % 16 === 0;
}

function shapeOf(device: KernelDevice, dtype: DType, items: number, d: number): LaunchShape {
  const { shapes, hip } = device;
  if (shapes.isHost)
    return { grid: clamp(items, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1, sharedBytes: 0 };
  return { grid: shapes.blocks(items, THREADS), block: THREADS, sharedBytes: sharedBytes(device, dtype, d) };
}

function sharedBytes({ matrixUnits }: KernelDevice, dtype: DType, d: number): number {
  return matrixUnits === 'nvidia' ? (ROWS + 4 * KEYS) * d * sizeInBytes(dtype) : 0;
}
