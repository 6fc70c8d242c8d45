/** What lies between the products of a layer: the kernels of DECODE (kernels/decode.hip). */
import {
  type ActivatedProblem,
  type DecodeOps,
  type DType,
  type GatedProblem,
  type GroupNormProblem,
  type HeadNormProblem,
  type HeadsProblem,
  type LatentProblem,
  type NormDType,
  type NormProblem,
  type PagedPool,
  type PoolDType,
  type PromptHeads,
  sizeInBytes,
} from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape, MAX_NORM_THREADS, NORM_VALUES } from '../launch-shape';
import { DECODE_MAX_HEAD } from '../launchers/constants';
import {
  type DecodePromptHeadsArguments,
  launchDecodeGate,
  launchDecodeGatedQ81,
  launchDecodeHeadNormSiluQ81,
  launchDecodeHeads,
  launchDecodeHeadsQ8,
  launchDecodeLatent,
  launchDecodeNormQ81,
  launchDecodePromptHeads,
  launchDecodeSiluGroupNormQ81,
} from '../launchers/decode';
import { KernelStorage } from '../storage';
import { activationRowBytes, activationRows, BLOCK_VALUES, paddedWidth } from './activations';
import { CACHE_GROUP, scaleAddresses } from './cache-scales';
import { DeviceBiasedOps } from './decode-biased';
import { libraryRows } from './gemm-library';
import { LaterSum } from './later-sum';
import { filled, keptIfFilled } from './result';

const POOL_DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
/** Small blocks, so that few rows are many of them. */
const GATED_THREADS = 128;
const HEAD_WARPS = 4;
const HOST_BLOCKS_PER_CU = 4;

export class DeviceDecodeOps implements DecodeOps {
  readonly biased?: DeviceBiasedOps;
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
    if (device.shapes.isHost) this.biased = new DeviceBiasedOps(device);
  }

  supports(n: number): boolean {
    return n > 0 && n % BLOCK_VALUES === 0;
  }

  supportsHeads(poolDType: PoolDType, d: number, dv: number): boolean {
    const multiple = poolDType === 'q8_0' ? CACHE_GROUP : 2;
    const sizes = [d, dv].every((size) => size > 0 && size % multiple === 0 && size <= DECODE_MAX_HEAD);
    return sizes && (poolDType === 'q8_0' || POOL_DTYPES.includes(poolDType));
  }

  /** A block a row. Where `delta` is still to be added up over the ranks of a group, that is part of it (later-sum.ts). */
  norm(
    problem: NormProblem,
    as: NormDType | 'blocks' | 'both',
  ): { sum?: KernelStorage; normed: KernelStorage; blocks?: KernelStorage } {
    const device = this.#device;
    const { rows, n, eps, x, delta, deltaScale = 1, deltaAlpha, alpha, beta, centred = false } = problem;
    if ((as === 'blocks' || as === 'both') && !this.supports(n))
      throw unsupported(`decode.norm of ${n} values in blocks`, 'f32', device);
    const ofDevice = as === 'blocks' || as === 'both' ? device.quantized.formOf(rows) : undefined;
    const form = as === 'both' ? 'f32' : (ofDevice ?? (as as NormDType));
    const inBlocks = form === 'blocks';
    const normed = this.#allocate(ofDevice === 'bf16' && as === 'blocks' ? libraryRows(device, rows) : rows, n, form);
    let sum: KernelStorage | undefined;
    let blocks: KernelStorage | undefined;
    try {
      blocks = as === 'both' && ofDevice === 'blocks' ? this.#allocate(rows, n, 'blocks') : undefined;
      sum = delta && device.allocUninit(rows * n, 'f32');
      const results = { y: inBlocks ? 0 : normed.ptr, blocks: inBlocks ? normed.ptr : (blocks?.ptr ?? 0) };
      const written = inBlocks ? 'f32' : form;
      const later = delta && KernelStorage.on(device, delta[0]).arrival;
      const isMade = later instanceof LaterSum && later.norm(problem, written, { sum: sum!, ...results });
      if (!isMade && rows * n > 0)
        launchDecodeNormQ81(device, `decode_norm_q8_1_${written}`, this.#normShape(rows, n), {
          rows,
          n,
          padded: paddedWidth(n),
          eps,
          deltaScale,
          centred,
          x: device.address(x),
          delta: delta ? device.address(delta) : 0,
          deltaAlpha: deltaAlpha ? device.address(deltaAlpha) : 0,
          alpha: alpha ? device.address(alpha) : 0,
          beta: beta ? device.address(beta) : 0,
          sum: sum?.ptr ?? 0,
          ...results,
        });
      return { normed, ...(sum && { sum }), ...(blocks && { blocks }) };
    } catch (error) {
      for (const made of [normed, sum, blocks]) made?.dispose();
      throw error;
    }
  }

  gated(
    activation: 'silu' | 'gelu' | 'sigmoid',
    problem: GatedProblem,
    as: NormDType | 'blocks' = 'blocks',
  ): KernelStorage {
    const device = this.#device;
    const { rows, n, gate, gateRow, up, upRow } = problem;
    if (as === 'blocks') return this.#gatedBlocks(activation, problem);
    const shape = device.shapes.elementwise(rows * n, sizeInBytes('f32'));
    const room = as === 'f32' ? rows : libraryRows(device, rows);
    return filled(device, as, room * n, (y) => {
      const sources = { gate: device.address(gate), gateRow, up: device.address(up), upRow };
      launchDecodeGate(device, `decode_gate_${activation}_${as}`, shape, { rows, n, ...sources, y });
    });
  }

  activated(activation: 'silu' | 'gelu', problem: ActivatedProblem): KernelStorage {
    return this.#gatedBlocks(activation, problem);
  }

  #gatedBlocks(
    activation: 'silu' | 'gelu' | 'sigmoid',
    problem: ActivatedProblem & Partial<GatedProblem>,
  ): KernelStorage {
    const device = this.#device;
    const { rows, n, gate, gateRow, up, upRow = 0 } = problem;
    if (!this.supports(n)) throw unsupported(`decode.gated of ${n} values`, 'f32', device);
    const padded = paddedWidth(n);
    // Products take either; there is no kernel that gives f32.
    const form = device.quantized.formOf(rows) === 'bf16' ? 'bf16' : 'blocks';
    const result = this.#allocate(form === 'bf16' ? libraryRows(device, rows) : rows, n, form);
    if (rows === 0) return result;
    const shape: LaunchShape = device.shapes.isHost
      ? device.shapes.elementwise(rows * padded)
      : { grid: device.shapes.blocks((rows * padded) / 4 / GATED_THREADS, GATED_THREADS), block: GATED_THREADS };
    return keptIfFilled(result, (out) => {
      const sources = { gate: device.address(gate), gateRow, up: up ? device.address(up) : 0, upRow };
      const results = form === 'blocks' ? { blocks: out, y: 0 } : { blocks: 0, y: out };
      const args = { rows, n, padded, ...sources, ...results };
      launchDecodeGatedQ81(device, `decode_gated_q8_1_${activation}`, shape, args);
    });
  }

  supportsHeadNorm(rows: number, d: number): boolean {
    return this.#supportsParts(rows, d, DECODE_MAX_HEAD);
  }

  /** Whether rows are in blocks, and parts of d values of them are groups of those, at most so long. */
  #supportsParts(rows: number, d: number, most: number): boolean {
    return this.supports(d) && d <= most && rows > 0 && this.#device.quantized.formOf(rows) === 'blocks';
  }

  /** A warp a head. */
  headNorm({ rows, heads, d, eps, x, alpha, gate, gateRow }: HeadNormProblem): KernelStorage {
    const device = this.#device;
    if (!this.supportsHeadNorm(rows, d)) throw unsupported(`decode.headNorm of ${d} values`, 'f32', device);
    const n = heads * d;
    return keptIfFilled(this.#allocate(rows, n, 'blocks'), (blocks) => {
      const operands = { x: device.address(x), alpha: device.address(alpha), gate: device.address(gate), gateRow };
      const args = { rows, heads, d, padded: paddedWidth(n), eps, ...operands, blocks };
      launchDecodeHeadNormSiluQ81(device, 'decode_head_norm_silu_q8_1', this.#headsShape(rows * heads), args);
    });
  }

  supportsGroupNorm(rows: number, d: number): boolean {
    return this.#supportsParts(rows, d, NORM_VALUES * MAX_NORM_THREADS);
  }

  /** A block a group. */
  groupNorm({ rows, groups, d, eps, x, alpha, gate, gateRow }: GroupNormProblem): KernelStorage {
    const device = this.#device;
    if (!this.supportsGroupNorm(rows, d)) throw unsupported(`decode.groupNorm of ${d} values`, 'f32', device);
    const n = groups * d;
    return keptIfFilled(this.#allocate(rows, n, 'blocks'), (blocks) => {
      const operands = { x: device.address(x), alpha: device.address(alpha), gate: device.address(gate), gateRow };
      const args = { rows, groups, d, padded: paddedWidth(n), eps, ...operands, blocks };
      launchDecodeSiluGroupNormQ81(device, 'decode_silu_group_norm_q8_1', this.#normShape(rows * groups, d), args);
    });
  }

  /** A warp a head. */
  heads(p: HeadsProblem, pool: PagedPool): KernelStorage {
    const device = this.#device;
    const { kvHeads, d, dv, scales } = pool;
    const { dtype } = pool.keys[0];
    if (!this.supportsHeads(scales ? 'q8_0' : dtype, d, dv))
      throw unsupported(`decode.heads of ${d} and ${dv} values`, dtype, device);
    const { tokens, heads } = p;
    const result = device.allocUninit(tokens * heads * d, 'f32');
    if (tokens === 0) return result;
    const shape = this.#headsShape(tokens * (heads + 2 * kvHeads));
    return keptIfFilled(result, (out) => {
      const args = this.#headsArguments(p, pool, { out });
      if (!scales) return launchDecodeHeads(device, `decode_heads_${dtype}`, shape, args);
      // A row for each warp.
      const sharedBytes = (device.shapes.isHost ? 1 : HEAD_WARPS) * DECODE_MAX_HEAD * sizeInBytes('f32');
      launchDecodeHeadsQ8(
        device,
        'decode_heads_q8_0',
        { ...shape, sharedBytes },
        { ...args, ...scaleAddresses(device, scales) },
      );
    });
  }

  promptHeads(p: HeadsProblem, wide: number, pool: PagedPool): PromptHeads {
    const device = this.#device;
    const { kvHeads, d, dv } = pool;
    const dtype = pool.keys[0].dtype;
    if (pool.scales || !this.supportsHeads(dtype, d, dv) || dtype === 'f32')
      throw unsupported(`decode.promptHeads of ${d} and ${dv} values`, dtype, device);
    const { tokens, heads } = p;
    const first = device.allocUninit(wide * heads * d, 'f32');
    try {
      const q = device.allocUninit((tokens - wide) * heads * d, dtype);
      if (tokens === 0) return { wide: first, q };
      const shape = this.#headsShape(tokens * (heads + 2 * kvHeads));
      keptIfFilled(q, (later) =>
        launchDecodePromptHeads(
          device,
          `decode_prompt_heads_${dtype}`,
          shape,
          this.#headsArguments(p, pool, { out: first.ptr, wide, q: later }),
        ),
      );
      return { wide: first, q };
    } catch (error) {
      first.dispose();
      throw error;
    }
  }

  /** Of both kernels, in one literal: this is on the way of every layer, and objects that are spread cost more than the launch. */
  #headsArguments(
    p: HeadsProblem,
    { keys, values, blocks, blockSize, kvHeads, d, dv }: PagedPool,
    { out, wide = p.tokens, q = 0 }: { out: number; wide?: number; q?: number },
  ): DecodePromptHeadsArguments {
    const device = this.#device;
    return {
      tokens: p.tokens,
      heads: p.heads,
      kvHeads,
      d,
      dv,
      rotated: p.rotated,
      interleaved: p.interleaved,
      scale: p.scale,
      eps: p.eps,
      q: device.address(p.q),
      qRow: p.qRow,
      k: device.address(p.k),
      kRow: p.kRow,
      v: device.address(p.v),
      vRow: p.vRow,
      qNorm: p.qNorm ? device.address(p.qNorm) : 0,
      kNorm: p.kNorm ? device.address(p.kNorm) : 0,
      cos: device.address(p.cos),
      sin: device.address(p.sin),
      tableRow: p.tableRow,
      tableLength: p.tableLength,
      positions: device.address(p.positions),
      slots: device.address(p.slots),
      poolSlots: blocks * blockSize,
      out,
      kPool: device.address(keys),
      vPool: device.address(values),
      wide,
      qNarrow: q,
    };
  }

  supportsLatent(poolDType: PoolDType, tokens: number, plain: number): boolean {
    return (
      this.#supportsParts(tokens, plain, Number.POSITIVE_INFINITY) && POOL_DTYPES.some((dtype) => dtype === poolDType)
    );
  }

  /** A warp a head, and one a latent vector. */
  latent(p: LatentProblem, { keys, blocks, blockSize }: PagedPool): { queries: KernelStorage; plain: KernelStorage } {
    const device = this.#device;
    const dtype = keys[0].dtype;
    const { tokens, heads, plain, rotated, rank, interleaved, eps, qRow, latentRow, tableRow, tableLength } = p;
    if (!this.supportsLatent(dtype, tokens, plain))
      throw unsupported(`decode.latent of ${plain} values`, dtype, device);
    const queries = device.allocUninit(tokens * heads * (rank + rotated), 'f32');
    try {
      const made = keptIfFilled(this.#allocate(tokens * heads, plain, 'blocks'), (to) =>
        launchDecodeLatent(device, `decode_latent_${dtype}`, this.#headsShape(tokens * (heads + 1)), {
          ...{ tokens, heads, plain, rotated, rank, padded: paddedWidth(plain), interleaved, eps },
          q: device.address(p.q),
          qRow,
          latent: device.address(p.latent),
          latentRow,
          alpha: device.address(p.alpha),
          cos: device.address(p.cos),
          sin: device.address(p.sin),
          tableRow,
          tableLength,
          positions: device.address(p.positions),
          slots: device.address(p.slots),
          poolSlots: blocks * blockSize,
          out: queries.ptr,
          blocks: to,
          pool: device.address(keys),
        }),
      );
      return { queries, plain: made };
    } catch (error) {
      queries.dispose();
      throw error;
    }
  }

  splitsRows(d: number): boolean {
    return paddedWidth(d) === d;
  }

  /** Memory for rows in blocks, or of a dtype. */
  #allocate(rows: number, n: number, form: NormDType | 'blocks'): KernelStorage {
    if (form !== 'blocks') return this.#device.allocUninit(rows * n, form);
    return this.#device.allocUninit(activationRows(rows) * activationRowBytes(n), 'u8');
  }

  #normShape(rows: number, n: number): LaunchShape {
    const { shapes, hip } = this.#device;
    if (shapes.isHost)
      return { grid: clamp(rows, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1 };
    return { grid: rows, block: shapes.normThreads(n) };
  }

  #headsShape(items: number): LaunchShape {
    const { shapes, hip } = this.#device;
    const { multiprocessorCount, warpSize } = hip.properties;
    if (shapes.isHost) return { grid: clamp(items, 1, multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1 };
    const block = HEAD_WARPS * warpSize;
    return { grid: shapes.blocks(Math.ceil(items / HEAD_WARPS), block), block };
  }
}
