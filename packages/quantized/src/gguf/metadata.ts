/**
 * The metadata of a file: a `Map` of typed values with getters that say what is wrong. candle's getters ask for the
 * exact stored type; writers disagree about widths and signs for the same key, so the getters here ask for the kind of
 * value (a whole number, a string) and check that it fits.
 */
import { didYouMean, kinds } from '@x/core';
import { ggufError } from './error';
import type { GgufValue } from './value';

/**
 * Typed values by key. Getters raise `FileFormatError` `GGUF_MISSING_KEY` for a key that is not there, unless they are given a
 * `fallback`, and `GGUF_WRONG_TYPE` for a value of another kind.
 */
export class GgufMetadata extends Map<string, GgufValue> {
  /** Shown in errors. */
  readonly path: string;

  constructor(path: string, entries: Iterable<readonly [string, GgufValue]> = []) {
    super();
    // Not passed to `super`: Map's constructor would call `set` before this object's fields exist.
    this.path = path;
    for (const [key, value] of entries) this.set(key, value);
  }

  /** The value as stored. `GGUF_MISSING_KEY` when there is none. */
  require(key: string): GgufValue {
    const value = this.get(key);
    if (value === undefined) {
      throw ggufError(
        'GGUF_MISSING_KEY',
        this.path,
        `metadata has no key '${key}'.${didYouMean(key, this.keys())} Check that the file holds the model it should, or ` +
          'convert it again with a current converter.',
      );
    }
    return value;
  }

  /** A whole number, zero or more, up to 2^53 - 1. `fallback` serves when the key is missing. */
  uint(key: string, fallback?: number): number {
    if (fallback !== undefined && !this.has(key)) return fallback;
    const value = this.int(key);
    if (value < 0) throw this.#wrong(key, 'a number of zero or more');
    return value;
  }

  /** A whole number of any width, within ±(2^53 - 1). */
  int(key: string, fallback?: number): number {
    if (fallback !== undefined && !this.has(key)) return fallback;
    const { type, value } = this.require(key);
    if (typeof value === 'bigint' || (typeof value === 'number' && type !== 'float32' && type !== 'float64')) {
      const number = Number(value);
      if (Number.isSafeInteger(number)) return number;
    }
    throw this.#wrong(key, 'a whole number');
  }

  /** A number, whole or not. */
  float(key: string, fallback?: number): number {
    if (fallback !== undefined && !this.has(key)) return fallback;
    const { value } = this.require(key);
    if (typeof value === 'number') return value;
    if (typeof value === 'bigint') return Number(value);
    throw this.#wrong(key, 'a number');
  }

  /** A bool; numbers are none. */
  bool(key: string, fallback?: boolean): boolean {
    if (fallback !== undefined && !this.has(key)) return fallback;
    const { value } = this.require(key);
    if (typeof value === 'boolean') return value;
    throw this.#wrong(key, 'a bool');
  }

  /** A string, which may be empty. */
  string(key: string, fallback?: string): string {
    if (fallback !== undefined && !this.has(key)) return fallback;
    const { value } = this.require(key);
    if (typeof value === 'string') return value;
    throw this.#wrong(key, 'a string');
  }

  /** An array of strings, which stays the metadata's. */
  strings(key: string): readonly string[] {
    const value = this.require(key);
    if (value.type === 'array' && value.elementType === 'string') return value.value as readonly string[];
    throw this.#wrong(key, 'an array of strings');
  }

  /** An array of numbers of any type, as plain numbers; 64-bit items lose precision past 2^53. */
  numbers(key: string): number[] {
    const value = this.require(key);
    if (value.type === 'array' && ArrayBuffer.isView(value.value))
      return toNumbers(value.value as ArrayLike<number | bigint>);
    throw this.#wrong(key, 'an array of numbers');
  }

  #wrong(key: string, wanted: string) {
    const value = this.require(key);
    const kind = value.type === 'array' ? `array of ${value.elementType}` : `${value.type} ${kinds.show(value.value)}`;
    return ggufError(
      'GGUF_WRONG_TYPE',
      this.path,
      `metadata '${key}' should be ${wanted} but is stored as ${kind}. Convert the file again with a current converter.`,
    );
  }
}

const KEY = { key: kinds.STRING } as const;
const KEY_OR = { key: kinds.STRING, fallback: kinds.ANYTHING } as const;

kinds.checkCalls(
  GgufMetadata.prototype,
  {
    require: KEY,
    uint: KEY_OR,
    int: KEY_OR,
    float: KEY_OR,
    bool: KEY_OR,
    string: KEY_OR,
    strings: KEY,
    numbers: KEY,
  },
  'GgufMetadata.',
);

function toNumbers(items: ArrayLike<number | bigint>): number[] {
  // Vocabularies have arrays of some hundred thousand, for which iterators take their time.
  const out = new Array<number>(items.length);
  for (let i = 0; i < out.length; i++) out[i] = Number(items[i]);
  return out;
}
