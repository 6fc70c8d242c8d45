/**
 * Characters of an answer, one after the other. Parsers are generators that are given each with `yield`, so that it cannot
 * matter how the text was cut into pieces. {@link END} comes last.
 */
export const END = '';

/** Takes a character at each `yield`, and returns what it found. */
export type Reading<T> = Generator<void, T, string>;

export class Reader {
  private readonly back: string[] = [];
  private ended = false;
  /** What was read since {@link record}: to be given out as text when it turns out to be nothing else. */
  private recorded = '';

  record(start: string): void {
    this.recorded = start;
  }

  get sinceRecord(): string {
    return this.recorded;
  }

  /** Whether nothing follows. */
  get isOver(): boolean {
    return this.ended && this.back.length === 0;
  }

  *next(): Reading<string> {
    let character = this.back.pop();
    if (character === undefined) {
      if (this.ended) return END;
      character = yield;
      if (character === END) this.ended = true;
    }
    this.recorded += character;
    return character;
  }

  /** Puts characters back, the last that was read at the end. */
  unread(text: string): void {
    if (text === '') return;
    for (let i = text.length - 1; i >= 0; i--) this.back.push(text[i]);
    this.recorded = this.recorded.slice(0, -text.length);
  }

  *peek(): Reading<string> {
    const character = yield* this.next();
    this.unread(character);
    return character;
  }

  *skipSpace(): Reading<void> {
    for (;;) {
      const character = yield* this.next();
      if (character !== END && /\s/.test(character)) continue;
      this.unread(character);
      return;
    }
  }

  /** The longest of `marks` that comes next, or nothing, which leaves all as it is. */
  *mark(marks: readonly string[]): Reading<string> {
    let text = '';
    let found = '';
    while (marks.some((mark) => mark.length > text.length && mark.startsWith(text))) {
      const character = yield* this.next();
      if (character === END) break;
      text += character;
      if (marks.includes(text)) found = text;
    }
    this.unread(text.slice(found.length));
    return found;
  }

  /**
   * Reads until one of `marks`, none of which begins another one, and returns it, or {@link END}. What is before it goes to
   * `emit`; the start of what may become a mark is held back.
   */
  *until(marks: readonly string[], emit: (text: string) => void): Reading<string> {
    let held = '';
    for (;;) {
      const character = yield* this.next();
      held += character;
      const found = character === END ? undefined : marks.find((mark) => held.endsWith(mark));
      const keep = found ? found.length : character === END ? 0 : startOf(marks, held);
      if (held.length > keep) emit(held.slice(0, held.length - keep));
      if (found ?? character === END) return found ?? END;
      held = held.slice(held.length - keep);
    }
  }
}

/** Length of the longest end of `text` that one of `marks` begins with. */
function startOf(marks: readonly string[], text: string): number {
  let longest = 0;
  for (const mark of marks) {
    for (let length = Math.min(mark.length - 1, text.length); length > longest; length--) {
      if (mark.startsWith(text.slice(text.length - length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}
