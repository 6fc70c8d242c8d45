/**
 * States of fixed size that recurrent layers carry from token to token, in slots. What a slot holds never changes once a pass
 * has come to its end: a pass reads one slot of a sequence and writes another, so that one that fails changes nothing, and
 * forks share a slot as sequences share blocks. A state can only be taken up where it was kept: at ends of blocks where a pass
 * ended, as snapshots, of which those used longest ago give their slots back when there are no others.
 */
import { type Device, DisposedError, keep, OutOfMemoryError, scope, Tensor } from '@x/core';
import { type StateLayout, TransformersError } from '@x/transformers';

/** Slots allocated at first. */
const FIRST_SLOTS = 8;

/** In place of a slot: a state of zeros to read, nowhere to write. */
export const NO_SLOT = 2 ** 32 - 1;

/** What a pool of states holds. */
export interface StateStats {
  /** Slots of sequences and snapshots. */
  used: number;
  /** Slots with memory. */
  slots: number;
  /** Bytes of all slots. */
  bytes: number;
}

export class StatePool {
  /** Users of each slot: sequences and snapshots. */
  private readonly references: number[] = [];
  /** Slots of nobody, used from the end. */
  private readonly empty: number[] = [];
  /** Slots with the state at the end of a block, by the block; that used longest ago first. */
  private readonly snapshots = new Map<number, number>();
  private readonly layers: (Readonly<Record<string, Tensor>> | undefined)[];
  private generation = 0;
  private disposed = false;

  /** @param layouts of each layer, undefined for those without a state */
  constructor(
    private readonly layouts: readonly (StateLayout | undefined)[],
    private readonly device: Device,
  ) {
    this.layers = layouts.map(() => undefined);
  }

  /** Changes when the memory does. */
  get version(): number {
    return this.generation;
  }

  get stats(): StateStats {
    const slots = this.references.length;
    return { used: slots - this.empty.length, slots, bytes: slots * this.slotBytes };
  }

  /** Bytes of a slot, all layers together. */
  get slotBytes(): number {
    const shapes = this.layouts.flatMap((layout) => Object.values(layout ?? {}));
    return 4 * shapes.reduce((sum, shape) => sum + shape.reduce((product, size) => product * size, 1), 0);
  }

  /** The states of one layer by their names, [slots, ...shape]; undefined for a layer without. */
  layer(index: number): Readonly<Record<string, Tensor>> | undefined {
    if (!this.layouts[index]) return undefined;
    const layer = this.layers[index];
    if (!layer) throw new Error('internal: the pool has no slots; SequenceCache.reserve comes first');
    return layer;
  }

  /** A slot for one user. @throws TransformersError CACHE_FULL when all are in use and there is no memory for more */
  take(): number {
    if (this.empty.length === 0 && !this.dropSnapshot()) this.grow();
    const slot = this.empty.pop()!;
    this.references[slot] = 1;
    return slot;
  }

  /** One more user of a slot. */
  share(slot: number): void {
    this.references[slot]++;
  }

  /** One user less. */
  release(slot: number): void {
    if (--this.references[slot] === 0) this.empty.push(slot);
  }

  /** Keeps a slot's state as that at the end of a block. */
  snapshot(block: number, slot: number): void {
    if (this.snapshots.has(block)) return;
    this.share(slot);
    this.snapshots.set(block, slot);
  }

  /** The slot with the state at the end of a block, if it is still there. */
  at(block: number): number | undefined {
    const slot = this.snapshots.get(block);
    if (slot === undefined) return undefined;
    this.snapshots.delete(block);
    this.snapshots.set(block, slot);
    return slot;
  }

  /** Another content will be in the block. */
  forget(block: number): void {
    const slot = this.snapshots.get(block);
    if (slot === undefined) return;
    this.snapshots.delete(block);
    this.release(slot);
  }

  /** Gives the memory back. Only where no sequence has a slot. */
  clear(): void {
    this.snapshots.clear();
    this.references.length = 0;
    this.empty.length = 0;
    this.releaseMemory();
  }

  /** Gives the memory back; sequences are of no use afterwards. */
  dispose(): void {
    this.disposed = true;
    this.releaseMemory();
  }

  /** Makes a slot empty that only a snapshot has. */
  private dropSnapshot(): boolean {
    for (const [block, slot] of this.snapshots) {
      if (this.references[slot] > 1) continue;
      this.forget(block);
      return true;
    }
    return false;
  }

  private releaseMemory(): void {
    this.generation++;
    for (const layer of this.layers) for (const states of Object.values(layer ?? {})) states.dispose();
    this.layers.fill(undefined);
  }

  private grow(): void {
    if (this.disposed) throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
    const count = this.references.length;
    // Doubling may be more than there is room for where a little more would fit.
    for (let slots = Math.max(FIRST_SLOTS, 2 * count); ; slots = count + Math.floor((slots - count) / 2)) {
      try {
        this.resize(slots);
        for (let slot = slots - 1; slot >= count; slot--) this.empty.push(slot);
        this.references.push(...new Array<number>(slots - count).fill(0));
        return;
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error;
        if (slots - count <= 1) throw this.full(error);
      }
    }
  }

  /** Layer by layer: what does not fit leaves some layers with more slots than are in use. */
  private resize(slots: number): void {
    const { device } = this;
    for (const [i, layout] of this.layouts.entries()) {
      const old = this.layers[i];
      if (!layout || (old && Object.values(old).every((states) => states.dim(0) >= slots))) continue;
      const grown = scope(() => {
        const made: Record<string, Tensor> = {};
        for (const [name, shape] of Object.entries(layout)) {
          made[name] = Tensor.zeros([slots, ...shape], { device });
          if (old) made[name].narrow(0, 0, old[name].dim(0)).copyFrom(old[name]);
        }
        for (const states of Object.values(made)) keep(states);
        return made;
      });
      this.generation++;
      this.layers[i] = grown;
      for (const states of Object.values(old ?? {})) states.dispose();
    }
  }

  private full(cause: unknown): TransformersError {
    const { slots, bytes } = this.stats;
    return new TransformersError(
      'CACHE_FULL',
      `The states of ${slots} sequences and steps (${Math.round(bytes / 2 ** 20)} MiB) are in use and ${this.device} has no memory ` +
        'for more. Run fewer sequences at once.',
      { cause },
    );
  }
}
