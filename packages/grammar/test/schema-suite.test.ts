/**
 * The JSON-Schema-Test-Suite: for each of its schemas that compiles, every valid instance in our form is accepted, every invalid one
 * refused, and random texts validate with ajv. `X_JSON_SCHEMA_SUITE` names a directory of it, such as `tests/draft2020-12`; by default
 * it is that of draft 4 in the package `json-schema-test-suite`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { compileSchema, type Grammar, GrammarError } from '../src';
import { randomOf, randomText, vocabularyOf } from './helpers';

interface Group {
  description: string;
  schema: unknown;
  tests: { description: string; data: unknown; valid: boolean }[];
}

const require = createRequire(import.meta.url);
const packaged = join(dirname(require.resolve('json-schema-test-suite')), 'tests/draft4');
const directory = process.env.X_JSON_SCHEMA_SUITE ?? packaged;
const isOld = !process.env.X_JSON_SCHEMA_SUITE?.includes('2020');
const files = [directory, join(directory, 'optional'), join(directory, 'optional/format')].flatMap((path) => {
  try {
    // To JavaScript 1.0 and 1 are one value.
    return readdirSync(path)
      .filter((name) => name.endsWith('.json') && name !== 'zeroTerminatedFloats.json')
      .map((name) => join(path, name));
  } catch {
    return [];
  }
});

/**
 * What may be valid and is not in our form: numbers with more digits than JavaScript keeps, texts with half of a surrogate
 * pair.
 */
function isInForm(data: unknown): boolean {
  if (typeof data === 'number')
    return Math.abs(data) <= Number.MAX_SAFE_INTEGER && (String(data).match(/[0-9]/g)?.length ?? 0) <= 15;
  if (typeof data === 'string') return !/\p{Surrogate}/u.test(data);
  if (typeof data !== 'object' || data === null) return true;
  return Object.entries(data).every(([name, value]) => isInForm(name) && isInForm(value));
}

/** The JSON of a value with its members in every order, as far as there are few. */
function orders(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [JSON.stringify(value)];
  if (Array.isArray(value)) return combine(value.map(orders)).map((items) => `[${items.join(',')}]`);
  const members = Object.entries(value).map(([name, item]) =>
    orders(item).map((text) => `${JSON.stringify(name)}:${text}`),
  );
  return permutations(members).flatMap((order) => combine(order).map((texts) => `{${texts.join(',')}}`));
}

function combine(parts: string[][]): string[][] {
  return parts.reduce<string[][]>(
    (all, part) => all.flatMap((before) => part.map((text) => [...before, text])).slice(0, 500),
    [[]],
  );
}

function permutations<T>(items: T[]): T[][] {
  if (items.length > 5) return [items];
  if (items.length === 0) return [[]];
  return items.flatMap((item, i) => permutations(items.filter((_, j) => j !== i)).map((rest) => [item, ...rest]));
}

const vocabulary = vocabularyOf([
  '{"',
  '":',
  '","',
  '"foo":',
  '"bar":',
  '[1,',
  '"}',
  ']]',
  'true',
  '123',
  ' a',
  'é',
  '\\u00',
  '1.',
  '"},{"',
]);

function compile(schema: unknown): Grammar | GrammarError {
  try {
    return compileSchema(schema);
  } catch (error) {
    if (error instanceof GrammarError) return error;
    throw error;
  }
}

function validator(schema: unknown): ValidateFunction | undefined {
  const ajv = new Ajv2020({ strict: false, validateFormats: true, multipleOfPrecision: 9, logger: false });
  addFormats(ajv);
  try {
    return ajv.compile(schema as object);
  } catch {
    return undefined;
  }
}

const totals = { schemas: 0, compiled: 0, unsatisfiable: 0, accepted: 0, refused: 0, walks: 0 };
const refusals = new Map<string, number>();

describe.each(files.map((path) => [path.slice(directory.length + 1), path]))('%s', (_, path) => {
  const groups = JSON.parse(readFileSync(path, 'utf8')) as Group[];
  for (const { description, schema, tests } of groups) {
    const grammar = compile(schema);
    totals.schemas++;
    if (grammar instanceof GrammarError && grammar.code !== 'UNSATISFIABLE') {
      it(`${description}: is refused with where and why`, () => {
        expect(grammar.message).toMatch(/^The schema at "#/);
      });
      const why = grammar.message.replace(/"#[^"]*"/, '"#..."').slice(0, 90);
      refusals.set(why, (refusals.get(why) ?? 0) + 1);
      continue;
    }
    totals.compiled++;
    for (const test of tests) {
      // Formats are enforced, where the specification takes them for hints, and leave out rare forms such as leap seconds.
      if (test.valid && JSON.stringify(schema).includes('"format"')) continue;
      const isFormed = isInForm(test.data);
      if (test.valid && !isFormed) continue;
      it(`${description}: ${test.description}`, () => {
        const texts = orders(test.data);
        const accepted = !(grammar instanceof GrammarError) && texts.some((text) => grammar.accepts(text));
        expect(accepted, texts[0]).toBe(test.valid);
        totals[test.valid ? 'accepted' : 'refused']++;
      });
    }
    if (grammar instanceof GrammarError) {
      totals.unsatisfiable++;
      continue;
    }
    const validate = isOld ? undefined : validator(schema);
    it(`${description}: random texts are valid`, () => {
      for (let seed = 1; seed <= 6; seed++) {
        const text = randomText(grammar, vocabulary, randomOf(seed), 30);
        if (text === undefined) continue;
        const value: unknown = JSON.parse(text);
        expect(grammar.accepts(text), text).toBe(true);
        if (validate) expect(validate(value), `${text} ${JSON.stringify(validate.errors)}`).toBe(true);
        totals.walks++;
      }
    });
  }
});

describe('the suite', () => {
  it('was run', () => {
    if (process.env.X_JSON_SCHEMA_SUITE)
      console.log(
        totals,
        [...refusals].sort((a, b) => b[1] - a[1]),
      );
    expect(totals.compiled).toBeGreaterThan(totals.schemas * 0.7);
    expect(totals.accepted).toBeGreaterThan(100);
    expect(totals.refused).toBeGreaterThan(100);
    expect(totals.walks).toBeGreaterThan(200);
  });
});
