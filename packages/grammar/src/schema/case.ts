/** Sets of JSON values of one type, and their intersections and complements. */
import type { Expression, Expressions } from '../regular/expression';
import { unsupported } from './complaints';
import type { Condition, Conditions } from './condition';
import { type Interval, meetIntervals, otherIntervals } from './interval';

export type Case = NullCase | BooleanCase | NumberCase | StringCase | ArrayCase | ObjectCase;

export interface NullCase {
  readonly type: 'null';
}

export interface BooleanCase {
  readonly type: 'boolean';
  readonly values: readonly boolean[];
}

export interface NumberCase {
  readonly type: 'number';
  readonly intervals: readonly Interval[];
  /** 1 among them for integers. */
  readonly multiples: readonly number[];
  readonly notMultiples: readonly number[];
}

export interface StringCase {
  readonly type: 'string';
  /** Of the text that a string stands for, in UTF-8. */
  readonly language: Expression;
}

export interface ArrayCase {
  readonly type: 'array';
  readonly prefix: readonly Condition[];
  readonly rest: Condition;
  readonly min: number;
  readonly max: number;
  readonly contains: readonly Contains[];
  /** Where the items have to differ: the pointer of the keyword. */
  readonly unique: string | undefined;
}

export interface Contains {
  readonly item: Condition;
  readonly min: number;
  readonly max: number;
  readonly pointer: string;
}

export interface ObjectCase {
  readonly type: 'object';
  readonly groups: readonly PropertyGroup[];
  readonly required: readonly string[];
  readonly min: number;
  readonly max: number;
  /** Conditions on the names, as strings. */
  readonly names: readonly Condition[];
  /** Where it stands, for messages. */
  readonly pointer: string;
}

/** The properties of one schema. */
export interface PropertyGroup {
  readonly properties: ReadonlyMap<string, Condition>;
  readonly patterns: readonly { readonly source: string; readonly language: Expression; readonly item: Condition }[];
  /** Of all others; undefined where the schema does not mention them: they are free then. */
  readonly additional: Condition | undefined;
}

export type CaseType = Case['type'];

export const ANY_NUMBER: Interval = {
  low: Number.NEGATIVE_INFINITY,
  high: Number.POSITIVE_INFINITY,
  isLowOpen: false,
  isHighOpen: false,
};

/** What intersections and complements are made with. */
export interface Tools {
  readonly make: Expressions;
  readonly conditions: Conditions;
  /** Every string. */
  readonly anyText: Expression;
}

/** All values of a type. */
export function full(type: CaseType, { conditions, anyText }: Tools): Case {
  const max = Number.POSITIVE_INFINITY;
  switch (type) {
    case 'null':
      return { type };
    case 'boolean':
      return { type, values: [true, false] };
    case 'number':
      return { type, intervals: [ANY_NUMBER], multiples: [], notMultiples: [] };
    case 'string':
      return { type, language: anyText };
    case 'array':
      return { type, prefix: [], rest: conditions.always, min: 0, max, contains: [], unique: undefined };
    case 'object':
      return { type, groups: [], required: [], min: 0, max, names: [], pointer: '' };
  }
}

export const TYPES: readonly CaseType[] = ['null', 'boolean', 'number', 'string', 'array', 'object'];

/** The values that two sets share; undefined where they are seen to be none. */
export function meet(a: Case, b: Case, { make, conditions }: Tools): Case | undefined {
  if (a.type === 'null' && b.type === 'null') return a;
  if (a.type === 'boolean' && b.type === 'boolean') {
    const values = a.values.filter((value) => b.values.includes(value));
    return values.length > 0 ? { type: 'boolean', values } : undefined;
  }
  if (a.type === 'number' && b.type === 'number') {
    const intervals = meetIntervals(a.intervals, b.intervals);
    const multiples = [...new Set([...a.multiples, ...b.multiples])];
    const notMultiples = [...new Set([...a.notMultiples, ...b.notMultiples])];
    if (intervals.length === 0 || multiples.some((one) => notMultiples.includes(one))) return undefined;
    return { type: 'number', intervals, multiples, notMultiples };
  }
  if (a.type === 'string' && b.type === 'string') {
    const language = make.both(a.language, b.language);
    return make.isProductive(language) ? { type: 'string', language } : undefined;
  }
  if (a.type === 'array' && b.type === 'array') {
    const length = Math.max(a.prefix.length, b.prefix.length);
    const item = (of: ArrayCase, i: number) => of.prefix[i] ?? of.rest;
    const min = Math.max(a.min, b.min);
    const max = Math.min(a.max, b.max);
    if (min > max) return undefined;
    return {
      type: 'array',
      prefix: Array.from({ length }, (_, i) => conditions.all(item(a, i), item(b, i))),
      rest: conditions.all(a.rest, b.rest),
      min,
      max,
      contains: [...a.contains, ...b.contains.filter((one) => !a.contains.includes(one))],
      unique: a.unique ?? b.unique,
    };
  }
  if (a.type === 'object' && b.type === 'object') {
    const min = Math.max(a.min, b.min);
    const max = Math.min(a.max, b.max);
    if (min > max) return undefined;
    return {
      type: 'object',
      groups: [...new Set([...a.groups, ...b.groups])],
      required: [...new Set([...a.required, ...b.required])],
      min,
      max,
      names: [...new Set([...a.names, ...b.names])],
      pointer: a.pointer || b.pointer,
    };
  }
  return undefined;
}

/**
 * The values of a type that do not belong to a set of that type.
 * @param pointer where the complement is asked for
 * @throws GrammarError UNSUPPORTED_KEYWORD where they cannot be told
 */
export function others(of: Case, tools: Tools, pointer: string): Case[] {
  switch (of.type) {
    case 'null':
      return [];
    case 'boolean': {
      const values = [true, false].filter((value) => !of.values.includes(value));
      return values.length > 0 ? [{ type: 'boolean', values }] : [];
    }
    case 'number':
      return otherNumbers(of);
    case 'string': {
      const language = tools.make.both(tools.anyText, tools.make.not(of.language));
      return tools.make.isProductive(language) ? [{ type: 'string', language }] : [];
    }
    case 'array':
      return otherArrays(of, tools, pointer);
    case 'object':
      return otherObjects(of, tools, pointer);
  }
}

function otherNumbers({ intervals, multiples, notMultiples }: NumberCase): Case[] {
  const cases: NumberCase[] = [];
  const outside = otherIntervals(intervals);
  if (outside.length > 0) cases.push({ type: 'number', intervals: outside, multiples: [], notMultiples: [] });
  for (const multiple of multiples)
    cases.push({ type: 'number', intervals: [ANY_NUMBER], multiples: [], notMultiples: [multiple] });
  for (const multiple of notMultiples)
    cases.push({ type: 'number', intervals: [ANY_NUMBER], multiples: [multiple], notMultiples: [] });
  return cases;
}

function otherArrays(of: ArrayCase, tools: Tools, pointer: string): Case[] {
  const { conditions } = tools;
  const any = full('array', tools) as ArrayCase;
  const cases: ArrayCase[] = [];
  if (of.min > 0) cases.push({ ...any, max: of.min - 1 });
  if (of.max < Number.POSITIVE_INFINITY) cases.push({ ...any, min: of.max + 1 });
  of.prefix.forEach((item, i) => {
    if (item === conditions.always) return;
    const before = Array.from({ length: i }, () => conditions.always);
    cases.push({ ...any, prefix: [...before, conditions.not(item)], min: i + 1 });
  });
  if (of.rest !== conditions.always) {
    const first = of.prefix.length;
    // With nothing allowed behind the first items, arrays that are longer; else arrays in which some item is another.
    if (of.rest === conditions.never) cases.push({ ...any, min: first + 1 });
    else if (first > 0) unsupported(pointer, 'the opposite of items behind prefixItems cannot be enforced');
    else
      cases.push({
        ...any,
        contains: [{ item: conditions.not(of.rest), min: 1, max: Number.POSITIVE_INFINITY, pointer }],
      });
  }
  for (const { item, min, max } of of.contains) {
    if (min > 0) cases.push({ ...any, contains: [{ item, min: 0, max: min - 1, pointer }] });
    if (max < Number.POSITIVE_INFINITY)
      cases.push({ ...any, contains: [{ item, min: max + 1, max: Number.POSITIVE_INFINITY, pointer }] });
  }
  if (of.unique !== undefined) unsupported(pointer, 'the opposite of uniqueItems cannot be enforced');
  return cases;
}

function otherObjects(of: ObjectCase, tools: Tools, pointer: string): Case[] {
  const { conditions } = tools;
  const any = { ...(full('object', tools) as ObjectCase), pointer };
  const cases: ObjectCase[] = [];
  const group = (name: string, condition: Condition): PropertyGroup[] => [
    { properties: new Map([[name, condition]]), patterns: [], additional: undefined },
  ];
  if (of.min > 0) cases.push({ ...any, max: of.min - 1 });
  if (of.max < Number.POSITIVE_INFINITY) cases.push({ ...any, min: of.max + 1 });
  for (const name of of.required) cases.push({ ...any, groups: group(name, conditions.never) });
  for (const { properties, patterns, additional } of of.groups) {
    for (const [name, condition] of properties)
      if (condition !== conditions.always)
        cases.push({ ...any, groups: group(name, conditions.not(condition)), required: [name] });
    if (additional && additional !== conditions.always)
      unsupported(pointer, 'the opposite of additionalProperties cannot be enforced');
    if (patterns.some(({ item }) => item !== conditions.always))
      unsupported(pointer, 'the opposite of patternProperties cannot be enforced');
  }
  if (of.names.length > 0) unsupported(pointer, 'the opposite of propertyNames cannot be enforced');
  return cases;
}
