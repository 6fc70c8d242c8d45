/** What lies between the products of a layer: the kernels of DECODE (kernels/decode.hip). */
import {
  type DecodeOps,
  type DType,
  type GatedProblem,
  type HeadsProblem,
  type NormDType,
  type NormProblem,
  type PagedPool,
  type StoragePart,
  sizeInBytes,
} from '@x/core';
import { DECODE } from '@x/kernels';
import type { RocmDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape } from '../launch-shape';
import { activationRowBytes, activationRows, BLOCK_VALUES, paddedWidth } from './activations';
import { RocmStorage } from './index';

const POOL_DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
/** The constants of kernels/decode/. */
const MAX_HEAD = 512;
/** Values that a thread of a norm has where that leaves enough threads: all loads of a row are on their way at once. */
const NORM_VALUES = 8;
const MAX_THREADS = 1024;
/** Small blocks, so that few rows are many of them. */
const GATED_THREADS = 128;
const HEAD_WARPS = 4;
const HOST_BLOCKS_PER_CU = 4;

export class DeviceDecodeOps implements DecodeOps {
  readonly #device: RocmDevice;

  constructor(device: RocmDevice) {
    this.#device = device;
  }

  supports(n: number): boolean {
    return n > 0 && n % BLOCK_VALUES === 0;
  }

  supportsHeads(poolDType: DType, d: number, dv: number): boolean {
    return [d, dv].every((size) => size > 0 && size % 2 === 0 && size <= MAX_HEAD) && POOL_DTYPES.includes(poolDType);
  }

  /** `decode_norm_q8_1_{t}(rows, n, padded, eps, x, delta, delta_alpha, alpha, sum, blocks, y)`, a block a row. */
  norm(
    { rows, n, eps, x, delta, deltaAlpha, alpha }: NormProblem,
    as: NormDType | 'blocks',
  ): { sum?: RocmStorage; normed: RocmStorage } {
    const device = this.#device;
    const inBlocks = as === 'blocks';
    if (inBlocks && !this.supports(n)) throw unsupported(`decode.norm of ${n} values in blocks`, 'f32', device);
    const normed = inBlocks ? this.#blocks(rows, n) : device.allocUninit(rows * n, as);
    let sum: RocmStorage | undefined;
    try {
      sum = delta && device.allocUninit(rows * n, 'f32');
      const pointers = [
        this.#address(x),
        delta ? this.#address(delta) : 0,
        deltaAlpha ? this.#address(deltaAlpha) : 0,
        this.#address(alpha),
        sum?.ptr ?? 0,
        inBlocks ? normed.ptr : 0,
        inBlocks ? 0 : normed.ptr,
      ];
      const args = [rows, n, paddedWidth(n), eps, ...pointers];
      const kernel = `decode_norm_q8_1_${inBlocks ? 'f32' : as}`;
      if (rows * n > 0) device.launch(DECODE, kernel, this.#normShape(rows, n), args);
      return sum ? { sum, normed } : { normed };
    } catch (error) {
      normed.dispose();
      sum?.dispose();
      throw error;
    }
  }

  /** `decode_gated_q8_1_{act}(rows, n, padded, gate, gate_row, up, up_row, blocks)`. */
  gated(activation: 'silu' | 'gelu', { rows, n, gate, gateRow, up, upRow }: GatedProblem): RocmStorage {
    const device = this.#device;
    if (!this.supports(n)) throw unsupported(`decode.gated of ${n} values`, 'f32', device);
    const padded = paddedWidth(n);
    const blocks = this.#blocks(rows, n);
    if (rows === 0) return blocks;
    const args = [rows, n, padded, this.#address(gate), gateRow, this.#address(up), upRow, blocks.ptr];
    const shape: LaunchShape = device.shapes.isHost
      ? device.shapes.elementwise(rows * padded)
      : { grid: device.shapes.blocks((rows * padded) / 4 / GATED_THREADS, GATED_THREADS), block: GATED_THREADS };
    return this.#filled(blocks, `decode_gated_q8_1_${activation}`, shape, args);
  }

  /**
   * `decode_heads_{kv}(tokens, heads, kv_heads, d, dv, rotated, interleaved, scale, eps, q, q_row, k, k_row, v, v_row, q_norm,
   * k_norm, cos, sin, table_row, table_length, positions, slots, pool_slots, out, k_pool, v_pool)`, a warp a head.
   */
  heads(p: HeadsProblem, { keys, values, blocks, blockSize, kvHeads, d, dv }: PagedPool): RocmStorage {
    const device = this.#device;
    const dtype = keys[0].dtype;
    if (!this.supportsHeads(dtype, d, dv)) throw unsupported(`decode.heads of ${d} and ${dv} values`, dtype, device);
    const out = device.allocUninit(p.tokens * p.heads * d, 'f32');
    if (p.tokens === 0) return out;
    const optional = (part: StoragePart | undefined) => (part ? this.#address(part) : 0);
    const sizes = [p.tokens, p.heads, kvHeads, d, dv, p.rotated, p.interleaved ? 1 : 0, p.scale, p.eps];
    const rows = [this.#address(p.q), p.qRow, this.#address(p.k), p.kRow, this.#address(p.v), p.vRow];
    const tables = [this.#address(p.cos), this.#address(p.sin), p.tableRow, p.tableLength];
    const places = [this.#address(p.positions), this.#address(p.slots), blocks * blockSize];
    const pointers = [out.ptr, this.#address(keys), this.#address(values)];
    const args = [...sizes, ...rows, optional(p.qNorm), optional(p.kNorm), ...tables, ...places, ...pointers];
    return this.#filled(out, `decode_heads_${dtype}`, this.#headsShape(p.tokens * (p.heads + 2 * kvHeads)), args);
  }

  /** Memory for rows in blocks. */
  #blocks(rows: number, n: number): RocmStorage {
    return this.#device.allocUninit(activationRows(rows) * activationRowBytes(n), 'u8');
  }

  /** What the kernel fills; given back when the launch fails. */
  #filled(out: RocmStorage, kernel: string, shape: LaunchShape, args: readonly number[]): RocmStorage {
    try {
      this.#device.launch(DECODE, kernel, shape, args);
      return out;
    } catch (error) {
      out.dispose();
      throw error;
    }
  }

  #normShape(rows: number, n: number): LaunchShape {
    const { shapes, hip } = this.#device;
    if (shapes.isHost)
      return { grid: clamp(rows, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1 };
    const threads = 2 ** Math.ceil(Math.log2(Math.max(1, n / NORM_VALUES)));
    return { grid: rows, block: clamp(threads, hip.properties.warpSize, MAX_THREADS) };
  }

  #headsShape(items: number): LaunchShape {
    const { shapes, hip } = this.#device;
    const { multiprocessorCount, warpSize } = hip.properties;
    if (shapes.isHost) return { grid: clamp(items, 1, multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1 };
    const block = HEAD_WARPS * warpSize;
    return { grid: shapes.blocks(Math.ceil(items / HEAD_WARPS), block), block };
  }

  #address([storage, offset]: StoragePart): number {
    return RocmStorage.on(this.#device, storage).ptr + offset * sizeInBytes(storage.dtype);
  }
}
