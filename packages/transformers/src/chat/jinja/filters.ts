/** Jinja's filters and tests, as far as templates of models use them. */
import type { Budget } from './budget';
import { templateError } from './budget';
import { formatPercent } from './format';
import { argument, capitalize, replace, strip, textArgument, title } from './methods';
import {
  type Arguments,
  Callable,
  compare,
  counted,
  type Dict,
  equals,
  isTruthy,
  iterate,
  type JsonStyle,
  json,
  lengthOf,
  listOf,
  Namespace,
  numberOf,
  PyFloat,
  pairsOf,
  str,
  Tuple,
  typeName,
  type Value,
} from './values';

type Filter = (value: Value, given: Arguments, budget: Budget) => Value;
type Test = (value: Value, other: Value, budget: Budget) => boolean;

export function applyFilter(name: string, value: Value, given: Arguments, budget: Budget): Value {
  if (!Object.hasOwn(FILTERS, name)) throw templateError(`the filter "${name}" is not known here`);
  return FILTERS[name](value, given, budget);
}

export function applyTest(name: string, value: Value, other: Value, budget: Budget): boolean {
  if (!Object.hasOwn(TESTS, name)) throw templateError(`the test "is ${name}" is not known here`);
  return TESTS[name](value, other, budget);
}

/** `a.b.0` of a value, as filters with `attribute` take it. */
function attributeOf(value: Value, path: string): Value {
  let at = value;
  for (const part of path.split('.')) {
    if (at instanceof Map) at = at.get(part);
    else if (at instanceof Namespace) at = at.fields.get(part);
    else at = listOf(at)?.[Number(part)];
  }
  return at;
}

/** The function by which a list is sorted or gone through: of the items, or of an attribute of theirs. */
function by(attribute: Value): (item: Value) => Value {
  if (attribute === undefined || attribute === null) return (item) => item;
  if (typeof attribute !== 'string' && typeof attribute !== 'number') {
    throw templateError(`an attribute is a ${typeName(attribute)} where a name is needed`);
  }
  return (item) => attributeOf(item, String(attribute));
}

const folded = (value: Value, caseSensitive: Value): Value =>
  typeof value === 'string' && !isTruthy(caseSensitive) ? value.toLowerCase() : value;

function sorted(items: readonly Value[], key: (item: Value) => Value, reverse: Value, budget: Budget): Value[] {
  const order = [...items].sort((a, b) => {
    const result = compare(key(a), key(b), budget);
    return isTruthy(reverse) ? -result : result;
  });
  return order;
}

/** `select`, `reject` and, with an attribute's name first, `selectattr`, `rejectattr`. */
function chosen(value: Value, given: Arguments, budget: Budget, wanted: boolean, ofAttribute: boolean): Value[] {
  const [test, other] = ofAttribute ? given.args.slice(1) : given.args;
  const key = by(ofAttribute ? given.args[0] : undefined);
  // Python looks at the list when the result is read: templates filter tools that are none and never read the result.
  return iterate(value ?? undefined, budget).filter((item) => {
    budget.spend(1);
    const subject = key(item);
    const result = test === undefined ? isTruthy(subject) : applyTest(String(test), subject, other, budget);
    return result === wanted;
  });
}

function extreme(value: Value, given: Arguments, budget: Budget, sign: 1 | -1): Value {
  const key = by(argument(given, 1, 'attribute'));
  const of = (item: Value) => folded(key(item), argument(given, 0, 'case_sensitive'));
  const items = iterate(value, budget);
  return items.reduce<Value>((best, item) => (sign * compare(of(item), of(best), budget) > 0 ? item : best), items[0]);
}

function wholeNumber(value: Value, fallback: Value): Value {
  const number = typeof value === 'string' ? Number.parseFloat(value) : numberOf(value);
  return number === undefined || Number.isNaN(number) ? fallback : Math.trunc(number);
}

function jsonStyle(given: Arguments): JsonStyle {
  const option = (index: number, name: string) => argument(given, index, name) ?? undefined;
  const style: JsonStyle = {
    ensureAscii: isTruthy(option(0, 'ensure_ascii')),
    sortKeys: isTruthy(option(3, 'sort_keys')),
  };
  const indent = option(1, 'indent');
  if (indent !== undefined) {
    if (typeof indent !== 'number' || indent < 0 || indent > 32) throw templateError('tojson is given a wrong indent');
    style.indent = indent;
  }
  const separators = option(2, 'separators');
  if (separators !== undefined) {
    const [item, colon] = listOf(separators) ?? [];
    if (typeof item !== 'string' || typeof colon !== 'string')
      throw templateError('tojson is given separators that are not two strings');
    style.separators = [item, colon];
  }
  return style;
}

function indented(text: string, given: Arguments, budget: Budget): string {
  const width = argument(given, 0, 'width') ?? 4;
  const space = typeof width === 'string' ? width : ' '.repeat(Math.min(numberOf(width) ?? 0, 1000));
  const [first, blank] = [argument(given, 1, 'first'), argument(given, 2, 'blank')].map(isTruthy);
  const lines = text.split('\n');
  budget.length(text.length + lines.length * space.length);
  return lines.map((line, i) => ((i > 0 || first) && (line !== '' || blank) ? space + line : line)).join('\n');
}

const FILTERS: Readonly<Record<string, Filter>> = {
  abs: (value) => (value instanceof PyFloat ? new PyFloat(Math.abs(value.value)) : Math.abs(numberOf(value) ?? 0)),
  attr: (value, given) => attributeOf(value, textArgument(given, 0, 'name', 'attr')),
  batch: (value, { args: [size] }, budget) => {
    if (typeof size !== 'number' || size < 1) throw templateError('batch needs a number of at least 1');
    const items = iterate(value, budget);
    return Array.from({ length: Math.ceil(items.length / size) }, (_, i) => items.slice(i * size, (i + 1) * size));
  },
  capitalize: (value, _, budget) => capitalize(str(value, budget)),
  default: (value, given) => {
    const useFalse = isTruthy(argument(given, 1, 'boolean'));
    return value === undefined || (useFalse && !isTruthy(value)) ? (argument(given, 0, 'default_value') ?? '') : value;
  },
  dictsort: (value, given, budget) => {
    if (!(value instanceof Map)) throw templateError(`dictsort is given a ${typeName(value)}`);
    const at = argument(given, 1, 'by') === 'value' ? 1 : 0;
    const key = (pair: Value) => folded((pair as Tuple).items[at], argument(given, 0, 'case_sensitive'));
    const pairs = pairsOf(value, budget);
    return sorted(pairs, key, argument(given, 2, 'reverse'), budget);
  },
  escape: (value, _, budget) =>
    str(value, budget).replace(
      /[&<>'"]/g,
      (c) => `&${{ '&': 'amp', '<': 'lt', '>': 'gt', "'": '#39', '"': '#34' }[c]};`,
    ),
  first: (value, _, budget) => iterate(value, budget)[0],
  float: (value, given) => {
    const number = typeof value === 'string' ? Number.parseFloat(value) : (numberOf(value) ?? Number.NaN);
    return Number.isNaN(number) ? (argument(given, 0, 'default') ?? new PyFloat(0)) : new PyFloat(number);
  },
  format: (value, { args }, budget) => formatPercent(str(value, budget), new Tuple(args), budget),
  indent: (value, given, budget) => indented(str(value, budget), given, budget),
  int: (value, given) => wholeNumber(value, argument(given, 0, 'default') ?? 0),
  items: (value, _, budget) => pairsOf((value ?? new Map()) as Dict, budget),
  join: (value, given, budget) => {
    const separator = str(argument(given, 0, 'd') ?? '', budget);
    const key = by(argument(given, 1, 'attribute'));
    const texts = iterate(value, budget).map((item) => str(key(item), budget));
    budget.length(texts.reduce((sum, text) => sum + text.length + separator.length, 0));
    return texts.join(separator);
  },
  last: (value, _, budget) => iterate(value, budget).at(-1),
  length: (value) => lengthOf(value),
  list: (value, _, budget) => [...iterate(value, budget)],
  lower: (value, _, budget) => str(value, budget).toLowerCase(),
  map: (value, given, budget) => {
    const attribute = given.named.get('attribute');
    const items = iterate(value, budget);
    if (attribute !== undefined) {
      const key = by(attribute);
      return items.map((item) => key(item) ?? given.named.get('default'));
    }
    const [name, ...args] = given.args;
    if (typeof name !== 'string') throw templateError('map needs the name of a filter or an attribute');
    return items.map((item) => applyFilter(name, item, { args, named: given.named }, budget));
  },
  max: (value, given, budget) => extreme(value, given, budget, 1),
  min: (value, given, budget) => extreme(value, given, budget, -1),
  reject: (value, given, budget) => chosen(value, given, budget, false, false),
  rejectattr: (value, given, budget) => chosen(value, given, budget, false, true),
  replace: (value, given, budget) => {
    const [old, text] = [textArgument(given, 0, 'old', 'replace'), textArgument(given, 1, 'new', 'replace')];
    return replace(str(value, budget), old, text, argument(given, 2, 'count'), budget);
  },
  reverse: (value, _, budget) => {
    const items = [...iterate(value, budget)].reverse();
    return typeof value === 'string' ? items.join('') : items;
  },
  round: (value, given) => {
    const digits = 10 ** Math.min(15, numberOf(argument(given, 0, 'precision')) ?? 0);
    const scaled = (numberOf(value) ?? 0) * digits;
    // Halves go to the even neighbour.
    const isHalf = Math.abs(scaled % 1) === 0.5;
    return new PyFloat((isHalf ? 2 * Math.round(scaled / 2) : Math.round(scaled)) / digits);
  },
  safe: (value) => value,
  select: (value, given, budget) => chosen(value, given, budget, true, false),
  selectattr: (value, given, budget) => chosen(value, given, budget, true, true),
  sort: (value, given, budget) => {
    const key = by(argument(given, 2, 'attribute'));
    const of = (item: Value) => folded(key(item), argument(given, 1, 'case_sensitive'));
    return sorted(iterate(value, budget), of, argument(given, 0, 'reverse'), budget);
  },
  string: (value, _, budget) => str(value, budget),
  sum: (value, given, budget) => {
    const key = by(argument(given, 0, 'attribute'));
    const numbers = iterate(value, budget).map((item) => key(item));
    const total = numbers.reduce<number>((sum, item) => sum + (numberOf(item) ?? 0), 0);
    return numbers.some((item) => item instanceof PyFloat) ? new PyFloat(total) : total;
  },
  title: (value, _, budget) => title(str(value, budget)),
  tojson: (value, given, budget) => json(value, jsonStyle(given), budget),
  trim: (value, given, budget) => strip(str(value, budget), argument(given, 0, 'chars')),
  truncate: (value, given, budget) => {
    const text = str(value, budget);
    const length = numberOf(argument(given, 0, 'length')) ?? 255;
    const end = str(argument(given, 2, 'end') ?? '...', budget);
    if (text.length <= length + (numberOf(argument(given, 3, 'leeway')) ?? 5)) return text;
    const cut = text.slice(0, Math.max(0, length - end.length));
    return (
      (isTruthy(argument(given, 1, 'killwords'))
        ? cut
        : cut.slice(0, cut.lastIndexOf(' ') + 1 || undefined).trimEnd()) + end
    );
  },
  unique: (value, given, budget) => {
    const seen: Value[] = [];
    return iterate(value, budget).filter((item) => {
      const key = folded(item, argument(given, 0, 'case_sensitive'));
      if (seen.some((other) => equals(other, key, budget))) return false;
      seen.push(key);
      return true;
    });
  },
  upper: (value, _, budget) => str(value, budget).toUpperCase(),
  values: (value, _, budget) => [...counted((value ?? new Map()) as Dict, budget).values()],
  wordcount: (value, _, budget) => (str(value, budget).match(/\w+/g) ?? []).length,
};
Object.assign(FILTERS, { d: FILTERS.default, e: FILTERS.escape, count: FILTERS.length });

const isText = (value: Value): value is string => typeof value === 'string';
const isNumber = (value: Value) => numberOf(value) !== undefined;
const remainder = (value: Value) => Math.abs((numberOf(value) ?? 0) % 2);

const TESTS: Readonly<Record<string, Test>> = {
  boolean: (value) => typeof value === 'boolean',
  callable: (value) => value instanceof Callable,
  defined: (value) => value !== undefined,
  undefined: (value) => value === undefined,
  none: (value) => value === null,
  true: (value) => value === true,
  false: (value) => value === false,
  string: isText,
  number: isNumber,
  integer: (value) => typeof value === 'number',
  float: (value) => value instanceof PyFloat,
  mapping: (value) => value instanceof Map,
  sequence: (value) => isText(value) || value instanceof Map || listOf(value) !== undefined,
  iterable: (value) => isText(value) || value instanceof Map || value === undefined || listOf(value) !== undefined,
  odd: (value) => remainder(value) === 1,
  even: (value) => remainder(value) === 0,
  lower: (value) => isText(value) && value === value.toLowerCase() && value !== value.toUpperCase(),
  upper: (value) => isText(value) && value === value.toUpperCase() && value !== value.toLowerCase(),
  eq: equals,
  ne: (value, other, budget) => !equals(value, other, budget),
  in: (value, other, budget) => contains(other, value, budget),
  lt: (value, other, budget) => compare(value, other, budget) < 0,
  le: (value, other, budget) => compare(value, other, budget) <= 0,
  gt: (value, other, budget) => compare(value, other, budget) > 0,
  ge: (value, other, budget) => compare(value, other, budget) >= 0,
};
Object.assign(TESTS, { equalto: TESTS.eq, '==': TESTS.eq, '!=': TESTS.ne, '<': TESTS.lt, '>': TESTS.gt });

/** `item in container`. */
export function contains(container: Value, item: Value, budget: Budget): boolean {
  if (typeof container === 'string') {
    if (typeof item !== 'string') throw templateError(`a ${typeName(item)} is looked for in a string`);
    budget.spend(container.length >> 5);
    return container.includes(item);
  }
  if (container instanceof Map) return container.has(item);
  return iterate(container, budget).some((other) => equals(other, item, budget));
}
