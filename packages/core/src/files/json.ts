/**
 * JSON from files that may be hostile. A parsed document takes some hundred bytes for an item that has two in the text, so
 * items and nesting are counted before anything is parsed.
 */
import { FileFormatError } from '../errors';
import { openSource, readBlockSync } from './source';

export interface JsonLimits {
  /** Longest text. */
  readonly bytes: number;
  /** Most values, names of members not counted. */
  readonly items: number;
  /** Deepest nesting of arrays and objects. */
  readonly depth: number;
}

/** A configuration, such as config.json. Real ones have some kB. */
export const CONFIG_LIMITS: JsonLimits = { bytes: 16 * 2 ** 20, items: 1_000_000, depth: 64 };

/**
 * The document in a file, which must be a regular one.
 * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_UNREADABLE`, or `FILE_INVALID` for what is no JSON or over the limits
 */
export function readJsonFile(path: string, limits: JsonLimits = CONFIG_LIMITS): unknown {
  const source = openSource(path);
  try {
    if (source.size > limits.bytes)
      throw tooMuch(path, 0, `has ${source.size} bytes, over the limit of ${limits.bytes}`);
    return parseJson(path, readBlockSync(source, 0, source.size), limits);
  } finally {
    source.close();
  }
}

/**
 * The document in `bytes`; `Infinity` and `NaN` among its values, which Python writes though JSON has no such numbers, are numbers.
 * @param path for messages @param offset of the first byte in the file
 * @throws FileFormatError `FILE_INVALID`
 */
export function parseJson(path: string, bytes: Uint8Array, limits: JsonLimits, offset = 0): unknown {
  checkJson(path, bytes, limits, offset);
  try {
    return parse(bytes);
  } catch (cause) {
    const message = `${path} cannot be read: it is no valid JSON (${(cause as Error).message}); get the file again.`;
    throw new FileFormatError('FILE_INVALID', message, { path, offset, cause });
  }
}

function parse(bytes: Uint8Array): unknown {
  const textOf = (from: Uint8Array) => new TextDecoder('utf-8', { fatal: true }).decode(from);
  try {
    return JSON.parse(textOf(bytes));
  } catch (cause) {
    const numbers = withNumbers(bytes);
    if (numbers === undefined) throw cause;
    return JSON.parse(textOf(numbers), (_, value) => (value === NOT_A_NUMBER ? Number.NaN : value));
  }
}

const [QUOTE, BACKSLASH, COMMA, OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = new TextEncoder().encode(
  '"\\,[]{}',
);

function checkJson(path: string, bytes: Uint8Array, limits: JsonLimits, offset: number): void {
  let depth = 0;
  let items = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) {
      i = endOfString(bytes, i + 1);
    } else if (byte === COMMA) {
      items++;
    } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
      items++;
      if (++depth > limits.depth) throw tooMuch(path, offset + i, `nests deeper than ${limits.depth} levels`);
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) {
      depth--;
    }
    if (items > limits.items) throw tooMuch(path, offset + i, `has more than ${limits.items} items`);
  }
}

/** What stands for NaN, which no JSON number is: the delete character, a string that no model's JSON has. */
const NOT_A_NUMBER = '\x7f';
/** Python's numbers, and JSON as long: for infinity a number over the largest. */
const NUMBERS = [
  ['Infinity', '1e999   '],
  ['NaN', `"${NOT_A_NUMBER}"`],
].map((texts) => texts.map((text) => new TextEncoder().encode(text)));

/** The bytes with JSON in the place of each `Infinity` and `NaN` outside of strings; undefined for none. */
function withNumbers(bytes: Uint8Array): Uint8Array | undefined {
  let changed: Uint8Array | undefined;
  for (let i = 0; i < bytes.length; i++) {
    if (bytes[i] === QUOTE) i = endOfString(bytes, i + 1);
    else if (isDigit(bytes[i - 1])) continue;
    const found = NUMBERS.find(([name]) => bytes[i] === name[0] && name.every((byte, at) => bytes[i + at] === byte));
    if (!found) continue;
    changed ??= bytes.slice();
    changed.set(found[1], i);
  }
  return changed;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

/** The place of the quote that ends a string. */
function endOfString(bytes: Uint8Array, start: number): number {
  for (let at = start; ; ) {
    const quote = bytes.indexOf(QUOTE, at);
    if (quote < 0) return bytes.length;
    let slashes = 0;
    while (quote - slashes > start && bytes[quote - slashes - 1] === BACKSLASH) slashes++;
    if (slashes % 2 === 0) return quote;
    at = quote + 1;
  }
}

function tooMuch(path: string, offset: number, what: string): FileFormatError {
  const message = `${path}: its JSON ${what}; real files stay far below: get the file again.`;
  return new FileFormatError('FILE_INVALID', message, { path, offset });
}
