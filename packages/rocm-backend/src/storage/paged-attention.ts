/** Attention over a cache in blocks: the kernels `attention_paged`, `attention_merge` and `attention_append` (kernels/attention/paged.h). */
import {
  type DType,
  type Operand,
  type PagedAttentionOps,
  type PagedPool,
  type PagedProblem,
  type PagedTables,
  type StoragePart,
  sizeInBytes,
} from '@x/core';
import { ATTENTION } from '@x/kernels';
import type { RocmDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape } from '../launch-shape';
import { Copy, run } from '../ops';
import { activationRowBytes, activationRows, BLOCK_VALUES, paddedWidth } from './activations';
import { RocmStorage } from './index';

const DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
/** The constants of kernels/attention/paged.h. */
const THREADS = 128;
const KEYS = 128;
const EACH = 8;
const MAX_PARTS = 64;
/** Elements of a head at most: a thread has a column of the values. */
const MAX_HEAD = 576;
/** Blocks for each processor from which on keys are not cut into more parts. */
const BLOCKS_PER_CU = 4;
const HOST_BLOCKS_PER_CU = 2;

export class DevicePagedAttentionOps implements PagedAttentionOps {
  readonly #device: RocmDevice;

  constructor(device: RocmDevice) {
    this.#device = device;
  }

  supports(dtype: DType, poolDType: DType, d: number, dv: number): boolean {
    const sizes = [d, dv].every((size) => size > 0 && size % EACH === 0 && size <= MAX_HEAD);
    return sizes && DTYPES.includes(dtype) && DTYPES.includes(poolDType);
  }

  attend(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): RocmStorage {
    const { tokens, heads } = problem;
    const { dv } = pool;
    const { dtype } = q.storage;
    const parts = this.#parts(problem, pool, at);
    return run(this.#device, dtype, tokens * heads * dv, (out) =>
      this.#attend(problem, q, pool, at, parts, out, (partial) => {
        if (parts === 1) return;
        const shape = this.#mergeShape(tokens * heads, dv);
        this.#device.launch(ATTENTION, `attention_merge_${dtype}`, shape, [tokens * heads, dv, parts, partial, out]);
      }),
    );
  }

  supportsBlocks(dtype: DType, poolDType: DType, d: number, dv: number): boolean {
    return dtype === 'f32' && dv % BLOCK_VALUES === 0 && this.supports(dtype, poolDType, d, dv);
  }

  /** As {@link attend} in parts, which `attention_merge_q8_1(rows, heads, dv, parts, padded, partial, blocks)` merges. */
  attendInBlocks(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): RocmStorage {
    const { tokens, heads } = problem;
    const { keys, d, dv } = pool;
    const { dtype } = q.storage;
    if (!this.supportsBlocks(dtype, keys[0].dtype, d, dv))
      throw unsupported('pagedAttention in blocks', dtype, this.#device);
    const parts = Math.max(2, this.#parts(problem, pool, at));
    const width = heads * dv;
    const bytes = activationRows(tokens) * activationRowBytes(width);
    return run(this.#device, 'u8', tokens === 0 ? 0 : bytes, (out) =>
      this.#attend(problem, q, pool, at, parts, 0, (partial) => {
        const args = [tokens * heads, heads, dv, parts, paddedWidth(width), partial, out];
        this.#device.launch(ATTENTION, 'attention_merge_q8_1', this.#mergeShape(tokens * heads, dv), args);
      }),
    );
  }

  /**
   * `attention_paged_{t}_{kv}(heads_at_once, tokens, heads, kv_heads, d, dv, block_shift, max_blocks, sequences, blocks, parts,
   * window, scale, softcap, q, q_row, q_head, k, v, tables, rows, lengths, partial, out)`: one part to `out`, several to memory
   * that `merge`, `attention_merge_{t}(rows, dv, parts, partial, out)` mostly, is given.
   */
  #attend(
    { tokens, heads, scale, window, softcap }: PagedProblem,
    { storage: q, layout: qLayout }: Operand,
    { keys, values, blocks, blockSize, kvHeads, d, dv }: PagedPool,
    { tables, sequences, maxBlocks, rows, lengths }: PagedTables,
    parts: number,
    out: number,
    merge: (partial: number) => void,
  ): void {
    const device = this.#device;
    const poolDType = keys[0].dtype;
    if (!this.supports(q.dtype, poolDType, d, dv)) throw unsupported('pagedAttention', q.dtype, device);
    const headsAtOnce = headsOfTile(heads / kvHeads);
    const items = tokens * kvHeads * Math.ceil(heads / kvHeads / headsAtOnce);
    const own = RocmStorage.on(device, q);
    const copy = qLayout.strides[2] === 1 || d === 1 ? undefined : new Copy().map(own, qLayout);
    const [qRow, qHead] = copy ? [heads * d, d] : qLayout.strides;
    const partial = parts > 1 ? device.allocUninit(tokens * heads * parts * (dv + 2), 'f32') : undefined;
    try {
      const from = copy ? copy.ptr : own.operand(qLayout).ptr;
      const sizes = [headsAtOnce, tokens, heads, kvHeads, d, dv, Math.log2(blockSize), maxBlocks, sequences, blocks];
      const pointers = [
        this.#address(keys),
        this.#address(values),
        this.#address(tables),
        rows ? this.#address(rows) : 0,
        this.#address(lengths),
        partial?.ptr ?? 0,
        out,
      ];
      const args = [...sizes, parts, window, scale, softcap, from, qRow, qHead, ...pointers];
      const shape = this.#shape(items * parts, headsAtOnce, d, dv);
      device.launch(ATTENTION, `attention_paged_${q.dtype}_${poolDType}`, shape, args);
      merge(partial?.ptr ?? 0);
    } finally {
      copy?.dispose();
      partial?.dispose();
    }
  }

  /** `attention_append_{t}_{kv}(tokens, kv_heads, d, dv, pool_slots, slots, k, k_head, k_row, v, v_head, v_row, k_pool, v_pool)`. */
  append(
    k: Operand,
    v: Operand,
    slots: StoragePart,
    { keys, values, blocks, blockSize, kvHeads, d, dv }: PagedPool,
  ): void {
    const device = this.#device;
    if (!this.supports(k.storage.dtype, keys[0].dtype, d, dv))
      throw unsupported('pagedAppend', k.storage.dtype, device);
    const tokens = k.layout.shape[1];
    const copies: RocmStorage[] = [];
    const source = ({ storage, layout }: Operand): number[] => {
      const own = RocmStorage.on(device, storage);
      if (layout.strides[2] === 1 || layout.shape[2] === 1)
        return [own.operand(layout).ptr, layout.strides[0], layout.strides[1]];
      const copy = new Copy().map(own, layout);
      copies.push(copy);
      return [copy.ptr, tokens * layout.shape[2], layout.shape[2]];
    };
    try {
      const sources = [...source(k), ...source(v)];
      const args = [
        tokens,
        kvHeads,
        d,
        dv,
        blocks * blockSize,
        this.#address(slots),
        ...sources,
        this.#address(keys),
        this.#address(values),
      ];
      const shape = device.shapes.elementwise(tokens * kvHeads * (d + dv), 16, 'strided');
      device.launch(ATTENTION, `attention_append_${k.storage.dtype}_${keys[0].dtype}`, shape, args);
    } finally {
      for (const copy of copies) copy.dispose();
    }
  }

  /** Into how many parts a token's keys are cut: by what its table has room for, since its length is the device's. */
  #parts({ tokens, heads }: PagedProblem, { kvHeads, blockSize }: PagedPool, { maxBlocks }: PagedTables): number {
    const { hip, shapes } = this.#device;
    const group = heads / kvHeads;
    const items = tokens * kvHeads * Math.ceil(group / headsOfTile(group));
    const wanted = hip.properties.multiprocessorCount * (shapes.isHost ? HOST_BLOCKS_PER_CU : BLOCKS_PER_CU);
    return clamp(Math.min(Math.floor(wanted / items), Math.ceil((maxBlocks * blockSize) / KEYS)), 1, MAX_PARTS);
  }

  /** A block a row, a thread an element. */
  #mergeShape(rows: number, dv: number): LaunchShape {
    return this.#device.shapes.rows(rows, dv, 64);
  }

  #address([storage, offset]: StoragePart): number {
    return RocmStorage.on(this.#device, storage).ptr + offset * sizeInBytes(storage.dtype);
  }

  #shape(items: number, headsAtOnce: number, d: number, dv: number) {
    const { shapes, hip } = this.#device;
    const block = shapes.isHost ? 1 : THREADS;
    const stripes = shapes.isHost ? 1 : Math.floor(THREADS / (dv / EACH));
    const floats = headsAtOnce * (d + KEYS + 3 + stripes * dv) + KEYS;
    const grid = shapes.isHost ? clamp(items, 1, hip.properties.multiprocessorCount * 4) : shapes.blocks(items, block);
    return { grid, block, sharedBytes: 4 * floats };
  }
}

/** Heads that share keys and are computed together. */
function headsOfTile(group: number): number {
  return group === 1 ? 1 : group === 2 ? 2 : 4;
}
