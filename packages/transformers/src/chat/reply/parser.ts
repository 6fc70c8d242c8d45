/**
 * Reads a model's answer while it comes in: reasoning, text and tool calls as pieces. What looks like a call and is none, or
 * breaks off, is text.
 */
import { randomUUID } from 'node:crypto';
import type { ChatMessage, ChatPiece, ToolDefinition } from '../messages';
import { shortId } from '../normalize';
import { type ReplyFormat, standsAlone } from './formats';
import { HARMONY_MARKS, harmonyReply } from './harmony';
import { jsonCall, readValue } from './json-calls';
import { ReplyOutput } from './output';
import { END, Reader, type Reading } from './reader';
import { ArgumentTypes, argumentTags, functionTags, gemmaCall } from './tag-calls';

export interface ReplyParserOptions {
  /** Tools that were offered. Default: none. */
  tools?: readonly ToolDefinition[];
  /** The prompt ended within reasoning. Default false. */
  inReasoning?: boolean;
  /** The answer goes on within a text, or with `inReasoning` within reasoning, that was begun before. Default false. */
  continued?: boolean;
  /** Names calls that the model does not name. Default: nine letters and digits, which all templates take. */
  newId?: () => string;
}

const SEPARATOR = '<｜tool▁sep｜>';

/** Makes pieces of an answer's text: {@link push} it as it comes, then {@link end}. It waits where a mark might begin. */
export class ReplyParser {
  private readonly reader = new Reader();
  private readonly out: ReplyOutput;
  private readonly types: ArgumentTypes;
  private readonly names: ReadonlySet<string>;
  private readonly reading: Reading<void>;
  /** Marks that may still close a call that was left. */
  private left: readonly string[] = [];

  /** @param format of the template: `ChatTemplate.replyFormat`, or `format` of what `prompt` gave */
  constructor(
    private readonly format: ReplyFormat,
    {
      tools = [],
      inReasoning = false,
      continued = false,
      newId = () => shortId(randomUUID()),
    }: ReplyParserOptions = {},
  ) {
    this.out = new ReplyOutput(newId);
    this.types = new ArgumentTypes(tools);
    this.names = new Set(tools.map(({ name }) => name));
    this.out.goesOn = continued && inReasoning;
    const within = inReasoning ? 'reasoning' : continued ? 'text' : undefined;
    this.reading =
      format.family === 'harmony'
        ? harmonyReply(this.reader, this.out, within, format.calls !== undefined)
        : this.run(inReasoning, within === 'text');
    this.reading.next();
  }

  /** More of the answer, in pieces of any size. */
  push(text: string): ChatPiece[] {
    for (let i = 0; i < text.length; i++) this.reading.next(text[i]);
    return this.out.take();
  }

  /** The answer is over: what was held back. */
  end(): ChatPiece[] {
    this.reading.next(END);
    return this.out.take();
  }

  /** The answer so far. */
  get message(): ChatMessage {
    return this.out.message;
  }

  private *run(inReasoning: boolean, continued: boolean): Reading<void> {
    const { reader, out, format } = this;
    const { reasoning, calls, around = [] } = format;
    if (inReasoning && (yield* this.reasoning()) === END) return;
    if (calls?.bare && !continued && this.names.size > 0) yield* this.bareCalls();
    const marks = [...(reasoning ? [reasoning.open] : []), ...(calls?.open ?? [])];
    for (;;) {
      const mark = yield* reader.until([...marks, ...around, ...this.left], (text) => out.text('text', text));
      if (mark === END) return out.flush('text');
      if (this.left.includes(mark) || around.includes(mark)) out.drop('text');
      else if (mark === reasoning?.open) {
        // Later than at the beginning it is what the answer is about.
        if (out.message.content !== '' || continued) out.text('text', mark);
        else if ((yield* this.reasoning()) === END) return;
      } else yield* this.calls(mark);
    }
  }

  private *reasoning(): Reading<string> {
    const { out, format } = this;
    const mark = yield* this.reader.until([format.reasoning!.close], (text) => out.text('reasoning', text));
    out.drop('reasoning');
    out.drop('text');
    out.trimStart = true;
    return mark;
  }

  /** Calls that an answer begins with, without a mark before them. */
  private *bareCalls(): Reading<void> {
    const { reader } = this;
    reader.record('');
    yield* reader.skipSpace();
    const first = yield* reader.peek();
    if (first === '{' || first === '[') yield* this.calls('', reader.sinceRecord);
    else reader.unread(reader.sinceRecord);
  }

  /** All calls behind a mark. */
  private *calls(open: string, recorded = open): Reading<void> {
    const { reader, out, format } = this;
    const { close, open: opens, syntax } = format.calls!;
    reader.record(recorded);
    let count = 0;
    let mark = open;
    let lists = 0;
    // Whether something was passed over that closes nothing: text, unless another call comes.
    let isText = false;
    for (;;) {
      yield* reader.skipSpace();
      const skipped = yield* reader.mark(
        [...close, ',', '[', ']', '```'].filter((text) => count > 0 || text !== '```'),
      );
      // A list's brackets, and what stands between and around calls.
      if (skipped !== '') {
        const begins = skipped === '[' && (count === 0 || opens.includes(mark));
        const ends = skipped === ']' && lists > 0 && !isText;
        lists += Number(begins) - Number(ends);
        if (skipped.length > 1) mark = skipped;
        if (close.includes(skipped) || (skipped === '```' && syntax === 'deepseek')) {
          isText = false;
          // What closes a call is no part of the next one, should that break off.
          if (count > 0) reader.record(opens.includes(skipped) ? skipped : '');
        } else if (count > 0 && !begins && !ends && !isText) {
          isText = true;
          reader.record(skipped);
        }
        continue;
      }
      const next = yield* reader.peek();
      const more = count === 0 || this.beginsCall(next, mark);
      if (!more) break;
      if (!(yield* this.call(mark))) {
        const isCall = count > 0 || standsAlone(open);
        if (out.isCalling) this.left = close.filter((one) => standsAlone(one) && !opens.includes(one));
        out.abandonCall(reader.sinceRecord, reader.isOver && isCall);
        return;
      }
      count++;
      mark = '';
      isText = false;
      out.trimStart = true;
      reader.record('');
    }
    // White space behind the last call is no text.
    if (isText) out.text('text', reader.sinceRecord);
  }

  /** Whether another call may begin with this character. */
  private beginsCall(next: string, mark: string): boolean {
    if (next === END) return false;
    const { syntax, open } = this.format.calls!;
    if (syntax === 'json' || (syntax === 'mistral' && next === '{')) return next === '{';
    return open.includes(mark) || (syntax === 'function-tags' && mark === '<tool_call>');
  }

  private *call(mark: string): Reading<boolean> {
    const { reader, out, types, format } = this;
    const { syntax, quote = '' } = format.calls!;
    const accepts = (name: string) => mark !== '' || this.names.size === 0 || this.names.has(name);
    switch (syntax) {
      case 'json':
        return yield* jsonCall(reader, out, accepts);
      case 'mistral':
        if ((yield* reader.peek()) === '{') return yield* jsonCall(reader, out, accepts);
        return yield* this.mistralCall();
      case 'deepseek':
        return yield* this.deepseekCall();
      case 'function-tags':
        return yield* functionTags(reader, out, types, mark === '<function=');
      case 'argument-tags':
        return yield* argumentTags(reader, out, types);
      case 'gemma':
        return yield* gemmaCall(reader, out, quote);
      case 'harmony':
        return false; // Read by harmonyReply.
    }
  }

  /** `name[ARGS]{...}`, or with an id before the arguments. */
  private *mistralCall(): Reading<boolean> {
    const { reader, out } = this;
    let name = '';
    let id: string | undefined;
    let mark = yield* reader.until(['[ARGS]', '[CALL_ID]', '{'], (text) => {
      name += text;
    });
    if (mark === '[CALL_ID]') {
      id = '';
      mark = yield* reader.until(['[ARGS]', '{'], (text) => {
        id += text;
      });
    }
    if (mark === END || name.trim() === '') return false;
    if (mark === '{') reader.unread(mark);
    out.startCall(name.trim(), id?.trim() || undefined);
    return yield* this.callArguments();
  }

  private *deepseekCall(): Reading<boolean> {
    const { reader, out } = this;
    let name = '';
    const add = (text: string) => {
      name += text;
    };
    if ((yield* reader.until([SEPARATOR], add)) === END) return false;
    yield* reader.skipSpace();
    if ((yield* reader.peek()) !== '{') {
      // What was read is the kind; the name, and a fence, come now.
      name = '';
      if ((yield* reader.until(['\n', '{'], add)) === END) return false;
      if (name === '') return false;
      yield* reader.skipSpace();
      if ((yield* reader.mark(['```json'])) !== '') yield* reader.skipSpace();
    }
    if (name.trim() === '' || (yield* reader.peek()) !== '{') return false;
    out.startCall(name.trim());
    return yield* this.callArguments();
  }

  private *callArguments(): Reading<boolean> {
    const { reader, out } = this;
    yield* reader.skipSpace();
    return (yield* readValue(reader, (text) => out.callText(text))) && out.endCall();
  }
}

/** All texts that mean something to the format: a tokenizer must not leave them out of an answer. */
export function marksOf(format: ReplyFormat): readonly string[] {
  if (format.family === 'harmony') return HARMONY_MARKS;
  const { reasoning, calls, around = [] } = format;
  const marks = [...around, ...(reasoning ? [reasoning.open.trim(), reasoning.close] : [])];
  if (!calls) return marks;
  marks.push(...calls.open, ...calls.close);
  if (calls.quote) marks.push(calls.quote);
  if (reasoning?.open === '<|channel>thought\n') marks.push('<|channel>');
  if (calls.syntax === 'deepseek') marks.push(SEPARATOR);
  if (calls.syntax === 'mistral') marks.push('[ARGS]', '[CALL_ID]');
  return marks;
}
