/** Calls that are not JSON: tags around names and values, and Gemma's own notation. */
import type { ToolDefinition } from '../messages';
import { checkTools } from '../normalize';
import type { ReplyOutput } from './output';
import { END, type Reader, type Reading } from './reader';

/** How the text of an argument between tags is taken: as it is, as it is but for `null`, or as JSON where it is some. */
export type ArgumentReading = 'text' | 'text or null' | 'json';

/** Types of a tool's arguments: tags do not tell a number from a text. */
export class ArgumentTypes {
  private readonly tools: ReadonlyMap<string, ToolDefinition>;

  /** @throws TransformersError as {@link checkTools} */
  constructor(tools: readonly ToolDefinition[]) {
    this.tools = new Map(checkTools(tools).map((tool) => [tool.name, tool]));
  }

  /** How an argument is taken, by the `type` of its JSON Schema: as text where that may be a string, else as JSON. */
  reading(tool: string, argument: string): ArgumentReading {
    const { properties } = (this.tools.get(tool)?.parameters ?? {}) as { properties?: Record<string, unknown> };
    const { type } = (properties && Object.hasOwn(properties, argument) ? (properties[argument] ?? {}) : {}) as {
      type?: unknown;
    };
    const types = Array.isArray(type) ? type : [type];
    if (!types.includes('string')) return 'json';
    return types.includes('null') ? 'text or null' : 'text';
  }

  /** What a text stands for. */
  value(tool: string, argument: string, text: string): unknown {
    const reading = this.reading(tool, argument);
    if (reading === 'text' || (reading === 'text or null' && text.trim() !== 'null')) return text;
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
}

/** Arguments of a call, one after the other, as the JSON of one object. */
class ArgumentWriter {
  private count = 0;

  constructor(private readonly out: ReplyOutput) {}

  add(name: string, value: unknown): void {
    this.out.callText(`${this.count++ === 0 ? '{' : ', '}${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  }

  end(): boolean {
    this.out.callText(this.count === 0 ? '{}' : '}');
    return this.out.endCall();
  }
}

function* textUntil(reader: Reader, marks: readonly string[]): Reading<{ text: string; mark: string }> {
  let text = '';
  const mark = yield* reader.until(marks, (part) => {
    text += part;
  });
  return { text, mark };
}

/** Without the line break that stands behind an opening tag and the one before a closing one. */
const inner = (text: string) => text.replace(/^\n/, '').replace(/\n$/, '');

/** `<function=name>`, `<parameter=key>value</parameter>`..., `</function>`. @param opened whether `<function=` was read */
export function* functionTags(
  reader: Reader,
  out: ReplyOutput,
  types: ArgumentTypes,
  opened: boolean,
): Reading<boolean> {
  yield* reader.skipSpace();
  if (!opened && (yield* reader.mark(['<function='])) === '') return false;
  const name = yield* textUntil(reader, ['>']);
  if (name.mark === END || name.text === '') return false;
  out.startCall(name.text);
  const writer = new ArgumentWriter(out);
  for (;;) {
    yield* reader.skipSpace();
    const mark = yield* reader.mark(['<parameter=', '</function>']);
    if (mark === '</function>') return writer.end();
    if (mark === '') return false;
    const key = yield* textUntil(reader, ['>']);
    if (key.mark === END) return false;
    const value = yield* textUntil(reader, ['</parameter>']);
    if (value.mark === END) return false;
    writer.add(key.text, types.value(name.text, key.text, inner(value.text)));
  }
}

/** `name`, then `<arg_key>key</arg_key><arg_value>value</arg_value>`..., until `</tool_call>`. */
export function* argumentTags(reader: Reader, out: ReplyOutput, types: ArgumentTypes): Reading<boolean> {
  const head = yield* textUntil(reader, ['<arg_key>', '</tool_call>']);
  const name = head.text.trim();
  if (head.mark === END || name === '') return false;
  out.startCall(name);
  const writer = new ArgumentWriter(out);
  for (let { mark } = head; mark === '<arg_key>'; ) {
    const key = yield* textUntil(reader, ['</arg_key>']);
    if (key.mark === END) return false;
    yield* reader.skipSpace();
    if ((yield* reader.mark(['<arg_value>'])) === '') return false;
    const value = yield* textUntil(reader, ['</arg_value>']);
    if (value.mark === END) return false;
    writer.add(key.text.trim(), types.value(name, key.text.trim(), value.text));
    yield* reader.skipSpace();
    mark = yield* reader.mark(['<arg_key>', '</tool_call>']);
    if (mark === '') return false;
  }
  return writer.end();
}

/** `call:name{key:value,...}` with strings in `quote`s. Goes out as JSON while it comes in. */
export function* gemmaCall(reader: Reader, out: ReplyOutput, quote: string): Reading<boolean> {
  yield* reader.skipSpace();
  if ((yield* reader.mark(['call:'])) === '') return false;
  const name = yield* textUntil(reader, ['{']);
  if (name.mark === END || name.text.trim() === '') return false;
  out.startCall(name.text.trim());
  /** Objects and lists around the place, by what closes them. */
  const open: string[] = ['}'];
  out.callText('{');
  let count = 0;
  for (;;) {
    const close = open[open.length - 1];
    yield* reader.skipSpace();
    if ((yield* reader.mark([close])) !== '') {
      out.callText(close);
      open.pop();
      if (open.length === 0) return out.endCall();
      count = 1;
      yield* reader.skipSpace();
      const next = yield* reader.mark([',', open[open.length - 1]]);
      if (next === '') return false;
      if (next !== ',') reader.unread(next);
      continue;
    }
    if (count++ > 0) out.callText(', ');
    if (close === '}') {
      const key = yield* gemmaKey(reader, quote);
      if (key === undefined) return false;
      out.callText(`${JSON.stringify(key)}: `);
      yield* reader.skipSpace();
    }
    const first = yield* reader.mark([quote, '{', '[']);
    if (first === '{' || first === '[') {
      out.callText(first);
      open.push(first === '{' ? '}' : ']');
      count = 0;
      continue;
    }
    const isWhole = first === quote ? yield* gemmaText(reader, out, quote) : yield* gemmaPlain(reader, out);
    if (!isWhole) return false;
    yield* reader.skipSpace();
    const next = yield* reader.mark([',', close]);
    if (next === '') return false;
    if (next === close) reader.unread(next);
  }
}

function* gemmaKey(reader: Reader, quote: string): Reading<string | undefined> {
  const isQuoted = (yield* reader.mark([quote])) !== '';
  const name = yield* textUntil(reader, [isQuoted ? quote : ':']);
  if (name.mark === END) return undefined;
  if (!isQuoted) return name.text.trim();
  yield* reader.skipSpace();
  return (yield* reader.mark([':'])) === '' ? undefined : name.text;
}

/** The rest of a text in quotes. */
function* gemmaText(reader: Reader, out: ReplyOutput, quote: string): Reading<boolean> {
  out.callText('"');
  const mark = yield* reader.until([quote], (text) => out.callText(JSON.stringify(text).slice(1, -1)));
  out.callText('"');
  return mark !== END;
}

/** A number, true, false, null, or text without quotes. */
function* gemmaPlain(reader: Reader, out: ReplyOutput): Reading<boolean> {
  const { text, mark } = yield* textUntil(reader, [',', '}', ']']);
  if (mark === END || text.trim() === '') return false;
  reader.unread(mark);
  const value = text.trim();
  try {
    JSON.parse(value);
    out.callText(value);
  } catch {
    out.callText(JSON.stringify(value));
  }
  return true;
}
