/**
 * Which tokens may come next. A token is tried byte by byte down the tree of the vocabulary; what stays inside of one terminal
 * depends on the place in the terminal alone and is worked out once for it. The ends of the terminal are noted with it: only
 * tokens that go on behind them depend on the stack.
 */

import { InsideFinder } from './inside';
import type { Expression, Expressions } from './regular/expression';
import type { Frames, TextBetween, Thread } from './syntax/frames';
import type { Vocabulary } from './vocabulary';

/** What one mask is made of. */
interface Reach {
  readonly mask: Uint32Array;
  readonly position: number;
  readonly text: TextBetween;
  /** Threads that began at nodes, as numbers. */
  readonly entered: Set<number>;
}

/** Bytes of masks that are kept for a grammar and a vocabulary. */
const MOST_BYTES = 2 ** 24;

export class Masks {
  private readonly inside: InsideFinder;
  private readonly known = new Map<string, Uint32Array>();
  private readonly firsts = new WeakMap<readonly Thread[], Uint8Array>();
  private readonly states: Expression[] = [];
  private readonly words: number;

  constructor(
    private readonly make: Expressions,
    private readonly frames: Frames,
    readonly vocabulary: Vocabulary,
  ) {
    this.inside = new InsideFinder(make, vocabulary);
    this.words = Math.ceil(vocabulary.size / 32);
  }

  /**
   * The mask for a text that is read in these ways; not to be written to.
   * @param position bytes of the text so far
   */
  of(threads: readonly Thread[], position: number, text: TextBetween): Uint32Array {
    // Where an item began is not in the way a mask is made, but its text is what later ones are compared with.
    const isFixed = threads.every(({ start }) => start <= 0);
    const key = isFixed ? threads.map(({ id }) => id).join(',') : '';
    const known = isFixed ? this.known.get(key) : undefined;
    if (known) {
      this.known.delete(key);
      this.known.set(key, known);
      return known;
    }
    this.make.startWork();
    const mask = this.compute(threads, position, text);
    if (isFixed) this.known.set(key, mask);
    this.limit();
    return mask;
  }

  private compute(threads: readonly Thread[], position: number, text: TextBetween): Uint32Array {
    const mask = new Uint32Array(this.words);
    const all = new Set(threads);
    for (const thread of all) {
      if (!thread.state.nullable) continue;
      for (const next of this.frames.after(thread, position, text)) all.add(next);
    }
    const reach: Reach = { mask, position, text, entered: new Set() };
    let isUntouched = true;
    for (const thread of all) {
      const inside = this.inside.of(thread.state);
      if (inside.mask && isUntouched) mask.set(inside.mask);
      else if (inside.mask) for (let i = 0; i < mask.length; i++) mask[i] |= inside.mask[i];
      else for (const id of inside.ids!) mask[id >>> 5] |= 1 << (id & 31);
      this.leave(this.frames.begun(thread, thread.state, position), inside.exits, reach);
      isUntouched = false;
    }
    if (threads.some(({ canEnd }) => canEnd)) for (const id of this.vocabulary.endIds) mask[id >>> 5] |= 1 << (id & 31);
    return mask;
  }

  /** Adds the tokens below nodes where a thread's terminal may end. */
  private leave(thread: Thread, exits: Int32Array | readonly number[], reach: Reach): void {
    if (exits.length === 0) return;
    const { frames, vocabulary } = this;
    const { position, text } = reach;
    if (typeof thread.frame.list?.at !== 'number') {
      const threads = frames.after(thread, position, text);
      const firsts = this.firstBytes(threads);
      for (const node of exits) this.enterBelow(threads, firsts, node, reach);
      return;
    }
    // Set for an item around this one, perhaps.
    let { isOpenText } = frames;
    frames.isOpenText = false;
    const whatever = frames.afterAnyItem(thread);
    const isOpenAtOnce = frames.isOpenText;
    const firsts = this.firstBytes(whatever);
    for (const node of exits) {
      frames.isOpenText = isOpenAtOnce;
      this.enterBelow(whatever, firsts, node, reach);
      if (!frames.isOpenText) continue;
      frames.isOpenText = false;
      const between: TextBetween = (from, to) => joined(from, to, position, text, vocabulary.path(node));
      const threads = frames.after(thread, position + vocabulary.depth[node] + 1, between);
      this.enterBelow(threads, this.firstBytes(threads), node, reach);
      isOpenText ||= frames.isOpenText;
    }
    frames.isOpenText = isOpenText;
  }

  private enterBelow(threads: readonly Thread[], firsts: Uint8Array, node: number, reach: Reach): void {
    const { byte, end } = this.vocabulary;
    const last = end[node];
    for (let child = node + 1; child < last; child = end[child]) {
      if (firsts[byte[child]] === 0) continue;
      for (const next of threads) this.enter(next, child, reach);
    }
  }

  /** Adds the tokens at and below a node whose last byte is the first of a thread that begins there. */
  private enter(thread: Thread, node: number, reach: Reach): void {
    const { make, states, vocabulary } = this;
    const { byte, depth, end, first, ids, nodes } = vocabulary;
    const place = thread.id * nodes + node;
    if (reach.entered.has(place)) return;
    reach.entered.add(place);
    const exits: { state: Expression; node: number }[] = [];
    states[depth[node]] = thread.state;
    for (let i = node; i < end[node]; ) {
      const state = make.step(states[depth[i]], byte[i]);
      if (state.kind === 'empty') {
        i = end[i];
        continue;
      }
      states[depth[i] + 1] = state;
      for (let t = first[i]; t < first[i + 1]; t++) reach.mask[ids[t] >>> 5] |= 1 << (ids[t] & 31);
      if (state.nullable && end[i] > i + 1) exits.push({ state, node: i });
      i++;
    }
    // Behind the loop, because it uses the same states.
    for (const { state, node: at } of exits)
      this.leave(this.frames.begun(thread, state, reach.position + depth[node]), [at], reach);
  }

  /** By byte: 1 where any of the threads may begin with it. */
  private firstBytes(threads: readonly Thread[]): Uint8Array {
    let firsts = this.firsts.get(threads);
    if (firsts) return firsts;
    firsts = new Uint8Array(256);
    for (const { state } of threads)
      for (let byte = 0; byte < 256; byte++) if (this.make.step(state, byte).kind !== 'empty') firsts[byte] = 1;
    this.firsts.set(threads, firsts);
    return firsts;
  }

  /** Forgets masks that were used longest ago where there is too much. */
  private limit(): void {
    if (this.inside.bytes > MOST_BYTES) this.inside.clear();
    for (const [key, { byteLength }] of this.known) {
      if (this.known.size * byteLength <= MOST_BYTES) return;
      this.known.delete(key);
    }
  }
}

function joined(from: number, to: number, position: number, text: TextBetween, path: Uint8Array): Buffer {
  const before = from < position ? [text(from, position)] : [];
  return Buffer.concat([...before, path.subarray(Math.max(0, from - position), to - position)]);
}
