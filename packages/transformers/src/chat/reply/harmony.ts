/**
 * Harmony, the format of gpt-oss: an answer is several messages, each with a header that names its channel and recipient.
 * `analysis` is reasoning, a recipient `functions.f` is a call of f, all else is text (openai/harmony, docs/format.md).
 */
import { readValue } from './json-calls';
import type { ReplyOutput } from './output';
import { END, type Reader, type Reading } from './reader';

export const HARMONY_MARKS = [
  '<|start|>',
  '<|channel|>',
  '<|constrain|>',
  '<|message|>',
  '<|end|>',
  '<|call|>',
  '<|return|>',
];

/** Characters of a header; an answer that has none is text. */
const MOST_HEADER = 400;

/** @param continued the answer goes on within a message of the channel `final` */
export function* harmonyReply(reader: Reader, out: ReplyOutput, continued: boolean): Reading<void> {
  if (continued && (yield* body(reader, (text) => out.text('text', text))) === END) return out.flush('text');
  for (;;) {
    reader.record('');
    const header = yield* readHeader(reader);
    if (header === undefined) {
      // No format at all.
      const text = reader.sinceRecord;
      out.text('text', text.replaceAll(/<\|(start|channel|constrain|message|end|call|return)\|>/g, ''));
      const last = yield* reader.until(HARMONY_MARKS, (part) => out.text('text', part));
      if (last === END) return out.flush('text');
      reader.unread(last);
      continue;
    }
    const channel = /<\|channel\|>\s*(\w+)/.exec(header)?.[1] ?? 'final';
    const recipient = /\bto=([^\s<]+)/.exec(header)?.[1];
    if (recipient !== undefined) {
      out.startCall(recipient.replace(/^functions\./, ''));
      let text = '';
      const emit = (part: string) => {
        text += part;
        out.callText(part);
      };
      yield* reader.skipSpace();
      // Marks within the strings of JSON are text.
      if ((yield* reader.peek()) === '{') yield* readValue(reader, emit);
      const mark = yield* body(reader, emit);
      if (text === '' && mark !== END) out.callText('{}');
      if (!out.endCall()) out.abandonCall(text);
      if (mark === END) return out.flush('text');
      continue;
    }
    const type = channel === 'analysis' ? 'reasoning' : 'text';
    if (type === 'text' && out.message.content !== '') out.text('text', '\n\n');
    const mark = yield* body(reader, (text) => out.text(type, text));
    if (type === 'text') out.flush('text');
    else out.drop('reasoning');
    if (mark === END) return;
  }
}

function* body(reader: Reader, emit: (text: string) => void): Reading<string> {
  const mark = yield* reader.until(['<|start|>', '<|channel|>', '<|end|>', '<|call|>', '<|return|>'], emit);
  // A message that was not ended: what begins here is the next header.
  if (mark === '<|start|>' || mark === '<|channel|>') reader.unread(mark);
  return mark;
}

/** What stands before `<|message|>`, or undefined where nothing like a header does. */
function* readHeader(reader: Reader): Reading<string | undefined> {
  let header = '';
  for (;;) {
    const character = yield* reader.next();
    if (character === END) return undefined;
    header += character;
    if (header.endsWith('<|message|>')) return header;
    const start = header.trimStart();
    const isHeader =
      header.length <= MOST_HEADER &&
      ['<|start|>', '<|channel|>', '<|constrain|>', 'to=', 'assistant', 'commentary', 'final', 'analysis'].some(
        (word) => word.startsWith(start) || start.startsWith(word),
      );
    if (!isHeader) return undefined;
  }
}
