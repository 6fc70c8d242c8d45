/** Calls that are not JSON: tags around names and values, and Gemma's own notation. */
import type { ToolDefinition } from '../messages';
import type { ReplyOutput } from './output';
import { END, type Reader, type Reading } from './reader';

/** Types of a tool's arguments: tags do not tell a number from a text. */
export class ArgumentTypes {
  private readonly tools: ReadonlyMap<string, ToolDefinition>;

  constructor(tools: readonly ToolDefinition[]) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
  }

  /** What a text stands for: itself where the schema wants a string, else the JSON that it is. */
  value(tool: string, argument: string, text: string): unknown {
    const { properties } = (this.tools.get(tool)?.parameters ?? {}) as { properties?: Record<string, unknown> };
    const { type } = (properties?.[argument] ?? {}) as { type?: unknown };
    const types = Array.isArray(type) ? type : [type];
    if (types.includes('string') && !(types.includes('null') && text.trim() === 'null')) return text;
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

/** `call:name{key:value,...}` with strings in `quote`s. */
export function* gemmaCall(reader: Reader, out: ReplyOutput, quote: string): Reading<boolean> {
  yield* reader.skipSpace();
  if ((yield* reader.mark(['call:'])) === '') return false;
  const name = yield* textUntil(reader, ['{']);
  if (name.mark === END || name.text.trim() === '') return false;
  out.startCall(name.text.trim());
  reader.unread('{');
  const value = yield* gemmaValue(reader, quote, 0);
  if (value === undefined) return false;
  out.callText(JSON.stringify(value));
  return out.endCall();
}

/** Levels of objects and lists. */
const MOST_DEPTH = 64;

/** A value, or undefined for what is none. */
function* gemmaValue(reader: Reader, quote: string, depth: number): Reading<unknown> {
  if (depth > MOST_DEPTH) return undefined;
  yield* reader.skipSpace();
  if ((yield* reader.mark([quote])) !== '') {
    const text = yield* textUntil(reader, [quote]);
    return text.mark === END ? undefined : text.text;
  }
  const first = yield* reader.peek();
  if (first !== '{' && first !== '[') return yield* gemmaPlain(reader);
  yield* reader.next();
  const close = first === '{' ? '}' : ']';
  const fields: [string, unknown][] = [];
  for (;;) {
    yield* reader.skipSpace();
    if ((yield* reader.mark([close])) !== '') break;
    let key = '';
    if (first === '{') {
      const isQuoted = (yield* reader.mark([quote])) !== '';
      const name = yield* textUntil(reader, [isQuoted ? quote : ':']);
      if (name.mark === END || (isQuoted && (yield* reader.mark([':'])) === '')) return undefined;
      key = name.text.trim();
    }
    const value = yield* gemmaValue(reader, quote, depth + 1);
    if (value === undefined) return undefined;
    fields.push([key, value]);
    yield* reader.skipSpace();
    const next = yield* reader.mark([',', close]);
    if (next === '') return undefined;
    if (next === close) break;
  }
  return first === '{' ? Object.fromEntries(fields) : fields.map(([, value]) => value);
}

/** A number, true, false, null, or text without quotes. */
function* gemmaPlain(reader: Reader): Reading<unknown> {
  const { text, mark } = yield* textUntil(reader, [',', '}', ']']);
  if (mark === END || text.trim() === '') return undefined;
  reader.unread(mark);
  try {
    return JSON.parse(text.trim());
  } catch {
    return text.trim();
  }
}
