/** What a parser has found: the pieces, and the message that they add up to. */
import type { ChatMessage, ChatPiece, ToolCall } from '../messages';

export class ReplyOutput {
  private pieces: ChatPiece[] = [];
  private content = '';
  private reasoning = '';
  private readonly calls: ToolCall[] = [];
  private started = 0;
  /** White space that is left out if nothing of its kind follows. */
  private held = { text: '', reasoning: '' };
  /** What stands between text in front of calls and text behind them. */
  private gap = '';
  private open: { index: number; id: string; name: string; text: string; before: string } | undefined;

  constructor(private readonly newId: () => string) {}

  /** Pieces since the last time. */
  take(): ChatPiece[] {
    const taken = this.pieces;
    this.pieces = [];
    return taken;
  }

  get message(): ChatMessage {
    const message: ChatMessage = { role: 'assistant', content: this.content };
    if (this.reasoning !== '') message.reasoning = this.reasoning;
    if (this.calls.length > 0) message.toolCalls = this.calls.map((call) => ({ ...call }));
    return message;
  }

  /** Answer or reasoning; white space before the first and behind the last of it is left out where `trimmed`. */
  text(type: 'text' | 'reasoning', text: string): void {
    const isFirst = (type === 'text' ? this.content : this.reasoning) === '';
    const trims = isFirst && (type === 'reasoning' ? !this.goesOn : this.trimStart);
    const shown = text.trimEnd();
    // What is held is not looked at: a model may write white space without end, a character at a time.
    if (shown === '') {
      if (!trims) this.held[type] += text;
      return;
    }
    const before = type === 'text' && !isFirst ? this.gap + this.held.text : this.held[type];
    if (type === 'text') this.gap = '';
    this.held[type] = text.slice(shown.length);
    this.add(type, trims ? shown.trimStart() : before + shown);
  }

  /** Whether white space at the beginning of the answer is left out: behind reasoning and calls. */
  trimStart = false;
  /** Whether the reasoning goes on from some before it, so that white space in front of it counts. */
  goesOn = false;

  has(type: 'text' | 'reasoning'): boolean {
    return (type === 'text' ? this.content : this.reasoning) !== '';
  }

  /** What was held back, as it turns out to belong to the answer. */
  flush(type: 'text' | 'reasoning'): void {
    const { [type]: text } = this.held;
    this.held[type] = '';
    this.add(type, text);
  }

  /** Reasoning or text ends here. */
  drop(type: 'text' | 'reasoning'): void {
    this.held[type] = '';
  }

  private add(type: 'text' | 'reasoning', text: string, ofCall?: number): void {
    if (text === '') return;
    if (type === 'text') this.content += text;
    else this.reasoning += text;
    const last = this.pieces.at(-1);
    if (ofCall !== undefined) this.pieces.push({ type: 'text', text, ofCall });
    else if (last?.type === type && !('ofCall' in last)) last.text += text;
    else this.pieces.push({ type, text });
  }

  /** Whether a call was started that has no end yet. */
  get isCalling(): boolean {
    return this.open !== undefined;
  }

  startCall(name: string, id = this.newId()): void {
    const index = this.started++;
    this.open = { index, id, name, text: '', before: this.held.text };
    this.drop('text');
    this.pieces.push({ type: 'tool-call-start', index, id, name });
  }

  /** More of the JSON of the arguments. */
  callText(text: string): void {
    if (!this.open || text === '') return;
    this.open.text += text;
    const { index } = this.open;
    const last = this.pieces.at(-1);
    if (last?.type === 'tool-call-arguments' && last.index === index) last.text += text;
    else this.pieces.push({ type: 'tool-call-arguments', index, text });
  }

  /** Ends the call; whether its arguments were JSON of an object. If not, it has no end. */
  endCall(): boolean {
    const { open } = this;
    const given = open && parseArguments(open.text);
    if (!given) return false;
    this.open = undefined;
    this.gap = open.before || '\n\n';
    const call = { id: open.id, name: open.name, arguments: given };
    this.calls.push(call);
    this.pieces.push({ type: 'tool-call-end', index: open.index, call });
    return true;
  }

  /**
   * Leaves a call without an end: what the model wrote of it is text, and follows the text before it.
   * @param isCall whether it is one also where its name is not known
   */
  abandonCall(written: string, isCall: boolean): void {
    const { open } = this;
    this.open = undefined;
    if (open) this.held.text = open.before;
    const ofCall = open?.index ?? (isCall ? this.started : undefined);
    if (ofCall === undefined) {
      this.text('text', written);
      return;
    }
    const before = this.trimStart && !this.has('text') ? '' : this.held.text;
    this.drop('text');
    this.add('text', before + written, ofCall);
  }
}

/** The object that a text is, which some models write into a JSON string. */
function parseArguments(text: string): Record<string, unknown> | undefined {
  try {
    let value: unknown = JSON.parse(text);
    if (typeof value === 'string') value = JSON.parse(value);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
