/**
 * Keys and values of the tokens so far: candle-nn's `Cache` and `KvCache` (kv_cache.rs). A buffer with room for
 * `maxSeqLen` positions is allocated once and written in place; when it is full it grows by that much again.
 *
 * Different from candle: `reserve` allocates before the first token, so that a model that does not fit fails when it is
 * loaded; `reset` keeps the buffer; `truncate` takes positions back.
 *
 * As in all caches here gradients end: what is held are values. Training needs no cache.
 */
import { type DeviceLike, type DType, keep, kinds, noGrad, ShapeError, scope, Tensor } from '@x/core';
import { checkDim } from '../check';

/** Runs `write`, which copies `src` into a buffer: a cache that kept the history of every step would keep it all alive. */
export function withoutHistory(src: Tensor, write: () => void): void {
  if (src.trackOp) noGrad(write);
  else write();
}

/** One growing tensor. */
export class Cache implements Disposable {
  private data: Tensor | undefined;
  private filled = 0;

  /**
   * @param dim the dimension of positions
   * @param maxSeqLen positions allocated at once, and added when they are used up
   */
  constructor(
    readonly dim: number,
    readonly maxSeqLen: number,
  ) {
    kinds.check('Cache', 'maxSeqLen', maxSeqLen, kinds.NUMBER);
    checkDim('Cache', dim);
    if (!Number.isInteger(maxSeqLen) || maxSeqLen < 1) {
      throw new ShapeError('INVALID_SHAPE', `Cache: room for ${maxSeqLen} positions; give a whole number from 1.`);
    }
  }

  /** Positions held. */
  get length(): number {
    return this.filled;
  }

  /** candle's name for {@link length}. */
  get currentSeqLen(): number {
    return this.filled;
  }

  /** Positions that fit without growing; 0 before the buffer exists. */
  get capacity(): number {
    return this.data?.dim(this.dim) ?? 0;
  }

  /** A view of what is held, or undefined before anything was appended. The caller's to dispose. */
  current(): Tensor | undefined {
    return this.filled > 0 ? this.data?.narrow(this.dim, 0, this.filled) : undefined;
  }

  /** candle's name for {@link current}. */
  currentData(): Tensor | undefined {
    return this.current();
  }

  /** Allocates the buffer now. @param shape of what will be appended; its size along `dim` does not matter */
  reserve(shape: readonly number[], dtype: DType, device: DeviceLike): void {
    if (this.data) return;
    const full = [...shape];
    full[this.at(shape)] = this.maxSeqLen;
    this.data = keep(Tensor.zeros(full, { dtype, device }));
  }

  /** The dimension of positions, counted from the first. */
  private at(shape: readonly number[]): number {
    return this.dim < 0 ? this.dim + shape.length : this.dim;
  }

  /** Copies `src` behind what is held. Its shape differs from earlier ones only along `dim`. */
  append(src: Tensor): void {
    const count = src.dim(this.dim);
    this.reserve(src.shape, src.dtype, src.device);
    const old = this.data!;
    const missing = this.filled + count - this.capacity;
    if (missing > 0) {
      const extra = [...old.shape];
      extra[this.at(extra)] = Math.ceil(missing / this.maxSeqLen) * this.maxSeqLen;
      this.data = scope(() =>
        keep(Tensor.cat([old, Tensor.zeros(extra, { dtype: old.dtype, device: old.device })], this.dim)),
      );
      old.dispose();
    }
    withoutHistory(src, () => this.data!.sliceSet(src, this.dim, this.filled));
    this.filled += count;
  }

  /** Forgets all positions; the memory stays allocated. */
  reset(): void {
    this.filled = 0;
  }

  /** Keeps the first `length` positions. @throws ShapeError when fewer are held */
  truncate(length: number): void {
    if (!Number.isInteger(length) || length < 0 || length > this.filled) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `Cache: truncate to ${length} of ${this.filled} positions; give 0 to ${this.filled}.`,
      );
    }
    this.filled = length;
  }

  /** Gives the memory back; a later append allocates again. */
  dispose(): void {
    this.data?.dispose();
    this.data = undefined;
    this.filled = 0;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The keys and the values of one attention layer. */
export class KvCache implements Disposable {
  readonly k: Cache;
  readonly v: Cache;

  /** Parameters as {@link Cache}. */
  constructor(dim: number, maxSeqLen: number) {
    this.k = new Cache(dim, maxSeqLen);
    this.v = new Cache(dim, maxSeqLen);
  }

  /** Positions held. */
  get length(): number {
    return this.k.length;
  }

  /** candle's name for {@link length}. */
  get currentSeqLen(): number {
    return this.k.length;
  }

  /** Allocates both buffers now; see {@link Cache.reserve}. */
  reserve(shape: readonly number[], dtype: DType, device: DeviceLike): void {
    this.k.reserve(shape, dtype, device);
    this.v.reserve(shape, dtype, device);
  }

  /** Appends and returns views of everything held, the new positions included: the caller's to dispose. */
  append(k: Tensor, v: Tensor): { k: Tensor; v: Tensor } {
    const before = this.k.length;
    this.k.append(k);
    try {
      this.v.append(v);
    } catch (error) {
      // A position has both or none.
      this.k.truncate(before);
      throw error;
    }
    return { k: this.k.current() ?? k.narrow(this.k.dim, 0, 0), v: this.v.current() ?? v.narrow(this.v.dim, 0, 0) };
  }

  /** Forgets all positions; the memory stays allocated. */
  reset(): void {
    this.k.reset();
    this.v.reset();
  }

  /** See {@link Cache.truncate}. */
  truncate(length: number): void {
    this.k.truncate(length);
    this.v.truncate(length);
  }

  /** Gives the memory back; a later append allocates again. */
  dispose(): void {
    this.k.dispose();
    this.v.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

const RESERVE = { shape: kinds.SHAPE, dtype: kinds.DTYPE, device: kinds.DEVICE } as const;

kinds.checkCalls(
  Cache.prototype,
  { reserve: RESERVE, append: { src: kinds.TENSOR }, truncate: { length: kinds.INDEX } },
  'Cache.',
);
kinds.checkCalls(
  KvCache.prototype,
  { reserve: RESERVE, append: { k: kinds.TENSOR, v: kinds.TENSOR }, truncate: { length: kinds.INDEX } },
  'KvCache.',
);
