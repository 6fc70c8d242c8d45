/** Reading objects from files field by field; what is wrong is said with the place of the field. */
import { kinds } from '@x/core';
import { TransformersError } from '../errors';

export function badTokenizer(what: string, cause?: unknown): TransformersError {
  return new TransformersError(
    'BAD_TOKENIZER',
    `Cannot load the tokenizer: ${what}. Download the model's tokenizer.json again.`,
    { cause },
  );
}

/** @throws TransformersError BAD_TOKENIZER */
export function wrong(at: string, value: unknown, wanted: string): never {
  const given = value === undefined ? 'missing' : kinds.show(value);
  throw badTokenizer(`${at} is ${given}, but ${wanted} is needed`);
}

/** An object of the file. Fields without a fallback must be there; null counts as absent. */
export class Fields {
  readonly #object: Record<string, unknown>;

  /** @param at its place: `normalizer.normalizers[2]` */
  constructor(
    readonly at: string,
    value: unknown,
  ) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) wrong(at, value, 'an object');
    this.#object = value as Record<string, unknown>;
  }

  place(name: string): string {
    return this.at === '' ? name : `${this.at}.${name}`;
  }

  /** Whatever is there, undefined for nothing. */
  any(name: string): unknown {
    return Object.hasOwn(this.#object, name) ? (this.#object[name] ?? undefined) : undefined;
  }

  has(name: string): boolean {
    return this.any(name) !== undefined;
  }

  /** A text of at most `most` characters. */
  text(name: string, fallback?: string, most = 64): string {
    const value = this.any(name) ?? fallback;
    if (typeof value === 'string' && value.length <= most) return value;
    return wrong(this.place(name), value, `a string of at most ${most} characters`);
  }

  flag(name: string, fallback?: boolean): boolean {
    const value = this.any(name) ?? fallback;
    return typeof value === 'boolean' ? value : wrong(this.place(name), value, 'true or false');
  }

  /** A whole number in [least, most]. */
  whole(name: string, least: number, most: number, fallback?: number): number {
    const value = this.any(name) ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most) return value as number;
    return wrong(this.place(name), value, `a whole number from ${least} to ${most}`);
  }

  list(name: string, most: number, fallback?: readonly unknown[]): readonly unknown[] {
    const value = this.any(name) ?? fallback;
    if (Array.isArray(value) && value.length <= most) return value;
    return wrong(this.place(name), value, `a list of at most ${most} items`);
  }

  object(name: string): Record<string, unknown> {
    const value = this.any(name);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    return wrong(this.place(name), value, 'an object');
  }
}
