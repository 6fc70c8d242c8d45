/** Reads the keywords of one schema, each of its type. */
import { kinds } from '@x/core';
import { badSchema, step, unsupported } from './complaints';
import type { Condition, Conditions, Place } from './condition';
import type { Json, SchemaDocument } from './document';

/** Keywords that say something about a schema and nothing about values. */
const ANNOTATIONS = new Set([
  '$schema',
  '$id',
  'id',
  '$anchor',
  '$dynamicAnchor',
  '$comment',
  '$defs',
  'definitions',
  '$vocabulary',
  'title',
  'description',
  'default',
  'examples',
  'example',
  'deprecated',
  'readOnly',
  'writeOnly',
  'contentEncoding',
  'contentMediaType',
  'contentSchema',
  'discriminator',
  'externalDocs',
  'xml',
]);

export class SchemaReader {
  private readonly seen = new Set<string>();

  constructor(
    private readonly schema: Readonly<Record<string, unknown>>,
    readonly place: Place,
    private readonly conditions: Conditions,
    private readonly document: SchemaDocument,
  ) {}

  at(name: string, ...more: (string | number)[]): string {
    return more.reduce<string>((pointer, part) => step(pointer, part), step(this.place.pointer, name));
  }

  any(name: string): unknown {
    this.seen.add(name);
    return Object.hasOwn(this.schema, name) ? this.schema[name] : undefined;
  }

  number(name: string): number | undefined {
    return this.typed(name, 'a number', (value): value is number => typeof value === 'number');
  }

  /** A whole number of 0 or more. */
  count(name: string): number | undefined {
    return this.typed(
      name,
      'a whole number of 0 or more',
      (value): value is number => Number.isInteger(value) && (value as number) >= 0,
    );
  }

  text(name: string): string | undefined {
    return this.typed(name, 'a string', (value): value is string => typeof value === 'string');
  }

  flag(name: string): boolean | undefined {
    return this.typed(name, 'true or false', (value): value is boolean => typeof value === 'boolean');
  }

  list(name: string): readonly Json[] | undefined {
    return this.typed(name, 'a list', (value): value is Json[] => Array.isArray(value));
  }

  texts(name: string): readonly string[] | undefined {
    return this.typed(
      name,
      'a list of strings',
      (value): value is string[] => Array.isArray(value) && value.every((item) => typeof item === 'string'),
    );
  }

  object(name: string): Readonly<Record<string, Json>> | undefined {
    return this.typed(name, 'an object', isObject);
  }

  schemaAt(name: string): Condition | undefined {
    const value = this.any(name);
    return value === undefined ? undefined : this.condition(value, this.at(name));
  }

  /** A list of schemas, of one at least. */
  schemas(name: string): readonly Condition[] | undefined {
    const list = this.list(name);
    if (list?.length === 0) badSchema(this.at(name), 'the list is empty; give one schema at least');
    return list?.map((value, i) => this.condition(value, this.at(name, i)));
  }

  schemaMap(name: string): Map<string, Condition> {
    const entries = Object.entries(this.object(name) ?? {});
    return new Map(entries.map(([key, value]) => [key, this.condition(value, this.at(name, key))]));
  }

  /** A schema inside of this one. */
  condition(value: unknown, pointer: string): Condition {
    if (value === true) return this.conditions.always;
    if (value === false) return this.conditions.never;
    if (!isObject(value)) return badSchema(pointer, `${kinds.show(value)} is no schema; give an object, true or false`);
    return this.conditions.schema(value, this.document.placeOf(value, { pointer, base: this.place.base }));
  }

  /** @throws GrammarError UNSUPPORTED_KEYWORD for one that nothing has asked for */
  checkAllRead(): void {
    for (const name of Object.keys(this.schema)) {
      if (this.seen.has(name) || ANNOTATIONS.has(name) || name.startsWith('x-')) continue;
      unsupported(
        this.at(name),
        `the keyword "${name.slice(0, 60)}" is not supported; leave it out or write it in another way`,
      );
    }
  }

  private typed<T>(name: string, wanted: string, is: (value: unknown) => value is T): T | undefined {
    const value = this.any(name);
    if (value === undefined || is(value)) return value;
    return badSchema(this.at(name), `${kinds.show(value)} is given where ${wanted} is needed`);
  }
}

export const isObject = kinds.isObject as (value: unknown) => value is Record<string, Json>;
