/**
 * The pushdown automaton of a grammar. A thread is a place in a terminal and a stack of what follows it; where a text can be
 * read in several ways there are several threads. Stacks share their lower parts, and equal ones are one object.
 */
import { GrammarError } from '../errors';
import type { Expression, Expressions } from '../regular/expression';
import type { DistinctNode, Node } from './node';
import { isNullable } from './node';

/** What follows, from the top of the stack down. */
export interface Frame {
  readonly id: number;
  readonly next: Frame | undefined;
  /** Undefined at the bottom, where the text ends. */
  readonly node: Node | undefined;
  /** Of repetitions and distinct items: how many have to come and may come. */
  readonly min: number;
  readonly max: number;
  readonly list: ListPlace | undefined;
  /** Whether nothing more has to come. */
  readonly canEnd: boolean;
  /** Frames below. */
  readonly depth: number;
  /** Threads that begin here, once known. */
  begin: readonly Thread[] | undefined;
  /** {@link Frames.lowest} of finding them. */
  lowest: number;
  /** What {@link Frames.part} says of the frame, once known. */
  readonly parts: [used: number | undefined, place: number | undefined];
  /** Of an item in a list: the text that it was last, and what followed. */
  item: readonly [text: Buffer, after: Frame] | undefined;
  /** Whether something is left out of them because the text of an item is open. */
  isOpenText: boolean;
  /** Threads whose terminal is followed by this, by state and beginning. */
  readonly threads: Map<Expression, Thread>;
}

/** A place in a list of distinct items. */
interface ListPlace {
  /** Before an item, in the item at this index of the heads, or after one. */
  readonly at: 'item' | number | 'after';
  /** Undefined behind an item whose text is left open. */
  readonly used: Used | undefined;
}

/** Texts that may not come again: those in quotes as what they stand for, others as they are. */
interface Used {
  readonly quoted: Expression;
  readonly plain: Expression;
}

export interface Thread {
  readonly id: number;
  readonly state: Expression;
  readonly frame: Frame;
  /** Where the item began whose text is compared with others later: the number of bytes before, or {@link HERE}. Else 0. */
  readonly start: number;
  /** Whether the text may end here. */
  readonly canEnd: boolean;
}

/** Bytes from one place to another of the text so far. */
export type TextBetween = (from: number, to: number) => Buffer;

/** The beginning of a thread that no byte has reached yet. */
const HERE = -1;

/** Stacks and threads remembered; more are forgotten, which costs time only. */
const MOST_REMEMBERED = 200_000;
/** Readings of one text at the same time. */
const MOST_THREADS = 20_000;

let ids = 0;

export class Frames {
  private readonly frames = new Map<string, Frame>();
  private readonly parts = new Map<string, number>();
  readonly bottom: Frame;
  /**
   * How far down stacks were looked at since this was last set to infinity: everything found depends on {@link part} of the
   * levels from here up alone.
   */
  lowest = Number.POSITIVE_INFINITY;
  /** Set where it made a difference that the text of an item was left open. */
  isOpenText = false;

  constructor(private readonly make: Expressions) {
    this.bottom = this.frame(undefined, undefined);
  }

  push(node: Node, next: Frame): Frame {
    if (node.kind === 'repeat') return this.frame(node, next, node.min, node.max);
    if (node.kind === 'distinct') {
      const used = { quoted: this.make.empty, plain: this.make.empty };
      return this.frame(node, next, node.min, node.max, { at: 'item', used });
    }
    return this.frame(node, next);
  }

  thread(state: Expression, frame: Frame, start = 0): Thread {
    const known = frame.threads.get(state);
    if (known && known.start === start) return known;
    const thread: Thread = { id: ++ids, state, frame, start, canEnd: state.nullable && canEnd(frame) };
    frame.threads.set(state, thread);
    return thread;
  }

  /**
   * Threads that may follow a thread whose terminal may end, without a byte between; those behind empty terminals, too.
   * @param position bytes of the text so far
   */
  after({ frame, start }: Thread, position: number, text: TextBetween): readonly Thread[] {
    if (typeof frame.list?.at === 'number')
      return this.begin(this.afterItem(frame, start === HERE ? Buffer.alloc(0) : text(start, position)));
    return this.begin(frame);
  }

  /** A thread, begun at the latest here. */
  begun(thread: Thread, state: Expression, position: number): Thread {
    return this.thread(state, thread.frame, thread.start === HERE ? position : thread.start);
  }

  /**
   * As {@link after}, for a thread in an item of a list, whatever the item's text: what follows directly does not depend on it.
   * Where it does, nothing is given and {@link isOpenText} set.
   */
  afterAnyItem({ frame }: Thread): readonly Thread[] {
    return this.begin(this.behind(frame, undefined));
  }

  /** The threads that a byte leads to: none where it cannot come. @param position bytes of the text before it */
  advance(threads: Iterable<Thread>, byte: number, position: number, text: TextBetween): readonly Thread[] {
    const next = new Set<Thread>();
    const all = new Set(threads);
    for (const thread of all) {
      const state = this.make.step(thread.state, byte);
      if (state.kind !== 'empty') next.add(this.begun(thread, state, position));
      if (thread.state.nullable) for (const begun of this.after(thread, position, text)) all.add(begun);
    }
    return [...next];
  }

  /** Notes that what is found from here on depends on a frame. */
  touch({ depth, list }: Frame): void {
    this.lowest = Math.min(this.lowest, 2 * depth + (list?.at === 'item' ? 0 : 1));
  }

  /**
   * A number for what a stack has at a level, equal where that is equal. Each frame has two: its place in the grammar (odd), and
   * below it the texts that may not come again (even), which only what begins an item depends on.
   */
  part(frame: Frame, level: number): number {
    const which = (level & 1) as 0 | 1;
    const known = frame.parts[which];
    if (known !== undefined) return known;
    const { list, max, min, node } = frame;
    const key =
      which === 0
        ? `${list?.used?.quoted.id},${list?.used?.plain.id}`
        : `${node?.id},${min},${max},${list?.at},${list?.at === 'after' && this.hasMore(frame)}`;
    let part = this.parts.get(key);
    if (part === undefined) {
      if (this.parts.size >= MOST_REMEMBERED) this.parts.clear();
      part = ++ids;
      this.parts.set(key, part);
    }
    frame.parts[which] = part;
    return part;
  }

  /** Threads with which a frame begins, and those behind them where they may be empty. */
  begin(frame: Frame): readonly Thread[] {
    if (frame.begin) {
      this.isOpenText ||= frame.isOpenText;
      this.lowest = Math.min(this.lowest, frame.lowest);
      return frame.begin;
    }
    const { lowest } = this;
    this.lowest = Number.POSITIVE_INFINITY;
    const threads = new Set<Thread>();
    const seen = new Set<Frame>();
    const open = [frame];
    for (let next = open.pop(); next; next = open.pop()) {
      this.touch(next);
      if (seen.has(next) || !next.node) continue;
      seen.add(next);
      if (this.expand(next, threads, open)) frame.isOpenText = true;
      if (threads.size > MOST_THREADS) {
        throw new GrammarError(
          'TOO_LARGE',
          `The text so far can go on in more than ${MOST_THREADS} ways; give a grammar with fewer alternatives.`,
        );
      }
    }
    this.isOpenText ||= frame.isOpenText;
    frame.lowest = this.lowest;
    this.lowest = Math.min(lowest, frame.lowest);
    frame.begin = [...threads];
    return frame.begin;
  }

  /** Returns whether something was left out because the text of an item is open. */
  private expand(frame: Frame, threads: Set<Thread>, open: Frame[]): boolean {
    const next = frame.next!;
    const node = frame.node!;
    switch (node.kind) {
      case 'terminal':
        threads.add(this.thread(node.expression, next));
        if (node.expression.nullable) open.push(next);
        break;
      case 'sequence': {
        let stack = next;
        for (let i = node.items.length - 1; i >= 0; i--) stack = this.push(node.items[i], stack);
        open.push(stack);
        break;
      }
      case 'either':
        for (const item of node.items) open.push(this.push(item, next));
        break;
      case 'rule':
        open.push(this.push(node.rule.body, next));
        break;
      case 'repeat': {
        if (frame.min === 0) open.push(next);
        if (frame.max > 0)
          open.push(this.push(node.item, this.frame(node, next, Math.max(0, frame.min - 1), frame.max - 1)));
        break;
      }
      case 'distinct':
        return this.expandList(node, frame, threads, open);
    }
    return false;
  }

  private expandList(node: DistinctNode, frame: Frame, threads: Set<Thread>, open: Frame[]): boolean {
    const { min, max, next } = frame;
    const { at, used } = frame.list!;
    if (min === 0) open.push(next!);
    if (max === 0) return false;
    if (!used) return true;
    if (at === 'after') {
      if (this.hasMore(frame))
        open.push(this.push(node.separator, this.frame(node, next, Math.max(1, min), max, { at: 'item', used })));
      return false;
    }
    this.itemStates(frame).forEach((state, head) => {
      if (!state) return;
      const place = this.frame(node, next, min, max, { at: head, used });
      threads.add(this.thread(state, place, HERE));
    });
    return false;
  }

  /** By head: what an item may be, without the texts that came before; undefined where nothing is left. */
  private itemStates({ node, list }: Frame): (Expression | undefined)[] {
    const { make } = this;
    const used = list!.used!;
    return (node as DistinctNode).heads.map(({ language, quoted }) => {
      const left = make.both(language, make.not(quoted ? used.quoted : used.plain));
      if (!make.isProductive(left)) return undefined;
      return quoted ? make.sequence(make.range(0x22, 0x22), make.string(left)) : left;
    });
  }

  /** Whether an item is left for a list. */
  private hasMore(frame: Frame): boolean {
    return frame.list!.used !== undefined && this.itemStates(frame).some(Boolean);
  }

  /** What follows an item of a list, now that its text is known. */
  private afterItem(frame: Frame, text: Buffer): Frame {
    if (frame.item?.[0].equals(text)) return frame.item[1];
    const { make } = this;
    const { node, list } = frame;
    const { quoted, plain } = list!.used!;
    const isQuoted = (node as DistinctNode).heads[list!.at as number].quoted;
    const literal = (value: string) => make.literal(value);
    const after = this.behind(
      frame,
      isQuoted
        ? { plain, quoted: make.either(quoted, literal(JSON.parse(text.toString()) as string)) }
        : { quoted, plain: make.either(plain, literal(text.toString())) },
    );
    frame.item = [Buffer.from(text), after];
    return after;
  }

  private behind({ node, next, min, max, list }: Frame, used: Used | undefined): Frame {
    const { tail } = (node as DistinctNode).heads[list!.at as number];
    return this.push(tail, this.frame(node, next, Math.max(0, min - 1), max - 1, { at: 'after', used }));
  }

  private frame(node: Node | undefined, next: Frame | undefined, min = 0, max = 0, list?: ListPlace): Frame {
    const place = list ? `,${list.at},${list.used?.quoted.id},${list.used?.plain.id}` : '';
    const key = `${node?.id},${next?.id},${min},${max}${place}`;
    const known = this.frames.get(key);
    if (known) return known;
    const frame: Frame = {
      id: ++ids,
      node,
      next,
      min,
      max,
      list,
      canEnd: !node || (isSkipped(node, min, list) && next!.canEnd),
      depth: next ? next.depth + 1 : 0,
      begin: undefined,
      lowest: Number.POSITIVE_INFINITY,
      parts: [undefined, undefined],
      item: undefined,
      isOpenText: false,
      threads: new Map(),
    };
    if (this.frames.size >= MOST_REMEMBERED) this.frames.clear();
    this.frames.set(key, frame);
    return frame;
  }
}

/** Whether the text may end where a terminal ends that is followed by this. */
function canEnd(frame: Frame): boolean {
  const { node, list, min, next } = frame;
  if (typeof list?.at !== 'number') return frame.canEnd;
  const { tail } = (node as DistinctNode).heads[list.at];
  return min <= 1 && isNullable(tail) && next!.canEnd;
}

function isSkipped(node: Node, min: number, list: ListPlace | undefined): boolean {
  if (list) return list.at === 'after' || list.at === 'item' ? min === 0 : false;
  if (node.kind === 'repeat') return min === 0 || isNullable(node.item);
  return isNullable(node);
}
