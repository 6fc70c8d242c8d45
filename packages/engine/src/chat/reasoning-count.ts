/** How many tokens of an answer are reasoning. */
import type { ChatPiece } from '@x/transformers';

/**
 * Counts with the tokens what they gave: reasoning, something else, or nothing yet, such as the mark in front of reasoning, which then
 * belongs to what comes next.
 */
export class ReasoningCount {
  private waiting = 0;
  private counted = 0;

  get tokens(): number {
    return this.counted;
  }

  /** @param pieces what one token gave @param tokens 0 for what was held back at the end */
  add(pieces: readonly ChatPiece[], tokens = 1): void {
    this.waiting += tokens;
    if (pieces.length === 0) return;
    // The token that ends reasoning may give the last of it and the text behind.
    if (pieces.some(({ type }) => type === 'reasoning')) this.counted += this.waiting;
    this.waiting = 0;
  }
}
