/**
 * Schemas of the JSON-Schema-Test-Suite and ours of later drafts: for each that compiles, every valid instance in our form is
 * accepted, every invalid one refused, and random texts validate with ajv.
 */
import { describe, expect, it } from 'vitest';
import { compileSchema, type Grammar, GrammarError } from '../src';
import { randomOf, randomText, vocabularyOf } from './helpers';
import { suiteFiles, validator } from './suite';

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

const totals = { schemas: 0, compiled: 0, unsatisfiable: 0, accepted: 0, refused: 0, walks: 0, validated: 0 };
const refusals = new Map<string, number>();

describe.each(suiteFiles())('draft $draft, $name', ({ draft, groups }) => {
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
    const validate = validator(schema, draft);
    it(`${description}: random texts are valid`, () => {
      for (let seed = 1; seed <= 6; seed++) {
        const text = randomText(grammar, vocabulary, randomOf(seed), 30);
        if (text === undefined) continue;
        const value: unknown = JSON.parse(text);
        expect(grammar.accepts(text), text).toBe(true);
        totals.walks++;
        // Of the suite's own files some refer to documents that ajv is not given.
        if (!validate && process.env.X_JSON_SCHEMA_SUITE) continue;
        if (!validate) throw new Error('ajv does not take the schema');
        expect(validate(value), `${text} ${JSON.stringify(validate.errors)}`).toBe(true);
        totals.validated++;
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
    expect(totals.accepted).toBeGreaterThan(150);
    expect(totals.refused).toBeGreaterThan(200);
    expect(totals.validated).toBeGreaterThan(totals.walks * 0.9);
    expect(totals.validated).toBeGreaterThan(600);
  });
});
