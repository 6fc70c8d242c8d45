/** An answer as it comes: text to stdout, reasoning and notes dimmed, and nothing that a terminal would obey. */
import type { ChatPiece } from '@x/transformers';
import { isOutputClosed } from '../interrupt';
import { paint } from '../output';

export type ShowReasoning = 'show' | 'hide';

export class AnswerPrinter {
  private part: 'none' | 'text' | 'reasoning' | 'call' = 'none';
  private atLineStart = true;

  constructor(private readonly reasoning: ShowReasoning) {}

  piece(piece: ChatPiece): void {
    switch (piece.type) {
      case 'text':
        // Of a call that broke off, which stands there.
        if (piece.ofCall !== undefined) break;
        this.begin('text');
        this.write(visible(piece.text));
        break;
      case 'reasoning':
        if (this.reasoning === 'hide') break;
        this.begin('reasoning');
        this.write(paint('dim', visible(piece.text)), piece.text);
        break;
      case 'tool-call-start':
        this.begin('call');
        this.write(paint('dim', `calls ${visible(piece.name)} `), piece.name);
        break;
      case 'tool-call-arguments':
        this.write(paint('dim', visible(piece.text)), piece.text);
        break;
      case 'tool-call-end':
        this.write('\n');
    }
  }

  /** Ends the line. */
  end(): void {
    if (!this.atLineStart) this.write('\n');
    this.part = 'none';
  }

  private begin(part: 'text' | 'reasoning' | 'call'): void {
    if (this.part === part) return;
    if (this.part === 'reasoning') this.write(this.atLineStart ? '\n' : '\n\n');
    else if (!this.atLineStart) this.write('\n');
    this.part = part;
  }

  private write(text: string, plain = text): void {
    if (plain === '' || isOutputClosed()) return;
    process.stdout.write(text);
    this.atLineStart = plain.endsWith('\n');
  }
}

/** Without control characters, which a model could move a terminal's cursor with, or worse. */
function visible(text: string): string {
  if (!process.stdout.isTTY) return text;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is left out
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '');
}

/** A line about the chat, to stderr. */
export function note(text: string): void {
  process.stderr.write(`${paint('dim', text, process.stderr)}\n`);
}
