/**
 * What may follow a text: drafts, and how each of them and the token behind them is to be chosen if those in front of it are.
 * Every choice keeps the random number, the penalties and the mask that it would have without drafts, so a text with drafts is the
 * text without them.
 */
import { allows, allowsAny, type Constraint, checkPossible } from '../constraint';
import type { LogitsProcessor, Sampler } from '../sampling';

/** The text that goes on. */
export interface Text {
  /** Tokens so far, prompt included. */
  history: readonly number[];
  processor: LogitsProcessor;
  constraint: Constraint | undefined;
  /** Tokens that end it. */
  ends: ReadonlySet<number>;
  vocabSize: number;
  logprob?: boolean;
  top?: number;
}

export class Lookahead {
  readonly drafts: number[] = [];
  /** For the next token, and for the one behind each draft. */
  readonly samplers: Sampler[];
  /** Where the text is when all drafts are chosen; the caller's own one is not moved. */
  private constraint: Constraint | undefined;

  /** @param most drafts that are of use */
  constructor(
    private readonly text: Text,
    readonly most: number,
  ) {
    const mask = text.constraint?.mask()?.slice();
    this.samplers = [this.sampler(mask)];
    checkPossible(this.last, text.vocabSize);
    if (text.constraint && most > 0) this.constraint = text.constraint.fork!();
  }

  get history(): readonly number[] {
    return this.text.history;
  }

  /** Whether no draft is wanted any more. */
  get isFull(): boolean {
    return this.drafts.length >= this.most;
  }

  /** How the token behind the last draft is to be chosen. */
  get last(): Sampler {
    return this.samplers[this.samplers.length - 1];
  }

  /**
   * Adds a draft, unless the text cannot go on with it: where it is not possible there, or ends the text. Returns whether it was
   * added; when not, nothing more is to be.
   */
  push(id: number): boolean {
    const { ends, vocabSize } = this.text;
    if (this.isFull || ends.has(id) || !(id < vocabSize)) return false;
    if (this.last.mask && !allows(this.last.mask, id)) return false;
    const mask = this.constraint && this.advance(this.constraint, id);
    if (mask === 'none') return false;
    this.drafts.push(id);
    this.samplers.push(this.sampler(mask));
    return true;
  }

  /** What may follow a draft. */
  private advance(constraint: Constraint, id: number): Uint32Array | undefined | 'none' {
    try {
      constraint.accept(id);
      const mask = constraint.isFinished ? new Uint32Array() : constraint.mask()?.slice();
      return mask && !allowsAny(mask, this.text.vocabSize) ? 'none' : mask;
    } catch {
      // A place that the text may never come to; where it does, its own constraint raises the same.
      return 'none';
    }
  }

  private sampler(mask: Uint32Array | undefined): Sampler {
    const { history, processor, logprob, top } = this.text;
    return processor.samplerAhead(history, this.drafts, { mask, logprob, top });
  }
}
