/** Reads the fields of a JSON body: each with its type and bounds, or a 400 that names it. Null counts as left out. */
import { kinds } from '@x/core';
import { ApiError, badField } from '../errors';

export class Fields {
  /** @param path of the object in the body, such as `messages[0]`; empty for the body itself */
  constructor(
    private readonly values: Readonly<Record<string, unknown>>,
    private readonly path = '',
  ) {}

  static of(value: unknown, path = ''): Fields {
    if (kinds.isObject(value)) return new Fields(value, path);
    if (path !== '') throw badField(path, `is ${kinds.showField(value)}; give an object`);
    throw new ApiError(400, `The body is ${kinds.showField(value)}; give a JSON object.`);
  }

  /** The field's place in the body. */
  at(name: string): string {
    return this.path === '' ? name : `${this.path}.${name}`;
  }

  raw(name: string): unknown {
    return Object.hasOwn(this.values, name) ? (this.values[name] ?? undefined) : undefined;
  }

  has(name: string): boolean {
    return this.raw(name) !== undefined;
  }

  names(): string[] {
    return Object.keys(this.values).filter((name) => this.has(name));
  }

  string(name: string, maxLength = Number.POSITIVE_INFINITY): string | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') throw badField(this.at(name), `is ${kinds.showField(value)}; give a string`);
    if (value.length > maxLength)
      throw badField(this.at(name), `has ${value.length} characters; give at most ${maxLength}`);
    return value;
  }

  number(name: string, from: number, to: number): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value === 'number' && value >= from && value <= to) return value;
    throw badField(this.at(name), `is ${kinds.showField(value)}; give a number from ${from} to ${to}`);
  }

  integer(name: string, from: number, to: number): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (Number.isInteger(value) && (value as number) >= from && (value as number) <= to) return value as number;
    throw badField(this.at(name), `is ${kinds.showField(value)}; give a whole number from ${from} to ${to}`);
  }

  boolean(name: string): boolean | undefined {
    const value = this.raw(name);
    if (value === undefined || typeof value === 'boolean') return value;
    throw badField(this.at(name), `is ${kinds.showField(value)}; give true or false`);
  }

  choice<const T extends string>(name: string, allowed: readonly T[]): T | undefined {
    const value = this.raw(name);
    if (value === undefined || allowed.includes(value as T)) return value as T | undefined;
    throw badField(
      this.at(name),
      `is ${kinds.showField(value)}; give ${allowed.map((one) => JSON.stringify(one)).join(' or ')}`,
    );
  }

  object(name: string): Fields | undefined {
    const value = this.raw(name);
    return value === undefined ? undefined : Fields.of(value, this.at(name));
  }

  list(name: string, maxItems: number): unknown[] | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw badField(this.at(name), `is ${kinds.showField(value)}; give a list`);
    if (value.length > maxItems) throw badField(this.at(name), `has ${value.length} items; give at most ${maxItems}`);
    return value;
  }

  /** A list of objects. */
  objects(name: string, maxItems: number): Fields[] | undefined {
    return this.list(name, maxItems)?.map((item, i) => Fields.of(item, `${this.at(name)}[${i}]`));
  }

  /** @throws ApiError 400 naming the first of these fields that is there */
  refuse(reasons: Readonly<Record<string, string>>): void {
    for (const [name, reason] of Object.entries(reasons)) if (this.has(name)) throw badField(this.at(name), reason);
  }

  required<T>(name: string, value: T | undefined): T {
    if (value !== undefined) return value;
    throw new ApiError(400, `${this.at(name)} is missing.`, {
      code: 'missing_required_parameter',
      param: this.at(name),
    });
  }
}

/** A list of token ids that is not empty. */
export function isTokens(value: unknown): value is number[] {
  return Array.isArray(value) && value.length > 0 && value.every((id) => Number.isInteger(id) && id >= 0);
}
