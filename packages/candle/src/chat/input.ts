/**
 * Where a chat's messages come from: a line editor on a terminal, with history and pasted text of several lines, or lines of a
 * pipe or file.
 */
import { createInterface, type Interface } from 'node:readline';
import { Transform } from 'node:stream';
import { MessageLines } from './messages-in';

/** `interrupt`: Ctrl+C on an empty line. */
export type Input = { type: 'message'; text: string } | { type: 'interrupt' } | { type: 'end' };

export interface ChatInput {
  /** The next message. */
  next(): Promise<Input>;
  /** Runs what answers; Ctrl+C meanwhile calls `interrupt`, and what is typed waits. */
  during<T>(answer: () => Promise<T>, interrupt: () => void): Promise<T>;
  close(): void;
}

export function openInput(prompt: string): ChatInput {
  return process.stdin.isTTY ? new EditedInput(prompt) : new PipedInput();
}

/** For one message that came with the command. */
export const NO_INPUT: ChatInput = {
  next: () => Promise.resolve({ type: 'end' }),
  during: (answer) => answer(),
  close() {},
};

/** Messages in the order in which they come, whether or not someone waits for them. */
class Queue {
  private readonly items: Input[] = [];
  private waiting: ((item: Input) => void) | undefined;
  private ended = false;

  push(item: Input): void {
    if (this.ended) return;
    this.ended = item.type === 'end';
    if (!this.waiting) this.items.push(item);
    else {
      this.waiting(item);
      this.waiting = undefined;
    }
  }

  next(): Promise<Input> {
    const item = this.items.shift();
    if (item) return Promise.resolve(item);
    if (this.ended) return Promise.resolve({ type: 'end' });
    return new Promise((resolve) => {
      this.waiting = resolve;
    });
  }
}

class PipedInput implements ChatInput {
  private readonly lines = new MessageLines();
  private readonly queue = new Queue();
  private readonly reader: Interface;

  constructor() {
    this.reader = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
    this.reader.on('line', (line) => this.add(this.lines.push(line)));
    this.reader.on('close', () => {
      this.add(this.lines.flush());
      this.queue.push({ type: 'end' });
    });
    process.stdin.on('error', () => this.reader.close());
  }

  next(): Promise<Input> {
    return this.queue.next();
  }

  during<T>(answer: () => Promise<T>): Promise<T> {
    return answer();
  }

  close(): void {
    this.reader.close();
    process.stdin.destroy();
  }

  private add(text: string | undefined): void {
    if (text !== undefined) this.queue.push({ type: 'message', text });
  }
}

const PASTE_START = '\x1b[200~';
const PASTE_END = '\x1b[201~';
const CTRL_C = '\x03';
/** Stand for line breaks of pasted text in the line; the first that the text does not hold. */
const BREAKS = ['⏎', '↵', '␤'];

/**
 * What stands between the terminal and the line editor: line breaks of a paste become signs, so that it is one line until
 * Enter, and while an answer is written only Ctrl+C counts.
 */
class Keys extends Transform {
  readonly isTTY = true;
  sign = BREAKS[0];
  /** What Ctrl+C does instead of going to the editor. */
  interrupt: (() => void) | undefined;
  private text = '';
  private pasted: string | undefined;
  private held = '';

  setRawMode(mode: boolean): this {
    process.stdin.setRawMode(mode);
    return this;
  }

  /** Gives out what was typed meanwhile. */
  release(): void {
    this.interrupt = undefined;
    const { held } = this;
    this.held = '';
    if (held !== '') this.give(held);
  }

  override _transform(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    this.give(chunk.toString('latin1'));
    done();
  }

  /** Bytes, as characters of Latin 1. */
  private give(text: string): void {
    if (this.interrupt) {
      if (text.includes(CTRL_C)) {
        this.held = '';
        this.interrupt();
      } else this.held += text;
      return;
    }
    this.text += text;
    for (;;) {
      const mark = this.pasted === undefined ? PASTE_START : PASTE_END;
      const at = this.text.indexOf(mark);
      const end = at >= 0 ? at : this.text.length - startOf(mark, this.text);
      this.pass(this.text.slice(0, end));
      this.text = this.text.slice(at >= 0 ? at + mark.length : end);
      if (at < 0) break;
      if (this.pasted !== undefined) this.paste(this.pasted);
      this.pasted = this.pasted === undefined ? '' : undefined;
    }
    // Escape alone is a key, too.
    if (this.text === '\x1b' && this.pasted === undefined) {
      this.push('\x1b');
      this.text = '';
    }
  }

  private pass(text: string): void {
    if (this.pasted !== undefined) this.pasted += text;
    else if (text !== '') this.push(Buffer.from(text, 'latin1'));
  }

  private paste(latin: string): void {
    const text = Buffer.from(latin, 'latin1').toString('utf8').replace(/\r\n?/g, '\n').replace(/\n+$/, '');
    this.sign = BREAKS.find((sign) => !text.includes(sign)) ?? BREAKS[0];
    const line = text.replaceAll('\n', this.sign).replaceAll('\t', '    ');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: keys must not be pasted
    this.push(line.replace(/[\x00-\x1f\x7f]/g, ''));
  }
}

/** Length of the longest end of `text` that `mark` begins with. */
function startOf(mark: string, text: string): number {
  let length = Math.min(mark.length - 1, text.length);
  while (length > 0 && !mark.startsWith(text.slice(text.length - length))) length--;
  return length;
}

class EditedInput implements ChatInput {
  private readonly keys = new Keys();
  private readonly queue = new Queue();
  private readonly lines = new MessageLines();
  private readonly reader: Interface;
  private readonly output = process.stdout.isTTY ? process.stdout : process.stderr;
  private readonly reset = () => this.output.write('\x1b[?2004l');

  constructor(private readonly prompt: string) {
    process.stdin.pipe(this.keys);
    const input = this.keys as unknown as NodeJS.ReadStream;
    this.reader = createInterface({ input, output: this.output, terminal: true, historySize: 1000 });
    this.reader.on('line', (line) => this.line(line));
    this.reader.on('close', () => this.queue.push({ type: 'end' }));
    this.reader.on('SIGINT', () => this.cancel());
    this.output.write('\x1b[?2004h');
    process.once('exit', this.reset);
  }

  next(): Promise<Input> {
    this.ask();
    return this.queue.next();
  }

  async during<T>(answer: () => Promise<T>, interrupt: () => void): Promise<T> {
    this.keys.interrupt = interrupt;
    try {
      return await answer();
    } finally {
      this.keys.release();
    }
  }

  close(): void {
    process.removeListener('exit', this.reset);
    this.reset();
    this.reader.close();
    process.stdin.unpipe(this.keys);
    process.stdin.setRawMode(false);
    process.stdin.destroy();
  }

  private ask(): void {
    // Lines after the first have no sign before them, so that a message can be copied as it is.
    this.reader.setPrompt(this.lines.open ? '' : this.prompt);
    this.reader.prompt();
  }

  private line(line: string): void {
    const text = this.lines.push(line.replaceAll(this.keys.sign, '\n'));
    this.keys.sign = BREAKS[0];
    if (text === undefined) this.ask();
    else this.queue.push({ type: 'message', text });
  }

  /** Ctrl+C: what was typed is gone; on an empty line it is for the chat. */
  private cancel(): void {
    const isEmpty = this.reader.line === '' && !this.lines.open;
    this.lines.clear();
    this.output.write('\n');
    if (isEmpty) {
      this.queue.push({ type: 'interrupt' });
      return;
    }
    this.reader.write(null, { ctrl: true, name: 'e' });
    this.reader.write(null, { ctrl: true, name: 'u' });
    this.ask();
  }
}
