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
/** Values of a head that there are kernels for: others take the next larger one. */
const HEAD_SIZES = [64, 128, 256];
const STEP = 16;
/** Latent attention: values are the first columns of the keys. */
const LATENT = { d: 576, dv: 512 };
/** Rows of a tile (`TILE_ROWS_AT_MOST` of kernels/attention/slabs.h), and threads of a block. */
const ROWS = 128;
const THREADS = 256;
const HOST_BLOCKS_PER_CU = 8;
/** On NVIDIA, rows of shared memory, by kernel: of queries, and two slabs of keys and of values where those are their own. */
const SHARED_ROWS: Record<number, number> = {
  64: 128 + 4 * 64,
  128: 128 + 4 * 64,
  256: 128 + 4 * 64,
  576: 64 + 2 * 64,
};
/** The same of long heads before compute capability 9.0, whose GPUs have less. */
const FEWER_ROWS: Record<number, number> = { 256: 64 + 4 * 32, 576: 64 + 2 * 32 };

/** Rows of a tile at most, where there is a kernel. */
export function varlenRows(device: KernelDevice, dtype: DType, d: number, dv: number): number | undefined {
  const size = kernelSize(device, d, dv);
  if (size === undefined || !DTYPES.includes(dtype)) return undefined;
  return sharedBytes(device, size) <= device.hip.properties.sharedMemoryPerBlock ? ROWS : undefined;
}

/** The kernel for heads of d values, and of dv values of the values; undefined where there is none. */
function kernelSize({ hip, matrixUnits, shapes }: KernelDevice, d: number, dv: number): number | undefined {
  if (matrixUnits === undefined && !shapes.isHost) return undefined;
  const isAmd = matrixUnits === 'amd';
  // RDNA has no registers for queries so long.
  if (d === LATENT.d && dv === LATENT.dv) return isAmd && hip.properties.warpSize === 32 ? undefined : d;
  // On AMD just these; elsewhere what lies behind a head is left out in whole steps of the units.
  const fits = isAmd ? HEAD_SIZES.includes(d) : d % STEP === 0;
  return d === dv && fits ? HEAD_SIZES.find((size) => d <= size) : undefined;
}

export function attendVarlen(
  device: KernelDevice,
  { tokens, heads, scale, window, softcap, sinks }: VarlenProblem,
  q: Operand,
  { keys, values, valueRow, blocks, blockSize, kvHeads, d, dv }: PagedPool,
  { tiles, count, tables }: VarlenTiles,
): KernelStorage {
  const { dtype } = q.storage;
  const size = kernelSize(device, d, dv);
  const fits = size !== undefined && varlenRows(device, dtype, d, dv) !== undefined && keys[0].dtype === dtype;
  // Latent attention reads no values but those inside the keys.
  if (!fits || (d !== dv && device.address(keys) !== device.address(values)))
    throw unsupported('attendVarlen', dtype, device);
  const copy = hasWholeRows(device, q) ? undefined : denseCopy(device, q);
  try {
    const { strides } = q.layout;
    return filled(device, dtype, tokens * heads * dv, (out) =>
      launchAttentionVarlen(device, `attention_varlen_${size}_${dtype}`, shapeOf(device, count * heads, size), {
        tiles: device.address(tiles),
        count,
        heads,
        kvHeads,
        d,
        dv,
        blockShift: Math.log2(blockSize),
        blocks,
        window,
        scale,
        softcap,
        q: copy ? copy.ptr : device.view(q).ptr,
        qRow: copy ? heads * d : strides[0],
        qHead: copy ? d : strides[1],
        k: device.address(keys),
        v: device.address(values),
        vRow: valueRow,
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

/** A block a tile and head, of long heads several. */
function shapeOf(device: KernelDevice, items: number, size: number): LaunchShape {
  const { shapes, hip } = device;
  if (shapes.isHost)
    return { grid: clamp(items, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1, sharedBytes: 0 };
  const blocks = size > 128 ? 2 * items : items;
  return { grid: shapes.blocks(blocks, THREADS), block: THREADS, sharedBytes: sharedBytes(device, size) };
}

/** What kernels of a size want. */
function sharedBytes({ matrixUnits, hip }: KernelDevice, size: number): number {
  if (matrixUnits !== 'nvidia') return 0;
  const bytes = (rows: number) => rows * size * sizeInBytes('f16');
  const most = bytes(SHARED_ROWS[size]);
  const fewer = FEWER_ROWS[size];
  return fewer !== undefined && most > hip.properties.sharedMemoryPerBlock ? bytes(fewer) : most;
}
