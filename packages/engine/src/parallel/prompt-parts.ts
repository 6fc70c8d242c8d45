/** A rank's part of prompts on disk: it writes, reads and takes what the leading rank tells it, one after the other. */
import type { KvMemory } from '../kv/memory';
import {
  fileOfRank,
  fillBlocks,
  type PromptOwner,
  readPrompt,
  type SavedPrompt,
  writePrompt,
} from '../kv/saved-prompt';

/** What a rank is told; the owner is the leading rank's. */
export type PromptWork =
  /** Writes the first blocks of a sequence. */
  | { kind: 'write'; path: string; blocks: readonly number[]; tokens: readonly number[]; owner: PromptOwner }
  /** Reads a file, and keeps it. */
  | { kind: 'read'; path: string; vocabSize: number; owner: PromptOwner }
  /** Copies the positions from `start` on of what was read into blocks. */
  | { kind: 'fill'; blocks: readonly number[]; start: number }
  /** Forgets what was read. */
  | { kind: 'forget' };

export class PromptParts {
  private saved: SavedPrompt | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private readonly ended = new AbortController();

  constructor(
    private readonly rank: number,
    private readonly memory: KvMemory,
  ) {}

  /** Rejects with what could not be done; what comes later is not affected. */
  do(work: PromptWork): Promise<void> {
    const own = this.last.then(() => this.now(work));
    this.last = own.catch(() => {});
    return own;
  }

  /** What is under way ends at the next layer; resolves when all memory is given back. */
  async end(): Promise<void> {
    this.ended.abort();
    await this.last;
    this.forget();
  }

  private async now(work: PromptWork): Promise<void> {
    const { memory, rank } = this;
    const { signal } = this.ended;
    signal.throwIfAborted();
    if (work.kind === 'write') {
      const { path, blocks, tokens, owner } = work;
      await writePrompt(fileOfRank(path, rank), memory, blocks, tokens, { ...owner, rank }, signal);
    } else if (work.kind === 'read') {
      this.forget();
      const { path, vocabSize, owner } = work;
      this.saved = await readPrompt(fileOfRank(path, rank), memory, vocabSize, { ...owner, rank });
    } else if (work.kind === 'fill') {
      if (!this.saved) throw new Error('internal: no prompt was read');
      await fillBlocks(memory, work.blocks, this.saved, work.start, () => signal.throwIfAborted());
    } else this.forget();
  }

  private forget(): void {
    for (const layer of this.saved?.layers.values() ?? []) layer.dispose();
    this.saved = undefined;
  }
}
