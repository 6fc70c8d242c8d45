/** Methods of Python's strings and dicts that templates call. Of those that change something only `append`. */
import type { Budget } from './budget';
import { templateError } from './budget';
import { formatBraces } from './format';
import {
  type Arguments,
  Callable,
  counted,
  equals,
  iterate,
  listOf,
  pairsOf,
  str,
  Tuple,
  typeName,
  type Value,
} from './values';

/** The method `name` of a value, or undefined. */
export function methodOf(value: Value, name: string, budget: Budget): Callable | undefined {
  const table = typeof value === 'string' ? STRING : value instanceof Map ? DICT : listOf(value) ? LIST : undefined;
  if (!table || !Object.hasOwn(table, name)) return undefined;
  return new Callable(name, (given) => table[name](value as never, given, budget));
}

type Method<T> = (self: T, given: Arguments, budget: Budget) => Value;

/** The `index`-th argument, or the one of that name. */
export function argument(given: Arguments, index: number, name: string): Value {
  return given.args[index] ?? given.named.get(name);
}

export function textArgument(given: Arguments, index: number, name: string, of: string): string {
  const value = argument(given, index, name);
  if (typeof value === 'string') return value;
  throw templateError(`${of} is given a ${typeName(value)} where a string is needed`);
}

/** What Python's `strip` takes away when nothing else is said. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: Python counts U+001C to U+001F as white space
const SPACE = /[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

export function strip(text: string, characters: Value, left = true, right = true): string {
  const set = typeof characters === 'string' ? new Set(characters) : undefined;
  const isStripped = (c: string) => (set ? set.has(c) : SPACE.test(c));
  let [start, end] = [0, text.length];
  while (left && start < end && isStripped(text[start])) start++;
  while (right && end > start && isStripped(text[end - 1])) end--;
  return text.slice(start, end);
}

function split(text: string, given: Arguments, budget: Budget, fromRight: boolean): Value[] {
  const separator = argument(given, 0, 'sep') ?? null;
  const limit = argument(given, 1, 'maxsplit') ?? -1;
  if (typeof limit !== 'number') throw templateError('split is given a limit that is no number');
  let parts: string[];
  let join: string;
  if (separator === null) {
    if (limit >= 0) throw templateError('split with a limit needs a separator');
    parts = strip(text, undefined).split(new RegExp(`${SPACE.source}+`));
    if (parts[0] === '') parts = [];
    join = ' ';
  } else {
    if (typeof separator !== 'string' || separator === '') throw templateError('split needs a text to split at');
    parts = text.split(separator);
    join = separator;
  }
  budget.spend(parts.length);
  if (limit < 0 || parts.length <= limit + 1) return parts;
  if (fromRight) {
    const cut = parts.length - limit;
    return [parts.slice(0, cut).join(join), ...parts.slice(cut)];
  }
  return [...parts.slice(0, limit), parts.slice(limit).join(join)];
}

export function replace(text: string, old: string, by: string, count: Value, budget: Budget): string {
  const parts = old === '' ? ['', ...text, ''] : text.split(old);
  budget.spend(parts.length);
  const limit = typeof count === 'number' && count >= 0 ? Math.min(count, parts.length - 1) : parts.length - 1;
  budget.length(text.length + limit * by.length);
  return (
    parts.slice(0, limit + 1).join(by) +
    parts
      .slice(limit + 1)
      .map((part) => old + part)
      .join('')
  );
}

function startsWith(given: Arguments, of: string, test: (text: string) => boolean): boolean {
  const value = given.args[0];
  const texts = value instanceof Tuple ? value.items : [value];
  return texts.some((text) => {
    if (typeof text === 'string') return test(text);
    throw templateError(`${of} is given a ${typeName(text)} where a string is needed`);
  });
}

function partition(text: string, separator: string, at: number): Tuple {
  return at < 0
    ? new Tuple([text, '', ''])
    : new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
}

export function title(text: string): string {
  return text.replace(/[\p{L}\p{M}]+/gu, (word) => {
    const [first] = word;
    return first.toUpperCase() + word.slice(first.length).toLowerCase();
  });
}

export function capitalize(text: string): string {
  const [first = ''] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}

const all = (text: string, pattern: RegExp) => pattern.test(text);
const pad = (text: string, width: Value, budget: Budget): string => {
  if (typeof width !== 'number') throw templateError('a width is no number');
  const count = Math.max(0, width - text.length);
  budget.length(count);
  return ' '.repeat(count);
};

const STRING: Readonly<Record<string, Method<string>>> = {
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  casefold: (text) => text.toLowerCase(),
  title: (text) => title(text),
  capitalize: (text) => capitalize(text),
  strip: (text, given) => strip(text, given.args[0]),
  lstrip: (text, given) => strip(text, given.args[0], true, false),
  rstrip: (text, given) => strip(text, given.args[0], false, true),
  split: (text, given, budget) => split(text, given, budget, false),
  rsplit: (text, given, budget) => split(text, given, budget, true),
  splitlines: (text) => {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: Python ends lines there, too
    const lines = text.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/);
    if (lines.at(-1) === '') lines.pop();
    return lines;
  },
  startswith: (text, given) => startsWith(given, 'startswith', (start) => text.startsWith(start)),
  endswith: (text, given) => startsWith(given, 'endswith', (end) => text.endsWith(end)),
  removeprefix: (text, given) => {
    const prefix = textArgument(given, 0, 'prefix', 'removeprefix');
    return text.startsWith(prefix) ? text.slice(prefix.length) : text;
  },
  removesuffix: (text, given) => {
    const suffix = textArgument(given, 0, 'suffix', 'removesuffix');
    return suffix !== '' && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
  },
  replace: (text, given, budget) =>
    replace(
      text,
      textArgument(given, 0, 'old', 'replace'),
      textArgument(given, 1, 'new', 'replace'),
      argument(given, 2, 'count'),
      budget,
    ),
  find: (text, given) => text.indexOf(textArgument(given, 0, 'sub', 'find')),
  rfind: (text, given) => text.lastIndexOf(textArgument(given, 0, 'sub', 'rfind')),
  count: (text, given) => text.split(textArgument(given, 0, 'sub', 'count')).length - 1,
  index: (text, given) => {
    const at = text.indexOf(textArgument(given, 0, 'sub', 'index'));
    if (at < 0) throw templateError('index looks for a text that is not there');
    return at;
  },
  partition: (text, given) => {
    const separator = textArgument(given, 0, 'sep', 'partition');
    return partition(text, separator, text.indexOf(separator));
  },
  rpartition: (text, given) => {
    const separator = textArgument(given, 0, 'sep', 'rpartition');
    const at = text.lastIndexOf(separator);
    return at < 0 ? new Tuple(['', '', text]) : partition(text, separator, at);
  },
  join: (text, given, budget) => {
    const items = iterate(given.args[0], budget).map((item) => str(item, budget));
    budget.length(items.reduce((sum, item) => sum + item.length + text.length, 0));
    return items.join(text);
  },
  format: (text, given, budget) => formatBraces(text, given, budget),
  ljust: (text, given, budget) => text + pad(text, given.args[0], budget),
  rjust: (text, given, budget) => pad(text, given.args[0], budget) + text,
  zfill: (text, given, budget) => pad(text, given.args[0], budget).replaceAll(' ', '0') + text,
  isdigit: (text) => all(text, /^\p{Nd}+$/u),
  isnumeric: (text) => all(text, /^\p{N}+$/u),
  isalpha: (text) => all(text, /^\p{L}+$/u),
  isalnum: (text) => all(text, /^[\p{L}\p{N}]+$/u),
  isspace: (text) => text !== '' && strip(text, undefined) === '',
  isupper: (text) => text === text.toUpperCase() && text !== text.toLowerCase(),
  islower: (text) => text === text.toLowerCase() && text !== text.toUpperCase(),
};

const DICT: Readonly<Record<string, Method<Map<Value, Value>>>> = {
  get: (dict, { args: [key, fallback = null] }) => (dict.has(key) ? dict.get(key) : fallback),
  items: (dict, _, budget) => pairsOf(dict, budget),
  keys: (dict, _, budget) => [...counted(dict, budget).keys()],
  values: (dict, _, budget) => [...counted(dict, budget).values()],
  copy: (dict, _, budget) => new Map(counted(dict, budget)),
};

const LIST: Readonly<Record<string, Method<Value>>> = {
  index: (list, { args: [value] }, budget) => {
    const at = listOf(list)!.findIndex((item) => equals(item, value, budget));
    if (at < 0) throw templateError('index looks for an item that is not there');
    return at;
  },
  count: (list, { args: [value] }, budget) => listOf(list)!.filter((item) => equals(item, value, budget)).length,
  copy: (list, _, budget) => [...iterate(list, budget)],
  // transformers' sandbox refuses it, but templates of published models (Kimi K2) call it.
  append: (list, { args: [item] }) => {
    if (!Array.isArray(list)) throw templateError('append is called on what is no list');
    list.push(item);
    return null;
  },
};
