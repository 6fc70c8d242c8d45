/** Pieces of an answer as the items and events of `/v1/responses`: an item a run of pieces of one kind. */
import { randomUUID } from 'node:crypto';
import type { ChatPiece } from '@x/transformers';
import type { ChatLogprob } from './token-texts';
import { writtenArguments } from './written-calls';

type Event = Record<string, unknown> & { type: string };
type Status = 'in_progress' | 'completed' | 'incomplete';

interface ContentPart {
  type: 'output_text' | 'reasoning_text';
  text: string;
  annotations?: [];
  logprobs?: ChatLogprob[];
}

interface Item {
  type: 'message' | 'reasoning' | 'function_call';
  id: string;
  status: Status;
  role?: 'assistant';
  content?: ContentPart[];
  summary?: [];
  call_id?: string;
  name?: string;
  arguments?: string;
}

export class ResponseItems {
  readonly output: Item[] = [];
  /** The one that is being written, the last of {@link output}. */
  private open: Item | undefined;

  /** What a piece adds. @param logprobs of its tokens */
  add(piece: ChatPiece, logprobs: ChatLogprob[] = []): Event[] {
    switch (piece.type) {
      case 'text':
        return piece.ofCall === undefined ? this.text('message', piece.text, logprobs) : [];
      case 'reasoning':
        return this.text('reasoning', piece.text, logprobs);
      case 'tool-call-start': {
        const call = {
          type: 'function_call',
          id: `fc_${randomUUID()}`,
          call_id: piece.id,
          name: piece.name,
          arguments: '',
        } as const;
        return [...this.closeEarlier(), ...this.begin({ ...call, status: 'in_progress' })];
      }
      case 'tool-call-arguments': {
        if (this.open?.type !== 'function_call') return [];
        this.open.arguments += piece.text;
        return [{ type: 'response.function_call_arguments.delta', ...this.place(), delta: piece.text }];
      }
      case 'tool-call-end': {
        if (this.open?.type !== 'function_call') return [];
        this.open.arguments = writtenArguments(this.open.arguments ?? '', piece);
        const { name, arguments: text } = this.open;
        return [
          { type: 'response.function_call_arguments.done', ...this.place(), name, arguments: text },
          ...this.close('completed'),
        ];
      }
    }
  }

  /** The end of the answer. */
  end(status: 'completed' | 'incomplete'): Event[] {
    const events = this.open?.type === 'function_call' ? this.closeEarlier() : this.close(status);
    if (this.output.length === 0) {
      events.push(...this.text('message', '', []), ...this.close(status));
    }
    return events;
  }

  /** Something else begins: what was written is whole, unless it is a call, which would have ended. */
  private closeEarlier(): Event[] {
    return this.close(this.open?.type === 'function_call' ? 'incomplete' : 'completed');
  }

  private text(kind: 'message' | 'reasoning', delta: string, logprobs: ChatLogprob[]): Event[] {
    if (delta === '' && this.open === undefined && this.output.length > 0) return [];
    const events: Event[] = [];
    if (this.open?.type !== kind) {
      events.push(...this.closeEarlier());
      const id = `${kind === 'message' ? 'msg' : 'rs'}_${randomUUID()}`;
      const item: Item =
        kind === 'message'
          ? { type: kind, id, status: 'in_progress', role: 'assistant', content: [] }
          : { type: kind, id, status: 'in_progress', summary: [], content: [] };
      events.push(...this.begin(item));
      const part: ContentPart =
        kind === 'message'
          ? { type: 'output_text', text: '', annotations: [], logprobs: [] }
          : { type: 'reasoning_text', text: '' };
      events.push({ type: 'response.content_part.added', ...this.place(), content_index: 0, part: { ...part } });
      item.content!.push(part);
    }
    const part = this.open!.content![0];
    part.text += delta;
    part.logprobs?.push(...logprobs);
    const place = { ...this.place(), content_index: 0 };
    if (kind === 'reasoning') return [...events, { type: 'response.reasoning_text.delta', ...place, delta }];
    return [...events, { type: 'response.output_text.delta', ...place, delta, logprobs }];
  }

  private begin(item: Item): Event[] {
    this.output.push(item);
    this.open = item;
    const { item_id: _, ...place } = this.place();
    const copy = { ...item, ...(item.content && { content: [] }) };
    return [{ type: 'response.output_item.added', ...place, item: copy }];
  }

  private close(status: 'completed' | 'incomplete'): Event[] {
    const item = this.open;
    if (!item) return [];
    item.status = status;
    const { item_id, output_index } = this.place();
    const events: Event[] = [];
    const part = item.content?.[0];
    if (part) {
      const place = { item_id, output_index, content_index: 0 };
      const type = part.type === 'output_text' ? 'response.output_text.done' : 'response.reasoning_text.done';
      events.push({ type, ...place, text: part.text, ...(part.logprobs && { logprobs: part.logprobs }) });
      events.push({ type: 'response.content_part.done', ...place, part });
    }
    events.push({ type: 'response.output_item.done', output_index, item });
    this.open = undefined;
    return events;
  }

  private place(): { item_id: string; output_index: number } {
    return { item_id: this.open!.id, output_index: this.output.length - 1 };
  }
}
