/**
 * Keys and values of all sequences of a model, in blocks of {@link BLOCK_SIZE} positions: memory follows what sequences
 * hold, not what they might, and sequences that begin alike share blocks. It starts small and doubles as blocks are needed,
 * until a limit or the end of the device's memory.
 */
import { type Device, DisposedError, type DType, keep, OutOfMemoryError, scope, sizeInBytes, Tensor } from '@x/core';
import type { PagedCache } from '@x/nn';
import { type KvLayout, type StateLayout, TransformersError } from '@x/transformers';
import type { AdapterUse } from '../adapters';
import { BlockIndex } from './blocks';
import { SequenceCache } from './sequence-cache';
import { StatePool, type StateStats } from './states';

/** Positions of a block. */
export const BLOCK_SIZE = 32;
/** Blocks allocated at first. */
const FIRST_BLOCKS = 16;

export type CacheDType = Extract<DType, 'f32' | 'f16' | 'bf16'>;

/**
 * Of a cache that nobody gave one for: half the memory and the reading on GPUs, where the model is rounded more than that.
 * @param isNarrow whether weights are in blocks, or they or activations were asked for in 16 bits
 */
export function defaultCacheDtype(kind: Device['kind'], isNarrow: boolean): CacheDType {
  return isNarrow && (kind === 'rocm' || kind === 'cuda') ? 'f16' : 'f32';
}

export interface KvPoolOptions {
  /** Of keys and values. Default `f32`. */
  dtype?: CacheDType;
  /** Positions of all sequences together at most, rounded up to whole blocks. Default: what the memory holds. */
  maxPositions?: number;
}

/** What a pool holds, in positions of {@link BLOCK_SIZE} a block. */
export interface KvPoolStats {
  /** Blocks of sequences. */
  usedBlocks: number;
  /** Blocks with memory. */
  blocks: number;
  /** Bytes of all blocks. */
  bytes: number;
  /** What recurrent layers hold, of models that have some. */
  states?: StateStats;
}

export class KvPool {
  readonly blockSize = BLOCK_SIZE;
  readonly dtype: CacheDType;
  index = this.emptyIndex();
  /** Of recurrent layers, of models that have some. */
  readonly states: StatePool | undefined;
  readonly maxBlocks: number;
  private readonly layers: (PagedCache | undefined)[];
  private generation = 0;
  private disposed = false;

  constructor(
    readonly layouts: readonly (KvLayout | undefined)[],
    readonly device: Device,
    { dtype = 'f32', maxPositions = Number.POSITIVE_INFINITY }: KvPoolOptions = {},
    stateLayouts: readonly (StateLayout | undefined)[] = [],
  ) {
    this.dtype = dtype;
    this.maxBlocks = Math.ceil(maxPositions / BLOCK_SIZE);
    this.layers = layouts.map(() => undefined);
    if (stateLayouts.some((layout) => layout)) this.states = new StatePool(stateLayouts, device);
  }

  /** Changes when the memory does: what was captured before is of no use then. */
  get version(): number {
    return this.generation + (this.states?.version ?? 0);
  }

  get stats(): KvPoolStats {
    const { used: usedBlocks, count: blocks } = this.index;
    const states = this.states?.stats;
    return { usedBlocks, blocks, bytes: blocks * this.blockBytes, ...(states && { states }) };
  }

  /** Bytes of a block, all layers together. */
  get blockBytes(): number {
    const widths = this.layouts.map((layout) => {
      if (!layout) return 0;
      const { kvHeads, keyDim, valueDim, valuesInKeys } = layout;
      return kvHeads * (keyDim + (valuesInKeys ? 0 : valueDim));
    });
    return widths.reduce((sum, width) => sum + width, 0) * BLOCK_SIZE * sizeInBytes(this.dtype);
  }

  /** Whether any layer keeps keys and values. Without, blocks take no memory, and say which tokens a state is of. */
  get hasBlocks(): boolean {
    return this.layouts.some((layout) => layout);
  }

  /** An empty sequence of at most `maxLength` positions. @param adapter what its tokens are computed with; default none */
  sequence(maxLength: number, adapter?: AdapterUse): SequenceCache {
    return new SequenceCache(this, maxLength, adapter);
  }

  /** The blocks of one layer; the pool's, and others after {@link version} changed. */
  layer(index: number): PagedCache {
    const layer = this.layers[index];
    if (!layer) throw new Error('internal: the pool has no blocks; SequenceCache.reserve comes first');
    return layer;
  }

  /** A block for one sequence. @throws TransformersError CACHE_FULL when all are in use and there is no memory for more */
  take(): number {
    const block = this.index.take();
    if (block !== undefined) return block;
    this.grow();
    return this.index.take()!;
  }

  /** A block of its own with the content of another one. */
  copy(block: number): number {
    const target = this.take();
    scope(() => {
      for (const [i, layer] of this.layers.entries()) {
        if (!layer) continue;
        for (const rows of this.layouts[i]!.valuesInKeys ? [layer.keys] : [layer.keys, layer.values]) {
          const source = rows.narrow(0, block * BLOCK_SIZE, BLOCK_SIZE).copy();
          rows.narrow(0, target * BLOCK_SIZE, BLOCK_SIZE).copyFrom(source);
        }
      }
    });
    return target;
  }

  /** Gives the memory back where no sequence has a block: what was kept for prompts that begin alike is forgotten. */
  empty(): void {
    if (this.index.used > 0) return;
    this.index = this.emptyIndex();
    this.release();
    this.states?.clear();
  }

  /** Gives the memory back; sequences are of no use afterwards. */
  dispose(): void {
    this.disposed = true;
    this.release();
    this.states?.dispose();
  }

  private emptyIndex(): BlockIndex {
    return new BlockIndex((block) => this.states?.forget(block));
  }

  private release(): void {
    this.generation++;
    for (const layer of this.layers) for (const rows of [layer?.keys, layer?.values]) rows?.dispose();
    this.layers.fill(undefined);
  }

  private grow(): void {
    if (this.disposed) throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
    const { count } = this.index;
    const wanted = Math.min(Math.max(FIRST_BLOCKS, 2 * count), this.maxBlocks);
    if (wanted <= count) throw this.full(`its limit of ${this.maxBlocks} blocks is reached`);
    // Doubling may be more than there is room for where a little more would fit.
    for (let blocks = wanted; ; blocks = count + Math.floor((blocks - count) / 2)) {
      try {
        this.resize(blocks);
        this.index.grow(blocks);
        return;
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error;
        if (blocks - count <= 1) throw this.full(`${this.device} has no memory for more`, error);
      }
    }
  }

  /** Layer by layer: what does not fit leaves some layers with more blocks than are in use. */
  private resize(blocks: number): void {
    for (const [i, layout] of this.layouts.entries()) {
      const old = this.layers[i];
      if (!layout || (old && old.keys.dim(0) >= blocks * BLOCK_SIZE)) continue;
      const { kvHeads, keyDim, valueDim, valuesInKeys } = layout;
      const { device, dtype } = this;
      const make = (width: number, from: Tensor | undefined) =>
        scope(() => {
          const rows = Tensor.zeros([blocks * BLOCK_SIZE, kvHeads, width], { dtype, device });
          if (from) rows.narrow(0, 0, from.dim(0)).copyFrom(from);
          return keep(rows);
        });
      const keys = make(keyDim, old?.keys);
      let values: Tensor;
      try {
        values = valuesInKeys ? scope(() => keep(keys.narrow(2, 0, valueDim))) : make(valueDim, old?.values);
      } catch (error) {
        keys.dispose();
        throw error;
      }
      this.generation++;
      this.layers[i] = { keys, values, blockSize: BLOCK_SIZE };
      for (const rows of [old?.keys, old?.values]) rows?.dispose();
    }
  }

  private full(why: string, cause?: unknown): TransformersError {
    const { count } = this.index;
    const mebibytes = Math.round((count * this.blockBytes) / 2 ** 20);
    return new TransformersError(
      'CACHE_FULL',
      `The key-value cache is full: ${count} blocks of ${BLOCK_SIZE} positions (${mebibytes} MiB) are in use and ${why}. ` +
        'Run fewer sequences at once, shorten them, or load the model with a narrower cacheDtype.',
      { cause },
    );
  }
}
