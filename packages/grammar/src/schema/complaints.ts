/** Errors that say where in a schema. */
import { GrammarError } from '../errors';

/** @param pointer JSON Pointer of the keyword */
export function unsupported(pointer: string, why: string): never {
  throw new GrammarError('UNSUPPORTED_KEYWORD', `The schema at ${shown(pointer)}: ${why}.`);
}

export function badSchema(pointer: string, why: string): never {
  throw new GrammarError('BAD_SCHEMA', `The schema at ${shown(pointer)}: ${why}.`);
}

export function tooLarge(pointer: string, why: string): never {
  throw new GrammarError('TOO_LARGE', `The schema at ${shown(pointer)}: ${why}.`);
}

function shown(pointer: string): string {
  return `"#${pointer.length > 200 ? `${pointer.slice(0, 200)}...` : pointer}"`;
}

/** A step of a JSON Pointer (RFC 6901). */
export function step(pointer: string, name: string | number): string {
  return `${pointer}/${String(name).replaceAll('~', '~0').replaceAll('/', '~1')}`;
}
