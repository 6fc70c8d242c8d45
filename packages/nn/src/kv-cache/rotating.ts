/**
 * A cache of the last `maxSeqLen` positions, for attention with a window: candle-nn's `RotatingCache` and
 * `RotatingKvCache` (kv_cache.rs). New positions overwrite the oldest ones.
 */
import { type DeviceLike, keep, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkDim, checkNumbers } from '../check';
import { withoutHistory } from './cache';

/** One tensor, of the last `maxSeqLen` positions. */
export class RotatingCache implements Disposable {
  private data: Tensor | undefined;
  private writeAt = 0;
  private seen = 0;

  /**
   * @param dim the dimension of positions
   * @param maxSeqLen positions held; a sequence may be longer
   */
  constructor(
    readonly dim: number,
    readonly maxSeqLen: number,
  ) {
    checkNumbers('RotatingCache', { maxSeqLen });
    checkDim('RotatingCache', dim);
    if (!Number.isInteger(maxSeqLen) || maxSeqLen < 1) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `RotatingCache: room for ${maxSeqLen} positions; give a whole number from 1.`,
      );
    }
  }

  /** Where in the buffer the next position goes. */
  get offset(): number {
    return this.writeAt;
  }

  /** Positions seen, which may be more than are held. */
  get currentSeqLen(): number {
    return this.seen;
  }

  /** A view of what is held, in the buffer's order, or undefined before the first append. The caller's to dispose. */
  currentData(): Tensor | undefined {
    return this.data?.narrow(this.dim, 0, Math.min(this.seen, this.maxSeqLen));
  }

  /**
   * Copies `src` in and returns what attention may look at: a view of the buffer, or all of `src` when that is as long as
   * the buffer. The caller's to dispose; a view changes with the next append.
   */
  append(src: Tensor): Tensor {
    const { dim, maxSeqLen } = this;
    const count = src.dim(dim);
    if (!this.data) {
      const at = dim < 0 ? dim + src.rank : dim;
      const shape = src.shape.map((size, i) => (i === at ? maxSeqLen : size));
      this.data = keep(Tensor.zeros(shape, src.dtype, src.device));
    }
    const data = this.data;
    if (count >= maxSeqLen) {
      const last = () => scope(() => data.sliceSet(src.narrow(dim, count - maxSeqLen, maxSeqLen), dim, 0));
      withoutHistory(src, last);
      this.seen += count;
      this.writeAt = 0;
      return src.detach();
    }
    const first = Math.min(count, maxSeqLen - this.writeAt);
    const write = () =>
      scope(() => {
        data.sliceSet(src.narrow(dim, 0, first), dim, this.writeAt);
        if (first < count) data.sliceSet(src.narrow(dim, first, count - first), dim, 0);
      });
    withoutHistory(src, write);
    this.seen += count;
    this.writeAt = (this.writeAt + count) % maxSeqLen;
    return this.currentData()!;
  }

  /** Positions in the sequence of what an append of `seqLen` more would return, in its order. */
  positions(seqLen: number): number[] {
    const { maxSeqLen, seen } = this;
    if (seqLen >= maxSeqLen) return Array.from({ length: seqLen }, (_, i) => seen + i);
    const end = (this.writeAt + seqLen) % maxSeqLen;
    const newest = seen + seqLen - end;
    return Array.from({ length: Math.min(seen + seqLen, maxSeqLen) }, (_, i) =>
      i < end ? newest + i : newest + i - maxSeqLen,
    );
  }

  /**
   * What the next `seqLen` positions may look at in what their append will return: u8 [seqLen, held], 1 where visible,
   * which `sdpa` takes as a mask (candle's has 1 where hidden). Undefined for a single position, which may look at
   * everything.
   */
  attnMask(seqLen: number, device: DeviceLike): Tensor | undefined {
    if (seqLen === 1) return undefined;
    const { maxSeqLen, seen } = this;
    const positions = this.positions(seqLen);
    const mask = new Uint8Array(seqLen * positions.length);
    for (let i = 0; i < seqLen; i++) {
      positions.forEach((position, j) => {
        const visible = position <= seen + i && position + maxSeqLen >= seen + i;
        mask[i * positions.length + j] = visible ? 1 : 0;
      });
    }
    return Tensor.from(mask, { shape: [seqLen, positions.length], device });
  }

  /** Forgets all positions and gives the memory back. */
  reset(): void {
    this.data?.dispose();
    this.data = undefined;
    this.writeAt = 0;
    this.seen = 0;
  }

  /** As {@link reset}. */
  dispose(): void {
    this.reset();
  }

  [Symbol.dispose](): void {
    this.reset();
  }
}

/** The keys and the values of one attention layer with a window. */
export class RotatingKvCache implements Disposable {
  readonly k: RotatingCache;
  readonly v: RotatingCache;

  /** Parameters as {@link RotatingCache}. */
  constructor(dim: number, maxSeqLen: number) {
    checkNumbers('RotatingKvCache', { maxSeqLen });
    checkDim('RotatingKvCache', dim);
    this.k = new RotatingCache(dim, maxSeqLen);
    this.v = new RotatingCache(dim, maxSeqLen);
  }

  /** See {@link RotatingCache.offset}. */
  get offset(): number {
    return this.k.offset;
  }

  /** Positions seen, which may be more than are held. */
  get currentSeqLen(): number {
    return this.k.currentSeqLen;
  }

  /** See {@link RotatingCache.append}. @throws ShapeError, DTypeError before anything is written, so that a position has both or none */
  append(k: Tensor, v: Tensor): { k: Tensor; v: Tensor } {
    const [count, values] = [k.dim(this.k.dim), v.dim(this.v.dim)];
    if (count !== values) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `RotatingKvCache.append: keys of ${count} positions and values of ${values}; give as many of both.`,
      );
    }
    checkLike(this.k, k);
    checkLike(this.v, v);
    return { k: this.k.append(k), v: this.v.append(v) };
  }

  /** See {@link RotatingCache.attnMask}. */
  attnMask(seqLen: number, device: DeviceLike): Tensor | undefined {
    return this.k.attnMask(seqLen, device);
  }

  /** See {@link RotatingCache.positions}. */
  positions(seqLen: number): number[] {
    return this.k.positions(seqLen);
  }

  /** Forgets all positions and gives the memory back. */
  reset(): void {
    this.k.reset();
    this.v.reset();
  }

  /** As {@link reset}. */
  dispose(): void {
    this.reset();
  }

  [Symbol.dispose](): void {
    this.reset();
  }
}

/** Throws what an append of `src` would, and writes nothing: parts without positions are put together. */
function checkLike(cache: RotatingCache, src: Tensor): void {
  const { dim } = cache;
  scope(() => {
    const held = cache.currentData();
    if (held) Tensor.cat([held.narrow(dim, 0, 0), src.narrow(dim, 0, 0)], dim);
  });
}

/** Positions of one step: lists of them are made on the host. */
const SEQ_LEN = kinds.kind(
  (value) => kinds.COUNT.test(value) && (value as number) <= 2 ** 24,
  'give a whole number from 0 to 2^24',
);
const PLACES = { positions: { seqLen: SEQ_LEN }, attnMask: { seqLen: SEQ_LEN, device: kinds.DEVICE } } as const;

kinds.checkCalls(RotatingCache.prototype, { append: { src: kinds.TENSOR }, ...PLACES }, 'RotatingCache.');
kinds.checkCalls(
  RotatingKvCache.prototype,
  { append: { k: kinds.TENSOR, v: kinds.TENSOR }, ...PLACES },
  'RotatingKvCache.',
);
