/**
 * Which blocks of a {@link KvPool} are whose: reference counts, and an index of what full blocks hold, so that a sequence
 * that begins like another one shares its blocks. Numbers only; the memory is the pool's.
 *
 * A full block is known by the block before it and its own tokens. What no sequence uses any more stays until its memory is
 * needed: the block whose use ended first is evicted first. After vLLM's automatic prefix caching, with the tokens themselves
 * as keys in place of a hash, so that two prefixes are never taken for each other.
 */

/** In front of the first block of a sequence. */
const ROOT = 0;

interface Block {
  references: number;
  /** What {@link BlockIndex.find} knows it by; undefined for one that is not full, or whose tokens another block has too. */
  key?: string;
  /** Names this block's content as the beginning of others' keys: never used twice. */
  content: number;
}

export class BlockIndex {
  private readonly blocks: Block[] = [];
  /** Blocks that hold nothing, used from the end. */
  private readonly empty: number[] = [];
  /** Blocks of no sequence that hold something, in the order in which their use ended. */
  private readonly unused = new Set<number>();
  private readonly byKey = new Map<string, number>();
  private contents = ROOT;

  /** @param forgotten called with a block whose content is found no more */
  constructor(private readonly forgotten: (block: number) => void = () => {}) {}

  /** Blocks that exist. */
  get count(): number {
    return this.blocks.length;
  }

  /** Blocks of sequences. */
  get used(): number {
    return this.count - this.free;
  }

  /** Blocks that {@link take} can give. */
  get free(): number {
    return this.empty.length + this.unused.size;
  }

  /** Takes note of more memory: there are `count` blocks now. */
  grow(count: number): void {
    const first = this.count;
    for (let block = first; block < count; block++) {
      this.blocks.push({ references: 0, content: ROOT });
      // The lowest is taken first.
      this.empty.unshift(block);
    }
  }

  /** A block for one sequence, whose content is forgotten; undefined when all are in use. */
  take(): number | undefined {
    let block = this.empty.pop();
    if (block === undefined) {
      const [oldest] = this.unused;
      if (oldest === undefined) return undefined;
      this.unused.delete(oldest);
      block = oldest;
    }
    this.forget(block);
    this.blocks[block].references = 1;
    return block;
  }

  /** One more sequence uses a block. */
  share(block: number): void {
    this.unused.delete(block);
    this.blocks[block].references++;
  }

  /** One sequence less uses a block. */
  release(block: number): void {
    const entry = this.blocks[block];
    if (--entry.references > 0) return;
    if (entry.key === undefined) this.empty.push(block);
    else this.unused.add(block);
  }

  /** Whether a sequence may write into a block without another one seeing it. It is no longer found then. */
  own(block: number): boolean {
    if (this.blocks[block].references > 1) return false;
    this.forget(block);
    return true;
  }

  /**
   * The block that holds `tokens`, all of a block's, behind `previous` (undefined for the first).
   * @param variant of the model that computed it, such as an adapter; what others computed is not found
   */
  find(previous: number | undefined, tokens: readonly number[], variant = ''): number | undefined {
    return this.byKey.get(this.key(previous, tokens, variant));
  }

  /** Says what a block that became full holds. Of two with the same content one is found: the one that is returned. */
  fill(block: number, previous: number | undefined, tokens: readonly number[], variant = ''): number {
    const key = this.key(previous, tokens, variant);
    const entry = this.blocks[block];
    const other = this.byKey.get(key);
    if (other !== undefined) {
      // What comes behind either of them is found behind both.
      entry.content = this.blocks[other].content;
      return other;
    }
    entry.key = key;
    entry.content = ++this.contents;
    this.byKey.set(key, block);
    return block;
  }

  private forget(block: number): void {
    const entry = this.blocks[block];
    if (entry.key !== undefined) {
      this.byKey.delete(entry.key);
      this.forgotten(block);
    }
    entry.key = undefined;
    entry.content = ROOT;
  }

  /** Whatever follows a first block is found behind its content only, so the variant is part of first keys alone. */
  private key(previous: number | undefined, tokens: readonly number[], variant: string): string {
    const before = previous === undefined ? `${ROOT} ${variant}` : this.blocks[previous].content;
    return `${before}:${tokens.join()}`;
  }
}
