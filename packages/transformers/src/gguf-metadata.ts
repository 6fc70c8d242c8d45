/**
 * Typed reading of GGUF metadata. Values come from files that anyone may have written, so every access checks its type
 * and an error names the key, what it holds and what it should hold.
 */
import { TransformersError } from './errors';

/** What `GgufFile.metadata` offers; any map of keys to tagged values will do. */
export interface GgufMetadata {
  get(key: string): { readonly value: unknown } | undefined;
}

function wrong(key: string, value: unknown, expected: string): TransformersError {
  const found = value === undefined ? 'is missing' : `holds ${describe(value)}`;
  return new TransformersError(
    'BAD_GGUF_METADATA',
    `GGUF metadata "${key}" ${found}, but ${expected} is needed; the file is incomplete or not a language model: convert it again.`,
  );
}

function describe(value: unknown): string {
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return `an array of ${(value as ArrayLike<unknown>).length}`;
  return typeof value === 'string' ? `"${value.slice(0, 40)}"` : `${typeof value} ${String(value)}`;
}

function isArrayLike(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

/** A number, or undefined when the key is absent. bigint values must fit 53 bits. */
export function optionalNumber(metadata: GgufMetadata, key: string): number | undefined {
  const value = metadata.get(key)?.value;
  if (value === undefined) return undefined;
  const number = typeof value === 'bigint' ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isFinite(number)) throw wrong(key, value, 'a number');
  return number;
}

export function requireNumber(metadata: GgufMetadata, key: string): number {
  const value = optionalNumber(metadata, key);
  if (value === undefined) throw wrong(key, undefined, 'a number');
  return value;
}

export function optionalString(metadata: GgufMetadata, key: string): string | undefined {
  const value = metadata.get(key)?.value;
  if (value !== undefined && typeof value !== 'string') throw wrong(key, value, 'a string');
  return value;
}

export function requireString(metadata: GgufMetadata, key: string): string {
  const value = optionalString(metadata, key);
  if (value === undefined) throw wrong(key, undefined, 'a string');
  return value;
}

export function optionalBoolean(metadata: GgufMetadata, key: string): boolean | undefined {
  const value = metadata.get(key)?.value;
  if (value !== undefined && typeof value !== 'boolean') throw wrong(key, value, 'true or false');
  return value;
}

export function optionalStrings(metadata: GgufMetadata, key: string): string[] | undefined {
  const value = metadata.get(key)?.value;
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || value.some((x) => typeof x !== 'string')) throw wrong(key, value, 'an array of strings');
  return value;
}

export function requireStrings(metadata: GgufMetadata, key: string): string[] {
  const value = optionalStrings(metadata, key);
  if (value === undefined) throw wrong(key, undefined, 'an array of strings');
  return value;
}

/** An array of `length` numbers, or undefined when the key is absent. */
export function optionalNumbers(metadata: GgufMetadata, key: string, length: number): number[] | undefined {
  const value = metadata.get(key)?.value;
  if (value === undefined) return undefined;
  if (!isArrayLike(value) || value.length !== length) throw wrong(key, value, `an array of ${length} numbers`);
  return Array.from(value, (x) => {
    const number = Number(x);
    if (!Number.isFinite(number)) throw wrong(key, value, `an array of ${length} numbers`);
    return number;
  });
}
