/** Options by their names: what is misspelt or of another type is an error that says which, instead of a default. */
import { inspect } from 'node:util';
import { didYouMean } from '@x/core';
import { TransformersError } from '@x/transformers';

/** What an option may be, and how to say it. Undefined is always allowed: the default. */
export type OptionRule = readonly [test: (value: unknown) => boolean, wanted: string];

export const number: OptionRule = [(value) => typeof value === 'number', 'a number'];
export const boolean: OptionRule = [(value) => typeof value === 'boolean', 'true or false'];
export const callback: OptionRule = [(value) => typeof value === 'function', 'a function'];
export const signal: OptionRule = [(value) => value instanceof AbortSignal, "an AbortController's signal"];

/** @throws TransformersError INVALID_OPTION naming the first option that is unknown or of another type */
export function checkOptions(op: string, options: unknown, rules: Readonly<Record<string, OptionRule>>): void {
  const fail = (what: string, option?: string) =>
    new TransformersError('INVALID_OPTION', `${op}: ${what}.`, { option });
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw fail(`the options are ${String(options)}; give an object, such as { ${Object.keys(rules)[0]}: ... }`);
  }
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(rules, name)) {
      const known = Object.keys(rules);
      throw fail(`there is no option "${name}".${didYouMean(name, known)} Options: ${known.join(', ')}`, name);
    }
    const [test, wanted] = rules[name];
    if (value !== undefined && !test(value)) throw fail(`${name} is ${shown(value)}; give ${wanted}`, name);
  }
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  return inspect(value, { depth: 1, breakLength: Number.POSITIVE_INFINITY, maxArrayLength: 4, maxStringLength: 60 });
}
