/**
 * Attention in one kernel of the ATTENTION module: of f16 and bf16 on matrix units, of f32 on the FMA units beside them, of all
 * three on the host.
 */
import { type AttentionOps, type AttentionProblem, type DType, Layout, type Operand, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchAttention } from '../launchers/attention';
import type { KernelStorage } from '../storage';
import { denseCopy } from './copy';
import { filled } from './result';

const DTYPES: readonly DType[] = ['f16', 'bf16', 'f32'];
/** The kernels by the size of a head. */
const KERNELS: Record<number, string> = { 64: 'attention_64', 128: 'attention_128' };
/** Queries of a block's tile, and keys that are in its shared memory at once (kernels/attention/slabs.h). */
const QUERIES = 128;
const KEYS = 64;
/** Queries below which a tile is mostly empty. */
const FEWEST_QUERIES = 16;
/** Of a tile on the host (kernels/attention/host.h), and tiles a thread, so that long ones do not come last. */
const QUERIES_HOST = 64;
const TILES_HOST = 16;
/** The same of the f32 kernels; and values in shared memory beside the queries (kernels/attention/chunks.h). */
const QUERIES_F32 = 64;
const BESIDE_QUERIES_F32 = QUERIES_F32 * 256;
/** Blocks of the f32 kernels that a processor runs at once, each one tile after another. */
const BLOCKS_PER_CU_F32 = 2;

export class DeviceAttentionOps implements AttentionOps {
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  supports(dtype: DType, { b, heads, seq, kv, d, scale }: AttentionProblem): boolean {
    const { hip, matrixUnits, shapes } = this.#device;
    // A tile of f32 has its keys one after the other: tiles must fill the device, or two products are faster.
    const few = dtype === 'f32' || shapes.isHost;
    const tiles = few ? b * heads * Math.floor(seq / QUERIES_F32) : 0;
    return (
      (matrixUnits !== undefined || shapes.isHost) &&
      DTYPES.includes(dtype) &&
      d in KERNELS &&
      (few ? tiles >= hip.properties.multiprocessorCount : seq >= FEWEST_QUERIES) &&
      Math.max(seq, kv) < 2 ** 31 &&
      scale > 0 &&
      this.#shape(dtype, 1, 1, d).sharedBytes! <= hip.properties.sharedMemoryPerBlock
    );
  }

  forward(problem: AttentionProblem, q: Operand, k: Operand, v: Operand): KernelStorage {
    const { b, heads, kvHeads, seq, kv, d, scale, causal } = problem;
    if (!DTYPES.includes(q.storage.dtype) || !(d in KERNELS))
      throw unsupported('attention', q.storage.dtype, this.#device);
    const device = this.#device;
    const { dtype } = q.storage;
    const copies: KernelStorage[] = [];
    try {
      const [from, keys, values] = [q, k, v].map((x) => this.#source(x, copies));
      return filled(device, dtype, b * heads * seq * d, (out) => {
        launchAttention(device, kernelName(KERNELS[d], dtype), this.#shape(dtype, b * heads, seq, d), {
          b,
          heads,
          kvHeads,
          seq,
          kv,
          q: from.ptr,
          qBatchStride: from.strides[0],
          qHeadStride: from.strides[1],
          qRowStride: from.strides[2],
          k: keys.ptr,
          kBatchStride: keys.strides[0],
          kHeadStride: keys.strides[1],
          kRowStride: keys.strides[2],
          v: values.ptr,
          vBatchStride: values.strides[0],
          vHeadStride: values.strides[1],
          vRowStride: values.strides[2],
          out,
          scale,
          causal,
        });
      });
    } finally {
      for (const copy of copies) copy.dispose();
    }
  }

  #shape(dtype: DType, heads: number, seq: number, d: number): LaunchShape {
    const { shapes, hip, matrixUnits: units } = this.#device;
    const { multiprocessorCount } = hip.properties;
    if (shapes.isHost) {
      const tiles = heads * Math.ceil(seq / QUERIES_HOST);
      return { grid: clamp(tiles, 1, multiprocessorCount * TILES_HOST), block: 1, sharedBytes: 0 };
    }
    const size = sizeInBytes(dtype);
    if (dtype === 'f32') {
      const grid = clamp(heads * Math.ceil(seq / QUERIES_F32), 1, multiprocessorCount * BLOCKS_PER_CU_F32);
      const block = units === 'nvidia' ? 128 : 256;
      return { grid, block, sharedBytes: units === 'nvidia' ? (QUERIES_F32 * d + BESIDE_QUERIES_F32) * size : 0 };
    }
    const tiles = heads * Math.ceil(seq / QUERIES);
    const block = 256;
    const grid = shapes.blocks(units ? tiles : tiles * QUERIES, block);
    return { grid, block, sharedBytes: units === 'nvidia' ? (QUERIES + 4 * KEYS) * d * size : 0 };
  }

  /** Address and strides: of a copy, which joins `copies`, where rows do not begin at multiples of 16 bytes. */
  #source(x: Operand, copies: KernelStorage[]): { ptr: number; strides: readonly number[] } {
    const { ptr } = this.#device.view(x);
    const { strides, shape } = x.layout;
    if (ptr % 16 === 0 && strides[3] === 1 && rowsApart(x.layout, 16 / sizeInBytes(x.storage.dtype))) {
      return { ptr, strides };
    }
    const copy = denseCopy(this.#device, x);
    copies.push(copy);
    return { ptr: copy.ptr, strides: Layout.contiguous(shape).strides };
  }
}

/** Whether rows of the last dim begin at multiples of `elements` from each other. */
function rowsApart({ shape, strides }: Layout, elements: number): boolean {
  for (let dim = 0; dim < 3; dim++) if (strides[dim] % elements !== 0 && shape[dim] !== 1) return false;
  return true;
}
