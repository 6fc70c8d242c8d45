/**
 * Experts whose weights are in host memory. The device has room for some of each layer, in slots: those used last, which the
 * next tokens are likely to use again. Which experts tokens chose is read back, and those that are missing are copied into the
 * slots of those used longest ago, in the order of the device's stream; kernels see a mixture of as many experts as there are
 * slots. A pass whose tokens may choose more experts than that goes through them in rounds; one of fewer tokens may be captured,
 * in parts between which the host does this.
 */
import { TransformersError } from '../errors';
import type { ExpertLinear } from './expert-linear';

/** What a model with experts in host memory has where, and how often an expert was on the device when it was wanted. */
export interface ExpertStats {
  /** Layers with experts. */
  layers: number;
  /** Experts of a layer. */
  experts: number;
  /** Experts of a layer that the device has room for. */
  hotExperts: number;
  /** Bytes of all experts on the host. */
  hostBytes: number;
  /** Of them those in page-locked memory, from which the device copies by itself: several times as fast. */
  pinnedBytes: number;
  /** Bytes of the slots on the device. */
  deviceBytes: number;
  /** Experts that were wanted and were there: each counts once a layer and pass, whatever the number of tokens. */
  hits: number;
  /** Experts that were copied to the device. */
  uploads: number;
  uploadedBytes: number;
}

/** Those of a model: what its layers report to. */
export class HostExperts {
  private readonly layers: HotExperts[] = [];
  private rows = Number.POSITIVE_INFINITY;

  /** @param slots of each layer */
  constructor(private readonly slots: number) {}

  /** Whether any layer has experts. */
  get areThere(): boolean {
    return this.layers.length > 0;
  }

  /** Tokens whose experts have slots whatever they choose. */
  get tokensAtOnce(): number {
    return this.rows;
  }

  get stats(): ExpertStats {
    const sum = (count: (layer: HotExperts) => number) => this.layers.reduce((all, layer) => all + count(layer), 0);
    return {
      layers: this.layers.length,
      experts: this.layers[0]?.experts ?? 0,
      hotExperts: this.layers[0]?.slots ?? 0,
      hostBytes: sum(({ expertBytes, experts }) => expertBytes * experts),
      pinnedBytes: sum(({ pinnedBytes }) => pinnedBytes),
      deviceBytes: sum(({ expertBytes, slots }) => expertBytes * slots),
      hits: sum(({ hits }) => hits),
      uploads: sum(({ uploads }) => uploads),
      uploadedBytes: sum(({ uploads, expertBytes }) => uploads * expertBytes),
    };
  }

  /**
   * Slots of a layer: no more than it has experts.
   * @throws TransformersError INVALID_OPTION for fewer than a token takes
   */
  slotsOf(experts: number, chosen: number): number {
    const slots = Math.min(this.slots, experts);
    if (slots >= chosen) {
      this.rows = Math.min(this.rows, slots === experts ? this.rows : Math.floor(slots / chosen));
      return slots;
    }
    throw new TransformersError(
      'INVALID_OPTION',
      `hotExperts is ${this.slots} and each token takes ${chosen} of ${experts} experts; give ${chosen} or more.`,
      { option: 'hotExperts' },
    );
  }

  /** A layer that was loaded. @param parts all that its experts have, in as many slots each */
  add(experts: number, slots: number, parts: readonly ExpertLinear[]): HotExperts {
    const layer = new HotExperts(experts, slots, parts);
    this.layers.push(layer);
    return layer;
  }
}

/** Those of a layer. */
export class HotExperts {
  hits = 0;
  uploads = 0;
  /** Bytes of an expert. */
  readonly expertBytes: number;
  /** By expert; undefined for one that is not on the device. */
  private readonly slotOf: (number | undefined)[];
  private readonly expertOf: (number | undefined)[];
  /** By slot: the round in which it was last used; 0 before the first. */
  private readonly lastUsed: number[];
  private round = 0;

  constructor(
    readonly experts: number,
    readonly slots: number,
    private readonly parts: readonly Pick<ExpertLinear, 'expertBytes' | 'pinnedBytes' | 'put'>[],
  ) {
    this.expertBytes = parts.reduce((sum, part) => sum + part.expertBytes, 0);
    this.slotOf = new Array(experts).fill(undefined);
    this.expertOf = new Array(slots).fill(undefined);
    this.lastUsed = new Array(slots).fill(0);
  }

  /** Of all experts on the host, those bytes that are page-locked. */
  get pinnedBytes(): number {
    return this.parts.reduce((sum, part) => sum + part.pinnedBytes, 0);
  }

  /** The experts that are wanted, no more at once than there are slots; those that are there come first. */
  rounds(wanted: ArrayLike<number>): number[][] {
    const all = [...new Set(Array.from(wanted))];
    const isHot = (expert: number) => this.slotOf[expert] !== undefined;
    const ordered = [...all.filter(isHot), ...all.filter((expert) => !isHot(expert))];
    const count = Math.ceil(ordered.length / this.slots);
    return Array.from({ length: count }, (_, i) => ordered.slice(i * this.slots, (i + 1) * this.slots));
  }

  /**
   * Brings experts to the device, no more different ones than there are slots, where they stay until the next call.
   * @returns the slot of each
   */
  bring(wanted: ArrayLike<number>): Uint32Array {
    const now = ++this.round;
    for (let i = 0; i < wanted.length; i++) {
      const slot = this.slotOf[wanted[i]];
      if (slot === undefined || this.lastUsed[slot] === now) continue;
      this.lastUsed[slot] = now;
      this.hits++;
    }
    return Uint32Array.from(wanted, (expert) => this.slotOf[expert] ?? this.replace(this.oldest(), expert, now));
  }

  private replace(slot: number, expert: number, now: number): number {
    const before = this.expertOf[slot];
    // A copy that fails leaves neither there.
    if (before !== undefined) this.slotOf[before] = undefined;
    this.expertOf[slot] = undefined;
    for (const part of this.parts) part.put(slot, expert);
    this.slotOf[expert] = slot;
    this.expertOf[slot] = expert;
    this.lastUsed[slot] = now;
    this.uploads++;
    return slot;
  }

  private oldest(): number {
    let oldest = 0;
    for (let slot = 1; slot < this.slots; slot++) if (this.lastUsed[slot] < this.lastUsed[oldest]) oldest = slot;
    return oldest;
  }
}
