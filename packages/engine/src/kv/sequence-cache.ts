/**
 * One sequence: its tokens, the blocks of the pool that hold their keys and values, and the slot that holds the state of
 * recurrent layers behind them. What `length` counts is complete in every layer; a forward pass writes behind it, and into
 * another slot, and commits at its end, so that one that fails changes nothing.
 */
import { ShapeError } from '@x/core';
import type { AdapterUse } from '../adapters';
import type { KvPool } from './pool';
import { NO_SLOT } from './states';

/** What the cache holds of one sequence: what `KvPool.sequence` and `BatchScheduler.open` give. */
export class SequenceCache {
  private readonly table: number[] = [];
  private ids: number[] = [];
  private filled = 0;
  /** The slot with the state behind `filled` positions, if there are any. */
  private state: number | undefined;
  /** The slot that the next pass writes. */
  private next: number | undefined;
  private disposed = false;
  private changeCount = 0;

  /** @internal `KvPool.sequence`. @param maxLength positions at most @param adapter what its tokens are computed with */
  constructor(
    private readonly pool: KvPool,
    readonly maxLength: number,
    readonly adapter?: AdapterUse,
  ) {
    adapter?.hold();
  }

  /** Positions held. */
  get length(): number {
    return this.filled;
  }

  /** Positions that fit without another block. */
  get capacity(): number {
    return this.table.length * this.pool.blockSize;
  }

  /** How often what is held was changed by other than {@link commit}: what was written behind it then counts for nothing. */
  get changes(): number {
    return this.changeCount;
  }

  /** Blocks of the pool, in the order of positions. */
  get blocks(): readonly number[] {
    return this.table;
  }

  /** Tokens of the sequence: more than {@link length} where what was held of them was given up, to be computed again. */
  get tokens(): readonly number[] {
    return this.ids;
  }

  /** The place of a position in the pool. */
  slot(position: number): number {
    return (
      this.table[Math.floor(position / this.pool.blockSize)] * this.pool.blockSize + (position % this.pool.blockSize)
    );
  }

  /** Which states a pass reads and writes, of a pool with states; between {@link reserve} and {@link commit}. */
  get states(): { from: number; to: number } {
    if (this.next === undefined) throw new Error('internal: no slot for a state; reserve comes first');
    return { from: this.state ?? NO_SLOT, to: this.next };
  }

  /**
   * Takes over what the pool holds of the beginning of `ids`, in whole blocks and without the last token, whose logits are
   * wanted; where there are states, up to the last block whose state was kept. Of a sequence that is empty, or holds nothing of
   * these tokens any more. @returns positions held now
   */
  adopt(ids: readonly number[]): number {
    const { index, blockSize } = this.pool;
    if (this.table.length > 0) throw new Error('internal: a sequence that has blocks adopts no others');
    const found: number[] = [];
    for (let start = 0; start + blockSize < ids.length; start += blockSize) {
      const block = index.find(found.at(-1), ids.slice(start, start + blockSize), this.adapter?.key);
      if (block === undefined) break;
      found.push(block);
    }
    const { blocks, state } = this.held(found, ids, found.length * blockSize);
    for (const block of found.slice(0, blocks)) {
      index.share(block);
      this.table.push(block);
    }
    this.stand(this.capacity, state);
    if (this.ids.length === 0) this.ids = ids.slice(0, this.filled);
    return this.filled;
  }

  /**
   * Takes blocks for `length` positions, and a slot for their state; those behind {@link SequenceCache.length} are this sequence's alone.
   * @throws TransformersError CACHE_FULL; what was taken until then stays with the sequence
   */
  reserve(length: number): void {
    if (length > this.maxLength) {
      throw new ShapeError('INDEX_OUT_OF_RANGE', `SequenceCache: ${length} positions, at most ${this.maxLength} fit.`);
    }
    const { pool, table } = this;
    const last = Math.floor(this.filled / this.pool.blockSize);
    if (last < table.length && length > this.filled && !pool.index.own(table[last])) {
      const shared = table[last];
      table[last] = pool.copy(shared);
      pool.index.release(shared);
    }
    while (this.capacity < length) table.push(pool.take());
    if (pool.states && length > this.filled) this.next ??= pool.states.take();
  }

  /** What was written behind `length` in every layer now counts: the keys and values of these tokens, and their state. */
  commit(ids: ArrayLike<number>): void {
    const { index, states } = this.pool;
    for (let i = 0; i < ids.length; i++) this.ids[this.filled + i] = ids[i];
    const before = Math.floor(this.filled / this.pool.blockSize);
    this.filled += ids.length;
    if (states) {
      if (this.state !== undefined) states.release(this.state);
      this.state = this.next;
      this.next = undefined;
    }
    for (let i = before; (i + 1) * this.pool.blockSize <= this.filled; i++) {
      const tokens = this.ids.slice(i * this.pool.blockSize, (i + 1) * this.pool.blockSize);
      const block = index.fill(this.table[i], i === 0 ? undefined : this.table[i - 1], tokens, this.adapter?.key);
      if (states && (i + 1) * this.pool.blockSize === this.filled) states.snapshot(block, this.state!);
    }
  }

  /**
   * Keeps the first `length` tokens, and what is held of them. States are held at ends of blocks only: where they are wanted,
   * {@link SequenceCache.length} may then be less than the tokens, which are to be computed again. @throws ShapeError for more tokens
   */
  truncate(length: number): void {
    this.checkLength('truncate to', length);
    const { positions, blocks, state } = this.held(this.table, this.ids, length);
    this.stand(positions, state);
    this.keepBlocks(blocks);
    this.ids.length = length;
  }

  /**
   * Another sequence that begins with the first `length` tokens of this one. Blocks are shared until one writes. Of states as
   * {@link truncate}.
   */
  fork(length: number): SequenceCache {
    this.checkLength('fork at', length);
    const other = this.pool.sequence(this.maxLength, this.adapter);
    const { positions, blocks, state } = this.held(this.table, this.ids, length);
    for (const block of this.table.slice(0, blocks)) {
      this.pool.index.share(block);
      other.table.push(block);
    }
    other.stand(positions, state);
    other.ids = this.ids.slice(0, length);
    return other;
  }

  /** Gives blocks and states back and keeps the tokens, from which a forward pass can compute them again. */
  evict(): void {
    this.keepBlocks(0);
    this.stand(0, undefined);
  }

  /** Gives the blocks back, and its use of the adapter. Harmless when repeated. */
  dispose(): void {
    this.evict();
    this.ids = [];
    if (!this.disposed) this.adapter?.release();
    this.disposed = true;
  }

  /** What can be gone on from of the first `length` positions of these blocks: all, or where there are states up to one that is held. */
  private held(
    table: readonly number[],
    ids: readonly number[],
    length: number,
  ): { positions: number; blocks: number; state: number | undefined } {
    const { blockSize, index, states } = this.pool;
    const most = table === this.table ? Math.min(length, this.filled) : length;
    const whole = { positions: most, blocks: Math.ceil(most / blockSize) };
    if (!states) return { ...whole, state: undefined };
    if (table === this.table && most === this.filled) return { ...whole, state: this.state };
    for (let blocks = Math.floor(most / blockSize); blocks > 0; blocks--) {
      // Another block may have this content, and the state.
      const tokens = ids.slice((blocks - 1) * blockSize, blocks * blockSize);
      const block = index.find(table[blocks - 2], tokens, this.adapter?.key);
      const state = block === undefined ? undefined : states.at(block);
      if (state !== undefined) return { positions: blocks * blockSize, blocks, state };
    }
    return { positions: 0, blocks: 0, state: undefined };
  }

  /** Holds so many positions from now on, with the state in a slot behind them. */
  private stand(length: number, state: number | undefined): void {
    const { states } = this.pool;
    this.changeCount++;
    if (state !== undefined) states!.share(state);
    for (const slot of [this.state, this.next]) if (slot !== undefined) states!.release(slot);
    this.filled = length;
    this.state = state;
    this.next = undefined;
  }

  private checkLength(what: string, length: number): void {
    if (Number.isInteger(length) && length >= 0 && length <= this.ids.length) return;
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `SequenceCache: ${what} ${length} of ${this.ids.length} positions; give 0 to ${this.ids.length}.`,
    );
  }

  private keepBlocks(count: number): void {
    // The last first: what is evicted first is then the end of a prefix, not its beginning.
    for (const block of this.table.splice(count).reverse()) this.pool.index.release(block);
  }
}
