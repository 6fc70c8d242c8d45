/**
 * Calls as clients know them: what a model wrote of one that broke off is a call all the same, with arguments that are no JSON, in
 * a stream and in a whole answer alike, and is taken when it comes back in the history.
 */
import type { ChatMessage, ChatPiece } from '@x/transformers';

export interface WrittenCall {
  id: string;
  name: string;
  /** JSON, unless the call broke off. */
  arguments: string;
}

/** The calls of an answer and its text without them. */
export class WrittenAnswer {
  readonly calls: WrittenCall[] = [];
  #content = '';
  #reasoning = '';

  add(piece: ChatPiece): void {
    switch (piece.type) {
      case 'text':
        if (piece.ofCall === undefined) this.#content += piece.text;
        break;
      case 'reasoning':
        this.#reasoning += piece.text;
        break;
      case 'tool-call-start':
        this.calls.push({ id: piece.id, name: piece.name, arguments: '' });
        break;
      case 'tool-call-arguments':
        this.calls.at(-1)!.arguments += piece.text;
        break;
      case 'tool-call-end': {
        const call = this.calls.at(-1)!;
        call.arguments = writtenArguments(call.arguments, piece);
      }
    }
  }

  get message(): Pick<ChatMessage, 'content' | 'reasoning'> {
    return { content: this.#content, ...(this.#reasoning !== '' && { reasoning: this.#reasoning }) };
  }
}

/** The JSON of a whole call's arguments as the model wrote it, which may have numbers that JavaScript rounds. */
export function writtenArguments(text: string, { call }: Extract<ChatPiece, { type: 'tool-call-end' }>): string {
  try {
    if (typeof JSON.parse(text) === 'object') return text;
  } catch {
    // Of a call that is not written in JSON.
  }
  return JSON.stringify(call.arguments);
}

/** Arguments in a history: the object that they are the JSON of, or what was written, under a name that says what it is. */
export function argumentsOf(written: string): Record<string, unknown> {
  if (written.trim() === '') return {};
  try {
    let value: unknown = JSON.parse(written);
    if (typeof value === 'string') value = JSON.parse(value);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // As it was written.
  }
  return { invalid_json: written };
}
