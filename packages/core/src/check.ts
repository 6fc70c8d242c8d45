/**
 * What arguments may be: one check for every size, count, offset, dimension, flag and operand that a caller gives, so that
 * what TypeScript would refuse gets the same answer from JavaScript: an error that names the function, the argument, its
 * value and what to write instead.
 */
import { DTYPES, isDType } from './dtype';
import { CandleError, DTypeError, ShapeError } from './errors';
import { didYouMean } from './near';
import { foreignCore } from './one-core';
import { show } from './show';

/** An argument that is refused: what its message may quote. */
export interface Refused {
  readonly op: string;
  readonly name: string;
  readonly value: unknown;
  /** All arguments of the call. */
  readonly args: readonly unknown[];
}

/** What an argument may be. */
export interface Kind {
  /** Whether an argument is of the kind. */
  test(value: unknown): boolean;
  /** What to say about an argument that is not of the kind. */
  refuse(refused: Refused): CandleError;
}

type Remedy = string | ((refused: Refused) => string);

const badArgument = (message: string) => new CandleError('INVALID_ARGUMENT', message);

/** @param remedy the end of the message: what to give instead */
export function kind(test: Kind['test'], remedy: Remedy, error: (message: string) => CandleError = badArgument): Kind {
  return {
    test,
    refuse: (refused) => {
      const foreign = foreignCore(refused.value);
      if (foreign) return foreign;
      const advice = typeof remedy === 'string' ? remedy : remedy(refused);
      return error(`${refused.op}: ${refused.name} is ${show(refused.value)}; ${advice}.`);
    },
  };
}

/** `inner`, or undefined where the argument has a default. */
export function optional(inner: Kind): Kind {
  return { ...inner, test: (value) => value === undefined || inner.test(value) };
}

/** `inner`, or null or undefined for none. */
export function nullable(inner: Kind): Kind {
  return { ...inner, test: (value) => value === undefined || value === null || inner.test(value) };
}

/** An object whose fields are of their kinds; others are left alone. */
export function fields(kinds: Readonly<Record<string, Kind>>): Kind {
  const entries = Object.entries(kinds);
  const wrong = (value: object) =>
    entries.find(([field, inner]) => !inner.test((value as Record<string, unknown>)[field]));
  return {
    test: (value) => OBJECT.test(value) && !wrong(value as object),
    refuse: (refused) => {
      const found = OBJECT.test(refused.value) && wrong(refused.value as object);
      if (!found) return OBJECT.refuse(refused);
      const [field, inner] = found;
      const value = (refused.value as Record<string, unknown>)[field];
      return inner.refuse({ ...refused, name: `${refused.name}.${field}`, value });
    },
  };
}

/** `inner`, whose values no message repeats, such as keys and tokens. */
export function secret(inner: Kind): Kind {
  return { ...inner, refuse: (refused) => inner.refuse({ ...refused, value: new Hidden() }) };
}

class Hidden {
  describe(): string {
    return 'wrong';
  }
}

/** An object of any class that is no list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @throws CandleError, by default `INVALID_ARGUMENT`, unless `value` is of the kind */
export function check(op: string, name: string, value: unknown, wanted: Kind): void {
  if (!wanted.test(value)) throw wanted.refuse({ op, name, value, args: [value] });
}

/**
 * Options by their names: what is misspelt or not of its kind is an error, instead of a default. Undefined is the default of
 * any option.
 * @param error what is thrown, with the name of the option that is wrong
 */
export function checkOptions(
  op: string,
  options: unknown,
  kinds: Readonly<Record<string, Kind>>,
  error: (message: string, option?: string) => CandleError,
): void {
  const known = Object.keys(kinds);
  if (!isObject(options))
    throw error(`${op}: the options are ${show(options)}; give an object, as { ${known[0]}: … }.`);
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(kinds, name)) {
      const remedy = `${didYouMean(name, known)} Options: ${known.join(', ')}.`;
      throw error(`${op}: there is no option ${show(name)}.${remedy}`, name);
    }
    const kind = kinds[name];
    if (value === undefined || kind.test(value)) continue;
    throw foreignCore(value) ?? error(kind.refuse({ op, name, value, args: [value] }).message, name);
  }
}

const shapeError = (message: string) => new ShapeError('INVALID_SHAPE', message);
const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;

/** NaN and infinities too. */
export const NUMBER = kind((value) => typeof value === 'number', 'give a number');
export const FINITE = kind((value) => Number.isFinite(value), 'give a finite number');
export const BOOLEAN = kind((value) => typeof value === 'boolean', 'give true or false');
export const STRING = kind((value) => typeof value === 'string', 'give a string');
export const FUNCTION = kind((value) => typeof value === 'function', 'give a function');
/** No array, and not null. */
export const OBJECT = kind(isObject, 'give an object with options');
export const ANYTHING = kind(() => true, '');

/** A number, or a bigint for what a number cannot hold. */
export const SCALAR = kind(
  (value) => typeof value === 'number' || typeof value === 'bigint',
  'give a number or a bigint',
);

/** Like those below, no more than 2^53 - 1 away from 0. */
export const WHOLE = kind((value) => Number.isSafeInteger(value), 'give a whole number');
export const COUNT = kind(isCount, 'give a whole number from 0');
export const POSITIVE = kind((value) => isCount(value) && value !== 0, 'give a whole number from 1');

/** A place in a dimension; whether it exists is for the function to say. */
export const INDEX = kind(
  (value) => Number.isSafeInteger(value),
  'give a whole number',
  (message) => new ShapeError('INDEX_OUT_OF_RANGE', message),
);

/** A dimension; whether it exists is for the function to say. */
export const DIM = kind(
  (value) => Number.isSafeInteger(value),
  'give a dimension: a whole number, negative from the end',
  (message) => new ShapeError('DIM_OUT_OF_RANGE', message),
);

const asList = ({ op, args }: Refused) => {
  const end = args.findIndex((arg) => typeof arg !== 'number');
  return `write ${op}(${show(end < 0 ? args : args.slice(0, end))})`;
};

/** A list of dimensions. */
export const DIM_LIST = kind(
  (value) => Array.isArray(value) && value.every(Number.isSafeInteger),
  (refused) => (typeof refused.value === 'number' ? asList(refused) : 'give an array of dimensions, as [0, 1]'),
  (message) => new ShapeError('DIM_OUT_OF_RANGE', message),
);

/** One dimension or several; `all` is the method that takes all of them, for the message. */
export function dimsOr(all?: string): Kind {
  return kind(
    (value) => Number.isSafeInteger(value) || DIM_LIST.test(value),
    `give a dimension or a list of dimensions, as 0, -1 or [0, 1]${all ? `, or use ${all}() for all of them` : ''}`,
    (message) => new ShapeError('DIM_OUT_OF_RANGE', message),
  );
}

/** Sizes, one of which may be -1 where the function says so. */
export const SHAPE = kind(
  (value) => Array.isArray(value) && value.every((size) => isCount(size) || size === -1),
  (refused) =>
    typeof refused.value === 'number' && refused.args[0] === refused.value
      ? asList(refused)
      : 'give an array of sizes, whole numbers from 0, as [2, 3]',
  shapeError,
);

/** How often, a dimension. */
export const COUNTS = kind(
  (value) => Array.isArray(value) && value.every(isCount),
  (refused) => (typeof refused.value === 'number' ? asList(refused) : 'give an array of whole numbers from 0'),
  shapeError,
);

/** One size for both axes, or [height, width]. */
export const SIZE_2D = kind(
  (value) => POSITIVE.test(value) || (Array.isArray(value) && value.length === 2 && value.every(POSITIVE.test)),
  'give a whole number from 1, or two of them as [height, width]',
);

export const DTYPE = kind(
  (value) => isDType(value as string),
  `use one of ${DTYPES.join(', ')}`,
  (message) => new DTypeError('DTYPE_MISMATCH', message),
);

/** A path, or what a file has in it. */
export const FILE = kind(
  (value) => typeof value === 'string' || value instanceof Uint8Array,
  'give a path or the bytes of a file as a Uint8Array',
);

/** What stops a load or another long call. */
export const SIGNAL = kind((value) => {
  const { throwIfAborted, addEventListener } = (value ?? {}) as Partial<AbortSignal>;
  return typeof throwIfAborted === 'function' && typeof addEventListener === 'function';
}, 'give an AbortSignal, as new AbortController().signal');

/** One of some names. */
export function oneOf(names: readonly string[]): Kind {
  return kind((value) => names.includes(value as string), `use one of ${names.join(', ')}`);
}
