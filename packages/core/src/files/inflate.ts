/**
 * Inflating deflated bytes (RFC 1951) as they are asked for, at once. Node's zlib inflates piece by piece only without
 * blocking, and otherwise everything in one go; what is read in pieces here takes a memory that does not depend on what
 * the deflated bytes claim. About half as fast as zlib.
 */

/** A Huffman code: codes of up to FAST bits by one look, longer ones bit by bit. */
interface Code {
  /** By the next FAST bits: symbol << 4 | length, 0 where the code is longer or there is none. */
  readonly fast: Uint16Array;
  /** Codes of each length. */
  readonly counts: Uint16Array;
  /** In the order of their codes. */
  readonly symbols: Uint16Array;
}

const FAST = 10;
const LONGEST = 15;
/** A match reaches this far back. */
const WINDOW = 32768;
/** Bytes inflated at once, behind the window; a match may go past it. */
const CHUNK = 65536;
const LONGEST_MATCH = 258;

const LENGTHS = [
  3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258,
];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCES = Array.from({ length: 30 }, (_, i) => (i < 2 ? i + 1 : (2 + (i & 1)) * 2 ** ((i >> 1) - 1) + 1));
const DISTANCE_BITS = Array.from({ length: 30 }, (_, i) => (i < 2 ? 0 : (i >> 1) - 1));
/** The order in which a block lists the lengths of the code for its lengths. */
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

export class Inflater {
  readonly #more: (buffer: Uint8Array) => number;
  readonly #input = new Uint8Array(CHUNK);
  #inputAt = 0;
  #inputEnd = 0;
  /** Zero bytes taken after the end of the input; as many as bits are looked at ahead are no error. */
  #past = 0;
  #bits = 0;
  #bitCount = 0;

  /** The window, then what was inflated since and is not read yet. */
  readonly #output = new Uint8Array(WINDOW + CHUNK + LONGEST_MATCH);
  #filled = 0;
  #read = 0;

  #last = false;
  /** Bytes to copy of a stored block. */
  #stored = 0;
  /** Codes of the block that is being read, null between blocks and in stored ones. */
  #codes: { literals: Code; distances: Code } | null = null;

  /** @param more puts the next deflated bytes at the beginning of its argument and says how many; 0 at their end */
  constructor(more: (buffer: Uint8Array) => number) {
    this.#more = more;
  }

  /**
   * Fills `target` with the next bytes; returns how many there were, fewer only at the end.
   * @throws Error saying what is wrong with the deflated bytes
   */
  read(target: Uint8Array): number {
    let done = 0;
    while (done < target.length) {
      if (this.#read === this.#filled && !this.#inflate()) break;
      const count = Math.min(target.length - done, this.#filled - this.#read);
      target.set(this.#output.subarray(this.#read, this.#read + count), done);
      this.#read += count;
      done += count;
    }
    return done;
  }

  /** Makes at least one byte, false at the end. */
  #inflate(): boolean {
    if (this.#filled > WINDOW) {
      this.#output.copyWithin(0, this.#filled - WINDOW, this.#filled);
      this.#filled = WINDOW;
    }
    this.#read = this.#filled;
    while (this.#filled === this.#read) {
      if (this.#stored > 0) this.#copyStored();
      else if (this.#codes !== null) this.#decode(this.#codes.literals, this.#codes.distances);
      else if (this.#last) return false;
      else this.#startBlock();
      if (this.#past * 8 > this.#bitCount) throw new Error('the deflated bytes end too early');
    }
    return true;
  }

  #startBlock(): void {
    this.#last = this.#take(1) === 1;
    const kind = this.#take(2);
    if (kind === 0) {
      this.#take(this.#bitCount & 7);
      const length = this.#take(16);
      if ((this.#take(16) ^ 0xffff) !== length) throw new Error('a stored block has a wrong length');
      this.#stored = length;
    } else if (kind === 1) this.#codes = fixedCodes();
    else if (kind === 2) this.#codes = this.#readCodes();
    else throw new Error('a block is of an unknown kind');
  }

  #copyStored(): void {
    const end = Math.min(this.#filled + this.#stored, WINDOW + CHUNK);
    this.#stored -= end - this.#filled;
    while (this.#filled < end) this.#output[this.#filled++] = this.#take(8);
  }

  #readCodes(): { literals: Code; distances: Code } {
    const literals = this.#take(5) + 257;
    const distances = this.#take(5) + 1;
    const listed = this.#take(4) + 4;
    if (literals > 286 || distances > 30) throw new Error('a block has too many codes');
    const lengths = new Uint8Array(19);
    for (let i = 0; i < listed; i++) lengths[ORDER[i]] = this.#take(3);
    const code = makeCode(lengths, false);
    const all = new Uint8Array(literals + distances);
    for (let i = 0; i < all.length; ) {
      const symbol = this.#symbol(code);
      if (symbol < 16) {
        all[i++] = symbol;
        continue;
      }
      if (symbol === 16 && i === 0) throw new Error('a block repeats a length before the first');
      const value = symbol === 16 ? all[i - 1] : 0;
      const repeat = symbol === 16 ? 3 + this.#take(2) : symbol === 17 ? 3 + this.#take(3) : 11 + this.#take(7);
      if (i + repeat > all.length) throw new Error('a block repeats a length too often');
      all.fill(value, i, i + repeat);
      i += repeat;
    }
    if (all[256] === 0) throw new Error('a block has no end');
    return { literals: makeCode(all.subarray(0, literals), true), distances: makeCode(all.subarray(literals), true) };
  }

  /** Symbols of a block until it ends or the chunk is full. */
  #decode(literals: Code, distances: Code): void {
    const output = this.#output;
    let at = this.#filled;
    while (at < WINDOW + CHUNK) {
      const symbol = this.#symbol(literals);
      if (symbol < 256) {
        output[at++] = symbol;
        continue;
      }
      if (symbol === 256) {
        this.#codes = null;
        break;
      }
      if (symbol > 285) throw new Error('a match has no length');
      const length = LENGTHS[symbol - 257] + this.#take(LENGTH_BITS[symbol - 257]);
      const far = this.#symbol(distances);
      if (far > 29) throw new Error('a match has no distance');
      const distance = DISTANCES[far] + this.#take(DISTANCE_BITS[far]);
      // Until the first window is full there is nothing before the output.
      if (distance > at) throw new Error('a match begins before the first byte');
      if (distance === 1) output.fill(output[at - 1], at, at + length);
      else if (distance >= length) output.copyWithin(at, at - distance, at - distance + length);
      else for (let i = 0; i < length; i++) output[at + i] = output[at + i - distance];
      at += length;
    }
    this.#filled = at;
  }

  #symbol({ fast, counts, symbols }: Code): number {
    if (this.#bitCount < LONGEST) this.#fill();
    const entry = fast[this.#bits & ((1 << FAST) - 1)];
    if (entry !== 0) {
      this.#bits >>>= entry & 15;
      this.#bitCount -= entry & 15;
      return entry >> 4;
    }
    // Codes of a length are consecutive numbers, with the first bit read the highest.
    let code = 0;
    let first = 0;
    let index = 0;
    for (let length = 1; length <= LONGEST; length++) {
      code |= (this.#bits >>> (length - 1)) & 1;
      const count = counts[length];
      if (code - first < count) {
        this.#bits >>>= length;
        this.#bitCount -= length;
        return symbols[index + code - first];
      }
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    throw new Error('a code stands for nothing');
  }

  /** The next `count` bits, at most 16. */
  #take(count: number): number {
    if (this.#bitCount < count) this.#fill();
    const value = this.#bits & ((1 << count) - 1);
    this.#bits >>>= count;
    this.#bitCount -= count;
    return value;
  }

  /** At least 24 bits. */
  #fill(): void {
    while (this.#bitCount < 24) {
      if (this.#inputAt === this.#inputEnd) {
        this.#inputEnd = this.#past > 0 ? 0 : this.#more(this.#input);
        this.#inputAt = 0;
        if (this.#inputEnd === 0) {
          if (++this.#past > 3) throw new Error('the deflated bytes end too early');
          this.#bitCount += 8;
          continue;
        }
      }
      this.#bits |= this.#input[this.#inputAt++] << this.#bitCount;
      this.#bitCount += 8;
    }
  }
}

/** @param alone whether a single code of one bit may stand for itself, as where all matches have one distance */
function makeCode(lengths: Uint8Array, alone: boolean): Code {
  const counts = new Uint16Array(LONGEST + 1);
  for (const length of lengths) counts[length]++;
  const used = lengths.length - counts[0];
  counts[0] = 0;
  let left = 1;
  const starts = new Uint16Array(LONGEST + 2);
  const next = new Uint16Array(LONGEST + 2);
  for (let length = 1; length <= LONGEST; length++) {
    left = (left << 1) - counts[length];
    if (left < 0) throw new Error('a block has more codes than fit');
    starts[length + 1] = starts[length] + counts[length];
    next[length + 1] = (next[length] + counts[length]) << 1;
  }
  if (left > 0 && !(alone && used <= 1 && counts[1] === used)) throw new Error('a block has an incomplete code');
  const symbols = new Uint16Array(used);
  const fast = new Uint16Array(1 << FAST);
  for (let symbol = 0; symbol < lengths.length; symbol++) {
    const length = lengths[symbol];
    if (length === 0) continue;
    symbols[starts[length]++] = symbol;
    const code = next[length]++;
    if (length > FAST) continue;
    let reversed = 0;
    for (let bit = 0; bit < length; bit++) reversed |= ((code >> bit) & 1) << (length - 1 - bit);
    for (let i = reversed; i < fast.length; i += 1 << length) fast[i] = (symbol << 4) | length;
  }
  return { fast, counts, symbols };
}

let fixed: { literals: Code; distances: Code } | undefined;

function fixedCodes(): { literals: Code; distances: Code } {
  fixed ??= {
    literals: makeCode(
      Uint8Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)),
      false,
    ),
    distances: makeCode(new Uint8Array(32).fill(5), false),
  };
  return fixed;
}
