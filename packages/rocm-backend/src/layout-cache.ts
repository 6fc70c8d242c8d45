/**
 * Values by the content of dims and strides: what a view needs on the device is worked out, and uploaded, once for all
 * views that are laid out alike; a convolution's plan by its sizes in the same way. Numbers are hashed as they are; a
 * string of them as a key costs more than a launch.
 */
type Numbers = readonly number[];

interface Entry<T> {
  readonly dims: Numbers;
  readonly strideSets: readonly Numbers[];
  readonly value: T;
  /** When it was last found. */
  used: number;
}

/** A growing KV cache makes a new layout per token, so old ones must go. */
const MAX_ENTRIES = 2048;

export class LayoutCache<T> {
  readonly #entries = new Map<number, Entry<T>>();
  readonly #dropped: (value: T) => void;
  readonly #most: number;
  #clock = 0;

  /**
   * @param dropped takes leave of a value that the cache gives up
   * @param most entries kept
   */
  constructor(dropped: (value: T) => void = () => {}, most = MAX_ENTRIES) {
    this.#dropped = dropped;
    this.#most = most;
  }

  /** In the order they came. */
  values(): T[] {
    return Array.from(this.#entries.values(), ({ value }) => value);
  }

  find(dims: Numbers, strideSets: readonly Numbers[]): T | undefined {
    const entry = this.#entries.get(hashOf(dims, strideSets));
    if (entry === undefined || !isFor(entry, dims, strideSets)) return undefined;
    entry.used = ++this.#clock;
    return entry.value;
  }

  /** Takes a value for what `find` does not find, or in the place of what it does. */
  add(dims: Numbers, strideSets: readonly Numbers[], value: T): T {
    if (this.#entries.size >= this.#most) this.#dropOldest();
    const hash = hashOf(dims, strideSets);
    // Of two with one hash the later one stays: that is rare and only costs the work again.
    const other = this.#entries.get(hash);
    if (other) this.#dropped(other.value);
    this.#entries.set(hash, { dims, strideSets, value, used: ++this.#clock });
    return value;
  }

  clear(): void {
    for (const { value } of this.#entries.values()) this.#dropped(value);
    this.#entries.clear();
  }

  /** The half that was not used for longest, so that looking for it is rare. */
  #dropOldest(): void {
    const oldest = [...this.#entries].sort(([, a], [, b]) => a.used - b.used).slice(0, this.#most / 2);
    for (const [hash, { value }] of oldest) {
      this.#entries.delete(hash);
      this.#dropped(value);
    }
  }
}

/** FNV-1a over 32-bit halves, as a small integer. */
function hashOf(dims: Numbers, strideSets: readonly Numbers[]): number {
  let hash = mix(0x811c9dc5, dims.length);
  for (let i = 0; i < dims.length; i++) hash = mix(hash, dims[i]);
  for (let s = 0; s < strideSets.length; s++) {
    const strides = strideSets[s];
    for (let i = 0; i < strides.length; i++) hash = mix(hash, strides[i]);
  }
  return (hash ^ (hash >>> 15)) & 0x3fffffff;
}

function mix(hash: number, value: number): number {
  const low = Math.imul(hash ^ value, 0x01000193);
  return value < 4294967296 ? low : Math.imul(low ^ (value / 4294967296), 0x01000193);
}

function isFor(entry: Entry<unknown>, dims: Numbers, strideSets: readonly Numbers[]): boolean {
  if (entry.strideSets.length !== strideSets.length || !equal(entry.dims, dims)) return false;
  for (let s = 0; s < strideSets.length; s++) if (!equal(entry.strideSets[s], strideSets[s])) return false;
  return true;
}

function equal(a: Numbers, b: Numbers): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
