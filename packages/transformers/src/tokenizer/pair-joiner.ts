/**
 * Byte-pair encoding of a word (Sennrich et al., arXiv:1508.07909): the neighbours that come first among the rules are joined, the leftmost
 * of equal ones, until no rule is left. Pieces are numbers here, for looking a pair up by its text takes most of the library's time.
 */
import type { PairRank } from './pair-ranks';

/** Pieces, and as many pairs, that are remembered: some 40 MB at most. */
const MOST_KNOWN = 2 ** 18;

/** Characters of a word for which there is room at all times. */
const ROOM = 256;

/** What a pair becomes. */
interface Joined {
  rank: number;
  piece: number;
}

export class PairJoiner {
  private readonly numbers = new Map<string, number>();
  private readonly pieces: string[] = [];
  /** By the left piece, then by the right one. */
  private readonly pairs: (Map<number, Joined | undefined> | undefined)[] = [];
  private pairCount = 0;
  private readonly waiting = new Waiting();
  /** Of the word: a piece is at the place of its first character, and where it ends the next one begins. */
  private piece = new Uint32Array(ROOM);
  private next = new Uint32Array(ROOM);
  private before = new Int32Array(ROOM);

  constructor(private readonly rank: PairRank) {}

  /** @param characters of the word */
  join(characters: readonly string[]): string[] {
    if (this.pieces.length > MOST_KNOWN) this.forget();
    const count = characters.length;
    if (count > ROOM) this.makeRoom(count);
    const { piece, next, before, waiting } = this;
    for (let at = 0; at < count; at++) {
      piece[at] = this.numberOf(characters[at]);
      next[at] = at + 1;
      before[at] = at - 1;
    }
    for (let at = 0; at < count; at++) this.offer(at, count);
    while (waiting.take()) {
      const { at, rank } = waiting;
      const right = next[at];
      // What waits may be gone, or another pair by now; a rank is that of one pair.
      if (right === 0 || right >= count) continue;
      const joined = this.pairOf(piece[at], piece[right]);
      if (joined?.rank !== rank) continue;
      piece[at] = joined.piece;
      next[at] = next[right];
      next[right] = 0;
      if (next[at] < count) before[next[at]] = at;
      this.offer(at, count);
      if (before[at] >= 0) this.offer(before[at], count);
    }
    const pieces: string[] = [];
    for (let at = 0; at < count; at = next[at]) pieces.push(this.pieces[piece[at]]);
    if (count > ROOM) this.makeRoom(ROOM);
    return pieces;
  }

  private makeRoom(characters: number): void {
    this.piece = new Uint32Array(characters);
    this.next = new Uint32Array(characters);
    this.before = new Int32Array(characters);
  }

  /** Lets the pair that begins at a place wait for its turn. */
  private offer(at: number, count: number): void {
    const right = this.next[at];
    if (right >= count) return;
    const joined = this.pairOf(this.piece[at], this.piece[right]);
    if (joined) this.waiting.add(joined.rank, at);
  }

  private pairOf(left: number, right: number): Joined | undefined {
    const known = this.pairs[left];
    const found = known?.get(right);
    if (found !== undefined || known?.has(right)) return found;
    const [a, b] = [this.pieces[left], this.pieces[right]];
    const rank = this.rank(a, b);
    const joined = rank === undefined ? undefined : { rank, piece: this.numberOf(a + b) };
    if (this.pairCount++ >= MOST_KNOWN) {
      this.pairs.length = 0;
      this.pairCount = 1;
    }
    this.pairs[left] ??= new Map();
    this.pairs[left].set(right, joined);
    return joined;
  }

  private numberOf(piece: string): number {
    let number = this.numbers.get(piece);
    if (number === undefined) {
      number = this.pieces.push(piece) - 1;
      this.numbers.set(piece, number);
    }
    return number;
  }

  private forget(): void {
    this.numbers.clear();
    this.pieces.length = 0;
    this.pairs.length = 0;
    this.pairCount = 0;
  }
}

/** Places by rank, equal ones from the left: a binary heap. */
class Waiting {
  rank = 0;
  at = 0;
  private readonly ranks: number[] = [];
  private readonly places: number[] = [];

  add(rank: number, at: number): void {
    let i = this.ranks.length;
    for (let parent = (i - 1) >> 1; i > 0 && !this.isBefore(parent, rank, at); parent = (i - 1) >> 1) {
      this.put(i, this.ranks[parent], this.places[parent]);
      i = parent;
    }
    this.put(i, rank, at);
  }

  /** Puts the first into `rank` and `at`; false when none is left. */
  take(): boolean {
    if (this.ranks.length === 0) return false;
    [this.rank, this.at] = [this.ranks[0], this.places[0]];
    const [rank, at] = [this.ranks.pop()!, this.places.pop()!];
    const count = this.ranks.length;
    if (count === 0) return true;
    let i = 0;
    for (let child = 1; child < count; child = 2 * i + 1) {
      if (child + 1 < count && this.isBefore(child + 1, this.ranks[child], this.places[child])) child++;
      if (!this.isBefore(child, rank, at)) break;
      this.put(i, this.ranks[child], this.places[child]);
      i = child;
    }
    this.put(i, rank, at);
    return true;
  }

  private isBefore(i: number, rank: number, at: number): boolean {
    return this.ranks[i] < rank || (this.ranks[i] === rank && this.places[i] < at);
  }

  private put(i: number, rank: number, at: number): void {
    this.ranks[i] = rank;
    this.places[i] = at;
  }
}
