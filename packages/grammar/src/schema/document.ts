/** A schema as plain data, with what its references lead to. */
import { badSchema, step, tooLarge, unsupported } from './complaints';
import type { Place } from './condition';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Values in a schema, its nesting, and the characters of its strings together. */
const MOST_VALUES = 200_000;
const MOST_DEPTH = 256;
const MOST_CHARACTERS = 2 ** 23;

/** Keywords whose value is data, not a schema. */
const DATA = new Set(['const', 'enum', 'default', 'examples', 'example']);
/** The address of a schema that names none. */
export const ROOT = 'schema://document/';

export class SchemaDocument {
  readonly root: Json;
  private readonly places = new Map<object, Place>();
  /** Schemas by their URI. */
  private readonly resources = new Map<string, Json>();

  /** @throws GrammarError BAD_SCHEMA for what is no JSON, TOO_LARGE */
  constructor(schema: unknown) {
    this.root = plain(schema);
    this.resources.set(ROOT, this.root);
    this.index(this.root, { pointer: '', base: ROOT });
  }

  placeOf(value: object, otherwise: Place): Place {
    return this.places.get(value) ?? otherwise;
  }

  /** What a reference leads to. @throws GrammarError UNSUPPORTED_KEYWORD where that is not in the schema */
  resolve(reference: string, from: Place): { value: Json; place: Place } {
    const missing = () =>
      unsupported(step(from.pointer, '$ref'), `"${reference}" is not in the schema; put what it refers to under $defs`);
    let uri: URL;
    let fragment: string;
    try {
      uri = new URL(reference, from.base);
      fragment = decodeURIComponent(uri.hash.slice(1));
    } catch {
      return missing();
    }
    const whole = uri.href.split('#')[0];
    const named = this.resources.get(fragment === '' ? whole : `${whole}#${fragment}`);
    let value = named ?? this.resources.get(whole);
    if (value === undefined || (named === undefined && fragment !== '' && !fragment.startsWith('/'))) return missing();
    let place: Place = this.placeOf(value as object, { pointer: '', base: whole });
    if (named !== undefined) return { value, place };
    for (const part of fragment.split('/').slice(1)) {
      const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
      const isThere = typeof value === 'object' && value !== null && Object.hasOwn(value, name);
      if (!isThere) return missing();
      value = (value as Record<string, Json>)[name];
      const below = { pointer: step(place.pointer, name), base: place.base };
      place = typeof value === 'object' && value !== null ? this.placeOf(value, below) : below;
    }
    return { value, place };
  }

  private index(value: Json, place: Place): void {
    if (typeof value !== 'object' || value === null) return;
    let { base } = place;
    if (!Array.isArray(value)) {
      const object = value as { readonly [name: string]: Json };
      const id = object.$id ?? object.id;
      if (typeof id === 'string') {
        try {
          base = new URL(id, base).href.replace(/#$/, '');
        } catch {
          badSchema(step(place.pointer, '$id'), `"${id.slice(0, 100)}" is no URI`);
        }
        this.resources.set(base, value);
        base = base.split('#')[0];
      }
      for (const name of ['$anchor', '$dynamicAnchor']) {
        const anchor = object[name];
        if (typeof anchor === 'string') this.resources.set(`${base}#${anchor}`, value);
      }
    }
    this.places.set(value, { pointer: place.pointer, base });
    for (const [name, part] of Object.entries(value))
      if (!DATA.has(name)) this.index(part as Json, { pointer: step(place.pointer, name), base });
  }
}

/** A copy that is nothing but JSON; undefined members are left out, as JSON.stringify does. */
function plain(schema: unknown): Json {
  let values = 0;
  let characters = 0;
  const copy = (value: unknown, pointer: string, depth: number): Json => {
    if (++values > MOST_VALUES) tooLarge(pointer, `has more than ${MOST_VALUES} values; give a smaller one`);
    if (depth > MOST_DEPTH)
      tooLarge(pointer, `nests more than ${MOST_DEPTH} deep, or holds itself; use $ref for recursion`);
    if (typeof value === 'string') {
      characters += value.length;
      if (characters > MOST_CHARACTERS) tooLarge(pointer, `has more than ${MOST_CHARACTERS} characters`);
      if (/\p{Surrogate}/u.test(value))
        badSchema(pointer, 'a string has half of a surrogate pair; give whole characters');
      return value;
    }
    if (value === null || typeof value === 'boolean') return value;
    if (typeof value === 'number' && Number.isFinite(value)) return value === 0 ? 0 : value;
    if (Array.isArray(value)) return value.map((item, i) => copy(item, step(pointer, i), depth + 1));
    if (typeof value === 'object') {
      const result = Object.create(null) as Record<string, Json>;
      for (const [name, part] of Object.entries(value))
        if (part !== undefined) {
          copy(name, pointer, depth);
          result[name] = copy(part, step(pointer, name), depth + 1);
        }
      return result;
    }
    return badSchema(pointer, `a ${typeof value} is no JSON; give a schema as JSON.parse would`);
  };
  return copy(schema, '', 0);
}
