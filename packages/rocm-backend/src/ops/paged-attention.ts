/**
 * Attention over a cache in blocks: the kernels `attention_paged` (kernels/attention/paged.h), `attention_step`
 * (kernels/attention/step.h) and `attention_append` (kernels/attention/paged-append.h), and the same of 8 bits (kernels/shared/q8-cache.h).
 */
import type {
  DType,
  HeadsProblem,
  Operand,
  PagedAttentionOps,
  PagedPool,
  PagedProblem,
  PagedTables,
  PoolDType,
  PromptProblem,
  StoragePart,
  UnpackProblem,
  VarlenProblem,
  VarlenTiles,
} from '@x/core';
import type { Counters } from '../counters';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape } from '../launch-shape';
import {
  launchAttentionAppend,
  launchAttentionAppendQ8,
  launchAttentionPaged,
  launchAttentionPagedQ8,
  launchAttentionPrompt,
  launchAttentionStep,
  launchAttentionUnpack,
} from '../launchers/attention';
import {
  PAGED_EACH,
  PAGED_GRAIN,
  PAGED_KEYS,
  PAGED_MAX_PARTS,
  PAGED_MAX_STEP_HEAD,
  PAGED_STEP_BLOCKS,
  PAGED_TAIL,
  PAGED_THREADS,
  PROMPT_ROWS,
  PROMPT_THREADS,
} from '../launchers/constants';
import type { KernelStorage } from '../storage';
import { activationRowBytes, activationRows, BLOCK_VALUES, paddedWidth } from './activations';
import { CACHE_GROUP, scaleAddresses } from './cache-scales';
import { denseCopy } from './copy';
import { filled } from './result';
import { attendVarlen, varlenRows } from './varlen-attention';

const DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
/** Elements of a head at most: a thread has a column of the values. */
const MAX_HEAD = 576;
/** Sizes of values that there are kernels of prompts for. */
const PROMPT_VALUES = [64, 128, 256, 512];
/** Blocks for each processor from which on keys are not cut into more parts. */
const BLOCKS_PER_CU = 4;
const HOST_BLOCKS_PER_CU = 2;

/** How a launch cuts keys into parts. */
interface Cut {
  headsAtOnce: number;
  items: number;
  parts: number;
  shape: LaunchShape;
  partial: number;
  counters: number;
}

export class DevicePagedAttentionOps implements PagedAttentionOps {
  readonly #device: KernelDevice;
  readonly #counters: Counters;

  constructor(device: KernelDevice, counters: Counters) {
    this.#device = device;
    this.#counters = counters;
  }

  supports(dtype: DType, poolDType: PoolDType, d: number, dv: number): boolean {
    const isQ8 = poolDType === 'q8_0';
    const multiple = isQ8 ? CACHE_GROUP : PAGED_EACH;
    const sizes = [d, dv].every((size) => size > 0 && size % multiple === 0 && size <= MAX_HEAD);
    return sizes && (isQ8 ? dtype === 'f32' : DTYPES.includes(dtype) && DTYPES.includes(poolDType));
  }

  attend(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): KernelStorage {
    const { tokens, heads } = problem;
    return filled(this.#device, q.storage.dtype, tokens * heads * pool.dv, (out) =>
      this.#attend(problem, q, pool, at, { out, quantized: 0, padded: 0 }),
    );
  }

  supportsBlocks(dtype: DType, poolDType: PoolDType, d: number, dv: number): boolean {
    return dtype === 'f32' && dv % BLOCK_VALUES === 0 && this.supports(dtype, poolDType, d, dv);
  }

  attendInBlocks(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): KernelStorage {
    const { tokens, heads } = problem;
    const { d, dv } = pool;
    const { dtype } = q.storage;
    if (!this.supportsBlocks(dtype, dtypeOf(pool), d, dv))
      throw unsupported('pagedAttention in blocks', dtype, this.#device);
    const width = heads * dv;
    const bytes = activationRows(tokens) * activationRowBytes(width);
    return filled(this.#device, 'u8', tokens === 0 ? 0 : bytes, (quantized) =>
      this.#attend(problem, q, pool, at, { out: 0, quantized, padded: paddedWidth(width) }),
    );
  }

  #attend(
    problem: PagedProblem,
    q: Operand,
    pool: PagedPool,
    at: PagedTables,
    result: { out: number; quantized: number; padded: number },
  ): void {
    const device = this.#device;
    const { heads, scale, window, softcap, sinks } = problem;
    const { keys, values, valueRow, blocks, blockSize, kvHeads, d, dv } = pool;
    const { tables, sequences, maxBlocks, rows, lengths } = at;
    const { dtype } = q.storage;
    const poolDType = dtypeOf(pool);
    if (!this.supports(dtype, poolDType, d, dv)) throw unsupported('pagedAttention', dtype, device);
    const { strides } = q.layout;
    const copy = strides[2] === 1 || d === 1 ? undefined : denseCopy(device, q);
    try {
      this.#inParts(problem, pool, at, BLOCKS_PER_CU, (cut) => {
        const kernel = `attention_paged_${cut.headsAtOnce}_${dtype}_${poolDType}`;
        const all = {
          items: cut.items,
          heads,
          kvHeads,
          d,
          dv,
          blockShift: Math.log2(blockSize),
          maxBlocks,
          sequences,
          blocks,
          parts: cut.parts,
          window,
          scale,
          softcap,
          q: copy ? copy.ptr : device.view(q).ptr,
          qRow: copy ? heads * d : strides[0],
          qHead: copy ? d : strides[1],
          k: device.address(keys),
          v: device.address(values),
          vRow: valueRow,
          sinks: sinks ? device.address(sinks) : 0,
          tables: device.address(tables),
          rows: rows ? device.address(rows) : 0,
          lengths: device.address(lengths),
          partial: cut.partial,
          counters: cut.counters,
          ...result,
        };
        if (pool.scales)
          launchAttentionPagedQ8(device, kernel, cut.shape, { ...all, ...scaleAddresses(device, pool.scales) });
        else launchAttentionPaged(device, kernel, cut.shape, all);
      });
    } finally {
      copy?.dispose();
    }
  }

  supportsStep(poolDType: PoolDType, d: number, dv: number): boolean {
    // Of 8 bits the step's registers would be too many on CDNA.
    return (
      poolDType !== 'q8_0' &&
      d <= PAGED_MAX_STEP_HEAD &&
      dv <= PAGED_MAX_STEP_HEAD &&
      this.supportsBlocks('f32', poolDType, d, dv)
    );
  }

  step(from: HeadsProblem, problem: PagedProblem, pool: PagedPool, at: PagedTables): KernelStorage {
    const device = this.#device;
    const { tokens, heads, window, softcap, sinks } = problem;
    const { keys, values, blocks, blockSize, kvHeads, d, dv } = pool;
    const { dtype } = keys[0];
    if (!this.supportsStep(dtype, d, dv)) throw unsupported('pagedAttention.step', dtype, device);
    const width = heads * dv;
    const bytes = activationRows(tokens) * activationRowBytes(width);
    return filled(device, 'u8', tokens === 0 ? 0 : bytes, (quantized) =>
      this.#inParts(problem, pool, at, PAGED_STEP_BLOCKS, (cut) =>
        launchAttentionStep(device, `attention_step_${cut.headsAtOnce}_${dtype}`, cut.shape, {
          items: cut.items,
          tokens,
          heads,
          kvHeads,
          d,
          dv,
          rotated: from.rotated,
          interleaved: from.interleaved,
          scale: from.scale,
          eps: from.eps,
          q: device.address(from.q),
          qRow: from.qRow,
          k: device.address(from.k),
          kRow: from.kRow,
          v: device.address(from.v),
          vRow: from.vRow,
          qNorm: from.qNorm ? device.address(from.qNorm) : 0,
          kNorm: from.kNorm ? device.address(from.kNorm) : 0,
          cos: device.address(from.cos),
          sin: device.address(from.sin),
          tableRow: from.tableRow,
          tableLength: from.tableLength,
          positions: device.address(from.positions),
          slots: device.address(from.slots),
          kPool: device.address(keys),
          vPool: device.address(values),
          blockShift: Math.log2(blockSize),
          maxBlocks: at.maxBlocks,
          blocks,
          parts: cut.parts,
          window,
          softcap,
          sinks: sinks ? device.address(sinks) : 0,
          tables: device.address(at.tables),
          lengths: device.address(at.lengths),
          partial: cut.partial,
          counters: cut.counters,
          quantized,
          padded: paddedWidth(width),
        }),
      ),
    );
  }

  /** How keys are cut, and memory for what the parts of several make, for the time of `launch`. */
  #inParts(
    { tokens, heads }: PagedProblem,
    { kvHeads, blockSize, d, dv }: PagedPool,
    { maxBlocks }: PagedTables,
    blocksPerCu: number,
    launch: (cut: Cut) => void,
  ): void {
    const device = this.#device;
    const { hip, shapes } = device;
    const group = heads / kvHeads;
    const headsAtOnce = headsOfTile(group);
    const tiles = tokens * kvHeads * Math.ceil(group / headsAtOnce);
    // By what the tables have room for: lengths are the device's.
    const wanted = hip.properties.multiprocessorCount * (shapes.isHost ? HOST_BLOCKS_PER_CU : blocksPerCu);
    const grains = Math.ceil((maxBlocks * blockSize) / PAGED_GRAIN);
    const parts = clamp(Math.min(Math.floor(wanted / tiles), grains), 1, PAGED_MAX_PARTS);
    const partial = parts > 1 ? device.allocUninit(tokens * heads * parts * (dv + PAGED_TAIL), 'f32') : undefined;
    try {
      launch({
        headsAtOnce,
        items: tiles * parts,
        parts,
        shape: this.#shape(tiles * parts, headsAtOnce, d, dv),
        partial: partial?.ptr ?? 0,
        counters: partial ? this.#counters.of(tiles) : 0,
      });
    } finally {
      partial?.dispose();
    }
  }

  supportsPrompt(poolDType: PoolDType, d: number, dv: number): boolean {
    return (
      poolDType !== 'q8_0' && this.supports('f32', poolDType, d, dv) && dv <= PROMPT_VALUES[PROMPT_VALUES.length - 1]
    );
  }

  /** A block a tile of queries and a head of keys. */
  attendPrompt(problem: PromptProblem, q: Operand, pool: PagedPool, table: StoragePart): KernelStorage {
    const device = this.#device;
    const { shapes, hip } = device;
    const { tokens, heads, before, scale, window, softcap, sinks } = problem;
    const { keys, values, valueRow, blocks, blockSize, kvHeads, d, dv } = pool;
    const { dtype } = keys[0];
    if (q.storage.dtype !== 'f32' || !this.supportsPrompt(dtype, d, dv))
      throw unsupported('attendPrompt', q.storage.dtype, device);
    const tiles = Math.ceil((tokens * heads) / kvHeads / PROMPT_ROWS) * kvHeads;
    const shape = shapes.isHost
      ? { grid: clamp(tokens * heads, 1, hip.properties.multiprocessorCount * 4), block: 1 }
      : { grid: shapes.blocks(tiles, PROMPT_THREADS), block: PROMPT_THREADS };
    const { strides } = q.layout;
    const copy = strides[2] === 1 || d === 1 ? undefined : denseCopy(device, q);
    try {
      const width = PROMPT_VALUES.find((most) => dv <= most);
      return filled(device, 'f32', tokens * heads * dv, (out) =>
        launchAttentionPrompt(device, `attention_prompt_${width}_${dtype}`, shape, {
          tokens,
          heads,
          kvHeads,
          d,
          dv,
          blockShift: Math.log2(blockSize),
          blocks,
          before,
          window,
          scale,
          softcap,
          q: copy ? copy.ptr : device.view(q).ptr,
          qHead: copy ? tokens * d : strides[0],
          qRow: copy ? d : strides[1],
          k: device.address(keys),
          v: device.address(values),
          vRow: valueRow,
          sinks: sinks ? device.address(sinks) : 0,
          table: device.address(table),
          out,
        }),
      );
    } finally {
      copy?.dispose();
    }
  }

  varlenRows(poolDType: PoolDType, d: number, dv: number): number | undefined {
    return poolDType === 'q8_0' ? undefined : varlenRows(this.#device, poolDType, d, dv);
  }

  attendVarlen(problem: VarlenProblem, q: Operand, pool: PagedPool, tiles: VarlenTiles): KernelStorage {
    return attendVarlen(this.#device, problem, q, pool, tiles);
  }

  append(k: Operand, v: Operand | undefined, slots: StoragePart, pool: PagedPool): void {
    const device = this.#device;
    const { keys, values, scales, blocks, blockSize, kvHeads, d, dv } = pool;
    const { dtype } = k.storage;
    const poolDType = dtypeOf(pool);
    if (!this.supports(dtype, poolDType, d, dv)) throw unsupported('pagedAppend', dtype, device);
    const tokens = k.layout.shape[1];
    const copies: KernelStorage[] = [];
    const source = (x: Operand): { ptr: number; head: number; row: number } => {
      const { shape, strides } = x.layout;
      if (strides[2] === 1 || shape[2] === 1) return { ptr: device.view(x).ptr, head: strides[0], row: strides[1] };
      const copy = denseCopy(device, x);
      copies.push(copy);
      return { ptr: copy.ptr, head: tokens * shape[2], row: shape[2] };
    };
    try {
      const [key, value] = [source(k), v ? source(v) : { ptr: 0, head: 0, row: 0 }];
      const width = v ? dv : 0;
      const shape = device.shapes.elementwise(tokens * kvHeads * (d + width), 16, 'strided');
      const kernel = `attention_append_${dtype}_${poolDType}`;
      const all = {
        tokens,
        kvHeads,
        d,
        dv: width,
        poolSlots: blocks * blockSize,
        slots: device.address(slots),
        k: key.ptr,
        kHead: key.head,
        kRow: key.row,
        v: value.ptr,
        vHead: value.head,
        vRow: value.row,
        kPool: device.address(keys),
        vPool: device.address(values),
      };
      if (scales) launchAttentionAppendQ8(device, kernel, shape, { ...all, ...scaleAddresses(device, scales) });
      else launchAttentionAppend(device, kernel, shape, all);
    } finally {
      for (const copy of copies) copy.dispose();
    }
  }

  unpack({ count, blocks, blockValues, poolBlocks, codes, scales }: UnpackProblem, dtype: DType): KernelStorage {
    const device = this.#device;
    if (!DTYPES.includes(dtype) || blockValues % CACHE_GROUP !== 0)
      throw unsupported('unpack of a cache', dtype, device);
    const shape = device.shapes.elementwise((count * blockValues) / PAGED_EACH, 16, 'strided');
    return filled(device, dtype, count * blockValues, (out) =>
      launchAttentionUnpack(device, `attention_unpack_q8_0_${dtype}`, shape, {
        ...{ count, blockValues, poolBlocks, out },
        blocks: device.address(blocks),
        codes: device.address(codes),
        scales: device.address(scales),
      }),
    );
  }

  #shape(items: number, headsAtOnce: number, d: number, dv: number): LaunchShape {
    const { shapes, hip } = this.#device;
    const block = shapes.isHost ? 1 : PAGED_THREADS;
    const stripes = shapes.isHost ? 1 : Math.floor(PAGED_THREADS / (dv / PAGED_EACH));
    const floats = headsAtOnce * (d + PAGED_KEYS + 4 + stripes * dv) + 2 * PAGED_KEYS;
    const sharedBytes = 4 * floats;
    if (shapes.isHost) return { grid: clamp(items, 1, hip.properties.multiprocessorCount * 4), block, sharedBytes };
    // A block an item: more than a dimension has go on in the next one.
    const across = shapes.blocks(items, block);
    return { grid: [across, Math.ceil(items / across), 1], block, sharedBytes };
  }
}

function dtypeOf({ keys, scales }: PagedPool): PoolDType {
  return scales ? 'q8_0' : keys[0].dtype;
}

/** Heads that share keys and are computed together. */
function headsOfTile(group: number): number {
  return group === 1 ? 1 : group === 2 ? 2 : 4;
}
