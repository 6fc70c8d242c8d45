/** Attention in one kernel of the ATTENTION module: of f16 and bf16 on matrix units, of f32 on the FMA units beside them. */
import { type AttentionOps, type AttentionProblem, type DType, Layout, type Operand, sizeInBytes } from '@x/core';
import { ATTENTION } from '@x/kernels';
import type { RocmDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { clamp, type LaunchShape } from '../launch-shape';
import { Copy, run } from '../ops';
import { RocmStorage } from './index';

const DTYPES: readonly DType[] = ['f16', 'bf16', 'f32'];
/** The kernels by the size of a head. */
const KERNELS: Record<number, string> = { 64: 'attention_64', 128: 'attention_128' };
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
      d in KERNELS &&
      (dtype === 'f32' ? tiles >= hip.properties.multiprocessorCount : seq >= FEWEST_QUERIES) &&
      Math.max(seq, kv) < 2 ** 31 &&
      scale > 0 &&
      this.#shape(dtype, 1, 1, d).sharedBytes! <= hip.properties.sharedMemoryPerBlock
    );
  }

  /** `attention_{d}_{t}(b, heads, kv_heads, seq, kv, q, strides, k, strides, v, strides, out, scale, causal)`. */
  forward(problem: AttentionProblem, q: Operand, k: Operand, v: Operand): RocmStorage {
    const { b, heads, kvHeads, seq, kv, d, scale, causal } = problem;
    if (!DTYPES.includes(q.storage.dtype) || !(d in KERNELS))
      throw unsupported('attention', q.storage.dtype, this.#device);
    const device = this.#device;
    const args = [b, heads, kvHeads, seq, kv];
    const copies: RocmStorage[] = [];
    try {
      this.#putOperand(args, copies, q);
      this.#putOperand(args, copies, k);
      this.#putOperand(args, copies, v);
      const { dtype } = q.storage;
      return run(device, dtype, b * heads * seq * d, (out) => {
        args.push(out, scale, Number(causal));
        const shape = this.#shape(dtype, b * heads, seq, d);
        device.launch(ATTENTION, kernelName(KERNELS[d], dtype), shape, args);
      });
    } finally {
      for (const copy of copies) copy.dispose();
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

  /** Address and strides of the first three dims: of a copy, which joins `copies`, where rows do not begin at multiples of 16 bytes. */
  #putOperand(args: number[], copies: RocmStorage[], { storage, layout }: Operand): void {
    const own = RocmStorage.on(this.#device, storage);
    let { ptr } = own.operand(layout);
    let { strides } = layout;
    if (ptr % 16 !== 0 || strides[3] !== 1 || !rowsApart(layout, 16 / sizeInBytes(own.dtype))) {
      const copy = new Copy().map(own, layout);
      copies.push(copy);
      ptr = copy.ptr;
      strides = Layout.contiguous(layout.shape).strides;
    }
    args.push(ptr, strides[0], strides[1], strides[2]);
  }
}

/** Whether rows of the last dim begin at multiples of `elements` from each other. */
function rowsApart({ shape, strides }: Layout, elements: number): boolean {
  for (let dim = 0; dim < 3; dim++) if (strides[dim] % elements !== 0 && shape[dim] !== 1) return false;
  return true;
}
