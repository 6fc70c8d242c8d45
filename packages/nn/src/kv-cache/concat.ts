/**
 * Caches that grow by joining tensors: candle-nn's `ConcatKvCache` and `InterleavedKvCache` (kv_cache.rs). They hold
 * exactly what was appended, at the price of copying it all at every append; `KvCache` writes into a buffer instead.
 */
import { keep, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkDim, checkNumbers } from '../check';

/** `old` with `news` behind it, out of every scope. */
function whole(old: Tensor | undefined, news: Tensor, dim: number): Tensor {
  // A copy, so that nothing outside can change what the cache holds.
  return scope(() => keep(old ? Tensor.cat([old, news.detach()], dim) : news.detach().copy()));
}

function replaced(old: Tensor | undefined, by: Tensor): Tensor {
  old?.dispose();
  return by;
}

/** Keys and values joined along one dimension. */
export class ConcatKvCache implements Disposable {
  private keys: Tensor | undefined;
  private values: Tensor | undefined;

  /** @param dim the dimension of positions: 2 for [b, heads, seq, d], 1 for [b, seq, heads, d] */
  constructor(readonly dim: number) {
    checkDim('ConcatKvCache', dim);
  }

  /** Positions held. */
  get currentSeqLen(): number {
    return this.keys?.dim(this.dim) ?? 0;
  }

  get isEmpty(): boolean {
    return this.keys === undefined;
  }

  /** All keys, or undefined before the first; they stay the cache's, and go with its next append. */
  get k(): Tensor | undefined {
    return this.keys;
  }

  /** All values, as {@link k}. */
  get v(): Tensor | undefined {
    return this.values;
  }

  /** Appends and returns handles of everything held: the caller's to dispose, and good beyond the next append. */
  append(k: Tensor, v: Tensor): { k: Tensor; v: Tensor } {
    const keys = whole(this.keys, k, this.dim);
    try {
      this.values = replaced(this.values, whole(this.values, v, this.dim));
    } catch (error) {
      // A position has both or none.
      keys.dispose();
      throw error;
    }
    this.keys = replaced(this.keys, keys);
    return { k: this.keys.detach(), v: this.values.detach() };
  }

  /** Forgets all positions and gives the memory back. */
  reset(): void {
    this.keys?.dispose();
    this.values?.dispose();
    this.keys = undefined;
    this.values = undefined;
  }

  /** As {@link reset}. */
  dispose(): void {
    this.reset();
  }

  [Symbol.dispose](): void {
    this.reset();
  }
}

/**
 * One tensor [seq, kvHeads, 2 · d] with the key of a position and head beside its value, for `causalDecodeF32Interleaved`.
 * One batch entry.
 */
export class InterleavedKvCache implements Disposable {
  private data: Tensor | undefined;

  /** @param headDim d, of keys and values alike */
  constructor(readonly headDim: number) {
    checkNumbers('InterleavedKvCache', { headDim });
  }

  /** Positions held. */
  get currentSeqLen(): number {
    return this.data?.dim(0) ?? 0;
  }

  get isEmpty(): boolean {
    return this.data === undefined;
  }

  /** [seq, kvHeads, 2 · d], or undefined before the first append; it stays the cache's. */
  get kv(): Tensor | undefined {
    return this.data;
  }

  /**
   * Keys and values [1, kvHeads, seq, d].
   * @returns a handle of everything held, [seq, kvHeads, 2 · d]: the caller's to dispose
   */
  append(k: Tensor, v: Tensor): Tensor {
    for (const part of [k, v]) {
      if (part.rank === 4 && part.dim(0) === 1 && part.dim(3) === this.headDim) continue;
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `InterleavedKvCache: [${part.shape}]; give keys and values of [1, heads, seq, ${this.headDim}].`,
      );
    }
    scope(() => {
      const [keys, values] = [k, v].map((part) => part.detach().squeeze(0).transpose(0, 1));
      this.data = replaced(this.data, whole(this.data, Tensor.cat([keys, values], 2), 0));
    });
    return this.data!.detach();
  }

  /** Forgets all positions and gives the memory back. */
  reset(): void {
    this.data?.dispose();
    this.data = undefined;
  }

  /** As {@link reset}. */
  dispose(): void {
    this.reset();
  }

  [Symbol.dispose](): void {
    this.reset();
  }
}

const PAIR = { k: kinds.TENSOR, v: kinds.TENSOR } as const;

kinds.checkCalls(ConcatKvCache.prototype, { append: PAIR }, 'ConcatKvCache.');
kinds.checkCalls(InterleavedKvCache.prototype, { append: PAIR }, 'InterleavedKvCache.');
