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

/**
 * @param within what the answer begins with, where the prompt ends behind the header of a message
 * @param calls whether messages to functions are calls
 */
export function* harmonyReply(
  reader: Reader,
  out: ReplyOutput,
  within: 'text' | 'reasoning' | undefined,
  calls: boolean,
): Reading<void> {
  if (within && (yield* message(reader, out, within)) === END) return;
  for (let isFirst = within === undefined; ; isFirst = false) {
    reader.record('');
    const header = yield* readHeader(reader);
    if (!header) {
      const text = reader.sinceRecord;
      // Of a header that broke off nothing is shown, unless it may be the text of a model that writes none.
      if (header === END && !(isFirst && !text.includes('<|'))) return;
      // No format at all.
      out.text('text', text.replaceAll(/<\|(start|channel|constrain|message|end|call|return)\|>/g, ''));
      const last = yield* reader.until(HARMONY_MARKS, (part) => out.text('text', part));
      if (last === END) return out.flush('text');
      reader.unread(last);
      continue;
    }
    const channel = /<\|channel\|>\s*(\w+)/.exec(header)?.[1] ?? 'final';
    const recipient = /\bto=([^\s<]+)/.exec(header)?.[1];
    if (recipient !== undefined && calls) {
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
      if (!out.endCall()) out.abandonCall(text, true);
      if (mark === END) return out.flush('text');
      continue;
    }
    if ((yield* message(reader, out, channel === 'analysis' ? 'reasoning' : 'text')) === END) return;
  }
}

/** The body of a message that is no call. */
function* message(reader: Reader, out: ReplyOutput, type: 'text' | 'reasoning'): Reading<string> {
  if (out.has(type)) out.text(type, '\n\n');
  const mark = yield* body(reader, (text) => out.text(type, text));
  if (type === 'text') out.flush('text');
  else out.drop('reasoning');
  return mark;
}

function* body(reader: Reader, emit: (text: string) => void): Reading<string> {
  const mark = yield* reader.until(['<|start|>', '<|channel|>', '<|end|>', '<|call|>', '<|return|>'], emit);
  // A message that was not ended: what begins here is the next header.
  if (mark === '<|start|>' || mark === '<|channel|>') reader.unread(mark);
  return mark;
}

/** What stands before `<|message|>`; {@link END} where it breaks off, undefined where nothing like a header comes. */
function* readHeader(reader: Reader): Reading<string | undefined> {
  let header = '';
  for (;;) {
    const character = yield* reader.next();
    if (character === END) return END;
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
