/** Calls as JSON: `{"name": "f", "arguments": {...}}`. Arguments go out while they come in. */
import type { ReplyOutput } from './output';
import { END, type Reader, type Reading } from './reader';

const ARGUMENTS: ReadonlySet<string> = new Set(['arguments', 'parameters', 'args']);

interface Found {
  name?: string;
  id?: string;
  /** The arguments' text, as far as it came before the name. */
  text?: string;
  started: boolean;
}

/**
 * One call, its brace not yet read.
 * @param accepts whether a tool of that name may be called
 * @returns whether it was one; what it started is ended then
 */
export function* jsonCall(reader: Reader, out: ReplyOutput, accepts: (name: string) => boolean): Reading<boolean> {
  const found: Found = { started: false };
  if (!(yield* readObject(reader, out, accepts, found)) || found.name === undefined) return false;
  if (!found.started) begin(out, found);
  if (found.text === undefined) out.callText('{}');
  return out.endCall();
}

function begin(out: ReplyOutput, found: Found): void {
  out.startCall(found.name!, found.id);
  if (found.text !== undefined) out.callText(found.text);
  found.started = true;
}

/** The object with name and arguments, or the one with it as `function`. */
function* readObject(
  reader: Reader,
  out: ReplyOutput,
  accepts: (name: string) => boolean,
  found: Found,
): Reading<boolean> {
  if ((yield* reader.next()) !== '{') return false;
  for (;;) {
    yield* reader.skipSpace();
    if ((yield* reader.peek()) === '}') {
      yield* reader.next();
      return true;
    }
    const key = yield* readText(reader);
    if (key === undefined) return false;
    yield* reader.skipSpace();
    if ((yield* reader.next()) !== ':') return false;
    yield* reader.skipSpace();
    if (key === 'function' && (yield* reader.peek()) === '{') {
      if (!(yield* readObject(reader, out, accepts, found))) return false;
    } else if (key === 'name') {
      found.name = yield* readText(reader);
      if (found.name === undefined || found.name === '' || !accepts(found.name)) return false;
      if (found.text !== undefined) begin(out, found);
    } else if (key === 'id') {
      found.id = yield* readText(reader);
      if (found.id === undefined) return false;
    } else if (ARGUMENTS.has(key)) {
      if (found.text !== undefined) return false;
      found.text = '';
      if (found.name !== undefined) begin(out, found);
      const emit = (text: string) => {
        if (found.started) out.callText(text);
        else found.text += text;
      };
      if ((yield* reader.peek()) === '"') {
        // Some models write the JSON into a string.
        const text = yield* readText(reader);
        if (text === undefined) return false;
        emit(text);
      } else if (!(yield* readValue(reader, emit))) return false;
    } else if (!(yield* readValue(reader, () => {}))) return false;
    yield* reader.skipSpace();
    const next = yield* reader.next();
    if (next === '}') return true;
    if (next !== ',') return false;
  }
}

/** A string of JSON, or undefined for anything else. */
function* readText(reader: Reader): Reading<string | undefined> {
  if ((yield* reader.peek()) !== '"') return undefined;
  let text = '';
  const isWhole = yield* readValue(reader, (part) => {
    text += part;
  });
  try {
    return isWhole ? (JSON.parse(text) as string) : undefined;
  } catch {
    return undefined;
  }
}

/** Characters that models write into strings as they are, and what JSON wants of them. */
const RAW: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** A value of JSON, which goes to `emit`. @returns whether it ended */
export function* readValue(reader: Reader, emit: (text: string) => void): Reading<boolean> {
  let depth = 0;
  let inString = false;
  let escaped = false;
  let isPlain = false;
  for (;;) {
    const character = yield* reader.next();
    if (character === END) return false;
    if (inString) {
      emit(escaped ? character : (RAW[character] ?? character));
      if (escaped) escaped = false;
      else if (character === '\\') escaped = true;
      else if (character === '"') inString = false;
      if (!inString && depth === 0) return true;
      continue;
    }
    if (isPlain && depth === 0 && /[\s,}\]]/.test(character)) {
      reader.unread(character);
      return true;
    }
    emit(character);
    if (character === '"') inString = true;
    else if (character === '{' || character === '[') depth++;
    else if (character === '}' || character === ']') {
      if (--depth < 0) return false;
      if (depth === 0) return true;
    } else if (depth === 0) isPlain = true;
  }
}
