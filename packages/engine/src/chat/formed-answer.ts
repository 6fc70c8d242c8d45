/**
 * An answer whose text has a form, of a model that thinks first: reasoning is free up to its end, cannot be the end of the answer, and
 * the form holds for what comes behind it.
 */
import type { Constraint } from '../constraint';

export interface ReasoningFirst {
  /** What ends reasoning. */
  close: string;
  /** Tokens that come between it and the answer. */
  between: readonly number[];
  /** Mask of the tokens that reasoning may have: all but those that end an answer. */
  free: Uint32Array;
  /** The text of a token, or of a mark. */
  textOf(id: number): string;
}

export class FormedAnswer implements Constraint {
  private text = '';
  private isThinking = true;
  private forced: readonly number[];

  constructor(
    private readonly reasoning: ReasoningFirst,
    private readonly answer: Constraint,
  ) {
    this.forced = reasoning.between;
    if (answer.fork) this.fork = () => this.copy(answer.fork!());
  }

  fork?: () => FormedAnswer;

  get isFinished(): boolean {
    return !this.isThinking && this.forced.length === 0 && this.answer.isFinished === true;
  }

  mask(): Uint32Array | undefined {
    const { free } = this.reasoning;
    if (this.isThinking) return free;
    if (this.forced.length === 0) return this.answer.mask();
    const [id] = this.forced;
    const mask = new Uint32Array(free.length);
    mask[id >>> 5] = 1 << (id & 31);
    return mask;
  }

  accept(id: number): void {
    if (this.isThinking) {
      const { close, textOf } = this.reasoning;
      const text = this.text + textOf(id);
      this.isThinking = !text.includes(close);
      this.text = text.slice(-close.length);
    } else if (this.forced.length > 0) this.forced = this.forced.slice(1);
    else this.answer.accept(id);
  }

  private copy(answer: Constraint): FormedAnswer {
    const { text, isThinking, forced } = this;
    return Object.assign(new FormedAnswer(this.reasoning, answer), { text, isThinking, forced });
  }
}
