/** Follows one text: which tokens may come next, and what came. */
import { kinds } from '@x/core';
import { GrammarError } from './errors';
import type { Grammar } from './grammar';
import type { Masks } from './masks';
import type { Expressions } from './regular/expression';
import type { Frames, TextBetween, Thread } from './syntax/frames';
import type { Vocabulary } from './vocabulary';

/** Of whichever copy of this package. */
const GRAMMAR = kinds.kind(
  (value) => typeof (value as { masksFor?: unknown } | null | undefined)?.masksFor === 'function',
  'give a Grammar, as of compileSchema',
);
const VOCABULARY = kinds.kind(
  (value) => (value as { endIds?: unknown } | null | undefined)?.endIds !== undefined,
  'give a Vocabulary',
);

/** A text of a grammar, token by token: a `Constraint` of `@x/engine`. */
export class Matcher {
  private readonly frames: Frames;
  private readonly make: Expressions;
  private readonly masks: Masks;
  private threads: readonly Thread[];
  private text = Buffer.alloc(64);
  private length = 0;
  private current: Uint32Array | undefined;

  constructor(
    private readonly grammar: Grammar,
    readonly vocabulary: Vocabulary,
  ) {
    kinds.check('new Matcher', 'grammar', grammar, GRAMMAR);
    kinds.check('new Matcher', 'vocabulary', vocabulary, VOCABULARY);
    this.frames = grammar.frames;
    this.make = grammar.expressions;
    this.masks = grammar.masksFor(vocabulary);
    this.threads = this.frames.begin(grammar.start);
  }

  /**
   * Which tokens may come next: bit i % 32 of element i / 32 stands for token i. Tokens that end the text are among them where
   * it may end. Not to be written to.
   * @throws GrammarError TOO_LARGE where the grammar is too ambiguous to follow
   */
  mask(): Uint32Array {
    this.current ??= this.masks.of(this.threads, this.length, this.between, this.canEnd);
    return this.current;
  }

  /**
   * The token that came. One that ends the text changes nothing.
   * @throws GrammarError NOT_ALLOWED for a token that {@link mask} does not allow; TOO_LARGE as {@link mask}. Nothing has changed then
   */
  accept(id: number): void {
    if (this.vocabulary.endIds.includes(id) && this.canEnd) return;
    const bytes = this.vocabulary.text(id);
    if (!bytes || !this.acceptBytes(bytes)) {
      throw new GrammarError(
        'NOT_ALLOWED',
        `Token ${id} cannot come after ${JSON.stringify(this.ending())} in the grammar; choose one that mask() allows.`,
      );
    }
  }

  /** Goes on by bytes of the text. Returns false where the grammar does not allow them; then, and after an error, nothing has changed. */
  acceptBytes(bytes: Uint8Array): boolean {
    const { length, threads } = this;
    let isAllowed = false;
    this.make.startWork();
    try {
      for (const byte of bytes) {
        this.threads = this.frames.advance(this.threads, byte, this.length, this.between);
        this.append(byte);
        if (this.threads.length === 0) return false;
      }
      isAllowed = true;
      this.current = undefined;
      return true;
    } finally {
      if (!isAllowed) [this.threads, this.length] = [threads, length];
    }
  }

  /** Whether the text may end here. */
  get canEnd(): boolean {
    return this.length === 0 ? this.grammar.start.canEnd : this.threads.some(({ canEnd }) => canEnd);
  }

  /** Whether the text is complete and nothing may follow. */
  get isFinished(): boolean {
    return (
      this.canEnd &&
      this.threads.every(
        (thread) =>
          thread.state === this.make.epsilon && this.frames.after(thread, this.length, this.between).length === 0,
      )
    );
  }

  /** Another one at the same place. */
  fork(): Matcher {
    const fork = new Matcher(this.grammar, this.vocabulary);
    fork.threads = this.threads;
    fork.text = Buffer.from(this.text);
    fork.length = this.length;
    return fork;
  }

  private append(byte: number): void {
    if (this.length === this.text.length) this.text = Buffer.concat([this.text], this.length * 2);
    this.text[this.length++] = byte;
  }

  private readonly between: TextBetween = (from, to) => this.text.subarray(from, to);

  private ending(): string {
    return this.text.subarray(Math.max(0, this.length - 40), this.length).toString();
  }
}
