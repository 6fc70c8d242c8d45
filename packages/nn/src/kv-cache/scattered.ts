/**
 * A cache whose batch entries are at different positions: candle-nn's `ScatteredKvCache` and `ScatteredCacheBuilder`
 * (kv_cache.rs). One builder keeps the positions and says where all layers write; each layer has a cache.
 */
import { CandleError, Device, type DeviceLike, type DType, keep, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkNumbers, checkTensors } from '../check';

/** Where a step writes, and what it may look at. The caller's to dispose. */
export interface IndicesAndMask {
  /** Places in the buffer, u32 [b, seq]. */
  indices: Tensor;
  /** Added to scores: 0 or -Infinity, [b, 1, seq, context], or [seq, seq] for a step as long as the context. */
  mask: Tensor;
}

/** The keys and the values of one layer, [b, heads, context, d]. */
export class ScatteredKvCache implements Disposable {
  /** Owns both tensors. */
  constructor(
    readonly k: Tensor,
    readonly v: Tensor,
    readonly context: number,
  ) {
    checkTensors('ScatteredKvCache', { k, v });
    checkNumbers('ScatteredKvCache', { context });
    keep([k, v]);
  }

  /**
   * Writes keys and values [b, heads, seq, d] at the builder's places.
   * @returns everything held, or what was given when that is as long as the context: the caller's to dispose
   */
  append(k: Tensor, v: Tensor, { indices }: IndicesAndMask): { k: Tensor; v: Tensor } {
    if (this.context <= k.dim(2)) return { k: k.detach(), v: v.detach() };
    scope(() => {
      const places = indices.unsqueeze(2).unsqueeze(1).broadcastAs(k.shape).contiguous();
      this.k.scatterSet(places, k.detach(), 2);
      this.v.scatterSet(places, v.detach(), 2);
    });
    return { k: this.k.detach(), v: this.v.detach() };
  }

  /** Gives both tensors back. */
  dispose(): void {
    this.k.dispose();
    this.v.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

const MAX_BATCH = 2 ** 20;

/** The positions of all batch entries. */
export class ScatteredCacheBuilder {
  readonly device: Device;
  /** Tokens seen by each batch entry, which may be more than the context. */
  readonly positions: number[];
  /** Where each batch entry writes next. */
  private readonly places: number[];

  /**
   * @param context positions that a cache holds for a batch entry
   * @param dtype of keys, values and masks
   * @throws ShapeError `INVALID_SHAPE` for sizes that are no whole numbers from 1, or more than 2^20 batch entries
   */
  constructor(
    batchSize: number,
    readonly context: number,
    readonly dtype: DType,
    device: DeviceLike,
  ) {
    this.device = Device.of(device);
    checkNumbers('ScatteredCacheBuilder', { batchSize, context });
    if (
      !Number.isInteger(batchSize) ||
      !Number.isInteger(context) ||
      batchSize < 1 ||
      context < 1 ||
      batchSize > MAX_BATCH
    ) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `ScatteredCacheBuilder: ${batchSize} batch entries of ${context} positions; give whole numbers from 1, and at most ${MAX_BATCH} entries.`,
      );
    }
    this.positions = new Array<number>(batchSize).fill(0);
    this.places = new Array<number>(batchSize).fill(0);
  }

  get batchSize(): number {
    return this.positions.length;
  }

  /** A cache for one layer. */
  makeCache(numHeads: number, headDim: number): ScatteredKvCache {
    const shape = [this.batchSize, numHeads, this.context, headDim];
    const make = () => Tensor.zeros(shape, this.dtype, this.device);
    return new ScatteredKvCache(make(), make(), this.context);
  }

  /** Starts all batch entries anew. */
  reset(): void {
    this.positions.fill(0);
    this.places.fill(0);
  }

  /** Starts one batch entry anew. @throws ShapeError `INDEX_OUT_OF_RANGE` */
  resetBatchIndex(batchIndex: number): void {
    if (batchIndex < 0 || batchIndex >= this.batchSize) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `resetBatchIndex: there is no entry ${batchIndex} of ${this.batchSize}; give 0 to ${this.batchSize - 1}.`,
      );
    }
    this.positions[batchIndex] = 0;
    this.places[batchIndex] = 0;
  }

  /**
   * Moves on by `seqLen` positions.
   * @param batchMask which entries take part; the others stay where they are, and what is written for them is overwritten
   * by their next step
   */
  indicesAndMask(seqLen: number, batchMask: readonly boolean[]): IndicesAndMask {
    const { batchSize, context } = this;
    if (batchMask.length !== batchSize) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `indicesAndMask: ${batchMask.length} entries in the batch mask for a batch of ${batchSize}; give as many.`,
      );
    }
    const long = context <= seqLen;
    const mask = new Float32Array(long ? seqLen * seqLen : batchSize * seqLen * context);
    const indices = new Uint32Array(batchSize * seqLen);
    batchMask.forEach((active, entry) => {
      const row = indices.subarray(entry * seqLen, (entry + 1) * seqLen);
      if (!active) {
        row.fill(this.places[entry]);
        return;
      }
      const start = this.positions[entry];
      const held = this.advance(entry, row);
      if (long) return;
      for (let i = 0; i < seqLen; i++) {
        const at = (entry * seqLen + i) * context;
        held.forEach((position, j) => {
          if (!(position <= start + i)) mask[at + j] = Number.NEGATIVE_INFINITY;
        });
      }
    });
    if (long) this.fillWindow(mask, seqLen);
    const shape = long ? [seqLen, seqLen] : [batchSize, 1, seqLen, context];
    return scope(() => ({
      indices: Tensor.from(indices, { shape: [batchSize, seqLen], device: this.device }),
      mask: Tensor.from(mask, { shape, device: this.device }).toDtype(this.dtype),
    }));
  }

  /** Gives places to the new positions of an entry; returns the position at every place, Infinity where there is none. */
  private advance(entry: number, row: Uint32Array): number[] {
    const { context } = this;
    const start = this.positions[entry];
    const held = Array.from({ length: context }, (_, place) => {
      // Places from the next one on hold the oldest positions once the buffer is full.
      const position = start - this.places[entry] + place - (place < this.places[entry] ? 0 : context);
      return position < 0 ? Number.POSITIVE_INFINITY : position;
    });
    for (let i = 0; i < row.length; i++) {
      const place = this.places[entry];
      row[i] = place;
      held[place] = start + i;
      this.places[entry] = (place + 1) % context;
      this.positions[entry]++;
    }
    return held;
  }

  /** For a step as long as the context: a position sees itself and `context` before it. */
  private fillWindow(mask: Float32Array, seqLen: number): void {
    for (let i = 0; i < seqLen; i++) {
      for (let j = 0; j < seqLen; j++) {
        if (j > i || j + this.context < i) mask[i * seqLen + j] = Number.NEGATIVE_INFINITY;
      }
    }
  }
}

kinds.checkCalls(
  ScatteredKvCache.prototype,
  { append: { k: kinds.TENSOR, v: kinds.TENSOR, step: kinds.fields({ indices: kinds.TENSOR }) } },
  'ScatteredKvCache.',
);
kinds.checkCalls(
  ScatteredCacheBuilder.prototype,
  {
    makeCache: { numHeads: kinds.COUNT, headDim: kinds.COUNT },
    resetBatchIndex: { batchIndex: kinds.INDEX },
    indicesAndMask: {
      seqLen: kinds.kind(
        (value) => kinds.COUNT.test(value) && (value as number) <= 2 ** 24,
        'give a whole number from 0 to 2^24',
      ),
      batchMask: kinds.kind(
        (value) => Array.isArray(value) && value.every(kinds.BOOLEAN.test),
        'give an array with true or false for each batch entry',
      ),
    },
  },
  'ScatteredCacheBuilder.',
);
