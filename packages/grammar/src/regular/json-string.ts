/**
 * JSON strings that stand for the texts of a language: escapes are undone on the way, so that patterns and lengths speak of
 * the text and not of how it is written (RFC 8259, section 7).
 */
import type { Expression, Expressions } from './expression';

/** Inside of `\uXXXX`. */
export interface JsonHex {
  /** How many digits were read; -1 before the `u` and -2 before the backslash of a second escape. */
  readonly digits: number;
  readonly value: number;
  /** The high surrogate that came before, or 0. */
  readonly high: number;
}

const SHORT: ReadonlyMap<number, number> = new Map(
  Object.entries({ '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }).map(
    ([name, text]) => [name.charCodeAt(0), text.charCodeAt(0)],
  ),
);

/** After a backslash. */
export function escapeStep(make: Expressions, item: Expression, byte: number): Expression {
  const short = SHORT.get(byte);
  if (short !== undefined) return make.string(make.step(item, short));
  return byte === 0x75 ? hexOf(make, item, { digits: 0, value: 0, high: 0 }) : make.empty;
}

export function hexStep(make: Expressions, item: Expression, hex: JsonHex, byte: number): Expression {
  const { digits, value, high } = hex;
  if (digits < 0) {
    if (byte !== (digits === -2 ? 0x5c : 0x75)) return make.empty;
    return hexOf(make, item, { ...hex, digits: digits + 1 });
  }
  const digit = digitOf(byte);
  if (digit < 0) return make.empty;
  const unit = value * 16 + digit;
  if (digits < 3) return hexOf(make, item, { digits: digits + 1, value: unit, high });
  const isLow = unit >= 0xdc00 && unit < 0xe000;
  if (isLow !== high > 0) return make.empty;
  if (unit >= 0xd800 && unit < 0xdc00) return hexOf(make, item, { digits: -2, value: 0, high: unit });
  return make.string(after(make, item, isLow ? (high - 0xd800) * 0x400 + unit - 0xdc00 + 0x10000 : unit));
}

function after(make: Expressions, item: Expression, codePoint: number): Expression {
  let state = item;
  for (const byte of Buffer.from(String.fromCodePoint(codePoint), 'utf8')) state = make.step(state, byte);
  return state;
}

function digitOf(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

/** A `\u` escape that can be completed, else nothing. */
function hexOf(make: Expressions, item: Expression, hex: JsonHex): Expression {
  return candidates(make, item).some((codePoint) => fits(codePoint, hex) && after(make, item, codePoint) !== make.empty)
    ? make.hex(item, hex)
    : make.empty;
}

/**
 * Characters that may be written as `\u`. Where every character may come: all, for which one stands. Else those that have no
 * other form.
 */
function candidates(make: Expressions, item: Expression): readonly number[] {
  return item.kind === 'repeat' && item.item === make.character ? ANY : CONTROLS;
}

const CONTROLS = Array.from({ length: 32 }, (_, code) => code);
const ANY = [0x41];

function fits(codePoint: number, { digits, value, high }: JsonHex): boolean {
  if (codePoint === ANY[0]) {
    if (digits < 0) return true;
    const first = value * 16 ** (4 - digits);
    const last = first + 16 ** (4 - digits) - 1;
    // A low surrogate follows a high one and comes nowhere else.
    return high > 0 ? last >= 0xdc00 && first < 0xe000 : !(first >= 0xdc00 && last < 0xe000);
  }
  return digits >= 0 && high === 0 && Math.floor(codePoint / 16 ** (4 - digits)) === value;
}
