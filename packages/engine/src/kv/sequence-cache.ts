/**
 * Keys and values of one sequence, a layer each, in one piece of memory that grows by doubling. What `length` counts is
 * complete in every layer; a forward pass writes behind it and commits at its end, so that one that fails changes nothing.
 */
import { type Device, keep, ShapeError, scope, Tensor } from '@x/core';
import type { KvLayout } from '@x/transformers';

/** Positions allocated at first. */
const FIRST = 64;

interface LayerMemory {
  /** [kvHeads, capacity, keyDim] */
  k: Tensor;
  /** [kvHeads, capacity, valueDim] */
  v: Tensor;
}

export class SequenceCache {
  private readonly layers: (LayerMemory | undefined)[];
  private room = 0;
  private filled = 0;

  /** @param maxLength positions at most */
  constructor(
    private readonly layouts: readonly KvLayout[],
    private readonly device: Device,
    readonly maxLength: number,
  ) {
    this.layers = layouts.map(() => undefined);
  }

  /** Positions held. */
  get length(): number {
    return this.filled;
  }

  /** Positions that fit without growing. */
  get capacity(): number {
    return this.room;
  }

  /** Makes room for `length` positions in every layer. */
  reserve(length: number): void {
    if (length > this.maxLength) {
      throw new ShapeError('INDEX_OUT_OF_RANGE', `SequenceCache: ${length} positions, at most ${this.maxLength} fit.`);
    }
    if (length <= this.room) return;
    let room = Math.max(FIRST, this.room);
    while (room < length) room *= 2;
    this.grow(Math.min(room, this.maxLength));
  }

  /** Writes keys and values [kvHeads, count, d] of a layer behind `length`; room must have been reserved. */
  write(layer: number, k: Tensor, v: Tensor): void {
    const memory = this.memory(layer);
    memory.k.sliceSet(k, 1, this.filled);
    memory.v.sliceSet(v, 1, this.filled);
  }

  /** Views of `count` positions of a layer from `start` on, [kvHeads, count, d] each: the caller's to dispose. */
  read(layer: number, start: number, count: number): { k: Tensor; v: Tensor } {
    const { k, v } = this.memory(layer);
    return { k: k.narrow(1, start, count), v: v.narrow(1, start, count) };
  }

  /** What was written behind `length` in every layer now counts. */
  commit(count: number): void {
    this.filled += count;
  }

  /** Keeps the first `length` positions. @throws ShapeError when fewer are held */
  truncate(length: number): void {
    if (!Number.isInteger(length) || length < 0 || length > this.filled) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `SequenceCache: truncate to ${length} of ${this.filled} positions; give 0 to ${this.filled}.`,
      );
    }
    this.filled = length;
  }

  /** Another sequence that begins with the first `length` positions of this one, which are copied. */
  fork(length: number): SequenceCache {
    const copy = new SequenceCache(this.layouts, this.device, this.maxLength);
    try {
      if (length === 0) return copy;
      copy.reserve(length);
      for (let i = 0; i < this.layers.length; i++) {
        scope(() => {
          const { k, v } = this.read(i, 0, length);
          copy.write(i, k, v);
        });
      }
      copy.commit(length);
      return copy;
    } catch (error) {
      copy.dispose();
      throw error;
    }
  }

  /** Gives the memory back. */
  dispose(): void {
    for (const memory of this.layers) {
      memory?.k.dispose();
      memory?.v.dispose();
    }
    this.layers.fill(undefined);
    this.room = 0;
    this.filled = 0;
  }

  private memory(layer: number): LayerMemory {
    const memory = this.layers[layer];
    if (!memory) throw new Error('internal: the cache has no room; reserve() comes first');
    return memory;
  }

  private grow(room: number): void {
    // All layers before any is replaced: what does not fit leaves the old ones as they were.
    const grown: LayerMemory[] = [];
    try {
      this.layouts.forEach(({ kvHeads, keyDim, valueDim }, i) => {
        const { device } = this;
        const make = (width: number) => keep(Tensor.zeros([kvHeads, room, width], { dtype: 'f32', device }));
        const k = make(keyDim);
        const memory = { k, v: k };
        grown.push(memory);
        memory.v = make(valueDim);
        const old = this.layers[i];
        if (!old || this.filled === 0) return;
        scope(() => {
          memory.k.sliceSet(old.k.narrow(1, 0, this.filled), 1, 0);
          memory.v.sliceSet(old.v.narrow(1, 0, this.filled), 1, 0);
        });
      });
    } catch (error) {
      for (const { k, v } of grown) for (const tensor of [k, v]) tensor.dispose();
      throw error;
    }
    grown.forEach((memory, i) => {
      this.layers[i]?.k.dispose();
      this.layers[i]?.v.dispose();
      this.layers[i] = memory;
    });
    this.room = room;
  }
}
