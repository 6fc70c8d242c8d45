/**
 * Lines to messages: `"""` on a line of its own begins and ends one of several lines, and a backslash at the end of a line goes on
 * with the next one.
 */
export class MessageLines {
  private lines: string[] = [];
  private quoted = false;

  /** Whether a message has begun that is not whole. */
  get open(): boolean {
    return this.quoted || this.lines.length > 0;
  }

  /** A message, once a line makes it whole. */
  push(line: string): string | undefined {
    if (this.quoted) {
      if (!line.trimEnd().endsWith('"""')) {
        this.lines.push(line);
        return undefined;
      }
      const last = line.trimEnd().slice(0, -3);
      if (last !== '') this.lines.push(last);
      return this.take();
    }
    if (this.lines.length === 0 && line.trimStart().startsWith('"""')) {
      const first = line.trimStart().slice(3);
      const isWhole = first.trimEnd().endsWith('"""');
      if (isWhole) return first.trimEnd().slice(0, -3);
      this.quoted = true;
      if (first !== '') this.lines.push(first);
      return undefined;
    }
    if (line.endsWith('\\')) {
      this.lines.push(line.slice(0, -1));
      return undefined;
    }
    this.lines.push(line);
    return this.take();
  }

  /** What there is, at the end of the input. */
  flush(): string | undefined {
    return this.open ? this.take() : undefined;
  }

  clear(): void {
    this.lines = [];
    this.quoted = false;
  }

  private take(): string {
    const text = this.lines.join('\n');
    this.clear();
    return text;
  }
}
