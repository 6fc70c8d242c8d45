/**
 * Values of a template and what Python makes of them: truth, equality, `str`, `repr` and JSON. Whole numbers are numbers,
 * `undefined` is Jinja's Undefined, a dict is a Map; what else Python tells apart has a class.
 */
import { type Budget, templateError } from './budget';

export class PyFloat {
  constructor(readonly value: number) {}
}

export class Tuple {
  constructor(readonly items: Value[]) {}
}

/** What `namespace()` makes: the only thing that a template can change. */
export class Namespace {
  readonly fields = new Map<string, Value>();
}

export interface Arguments {
  args: Value[];
  named: Map<string, Value>;
}

export class Callable {
  constructor(
    readonly name: string,
    readonly call: (given: Arguments) => Value,
  ) {}
}

export type Dict = Map<Value, Value>;
export type Value =
  | string
  | number
  | boolean
  | null
  | undefined
  | PyFloat
  | Value[]
  | Tuple
  | Dict
  | Namespace
  | Callable;

/** A JavaScript value as JSON has it. Functions and the like become Undefined. */
export function toValue(input: unknown): Value {
  switch (typeof input) {
    case 'string':
    case 'boolean':
      return input;
    case 'number':
      return Number.isInteger(input) ? input : new PyFloat(input);
    case 'object':
      if (input === null) return null;
      if (Array.isArray(input)) return input.map(toValue);
      // What JSON leaves out is not there.
      return new Map(
        Object.entries(input)
          .filter(([, value]) => value !== undefined)
          .map(([key, value]) => [key, toValue(value)]),
      );
    default:
      return undefined;
  }
}

export function listOf(value: Value): Value[] | undefined {
  if (Array.isArray(value)) return value;
  return value instanceof Tuple ? value.items : undefined;
}

/** A dict whose entries are looked at. */
export function counted(dict: Dict, budget: Budget): Dict {
  budget.items(dict.size);
  return dict;
}

/** Entries of a dict, each of which is made. */
export function pairsOf(dict: Dict, budget: Budget): Tuple[] {
  budget.spend(dict.size);
  return [...dict].map((pair) => new Tuple(pair));
}

/** What a loop sees: items, keys of a dict, characters; nothing for Undefined. */
export function iterate(value: Value, budget: Budget): Value[] {
  const list = listOf(value);
  if (list) {
    budget.items(list.length);
    return list;
  }
  if (value instanceof Map) return [...counted(value, budget).keys()];
  if (typeof value === 'string') {
    budget.spend(value.length);
    return Array.from(value);
  }
  if (value === undefined) return [];
  throw templateError(`a ${typeName(value)} cannot be iterated`);
}

export function lengthOf(value: Value): number {
  if (typeof value === 'string') return codePoints(value);
  if (value instanceof Map) return value.size;
  if (value === undefined) return 0;
  const list = listOf(value);
  if (list) return list.length;
  throw templateError(`a ${typeName(value)} has no length`);
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

export function isTruthy(value: Value): boolean {
  if (value instanceof PyFloat) return value.value !== 0;
  if (value instanceof Map) return value.size > 0;
  const list = listOf(value);
  return list ? list.length > 0 : Boolean(value);
}

export function typeName(value: Value): string {
  if (value === undefined) return 'undefined value';
  if (value === null) return 'none';
  if (typeof value === 'string') return 'string';
  if (typeof value === 'boolean') return 'boolean';
  if (typeof value === 'number' || value instanceof PyFloat) return 'number';
  if (value instanceof Map) return 'mapping';
  if (value instanceof Namespace) return 'namespace';
  return value instanceof Callable ? 'function' : 'list';
}

/** The number that Python counts with: booleans are 0 and 1. */
export function numberOf(value: Value): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return Number(value);
  return value instanceof PyFloat ? value.value : undefined;
}

export function equals(a: Value, b: Value, budget: Budget): boolean {
  budget.spend(1);
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined || y !== undefined) return x === y;
  if (a instanceof Map && b instanceof Map) {
    return a.size === b.size && [...a].every(([key, value]) => b.has(key) && equals(value, b.get(key), budget));
  }
  if (a instanceof Tuple !== b instanceof Tuple) return false;
  const [list, other] = [listOf(a), listOf(b)];
  if (!list || !other) return a === b;
  return list.length === other.length && list.every((item, i) => equals(item, other[i], budget));
}

/** Less than, equal or more. @throws for what has no order */
export function compare(a: Value, b: Value, budget: Budget): number {
  budget.spend(1);
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return x - y;
  if (typeof a === 'string' && typeof b === 'string') return a < b ? -1 : a > b ? 1 : 0;
  const [list, other] = [listOf(a), listOf(b)];
  if (list && other) {
    for (let i = 0; i < Math.min(list.length, other.length); i++) {
      const order = compare(list[i], other[i], budget);
      if (order !== 0) return order;
    }
    return list.length - other.length;
  }
  throw templateError(`a ${typeName(a)} and a ${typeName(b)} cannot be compared`);
}

/** `str(value)`. */
export function str(value: Value, budget: Budget): string {
  if (typeof value === 'string') return value;
  return value === undefined ? '' : repr(value, budget);
}

/** `repr(value)`. */
export function repr(value: Value, budget: Budget): string {
  budget.spend(1);
  if (value === undefined) return 'Undefined';
  if (value === null) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'string') return quote(budget.text(value));
  if (typeof value === 'number') return String(value);
  if (value instanceof PyFloat) return floatText(value.value);
  const join = (items: Value[]) => budget.text(items.map((item) => repr(item, budget)).join(', '));
  if (Array.isArray(value)) return `[${join(value)}]`;
  if (value instanceof Tuple) return `(${join(value.items)}${value.items.length === 1 ? ',' : ''})`;
  if (value instanceof Map) {
    const fields = [...value].map(([key, item]) => `${repr(key, budget)}: ${repr(item, budget)}`);
    return budget.text(`{${fields.join(', ')}}`);
  }
  throw templateError(`a ${typeName(value)} cannot be printed`);
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what Python escapes
  const escaped = text.replace(/[\\\n\r\t\x00-\x1f\x7f-\xa0\xad]/g, (c) => {
    return ESCAPES[c] ?? `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return mark + (mark === "'" ? escaped.replaceAll("'", "\\'") : escaped) + mark;
}

/** A float as Python writes it: 1.0, 1e-05, 1e+16. */
function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) {
    return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  }
  if (Object.is(value, -0)) return '-0.0';
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

export interface JsonStyle {
  indent?: number;
  ensureAscii?: boolean;
  separators?: readonly [string, string];
  sortKeys?: boolean;
}

/** `json.dumps(value)` as transformers calls it. */
export function json(value: Value, style: JsonStyle, budget: Budget, depth = 0): string {
  budget.spend(1);
  if (value === null) return 'null';
  if (typeof value === 'string') return jsonText(budget.text(value), style);
  if (typeof value === 'boolean' || typeof value === 'number') return String(value);
  if (value instanceof PyFloat) return floatText(value.value).replace('inf', 'Infinity').replace('nan', 'NaN');
  const { indent } = style;
  const [item, colon] = style.separators ?? [indent === undefined ? ', ' : ',', ': '];
  const list = listOf(value);
  if (!list && !(value instanceof Map)) throw templateError(`a ${typeName(value)} cannot be written as JSON`);
  let parts: string[];
  if (list) parts = list.map((entry) => json(entry, style, budget, depth + 1));
  else {
    const entries = [...(value as Dict)].map(([key, entry]): [string, Value] => [jsonKey(key, budget), entry]);
    if (style.sortKeys) entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    parts = entries.map(([key, entry]) => jsonText(key, style) + colon + json(entry, style, budget, depth + 1));
  }
  const [open, close] = list ? '[]' : '{}';
  if (parts.length === 0) return open + close;
  if (indent === undefined) return budget.text(open + parts.join(item) + close);
  const line = `\n${' '.repeat(indent * (depth + 1))}`;
  return budget.text(`${open}${line}${parts.join(item + line)}\n${' '.repeat(indent * depth)}${close}`);
}

function jsonKey(key: Value, budget: Budget): string {
  if (typeof key === 'string') return key;
  return key === null || typeof key === 'boolean' ? String(key) : str(key, budget);
}

function jsonText(text: string, { ensureAscii }: JsonStyle): string {
  const quoted = JSON.stringify(text);
  if (!ensureAscii) return quoted;
  return quoted.replace(/[\x7f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
