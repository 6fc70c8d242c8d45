/** Attention in one kernel of the ATTENTION module: of f16 and bf16 on matrix units, of f32 on the FMA units beside them. */
import {
  type AttentionOps,
  type AttentionProblem,
  type BackendStorage,
  type DType,
  Layout,
  sizeInBytes,
} from '@x/core';
import { ATTENTION } from '@x/kernels';
import type { RocmDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape } from '../launch-shape';
import { Copy, run } from '../ops';
import { RocmStorage } from './index';

const DTYPES: readonly DType[] = ['f16', 'bf16', 'f32'];
/** Sizes of a head that there are kernels for. */
const HEAD_SIZES = [64, 128];
/** Queries of a block's tile, and keys that are in its shared memory at once (kernels/attention/slabs.h). */
const QUERIES = 128;
const KEYS = 64;
/** Queries below which a tile is mostly empty. */
const FEWEST_QUERIES = 16;
/** The same of the f32 kernels; and values in shared memory beside the queries (kernels/attention/chunks.h). */
const QUERIES_F32 = 64;
const BESIDE_QUERIES_F32 = QUERIES_F32 * 256;
/** Blocks of the f32 kernels that a processor runs at once, each one tile after another. */
const BLOCKS_PER_CU_F32 = 2;

export class DeviceAttentionOps implements AttentionOps {
  readonly #device: RocmDevice;

  constructor(device: RocmDevice) {
    this.#device = device;
  }

  supports(dtype: DType, { b, heads, seq, kv, d, scale }: AttentionProblem): boolean {
    const { hip, matrixUnits } = this.#device;
    // A tile of f32 has its keys one after the other: tiles must fill the device, or two products are faster.
    const tiles = dtype === 'f32' ? b * heads * Math.floor(seq / QUERIES_F32) : 0;
    return (
      matrixUnits !== undefined &&
      DTYPES.includes(dtype) &&
      HEAD_SIZES.includes(d) &&
      (dtype === 'f32' ? tiles >= hip.properties.multiprocessorCount : seq >= FEWEST_QUERIES) &&
      Math.max(seq, kv) < 2 ** 31 &&
      scale > 0 &&
      this.#shape(dtype, 1, 1, d).sharedBytes! <= hip.properties.sharedMemoryPerBlock
    );
  }

  /** `attention_{d}_{t}(b, heads, kv_heads, seq, kv, q, strides, k, strides, v, strides, out, scale, causal)`. */
  forward(
    problem: AttentionProblem,
    q: BackendStorage,
    qLayout: Layout,
    k: BackendStorage,
    kLayout: Layout,
    v: BackendStorage,
    vLayout: Layout,
  ): RocmStorage {
    const { b, heads, kvHeads, seq, kv, d, scale, causal } = problem;
    if (!DTYPES.includes(q.dtype) || !HEAD_SIZES.includes(d)) throw unsupported('attention', q.dtype, this.#device);
    const device = this.#device;
    const operands = [this.#operand(q, qLayout), this.#operand(k, kLayout), this.#operand(v, vLayout)];
    try {
      return run(device, q.dtype, b * heads * seq * d, (out) => {
        const strided = operands.flatMap(({ args }) => args);
        const args = [b, heads, kvHeads, seq, kv, ...strided, out, scale, Number(causal)];
        const shape = this.#shape(q.dtype, b * heads, seq, d);
        device.launch(ATTENTION, `attention_${d}_${q.dtype}`, shape, args);
      });
    } finally {
      for (const { copy } of operands) copy?.dispose();
    }
  }

  #shape(dtype: DType, heads: number, seq: number, d: number): LaunchShape {
    const { shapes, hip, matrixUnits: units } = this.#device;
    const { multiprocessorCount } = hip.properties;
    if (shapes.isHost) return { grid: clamp(heads * seq, 1, multiprocessorCount * 4), block: 1, sharedBytes: 0 };
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

  /** Address and strides of the first three dims, of a copy where rows do not begin at multiples of 16 bytes. */
  #operand(storage: BackendStorage, layout: Layout): { args: number[]; copy?: RocmStorage } {
    const own = RocmStorage.on(this.#device, storage);
    const { ptr } = own.operand(layout);
    const strides = layout.strides.slice(0, 3);
    const apart = strides.every(
      (stride, dim) => (stride * sizeInBytes(own.dtype)) % 16 === 0 || layout.shape[dim] === 1,
    );
    if (apart && ptr % 16 === 0 && layout.strides[3] === 1) return { args: [ptr, ...strides] };
    const copy = new Copy().map(own, layout);
    return { args: [copy.ptr, ...Layout.contiguous(layout.shape).strides.slice(0, 3)], copy };
  }
}
