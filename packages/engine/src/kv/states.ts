/**
 * States of fixed size that recurrent layers carry from token to token, in slots. What a slot holds never changes once a pass
 * has come to its end: a pass reads one slot of a sequence and writes another, so that one that fails changes nothing, and
 * forks share a slot as sequences share blocks. A state can only be taken up where it was kept: at ends of blocks where a pass
 * ended, as snapshots, of which those used longest ago give their slots back when there are no others.
 */
import { type Device, DisposedError, OutOfMemoryError, type Tensor } from '@x/core';
import { type StateLayout, TransformersError } from '@x/transformers';
import { StateMemory } from './state-memory';

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
  private disposed = false;

  /** @param layouts of each layer, undefined for those without a state */
  constructor(
    layouts: readonly (StateLayout | undefined)[],
    device: Device,
    private readonly memory = new StateMemory(layouts, device),
  ) {}

  /** Changes when the memory does. */
  get version(): number {
    return this.memory.version;
  }

  /** Bytes of a slot, all layers together. */
  get slotBytes(): number {
    return this.memory.slotBytes;
  }

  get stats(): StateStats {
    const slots = this.references.length;
    return { used: slots - this.empty.length, slots, bytes: slots * this.slotBytes };
  }

  /** The states of one layer by their names, [slots, ...shape]; undefined for a layer without. */
  layer(index: number): Readonly<Record<string, Tensor>> | undefined {
    return this.memory.layer(index);
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
    this.memory.release();
  }

  /** Gives the memory back; sequences are of no use afterwards. */
  dispose(): void {
    this.disposed = true;
    this.memory.release();
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

  private grow(): void {
    if (this.disposed) throw new DisposedError('DISPOSED', 'forward: the model was disposed; load it again.');
    const count = this.references.length;
    // Doubling may be more than there is room for where a little more would fit.
    for (let slots = Math.max(FIRST_SLOTS, 2 * count); ; slots = count + Math.floor((slots - count) / 2)) {
      try {
        this.memory.resize(slots);
        for (let slot = slots - 1; slot >= count; slot--) this.empty.push(slot);
        this.references.push(...new Array<number>(slots - count).fill(0));
        return;
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error;
        if (slots - count <= 1) throw this.full(error);
      }
    }
  }

  private full(cause: unknown): TransformersError {
    const { slots, bytes } = this.stats;
    return new TransformersError(
      'CACHE_FULL',
      `The states of ${slots} sequences and steps (${Math.round(bytes / 2 ** 20)} MiB) are in use and ${this.memory.device} has no memory ` +
        'for more. Run fewer sequences at once.',
      { cause },
    );
  }
}
