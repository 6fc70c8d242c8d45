/** The tokens that stay inside of one terminal, or leave it at its end: what masks are made of. */
import { clamped } from './regular/clamp';
import { type Expression, Expressions, has } from './regular/expression';
import type { Vocabulary } from './vocabulary';

export interface Inside {
  /** Tokens that may come: a mask where they are many, a list where they are few. */
  readonly mask: Uint32Array | undefined;
  readonly ids: Int32Array | undefined;
  /** Nodes of the vocabulary where the terminal may end and tokens go on. */
  readonly exits: Int32Array;
  /** Bytes of the longest token, and of the longest beginning of one. */
  readonly reach: number;
}

/** Ids that are kept as a list. */
const MOST_LISTED = 512;
/** Counts that are tried as if they were none, when no token reaches as far. */
const REACHES = [8, 16, 32];

/** Works {@link Inside} out, for places in the terminals of one grammar. */
export class InsideFinder {
  private readonly known = new Map<Expression, Inside>();
  private readonly states: Expression[] = [];
  /** Bytes that are remembered. */
  bytes = 0;

  constructor(
    private readonly make: Expressions,
    private readonly vocabulary: Vocabulary,
  ) {}

  of(state: Expression): Inside {
    const known = this.known.get(state);
    if (known) return known;
    const inside = this.counted(state) ?? this.excepted(state) ?? this.clampedWalk(state);
    this.known.set(state, inside);
    this.bytes += (inside.mask?.byteLength ?? inside.ids!.byteLength) + inside.exits.byteLength + 64;
    return inside;
  }

  clear(): void {
    this.known.clear();
    this.bytes = 0;
  }

  /** JSON strings of any characters, which have one table for all counts and grammars. */
  private counted(state: Expression): Inside | undefined {
    if (state.kind !== 'string' || state.item.kind !== 'repeat' || state.item.item !== this.make.character)
      return undefined;
    return stringTokensOf(this.vocabulary).inside(state.item.min, state.item.max);
  }

  /** JSON strings of texts without some: what differs from those with them is little. */
  private excepted(state: Expression): Inside | undefined {
    if (state.kind !== 'string' || state.item.kind !== 'both') return undefined;
    const others = state.item.items.filter(({ kind }) => kind !== 'not');
    if (others.length === state.item.items.length || others.length === 0) return undefined;
    const all = this.make.string(this.make.both(...others));
    const inside = this.of(all);
    return inside.mask ? this.less(state, all, inside) : undefined;
  }

  private clampedWalk(state: Expression): Inside {
    for (const reach of [...REACHES, this.vocabulary.longest]) {
      const simple = clamped(this.make, state, reach);
      if (simple === state) break;
      const inside = this.of(simple);
      if (inside.reach <= reach) return inside;
    }
    return this.walk(state);
  }

  private walk(start: Expression): Inside {
    const { byte, depth, end, first, ids, nodes } = this.vocabulary;
    const { make, states } = this;
    const found = new TokenSet(this.vocabulary.size);
    const exits: number[] = [];
    let reach = 0;
    states[0] = start;
    for (let i = 0; i < nodes; ) {
      const at = depth[i];
      const state = make.step(states[at], byte[i]);
      if (state.kind === 'empty') {
        i = end[i];
        continue;
      }
      states[at + 1] = state;
      if (at >= reach) reach = at + 1;
      for (let t = first[i]; t < first[i + 1]; t++) found.add(ids[t]);
      if (state.nullable && end[i] > i + 1) exits.push(i);
      i++;
    }
    return { ...found.result(), exits: Int32Array.from(exits), reach };
  }

  /**
   * From the tokens of a larger terminal those of a smaller one, looking only where the two differ.
   * @param all the larger one's place
   */
  private less(start: Expression, all: Expression, { mask: allowed, exits, reach }: Inside): Inside {
    const { byte, depth, end, first, ids, nodes } = this.vocabulary;
    const { make, states } = this;
    const mask = allowed!.slice();
    const others: Expression[] = [all];
    /** Ranges of nodes that the smaller one does not reach, and nodes where it does not end. */
    const removed: [number, number][] = [];
    states[0] = start;
    const differing = [differingBytes(start)];
    for (let i = 0; i < nodes; ) {
      const at = depth[i];
      if (differing[at]?.[byte[i]] === 0) {
        i = end[i];
        continue;
      }
      const other = make.step(others[at], byte[i]);
      const state = other.kind === 'empty' ? other : make.step(states[at], byte[i]);
      const isGone = state.kind === 'empty' && other.kind !== 'empty';
      if (isGone) {
        for (let t = first[i]; t < first[end[i]]; t++) mask[ids[t] >>> 5] &= ~(1 << (ids[t] & 31));
        removed.push([i, end[i]]);
      } else if (other.nullable && !state.nullable) removed.push([i, i + 1]);
      if (state === other || isGone) {
        i = end[i];
        continue;
      }
      states[at + 1] = state;
      others[at + 1] = other;
      differing[at + 1] = differingBytes(state);
      i++;
    }
    const isLeft = (node: number) => !removed.some(([from, to]) => node >= from && node < to);
    // The same object where it is the same: masks are remembered by it.
    const kept = exits.filter(isLeft);
    return { mask, ids: undefined, exits: kept.length < exits.length ? kept : exits, reach };
  }
}

/**
 * By byte: 1 where a JSON string of texts without some may go on in another way than one of all texts: where one of those goes on,
 * and where a character is written as an escape. Undefined where any byte may.
 */
function differingBytes(state: Expression): Uint8Array | undefined {
  if (state.kind !== 'string' || state.item.kind !== 'both') return undefined;
  const found = new Uint8Array(256);
  found[0x5c] = 1;
  for (const item of state.item.items) {
    if (item.kind !== 'not') continue;
    if (item.item.nullable) found[0x22] = 1;
    if (!addFirstBytes(item.item, found)) return undefined;
  }
  return found;
}

/** Marks the bytes that texts begin with. Returns false where the expression does not say them at once. */
function addFirstBytes(of: Expression, found: Uint8Array): boolean {
  if (of.kind === 'epsilon') return true;
  if (of.kind === 'either') return of.items.every((item) => addFirstBytes(item, found));
  const bytes = of.kind === 'sequence' ? of.first : of;
  if (bytes.kind !== 'bytes') return false;
  for (let byte = 0; byte < 256; byte++) if (has(bytes.bytes, byte)) found[byte] = 1;
  return true;
}

/** Tokens as a list while they are few. */
class TokenSet {
  private readonly list: number[] = [];
  private mask: Uint32Array | undefined;

  constructor(private readonly size: number) {}

  add(id: number): void {
    if (this.mask) this.mask[id >>> 5] |= 1 << (id & 31);
    else if (this.list.push(id) > MOST_LISTED) {
      this.mask = new Uint32Array(Math.ceil(this.size / 32));
      for (const one of this.list) this.mask[one >>> 5] |= 1 << (one & 31);
    }
  }

  result(): Pick<Inside, 'mask' | 'ids'> {
    return { mask: this.mask, ids: this.mask ? undefined : Int32Array.from(this.list) };
  }
}

/** Tokens of JSON strings by the characters that they need. */
class StringTokens {
  /** Tokens that do not close the string, those that need fewest characters first; and where those of each number end. */
  private readonly open: Int32Array;
  private readonly ends: Int32Array;
  /** Tokens that close it, and nodes where it is closed: with the characters before. */
  private readonly closing: readonly (readonly [id: number, characters: number])[];
  private readonly exits: readonly (readonly [node: number, characters: number])[];
  private readonly all: Uint32Array;
  private readonly most: number;

  constructor(private readonly vocabulary: Vocabulary) {
    const { byte, depth, end, first, ids, nodes, longest } = vocabulary;
    const make = new Expressions();
    const start = make.string(make.repeat(make.character, 0, Number.POSITIVE_INFINITY));
    const states = [start];
    const characters = [0];
    const closing: [number, number][] = [];
    const exits: [number, number][] = [];
    const open: number[][] = Array.from({ length: longest + 1 }, () => []);
    for (let i = 0; i < nodes; ) {
      const at = depth[i];
      const before = states[at];
      const state = make.step(before, byte[i]);
      if (state.kind === 'empty') {
        i = end[i];
        continue;
      }
      const isClosed = state === make.epsilon;
      const count = characters[at] + (before === start && !isClosed ? 1 : 0);
      states[at + 1] = state;
      characters[at + 1] = count;
      for (let t = first[i]; t < first[i + 1]; t++) {
        if (isClosed) closing.push([ids[t], count]);
        else open[count].push(ids[t]);
      }
      if (isClosed && end[i] > i + 1) exits.push([i, count]);
      i++;
    }
    this.closing = closing;
    this.exits = exits;
    this.open = Int32Array.from(open.flat());
    let total = 0;
    this.ends = Int32Array.from(open, (list) => {
      total += list.length;
      return total;
    });
    this.most = open.findLastIndex((list) => list.length > 0);
    this.all = this.masked(longest);
  }

  /** The tokens where at least `min` and at most `max` characters come before the end of the string. */
  inside(min: number, max: number): Inside {
    const mask = max >= this.most ? this.all.slice() : this.masked(max);
    const isFit = (characters: number) => characters >= min && characters <= max;
    for (const [id, characters] of this.closing) if (isFit(characters)) mask[id >>> 5] |= 1 << (id & 31);
    const exits = this.exits.filter(([, characters]) => isFit(characters)).map(([node]) => node);
    return { mask, ids: undefined, exits: Int32Array.from(exits), reach: this.vocabulary.longest };
  }

  private masked(max: number): Uint32Array {
    const mask = new Uint32Array(Math.ceil(this.vocabulary.size / 32));
    const { open } = this;
    const last = this.ends[max];
    for (let i = 0; i < last; i++) mask[open[i] >>> 5] |= 1 << (open[i] & 31);
    return mask;
  }
}

const stringTokens = new WeakMap<Vocabulary, StringTokens>();

function stringTokensOf(vocabulary: Vocabulary): StringTokens {
  let tokens = stringTokens.get(vocabulary);
  if (!tokens) {
    tokens = new StringTokens(vocabulary);
    stringTokens.set(vocabulary, tokens);
  }
  return tokens;
}
