/** Values of options: a text becomes a number or a refusal that says what to give. */
import { CACHE_DTYPES } from '@x/engine';
import { InvalidArgumentError, Option } from 'commander';

const WHOLE = /^\d+$/;
const DECIMAL = /^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

export interface NumberRange {
  /** Least value. */
  from: number;
  /** Greatest value. */
  to: number;
  /** Whether `from` itself is too small. */
  above?: boolean;
}

/** A parser of whole numbers in decimal digits. */
export function wholeNumber(from: number, to = Number.MAX_SAFE_INTEGER): (text: string) => number {
  const allowed = to === Number.MAX_SAFE_INTEGER ? `of at least ${from}` : `from ${from} to ${to}`;
  return (text) => {
    const value = WHOLE.test(text) ? Number(text) : Number.NaN;
    if (Number.isSafeInteger(value) && value >= from && value <= to) return value;
    throw new InvalidArgumentError(`Give a whole number ${allowed}.`);
  };
}

/** A parser of numbers such as 0.7 and 1e-3. */
export function decimal({ from, to, above }: NumberRange): (text: string) => number {
  return (text) => {
    const digits = from < 0 ? text.replace(/^-/, '') : text;
    const value = DECIMAL.test(digits) ? Number(text) : Number.NaN;
    if (value <= to && (above ? value > from : value >= from)) return value;
    throw new InvalidArgumentError(`Give a number ${above ? `above ${from} and at most` : `from ${from} to`} ${to}.`);
  };
}

/** How keys and values are kept, once for all commands that load a model: `cacheDtype`. */
export function cacheDtypeOption(): Option {
  return new Option('--cache-dtype <dtype>', 'how keys and values are kept; q8_0 takes half of f16').choices(
    CACHE_DTYPES,
  );
}

/** A parser that refuses an empty text. */
export function someText(hint: string): (text: string) => string {
  return (text) => {
    if (text !== '') return text;
    throw new InvalidArgumentError(hint);
  };
}
