/**
 * Memory of a key-value cache on a device: the keys and values of all blocks and the states of all slots, without any notion of
 * whose they are. A {@link KvPool} decides; where a model is computed by several ranks, each has such a memory and changes it as
 * the leader does.
 */
import { type Device, scope } from '@x/core';
import type { PagedCache } from '@x/nn';
import type { KvLayout, StateLayout } from '@x/transformers';
import type { MemoryChange } from './change';
import { BLOCK_SIZE, type CacheDType, disposeRows, makeRows, positionBytesOf, rowsOf } from './rows';
import { StateMemory } from './state-memory';

export class KvMemory {
  /** Of recurrent layers, of models that have some. */
  readonly states: StateMemory | undefined;
  /** Rows of the tiles in which the device computes attention of all prompts of a pass at once; undefined: it does so in no layer. */
  readonly varlenRows: number | undefined;
  private readonly layers: (PagedCache | undefined)[];
  private generation = 0;

  /** @param changed called after each change */
  constructor(
    readonly layouts: readonly (KvLayout | undefined)[],
    readonly device: Device,
    readonly dtype: CacheDType,
    stateLayouts: readonly (StateLayout | undefined)[] = [],
    private readonly changed: (change: MemoryChange) => void = () => {},
  ) {
    this.layers = layouts.map(() => undefined);
    // On the host products of matrices are faster.
    const kernels = device.kind === 'cpu' ? undefined : device.backend.pagedAttention;
    const rows = layouts.map((layout) => layout && kernels?.varlenRows(dtype, layout.keyDim, layout.valueDim));
    this.varlenRows = rows.find((own) => own !== undefined);
    if (stateLayouts.some((layout) => layout)) this.states = new StateMemory(stateLayouts, device, changed);
  }

  /** Changes when the memory does: what was captured before is of no use then. */
  get version(): number {
    return this.generation + (this.states?.version ?? 0);
  }

  /** Bytes of a block, all layers together. */
  get blockBytes(): number {
    return positionBytesOf(this.layouts, this.dtype) * BLOCK_SIZE;
  }

  /** Whether any layer keeps keys and values. */
  get hasBlocks(): boolean {
    return this.layouts.some((layout) => layout);
  }

  /** The blocks of one layer; others after {@link version} changed. */
  layer(index: number): PagedCache {
    const layer = this.layers[index];
    if (!layer) throw new Error('internal: the pool has no blocks; SequenceCache.reserve comes first');
    return layer;
  }

  /** Makes a change that another rank's memory reported. */
  apply(change: MemoryChange): void {
    if (change.kind === 'blocks') this.resize(change.count);
    else if (change.kind === 'copy') this.copy(change.from, change.to);
    else if (change.kind === 'release') this.release();
    else if (change.kind === 'slots') this.states!.resize(change.count);
    else this.states!.release();
  }

  /**
   * Room for so many blocks; what blocks held stays. Layer by layer: what does not fit leaves some layers with more blocks than
   * were there. @throws OutOfMemoryError
   */
  resize(blocks: number): void {
    for (const [i, layout] of this.layouts.entries()) {
      const old = this.layers[i];
      if (!layout || (old && old.keys.dim(0) >= blocks * BLOCK_SIZE)) continue;
      const made = makeRows(layout, this.dtype, this.device, blocks, old);
      this.generation++;
      this.layers[i] = made;
      if (old) disposeRows(old);
    }
    this.changed({ kind: 'blocks', count: blocks });
  }

  /** Copies what a block holds to another one. */
  copy(from: number, to: number): void {
    scope(() => {
      for (const [i, layer] of this.layers.entries()) {
        if (!layer) continue;
        for (const [, rows] of rowsOf(this.layouts[i]!, layer)) {
          const source = rows.narrow(0, from * BLOCK_SIZE, BLOCK_SIZE).copy();
          rows.narrow(0, to * BLOCK_SIZE, BLOCK_SIZE).copyFrom(source);
        }
      }
    });
    this.changed({ kind: 'copy', from, to });
  }

  /** Gives the memory of all blocks back; that of states stays. */
  release(): void {
    this.generation++;
    for (const layer of this.layers) if (layer) disposeRows(layer);
    this.layers.fill(undefined);
    this.changed({ kind: 'release' });
  }

  /** Gives all memory back. */
  dispose(): void {
    this.release();
    this.states?.release();
  }
}
