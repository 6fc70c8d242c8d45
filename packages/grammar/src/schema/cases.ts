/** What a schema allows, as a union of sets of one type each: {@link Case}. */
import { GrammarError } from '../errors';
import type { Expression, Expressions } from '../regular/expression';
import { searchMatch, wholeMatch } from '../text/pattern';
import {
  ANY_NUMBER,
  type ArrayCase,
  type Case,
  type CaseType,
  full,
  meet,
  type NumberCase,
  type ObjectCase,
  others,
  type PropertyGroup,
  type StringCase,
  type Tools,
  TYPES,
} from './case';
import { badSchema, step, tooLarge, unsupported } from './complaints';
import { type Condition, Conditions, type Place } from './condition';
import { type Json, ROOT, type SchemaDocument } from './document';
import { formatLanguage, NUMBER_FORMATS } from './formats';
import type { Interval } from './interval';
import { isObject, SchemaReader } from './reader';

const MOST_CASES = 1000;
const MOST_ONE_OF = 200;
/** Characters of a text that is asked for, each of which is a state. */
const MOST_LENGTH = 50_000;
/** How deep inside of values contradictions are looked for. */
const MOST_DEPTH = 6;

export class Cases implements Tools {
  readonly conditions = new Conditions();
  /** Any text of whole characters. */
  readonly anyText: Expression;
  private readonly known = new Map<Condition, readonly Case[] | 'open'>();

  constructor(
    readonly make: Expressions,
    private readonly document: SchemaDocument,
  ) {
    this.anyText = make.repeat(make.character, 0, Number.POSITIVE_INFINITY);
  }

  get root(): Condition {
    const { root } = this.document;
    const reader = new SchemaReader({}, { pointer: '', base: ROOT }, this.conditions, this.document);
    return reader.condition(root, '');
  }

  /** @throws GrammarError BAD_SCHEMA, UNSUPPORTED_KEYWORD, TOO_LARGE, BAD_PATTERN */
  of(condition: Condition): readonly Case[] {
    const known = this.known.get(condition);
    if (known === 'open') badSchema(pointerOf(condition), 'the schema refers to itself without anything between');
    if (known) return known;
    this.known.set(condition, 'open');
    const cases = this.find(condition);
    if (cases.length > MOST_CASES)
      tooLarge(pointerOf(condition), `its combinations are ${cases.length} cases; at most ${MOST_CASES} are followed`);
    this.known.set(condition, cases);
    return cases;
  }

  private find(condition: Condition): readonly Case[] {
    switch (condition.kind) {
      case 'all':
        return condition.items.reduce<readonly Case[]>(
          (cases, item) => this.meetAll(cases, this.of(item)),
          TYPES.map((type) => full(type, this)),
        );
      case 'any': {
        const cases: Case[] = [];
        for (const item of condition.items) {
          cases.push(...this.of(item));
          if (cases.length > MOST_CASES) tooLarge(pointerOf(item), `is one of more than ${MOST_CASES} cases`);
        }
        return cases;
      }
      case 'not':
        return this.complement(this.of(condition.item), pointerOf(condition.item));
      case 'schema':
        return this.read(condition.value, condition.place);
    }
  }

  private meetAll(some: readonly Case[], others: readonly Case[]): Case[] {
    const cases: Case[] = [];
    for (const a of some) {
      for (const b of others) {
        const both = meet(a, b, this);
        if (both) cases.push(both);
        if (cases.length > MOST_CASES) tooLarge('', `its combinations are more than ${MOST_CASES} cases`);
      }
    }
    return cases;
  }

  private complement(cases: readonly Case[], pointer: string): Case[] {
    return TYPES.flatMap((type) =>
      cases
        .filter((one) => one.type === type)
        .reduce<Case[]>((left, one) => this.meetAll(left, others(one, this, pointer)), [full(type, this)]),
    );
  }

  private read(schema: Readonly<Record<string, unknown>>, place: Place): readonly Case[] {
    const { conditions } = this;
    const read = new SchemaReader(schema, place, conditions, this.document);
    const dialect = read.text('$schema');
    if (dialect !== undefined && !/^https?:\/\/json-schema\.org\//.test(dialect))
      unsupported(read.at('$schema'), 'the dialect is not known; leave $schema out for that of json-schema.org');
    const types = typesOf(read);
    const byType: Record<CaseType, () => Case | undefined> = {
      null: () => ({ type: 'null' }),
      boolean: () => full('boolean', this),
      number: () => this.numbers(read, types.includes('integer') && !types.includes('number')),
      string: () => this.strings(read),
      array: () => this.arrays(read),
      object: () => this.objects(read),
    };
    // All of them, so that mistakes in keywords of other types are found, too.
    let cases = TYPES.flatMap((type) => {
      const one = byType[type]();
      return one && (types.includes(type) || (type === 'number' && types.includes('integer'))) ? [one] : [];
    });
    const applied = this.applied(read);
    const values = this.values(read);
    read.checkAllRead();
    if (values) cases = this.meetAll(cases, values);
    for (const condition of applied) cases = this.meetAll(cases, this.of(condition));
    return cases;
  }

  /** Schemas that hold beside the keywords of this one. */
  private applied(read: SchemaReader): Condition[] {
    const { conditions } = this;
    const all: Condition[] = [];
    const reference = read.text('$ref');
    if (reference !== undefined) {
      const { value, place } = this.document.resolve(reference, read.place);
      all.push(isObject(value) ? conditions.schema(value, place) : read.condition(value, read.at('$ref')));
    }
    all.push(...(read.schemas('allOf') ?? []));
    const anyOf = read.schemas('anyOf');
    if (anyOf) all.push(conditions.any(...anyOf));
    const oneOf = read.schemas('oneOf');
    if (oneOf) all.push(this.oneOf(oneOf, read.at('oneOf')));
    const not = read.schemaAt('not');
    if (not) all.push(conditions.not(not));
    const [condition, then, otherwise] = ['if', 'then', 'else'].map((name) => read.schemaAt(name));
    if (condition && then) all.push(conditions.any(conditions.not(condition), then));
    if (condition && otherwise) all.push(conditions.any(condition, otherwise));
    for (const name of ['dependentRequired', 'dependentSchemas', 'dependencies'])
      for (const [key, value] of Object.entries(read.object(name) ?? {}))
        all.push(this.dependent(key, value, read.at(name, key), read));
    return all;
  }

  /** `value` holds, or is a list of names that have to be there, where the property `key` is there. */
  private dependent(key: string, value: Json, pointer: string, read: SchemaReader): Condition {
    const schema = (parts: Record<string, Json>) => this.conditions.schema(parts, { pointer, base: read.place.base });
    const isAbsent = schema({ properties: { [key]: false } });
    if (!Array.isArray(value))
      return this.conditions.any(
        isAbsent,
        this.conditions.all(schema({ required: [key] }), read.condition(value, pointer)),
      );
    if (!value.every((name) => typeof name === 'string')) badSchema(pointer, 'a list of strings is needed');
    return this.conditions.any(isAbsent, schema({ required: [key, ...value] }));
  }

  /** One of several schemas and no second one: they are disjoint, or each is narrowed to what is. */
  private oneOf(items: readonly Condition[], pointer: string): Condition {
    const { conditions } = this;
    if (items.length > MOST_ONE_OF)
      tooLarge(pointer, `has ${items.length} schemas; at most ${MOST_ONE_OF} are compared`);
    const narrowed: Condition[][] = items.map((item) => [item]);
    for (let i = 0; i < items.length; i++) {
      for (let j = i + 1; j < items.length; j++) {
        if (this.isEmpty(conditions.all(items[i], items[j]))) continue;
        try {
          for (const [one, other] of [
            [i, j],
            [j, i],
          ]) {
            const not = conditions.not(items[other]);
            this.of(not);
            narrowed[one].push(not);
          }
        } catch (cause) {
          if (!(cause instanceof GrammarError && cause.code === 'UNSUPPORTED_KEYWORD')) throw cause;
          const why = `a value may meet both ${i} and ${j}, and only one of them cannot be enforced`;
          unsupported(pointer, `${why}; use anyOf, or let them differ in a required property with const`);
        }
      }
    }
    return conditions.any(...narrowed.map((all) => conditions.all(...all)));
  }

  /** Whether a schema is seen to allow no value. */
  isEmpty(condition: Condition, depth = 0): boolean {
    if (condition === this.conditions.never) return true;
    if (depth > MOST_DEPTH || this.known.get(condition) === 'open') return false;
    return this.of(condition).every((one) => {
      if (one.type === 'array') {
        for (let i = 0; i < Math.min(one.min, one.prefix.length + 1); i++)
          if (this.isEmpty(one.prefix[i] ?? one.rest, depth + 1)) return true;
        return one.contains.some(({ item, min }) => min > 0 && this.isEmpty(this.conditions.all(item), depth + 1));
      }
      return one.type === 'object' && one.required.some((name) => this.isEmpty(this.property(one, name), depth + 1));
    });
  }

  /** What an object's property has to meet. */
  property({ groups, names }: ObjectCase, name: string): Condition {
    const { conditions, make } = this;
    if (!names.every((condition) => matches(make, this.textsOf(condition), name))) return conditions.never;
    return conditions.all(
      ...groups.map(({ properties, patterns, additional }) => {
        const own = properties.get(name);
        const all = patterns.filter(({ language }) => matches(make, language, name)).map(({ item }) => item);
        if (own) all.push(own);
        return all.length > 0 ? conditions.all(...all) : (additional ?? conditions.always);
      }),
    );
  }

  /** The strings that a schema allows. */
  textsOf(condition: Condition): Expression {
    const languages = this.of(condition).flatMap((one) => (one.type === 'string' ? [one.language] : []));
    return this.make.either(...languages);
  }

  private numbers(read: SchemaReader, isInteger: boolean): Case | undefined {
    let [low, high] = [read.number('minimum') ?? ANY_NUMBER.low, read.number('maximum') ?? ANY_NUMBER.high];
    let [isLowOpen, isHighOpen] = [false, false];
    const above = read.any('exclusiveMinimum');
    const below = read.any('exclusiveMaximum');
    // Until draft 4 they say what the other two mean.
    if (typeof above === 'boolean') isLowOpen = above && low > ANY_NUMBER.low;
    else if ((read.number('exclusiveMinimum') ?? ANY_NUMBER.low) >= low && above !== undefined)
      [low, isLowOpen] = [above as number, true];
    if (typeof below === 'boolean') isHighOpen = below && high < ANY_NUMBER.high;
    else if ((read.number('exclusiveMaximum') ?? ANY_NUMBER.high) <= high && below !== undefined)
      [high, isHighOpen] = [below as number, true];
    const multipleOf = read.number('multipleOf');
    if (multipleOf !== undefined && multipleOf <= 0) badSchema(read.at('multipleOf'), `${multipleOf} is not above 0`);
    const multiples = multipleOf === undefined ? [] : [multipleOf];
    if (isInteger && !multiples.includes(1)) multiples.unshift(1);
    const format = read.any('format');
    const range = typeof format === 'string' ? NUMBER_FORMATS.get(format) : undefined;
    if (range && range.low > low) [low, isLowOpen] = [range.low, false];
    if (range && range.high < high) [high, isHighOpen] = [range.high, false];
    if (low > high || (low === high && (isLowOpen || isHighOpen))) return undefined;
    const interval: Interval = { low, high, isLowOpen, isHighOpen };
    return { type: 'number', intervals: [interval], multiples, notMultiples: [] } satisfies NumberCase;
  }

  private strings(read: SchemaReader): Case | undefined {
    const { make } = this;
    const min = read.count('minLength') ?? 0;
    const max = read.count('maxLength') ?? Number.POSITIVE_INFINITY;
    const pattern = read.text('pattern');
    const format = read.text('format');
    if (min > max) return undefined;
    const parts = min > 0 || max < Number.POSITIVE_INFINITY ? [make.repeat(make.character, min, max)] : [];
    if (pattern !== undefined) parts.push(located(read.at('pattern'), () => this.texts(searchMatch(make, pattern))));
    if (format !== undefined && !NUMBER_FORMATS.has(format)) {
      const language = formatLanguage(format);
      // Beside a pattern it says for people what the pattern says: zod's "starts_with", "nanoid" and the like.
      if (language) parts.push(this.texts(wholeMatch(make, language)));
      else if (pattern === undefined)
        unsupported(read.at('format'), `the format "${format.slice(0, 60)}" is not known; use pattern`);
    }
    const language = parts.length > 0 ? make.both(...parts) : this.anyText;
    return this.make.isProductive(language) ? ({ type: 'string', language } satisfies StringCase) : undefined;
  }

  /** The members of a language that are text. */
  private texts(language: Expression): Expression {
    return holdsComplement(language) ? this.make.both(this.anyText, language) : language;
  }

  private arrays(read: SchemaReader): Case | undefined {
    const { conditions } = this;
    const items = read.any('items');
    // Until 2019 a list under `items` was what prefixItems is now, and additionalItems what items is.
    const isOld = Array.isArray(items);
    const prefix = isOld ? (items as Json[]).map((item, i) => read.condition(item, read.at('items', i))) : [];
    if (!isOld)
      prefix.push(
        ...(read.list('prefixItems') ?? []).map((item, i) => read.condition(item, read.at('prefixItems', i))),
      );
    const behind = isOld ? read.schemaAt('additionalItems') : read.schemaAt('items');
    if (!isOld) read.any('additionalItems'); // Without a list it means nothing.
    const unevaluated = read.schemaAt('unevaluatedItems');
    const contains = read.schemaAt('contains');
    const least = read.count('minContains');
    const most = read.count('maxContains');
    if (unevaluated && unevaluated !== conditions.always && (contains || holdsOthers(read)))
      unsupported(
        read.at('unevaluatedItems'),
        'beside schemas that evaluate items too it cannot be enforced; use items',
      );
    const isUnique = read.flag('uniqueItems');
    const min = read.count('minItems') ?? 0;
    const max = read.count('maxItems') ?? Number.POSITIVE_INFINITY;
    if (min > max) return undefined;
    const pointer = read.at('contains');
    return {
      type: 'array',
      prefix,
      rest: behind ?? unevaluated ?? conditions.always,
      min,
      max,
      contains: contains ? [{ item: contains, min: least ?? 1, max: most ?? Number.POSITIVE_INFINITY, pointer }] : [],
      unique: isUnique ? read.at('uniqueItems') : undefined,
    } satisfies ArrayCase;
  }

  private objects(read: SchemaReader): Case | undefined {
    const { conditions, make } = this;
    const properties = read.schemaMap('properties');
    const patterns = [...read.schemaMap('patternProperties')].map(([source, item]) => {
      const language = located(read.at('patternProperties', source), () => searchMatch(make, source));
      return { source, language, item };
    });
    const unevaluated = read.schemaAt('unevaluatedProperties');
    const additional = read.schemaAt('additionalProperties');
    if (unevaluated && !additional && unevaluated !== conditions.always && holdsOthers(read)) {
      const why = 'beside schemas that evaluate properties too it cannot be enforced; use additionalProperties';
      unsupported(read.at('unevaluatedProperties'), why);
    }
    const names = read.schemaAt('propertyNames');
    const required = read.texts('required') ?? [];
    // Until draft 4 a property could say that it is required; that is no longer heard.
    const min = read.count('minProperties') ?? 0;
    const max = read.count('maxProperties') ?? Number.POSITIVE_INFINITY;
    if (min > max) return undefined;
    const group: PropertyGroup = { properties, patterns, additional: additional ?? unevaluated };
    const isFree = properties.size === 0 && patterns.length === 0 && group.additional === undefined;
    return {
      type: 'object',
      groups: isFree ? [] : [group],
      required: [...new Set(required)],
      min,
      max,
      names: names && names !== conditions.always ? [names] : [],
      pointer: read.place.pointer,
    } satisfies ObjectCase;
  }

  /** The values that `enum` and `const` list. */
  private values(read: SchemaReader): readonly Case[] | undefined {
    const list = read.list('enum');
    const one = read.any('const');
    let cases: readonly Case[] | undefined;
    if (list) cases = this.listed(list, read.at('enum'), read.place.base);
    if (one === undefined) return cases;
    const only = this.listed([one as Json], read.at('const'), read.place.base);
    return cases ? this.meetAll(cases, only) : only;
  }

  private listed(values: readonly Json[], pointer: string, base: string): Case[] {
    const cases: Case[] = [];
    const numbers = [...new Set(values.filter((value) => typeof value === 'number'))].sort((a, b) => a - b);
    const texts = values.filter((value) => typeof value === 'string');
    const length = texts.reduce((most, text) => Math.max(most, text.length), 0);
    if (length > MOST_LENGTH)
      tooLarge(pointer, `has a text of ${length} characters; at most ${MOST_LENGTH} can be asked for`);
    const booleans = [true, false].filter((value) => values.includes(value));
    if (values.includes(null)) cases.push({ type: 'null' });
    if (booleans.length > 0) cases.push({ type: 'boolean', values: booleans });
    if (numbers.length > 0) {
      const intervals = numbers.map((value) => ({ low: value, high: value, isLowOpen: false, isHighOpen: false }));
      cases.push({ type: 'number', intervals, multiples: [], notMultiples: [] });
    }
    if (texts.length > 0) cases.push({ type: 'string', language: this.make.literals(texts) });
    const constant = (value: Json, at: string) => this.conditions.schema({ const: value }, { pointer: at, base });
    for (const value of values) {
      if (typeof value !== 'object' || value === null) continue;
      if (Array.isArray(value)) {
        const prefix = value.map((item, i) => constant(item, step(pointer, i)));
        const { length } = value;
        const any = full('array', this) as ArrayCase;
        cases.push({ ...any, prefix, rest: this.conditions.never, min: length, max: length });
      } else {
        const entries = Object.entries(value).map(
          ([name, item]) => [name, constant(item, step(pointer, name))] as const,
        );
        const group = { properties: new Map(entries), patterns: [], additional: this.conditions.never };
        const any = full('object', this) as ObjectCase;
        cases.push({ ...any, groups: [group], required: Object.keys(value), pointer });
      }
    }
    return cases;
  }
}

/** Whether a text belongs to a language. */
function matches(make: Expressions, language: Expression, text: string): boolean {
  let state = language;
  for (const byte of Buffer.from(text, 'utf8')) {
    state = make.step(state, byte);
    if (state === make.empty) return false;
  }
  return state.nullable;
}

function pointerOf(condition: Condition): string {
  if (condition.kind === 'schema') return condition.place.pointer;
  return pointerOfFirst(condition.kind === 'not' ? [condition.item] : condition.items);
}

function pointerOfFirst([first]: readonly Condition[]): string {
  return first ? pointerOf(first) : '';
}

function typesOf(read: SchemaReader): readonly string[] {
  const type = read.any('type');
  const known = [...TYPES, 'integer'];
  const isNullable = read.flag('nullable');
  if (type === undefined) return TYPES;
  const types: readonly unknown[] = Array.isArray(type) ? type : [type];
  for (const one of types)
    if (!known.includes(one as CaseType))
      badSchema(read.at('type'), `${JSON.stringify(one)} is no type; give ${known.join(', ')}`);
  return [...(types as string[]), ...(isNullable ? ['null'] : [])];
}

/** Whether schemas beside the keywords may look at the same properties or items. */
function holdsOthers(read: SchemaReader): boolean {
  const names = ['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'if', 'dependentSchemas', 'dependencies'];
  return names.some((name) => read.any(name) !== undefined);
}

function holdsComplement(of: Expression): boolean {
  const seen = new Set<Expression>();
  const open = [of];
  for (let next = open.pop(); next; next = open.pop()) {
    if (seen.has(next)) continue;
    seen.add(next);
    if (next.kind === 'not') return true;
    if (next.kind === 'sequence') open.push(next.first, next.rest);
    else if (next.kind === 'either' || next.kind === 'both') open.push(...next.items);
    else if (next.kind === 'repeat') open.push(next.item);
  }
  return false;
}

/** Adds to an error of a pattern where it stands. */
function located<T>(pointer: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof GrammarError) || error.code !== 'BAD_PATTERN') throw error;
    throw new GrammarError('BAD_PATTERN', `The schema at "#${pointer}": ${error.message}`, { cause: error });
  }
}
