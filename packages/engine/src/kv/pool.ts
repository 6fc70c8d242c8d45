/**
 * Keys and values of all sequences of a model, in blocks of {@link BLOCK_SIZE} positions: memory follows what sequences
 * hold, not what they might, and sequences that begin alike share blocks. It starts small and doubles as blocks are needed,
 * until a limit or the end of the device's memory.
 */
import { type Device, DisposedError, formatBytes, OutOfMemoryError } from '@x/core';
import type { PagedCache } from '@x/nn';
import { type KvLayout, type StateLayout, TransformersError } from '@x/transformers';
import type { AdapterUse } from '../adapters';
import { BlockIndex } from './blocks';
import type { MemoryChange } from './change';
import { KvMemory } from './memory';
import { BLOCK_SIZE, type CacheDType } from './rows';
import { SequenceCache } from './sequence-cache';
import { StatePool, type StateStats } from './states';

/** Blocks allocated at first. */
const FIRST_BLOCKS = 16;

/** Sizes of heads for which GPUs have attention in 16 bits (`attention_64_f16` and its relatives). */
const NARROW_HEADS = [64, 128];

/**
 * Whether keys and values of all layers are multiplied in 16 bits where they are kept so: others gain memory by it, and lose digits
 * that weights in 16 bits do not.
 */
export function multipliesNarrow(layouts: readonly (KvLayout | undefined)[]): boolean {
  const isNarrow = ({ keyDim, valueDim, valuesInKeys }: KvLayout) =>
    !valuesInKeys && keyDim === valueDim && NARROW_HEADS.includes(keyDim);
  return layouts.every((layout) => layout === undefined || isNarrow(layout));
}

/**
 * Of a cache that nobody gave one for: half the memory and the reading on GPUs, where the model is rounded more than that.
 * @param isNarrow whether weights are in blocks, they or activations were asked for in 16 bits, or the file has 16 and the model
 *   {@link multipliesNarrow}
 */
export function defaultCacheDtype(kind: Device['kind'], isNarrow: boolean): 'f32' | 'f16' {
  return isNarrow && (kind === 'rocm' || kind === 'cuda') ? 'f16' : 'f32';
}

export interface KvPoolOptions {
  /** Of keys and values. Default `f32`. */
  dtype?: CacheDType;
  /** Positions of all sequences together at most, rounded up to whole blocks. Default: what the memory holds. */
  maxPositions?: number;
  /** Positions that the device's memory had room for when the model was loaded. Default: nobody said. */
  roomFor?: number | undefined;
  /** Of the model, for messages. */
  weightBytes?: number;
}

/** What a pool holds, in positions of `BLOCK_SIZE` a block. */
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

/** The cache of a model, which a {@link Runner} makes: blocks of 32 positions, shared by sequences that begin alike. */
export class KvPool {
  readonly blockSize = BLOCK_SIZE;
  readonly dtype: CacheDType;
  readonly memory: KvMemory;
  index = this.emptyIndex();
  /** Of recurrent layers, of models that have some. */
  readonly states: StatePool | undefined;
  readonly maxBlocks: number;
  /** Positions of all sequences together, as far as is known: of the limit and of {@link KvPoolOptions.roomFor}. */
  readonly room: number | undefined;
  private readonly weightBytes: number | undefined;
  /** Called before the cache grows: what then is of no use any more may give its memory back first. */
  onGrow = () => {};
  private disposed = false;

  /**
   * @param layouts of each layer; undefined for one that keeps no keys and values
   * @param stateLayouts of each layer; undefined for one without a state. Default: none has one
   * @param changed hears of each change of the memory, which other ranks follow
   */
  constructor(
    readonly layouts: readonly (KvLayout | undefined)[],
    readonly device: Device,
    { dtype = 'f32', maxPositions = Number.POSITIVE_INFINITY, roomFor, weightBytes }: KvPoolOptions = {},
    stateLayouts: readonly (StateLayout | undefined)[] = [],
    changed?: (change: MemoryChange) => void,
  ) {
    this.dtype = dtype;
    this.memory = new KvMemory(layouts, device, dtype, stateLayouts, changed);
    this.maxBlocks = Math.ceil(maxPositions / BLOCK_SIZE);
    const least = Math.min(roomFor ?? Number.POSITIVE_INFINITY, this.maxBlocks * BLOCK_SIZE);
    this.room = Number.isFinite(least) ? least : undefined;
    this.weightBytes = weightBytes;
    const { states } = this.memory;
    if (states) this.states = new StatePool(stateLayouts, device, states);
  }

  /** Changes when the memory does: what was captured before is of no use then. */
  get version(): number {
    return this.memory.version;
  }

  get stats(): KvPoolStats {
    const { used: usedBlocks, count: blocks } = this.index;
    const states = this.states?.stats;
    return { usedBlocks, blocks, bytes: blocks * this.blockBytes, ...(states && { states }) };
  }

  /** Bytes of a block, all layers together. */
  get blockBytes(): number {
    return this.memory.blockBytes;
  }

  /** Whether any layer keeps keys and values. Without, blocks take no memory, and say which tokens a state is of. */
  get hasBlocks(): boolean {
    return this.memory.hasBlocks;
  }

  /** An empty sequence of at most `maxLength` positions. @param adapter what its tokens are computed with; default none */
  sequence(maxLength: number, adapter?: AdapterUse): SequenceCache {
    return new SequenceCache(this, maxLength, adapter);
  }

  /** The blocks of one layer; the pool's, and others after {@link version} changed. */
  layer(index: number): PagedCache {
    return this.memory.layer(index);
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
    this.memory.copy(block, target);
    return target;
  }

  /** Gives the memory back where no sequence has a block: what was kept for prompts that begin alike is forgotten. */
  empty(): void {
    if (this.index.used > 0) return;
    this.index = this.emptyIndex();
    this.memory.release();
    this.states?.clear();
  }

  /** Gives the memory back; sequences are of no use afterwards. */
  dispose(): void {
    this.disposed = true;
    this.memory.release();
    this.states?.dispose();
  }

  private emptyIndex(): BlockIndex {
    return new BlockIndex((block) => this.states?.forget(block));
  }

  private grow(): void {
    if (this.disposed) throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
    const { count } = this.index;
    const wanted = Math.min(Math.max(FIRST_BLOCKS, 2 * count), this.maxBlocks);
    if (wanted <= count)
      throw this.full(`its limit of ${this.maxBlocks} blocks is reached`, 'with a larger maxCachePositions');
    this.onGrow();
    // Doubling may be more than there is room for where a little more would fit.
    for (let blocks = wanted; ; blocks = count + Math.floor((blocks - count) / 2)) {
      try {
        this.memory.resize(blocks);
        this.index.grow(blocks);
        return;
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error;
        if (blocks - count <= 1)
          throw this.full(
            this.noMemory(),
            'with a narrower cacheDtype, of a smaller quantisation, or on several devices',
            error,
          );
      }
    }
  }

  private noMemory(): string {
    const { device, weightBytes } = this;
    const free = device.availableBytes();
    const sizes = [
      ...(weightBytes === undefined ? [] : [`${formatBytes(weightBytes)} are the model's weights`]),
      ...(free === undefined ? [] : [`${formatBytes(free)} are free`]),
    ];
    return `${device} has no memory for more${sizes.length > 0 ? ` (${sizes.join(', ')})` : ''}`;
  }

  /** @param how the model would have to be loaded for more to fit */
  private full(why: string, how: string, cause?: unknown): TransformersError {
    const { count } = this.index;
    return new TransformersError(
      'CACHE_FULL',
      `The key-value cache is full: ${count} blocks of ${BLOCK_SIZE} positions (${formatBytes(count * this.blockBytes)}) are in use and ${why}. ` +
        `A context of ${count * BLOCK_SIZE} positions fits, of all sequences together: run fewer at once, shorten them, or load the model ${how}.`,
      { cause },
    );
  }
}
