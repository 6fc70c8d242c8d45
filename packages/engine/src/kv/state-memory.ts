/** Memory of the states of recurrent layers on a device: slots, without any notion of whose they are. */
import { type Device, keep, scope, Tensor } from '@x/core';
import type { StateLayout } from '@x/transformers';
import type { MemoryChange } from './change';

export class StateMemory {
  private readonly layers: (Readonly<Record<string, Tensor>> | undefined)[];
  private generation = 0;

  /** @param layouts of each layer, undefined for those without a state @param changed called after each change */
  constructor(
    private readonly layouts: readonly (StateLayout | undefined)[],
    readonly device: Device,
    private readonly changed: (change: MemoryChange) => void = () => {},
  ) {
    this.layers = layouts.map(() => undefined);
  }

  /** Changes when the memory does. */
  get version(): number {
    return this.generation;
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

  /**
   * Room for so many slots; what slots held stays. Layer by layer: what does not fit leaves some layers with more slots than are
   * in use. @throws OutOfMemoryError
   */
  resize(slots: number): void {
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
    this.changed({ kind: 'slots', count: slots });
  }

  /** Gives the memory of all slots back. */
  release(): void {
    this.generation++;
    for (const layer of this.layers) for (const states of Object.values(layer ?? {})) states.dispose();
    this.layers.fill(undefined);
    this.changed({ kind: 'releaseSlots' });
  }
}
