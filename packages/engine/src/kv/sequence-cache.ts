/**
 * One sequence: its tokens, and the blocks of the pool that hold their keys and values. What `length` counts is complete in
 * every layer; a forward pass writes behind it and commits at its end, so that one that fails changes nothing.
 */
import { ShapeError } from '@x/core';
import type { KvPool } from './pool';

export class SequenceCache {
  private readonly table: number[] = [];
  private ids: number[] = [];
  private filled = 0;

  /** @internal `KvPool.sequence`. @param maxLength positions at most */
  constructor(
    private readonly pool: KvPool,
    readonly maxLength: number,
  ) {}

  /** Positions held. */
  get length(): number {
    return this.filled;
  }

  /** Positions that fit without another block. */
  get capacity(): number {
    return this.table.length * this.pool.blockSize;
  }

  /** Blocks of the pool, in the order of positions. */
  get blocks(): readonly number[] {
    return this.table;
  }

  /** Tokens of the sequence: more than {@link length} after {@link evict}. */
  get tokens(): readonly number[] {
    return this.ids;
  }

  /** The place of a position in the pool. */
  slot(position: number): number {
    return (
      this.table[Math.floor(position / this.pool.blockSize)] * this.pool.blockSize + (position % this.pool.blockSize)
    );
  }

  /**
   * Takes over what the pool holds of the beginning of `ids`, in whole blocks and without the last token, whose logits are
   * wanted. Of a sequence that is empty, or holds nothing of these tokens any more. @returns positions held now
   */
  adopt(ids: readonly number[]): number {
    const { index } = this.pool;
    if (this.table.length > 0) throw new Error('internal: a sequence that has blocks adopts no others');
    for (let start = 0; start + this.pool.blockSize < ids.length; start += this.pool.blockSize) {
      const block = index.find(this.table.at(-1), ids.slice(start, start + this.pool.blockSize));
      if (block === undefined) break;
      index.share(block);
      this.table.push(block);
    }
    this.filled = this.capacity;
    if (this.ids.length === 0) this.ids = ids.slice(0, this.filled);
    return this.filled;
  }

  /**
   * Takes blocks for `length` positions; those behind {@link length} are this sequence's alone.
   * @throws TransformersError CACHE_FULL; the blocks taken until then stay with the sequence
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
  }

  /** What was written behind `length` in every layer now counts: the keys and values of these tokens. */
  commit(ids: ArrayLike<number>): void {
    const { index } = this.pool;
    for (let i = 0; i < ids.length; i++) this.ids[this.filled + i] = ids[i];
    const before = Math.floor(this.filled / this.pool.blockSize);
    this.filled += ids.length;
    for (let i = before; (i + 1) * this.pool.blockSize <= this.filled; i++) {
      const tokens = this.ids.slice(i * this.pool.blockSize, (i + 1) * this.pool.blockSize);
      index.fill(this.table[i], i === 0 ? undefined : this.table[i - 1], tokens);
    }
  }

  /** Keeps the first `length` positions. @throws ShapeError when fewer are held */
  truncate(length: number): void {
    if (!Number.isInteger(length) || length < 0 || length > this.filled) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `SequenceCache: truncate to ${length} of ${this.filled} positions; give 0 to ${this.filled}.`,
      );
    }
    this.keepBlocks(Math.ceil(length / this.pool.blockSize));
    this.filled = length;
    this.ids.length = length;
  }

  /** Another sequence that begins with the first `length` positions of this one. Blocks are shared until one writes. */
  fork(length: number): SequenceCache {
    if (!Number.isInteger(length) || length < 0 || length > this.filled) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `SequenceCache: fork at ${length} of ${this.filled} positions; give 0 to ${this.filled}.`,
      );
    }
    const other = this.pool.sequence(this.maxLength);
    for (const block of this.table.slice(0, Math.ceil(length / this.pool.blockSize))) {
      this.pool.index.share(block);
      other.table.push(block);
    }
    other.filled = length;
    other.ids = this.ids.slice(0, length);
    return other;
  }

  /** Gives the blocks back and keeps the tokens, from which a forward pass can compute them again. */
  evict(): void {
    this.keepBlocks(0);
    this.filled = 0;
  }

  /** Gives the blocks back. */
  dispose(): void {
    this.evict();
    this.ids = [];
  }

  private keepBlocks(count: number): void {
    // The last first: what is evicted first is then the end of a prefix, not its beginning.
    for (const block of this.table.splice(count).reverse()) this.pool.index.release(block);
  }
}
