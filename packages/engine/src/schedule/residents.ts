/**
 * The sequences of a model and who of them has room in its cache. Where that is full, sequences that nobody waits for give up their
 * blocks, then those that came last; what was given up is computed again from the tokens.
 */
import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TransformersError } from '@x/transformers';
import type { SequenceCache } from '../kv/sequence-cache';

/**
 * What a sequence is doing: nothing that anyone waits for, waiting for room or a step, or part of a pass. One that is kept
 * is never taken from, and never ends; one that is held is not taken from until it ends, which others wait for.
 */
type State = 'idle' | 'waiting' | 'running' | 'held' | 'kept';

/** One that nobody waited for during this time gives up its blocks to those that came after it, too. */
const IDLE_MS = 1000;

export class Residents {
  /** In the order in which they came. */
  private readonly sequences = new Map<SequenceCache, { state: State; since: number }>();
  private changed = deferred();

  /** @param isKept it never gives up its blocks for others */
  add(cache: SequenceCache, isKept: boolean): void {
    this.sequences.set(cache, { state: isKept ? 'kept' : 'idle', since: performance.now() });
  }

  remove(cache: SequenceCache): void {
    this.sequences.delete(cache);
  }

  /** Undefined for one that is not there. */
  stateOf(cache: SequenceCache): State | undefined {
    return this.sequences.get(cache)?.state;
  }

  /** For sorting by who came first. */
  get places(): Map<SequenceCache, number> {
    return new Map([...this.sequences.keys()].map((cache, i) => [cache, i]));
  }

  /** What it has is its own until it is removed. */
  hold(cache: SequenceCache): void {
    this.set(cache, 'held');
  }

  /** Unless the sequence was closed meanwhile, or is kept or held. */
  set(cache: SequenceCache, state: State): void {
    const entry = this.sequences.get(cache);
    if (entry === undefined || entry.state === 'kept' || entry.state === 'held') return;
    entry.state = state;
    entry.since = performance.now();
  }

  /** Wakes those who wait for a change: of who has which blocks. */
  report(): void {
    this.changed.resolve();
    this.changed = deferred();
  }

  /** Until the next {@link report}, a signal is aborted, or a sequence may have become idle. */
  async change(signals: readonly (AbortSignal | undefined)[]): Promise<void> {
    const { promise, resolve } = this.changed;
    for (const signal of signals) signal?.addEventListener('abort', resolve, { once: true });
    const timer = setTimeout(resolve, IDLE_MS);
    await promise;
    clearTimeout(timer);
    for (const signal of signals) signal?.removeEventListener('abort', resolve);
    // Who was idle for the moment asks for the next step before anyone takes its blocks.
    await nextTurn();
  }

  /**
   * Takes blocks for `length` positions of a sequence, others' where there are no more.
   * @returns false when it has to wait for others @throws TransformersError CACHE_FULL when nobody else could make room
   */
  makeRoom(cache: SequenceCache, length: number): boolean {
    for (;;) {
      const full = this.take(cache, length);
      if (!full) return true;
      const victim = this.victim(cache);
      if (victim) victim.evict();
      else if (this.isOtherAtWork(cache)) return false;
      else throw full;
    }
  }

  /** Takes blocks for `length` positions of a sequence, nobody else's. Returns the error where there are no more. */
  take(cache: SequenceCache, length: number): TransformersError | undefined {
    try {
      if (cache.capacity === 0) cache.adopt(cache.tokens);
      cache.reserve(length);
      return undefined;
    } catch (error) {
      if (error instanceof TransformersError && error.code === 'CACHE_FULL') return error;
      throw error;
    }
  }

  /** Whose blocks to take for a sequence: those of one that nobody waits for, or of the last that came after it. */
  private victim(cache: SequenceCache): SequenceCache | undefined {
    const all = [...this.sequences];
    const position = all.findIndex(([other]) => other === cache);
    const younger = all.slice(position + 1).filter(([other, { state }]) => {
      return other.capacity > 0 && (state === 'idle' || state === 'waiting');
    });
    const now = performance.now();
    const unwanted = all.find(([other, { state, since }]) => {
      return other !== cache && other.capacity > 0 && state === 'idle' && now - since >= IDLE_MS;
    });
    return (unwanted ?? younger.at(-1))?.[0];
  }

  /** Whether a sequence that will go on, or become idle for good, holds blocks. */
  private isOtherAtWork(cache: SequenceCache): boolean {
    return [...this.sequences].some(([other, { state }]) => other !== cache && other.capacity > 0 && state !== 'kept');
  }
}

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
