/**
 * Text of tokens that arrive one by one: candle-examples' `TokenOutputStream`. A token may end inside a UTF-8 sequence or
 * change how its predecessor reads, so text is given out only once it cannot change any more.
 *
 * Differences from candle: skipped special tokens never enter the window (they would hide a leading space), and the
 * stream may start in the middle of a text (`context`).
 */
export class DecodeStream {
  private ids: number[] = [];
  /** ids[0, read) have been given out; they stay as the context of what follows. */
  private read = 0;
  private given = '';

  /**
   * @param decode joins tokens to text; malformed UTF-8 becomes U+FFFD
   * @param skip tokens that give no text
   * @param context the tokens just before the first one, such as the end of the prompt
   */
  constructor(
    private readonly decode: (ids: number[]) => string,
    private readonly skip: (id: number) => boolean,
    context: readonly number[] = [],
  ) {
    const before = context.slice(-8).filter((id) => !skip(id));
    const text = before.length > 0 ? decode(before) : '';
    if (text.endsWith('\ufffd')) return;
    this.ids = before;
    this.read = before.length;
    this.given = text;
  }

  /** The text that `id` completes: often the token's own, empty in the middle of a character. */
  push(id: number): string {
    if (this.skip(id)) return '';
    this.ids.push(id);
    const text = this.decode(this.ids);
    // A replacement character at the end is a sequence still open, or one that is malformed: the next token tells.
    return text.endsWith('\ufffd') ? '' : this.give(text);
  }

  /** What is still held back, at the end of the text; malformed sequences come out as U+FFFD. */
  flush(): string {
    return this.read < this.ids.length ? this.give(this.decode(this.ids)) : '';
  }

  private give(text: string): string {
    const piece = text.slice(this.given.length);
    this.ids = this.ids.slice(this.read);
    this.read = this.ids.length;
    this.given = this.read > 0 ? this.decode(this.ids) : '';
    return piece;
  }
}
