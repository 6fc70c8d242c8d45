/**
 * Which tokens may come next. A token is tried byte by byte down the tree of the vocabulary; what stays inside of one terminal
 * depends on the place in the terminal alone and is worked out once for it. The ends of the terminal are noted with it: only
 * tokens that go on behind them depend on the stack, and those on the part of it that they reach, by which they are remembered.
 */

import { InsideFinder } from './inside';
import { type Expression, type Expressions, has } from './regular/expression';
import type { Frame, Frames, TextBetween, Thread } from './syntax/frames';
import type { Vocabulary } from './vocabulary';

/** Tokens that go on behind ends of a terminal. */
interface Behind {
  /** Equal for the same tokens; undefined where they depend on the text and not on the stack alone. */
  readonly id: number | undefined;
  readonly tokens: Int32Array;
}

/** {@link Behind} by the parts of a stack, from the top as far down as it depends on them. */
interface Stacks {
  behind: Behind | undefined;
  readonly below: Map<number, Stacks>;
}

/** What {@link Behind} is found with. */
interface Reach {
  readonly tokens: number[];
  readonly position: number;
  readonly text: TextBetween;
  /** Threads that began at nodes, as numbers. */
  readonly entered: Set<number>;
  /** Whether anything depends on the text before. */
  isOfText: boolean;
}

/** Bytes of masks that are kept for a grammar and a vocabulary, once by threads and once by what they are made of. */
const MOST_BYTES = 2 ** 23;
/** Tokens kept in {@link Behind}. */
const MOST_TOKENS = 2 ** 20;
const NOTHING: Behind = { id: 0, tokens: new Int32Array() };

let ids = 0;

export class Masks {
  private readonly inside: InsideFinder;
  /** Masks by the threads, and by the places in terminals and what is behind them. */
  private readonly known = new RecentMasks();
  private readonly made = new RecentMasks();
  /** By the ends of a terminal. */
  private stacks = new WeakMap<Int32Array, Stacks>();
  private behindTokens = 0;
  private readonly firsts = new WeakMap<readonly Thread[] | Expression, Uint32Array>();
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
   * @param canEnd whether it may end here, which an empty text may without a thread that says so
   */
  of(threads: readonly Thread[], position: number, text: TextBetween, canEnd: boolean): Uint32Array {
    // Where an item began is not in the way a mask is made, but its text is what later ones are compared with.
    const isFixed = threads.every(({ start }) => start <= 0);
    const key = isFixed ? `${canEnd} ${threads.map(({ id }) => id).join()}` : '';
    const known = isFixed ? this.known.get(key) : undefined;
    if (known) return known;
    this.make.startWork();
    const mask = this.compute(threads, position, text, canEnd);
    if (isFixed) this.known.set(key, mask);
    if (this.inside.bytes > 2 * MOST_BYTES) this.inside.clear();
    return mask;
  }

  private compute(threads: readonly Thread[], position: number, text: TextBetween, canEnd: boolean): Uint32Array {
    const all = new Set(threads);
    for (const thread of all) {
      if (!thread.state.nullable) continue;
      for (const next of this.frames.after(thread, position, text)) all.add(next);
    }
    const parts = Array.from(all, (thread) => {
      const inside = this.inside.of(thread.state);
      return { state: thread.state, inside, behind: this.behind(thread, inside.exits, position, text) };
    });
    const isLasting = parts.every(({ behind }) => behind.id !== undefined);
    const key = isLasting ? `${canEnd} ${parts.map(({ state, behind }) => `${state.id},${behind.id}`).join()}` : '';
    const made = isLasting ? this.made.get(key) : undefined;
    if (made) return made;
    const mask = new Uint32Array(this.words);
    parts.forEach(({ inside, behind }, at) => {
      if (inside.mask && at === 0) mask.set(inside.mask);
      else if (inside.mask) for (let i = 0; i < mask.length; i++) mask[i] |= inside.mask[i];
      else add(inside.ids!, mask);
      add(behind.tokens, mask);
    });
    if (canEnd) add(this.vocabulary.endIds, mask);
    if (isLasting) this.made.set(key, mask);
    return mask;
  }

  /** The tokens below nodes where a thread's terminal may end, as they were found for a stack that is the same as far as they go. */
  private behind(thread: Thread, exits: Int32Array, position: number, text: TextBetween): Behind {
    if (exits.length === 0) return NOTHING;
    const { frames } = this;
    let stacks = this.stacks.get(exits);
    let frame: Frame | undefined = thread.frame;
    for (let level = 2 * frame.depth + 1; stacks && frame; level--) {
      if (stacks.behind) return stacks.behind;
      stacks = stacks.below.get(frames.part(frame, level));
      if (level % 2 === 0) frame = frame.next;
    }
    if (stacks?.behind) return stacks.behind;
    const reach: Reach = { tokens: [], position, text, entered: new Set(), isOfText: false };
    frames.isOpenText = false;
    frames.lowest = Number.POSITIVE_INFINITY;
    this.leave(frames.begun(thread, thread.state, position), exits, reach);
    const tokens = Int32Array.from(new Set(reach.tokens));
    if (reach.isOfText) return { id: undefined, tokens };
    const behind = tokens.length === 0 ? NOTHING : { id: ++ids, tokens };
    this.remember(behind, thread.frame, exits);
    return behind;
  }

  private remember(behind: Behind, top: Frame, exits: Int32Array): void {
    const { frames } = this;
    this.behindTokens += behind.tokens.length + 16;
    if (this.behindTokens > MOST_TOKENS) {
      this.stacks = new WeakMap();
      this.behindTokens = 0;
    }
    let stacks = this.stacks.get(exits) ?? { behind: undefined, below: new Map() };
    this.stacks.set(exits, stacks);
    let frame: Frame | undefined = top;
    for (let level = 2 * top.depth + 1; level >= frames.lowest && frame; level--) {
      const part = frames.part(frame, level);
      const next: Stacks = stacks.below.get(part) ?? { behind: undefined, below: new Map() };
      stacks.below.set(part, next);
      stacks = next;
      if (level % 2 === 0) frame = frame.next;
    }
    stacks.behind = behind;
  }

  /** Adds the tokens below nodes where a thread's terminal may end. */
  private leave(thread: Thread, exits: Int32Array | readonly number[], reach: Reach): void {
    if (exits.length === 0) return;
    const { frames, vocabulary } = this;
    const { position, text } = reach;
    frames.touch(thread.frame);
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
      if (thread.start < position) reach.isOfText = true;
      frames.lowest = Math.min(frames.lowest, 2 * thread.frame.depth);
      const between: TextBetween = (from, to) => joined(from, to, position, text, vocabulary.path(node));
      const threads = frames.after(thread, position + vocabulary.depth[node] + 1, between);
      this.enterBelow(threads, this.firstBytes(threads), node, reach);
      isOpenText ||= frames.isOpenText;
    }
    frames.isOpenText = isOpenText;
  }

  private enterBelow(threads: readonly Thread[], firsts: Uint32Array, node: number, reach: Reach): void {
    const { byte, end } = this.vocabulary;
    const last = end[node];
    for (let child = node + 1; child < last; child = end[child]) {
      if (!has(firsts, byte[child])) continue;
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
      for (let t = first[i]; t < first[i + 1]; t++) reach.tokens.push(ids[t]);
      if (state.nullable && end[i] > i + 1) exits.push({ state, node: i });
      i++;
    }
    // Behind the loop, because it uses the same states.
    for (const { state, node: at } of exits)
      this.leave(this.frames.begun(thread, state, reach.position + depth[node]), [at], reach);
  }

  /** The bytes that any of the threads may begin with, as 256 bits. */
  private firstBytes(threads: readonly Thread[]): Uint32Array {
    let firsts = this.firsts.get(threads);
    if (firsts) return firsts;
    firsts = new Uint32Array(8);
    for (const { state } of threads) {
      const own = this.firstBytesOf(state);
      for (let i = 0; i < own.length; i++) firsts[i] |= own[i];
    }
    this.firsts.set(threads, firsts);
    return firsts;
  }

  private firstBytesOf(state: Expression): Uint32Array {
    // A quote, nearly always, with a string behind it that no other text has.
    const at = state.kind === 'sequence' && state.first.kind === 'bytes' ? state.first : state;
    let firsts = this.firsts.get(at);
    if (firsts) return firsts;
    firsts = new Uint32Array(8);
    for (let byte = 0; byte < 256; byte++)
      if (this.make.step(at, byte).kind !== 'empty') firsts[byte >>> 5] |= 1 << (byte & 31);
    this.firsts.set(at, firsts);
    return firsts;
  }
}

/** Masks by keys; forgets those that were not used for long where there is too much. */
class RecentMasks {
  private young = new Map<string, Uint32Array>();
  private old = new Map<string, Uint32Array>();

  get(key: string): Uint32Array | undefined {
    const mask = this.young.get(key);
    if (mask) return mask;
    const known = this.old.get(key);
    if (known) this.set(key, known);
    return known;
  }

  set(key: string, mask: Uint32Array): void {
    if (2 * this.young.size * mask.byteLength >= MOST_BYTES) {
      this.old = this.young;
      this.young = new Map();
    }
    this.young.set(key, mask);
  }
}

function add(ids: ArrayLike<number>, mask: Uint32Array): void {
  for (let i = 0; i < ids.length; i++) mask[ids[i] >>> 5] |= 1 << (ids[i] & 31);
}

function joined(from: number, to: number, position: number, text: TextBetween, path: Uint8Array): Buffer {
  const before = from < position ? [text(from, position)] : [];
  return Buffer.concat([...before, path.subarray(Math.max(0, from - position), to - position)]);
}
