/** Texts of a given form: JSON Schema, expressions, grammars and choices, on every device. */
import { compileSchema } from '@x/grammar';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type LanguageModel, loadModel, type StandardSchema } from '../src';
import { deviceNames, GGUF, openDevice } from './helpers';

const PERSON = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 12 },
    age: { type: 'integer', minimum: 0, maximum: 120 },
    likes: { type: 'array', items: { enum: ['cats', 'dogs', 'naïve 東京'] }, maxItems: 3, uniqueItems: true },
  },
  required: ['name', 'age', 'likes'],
  additionalProperties: false,
} as const;

interface Person {
  name: string;
  age: number;
  likes: string[];
}

function checkPerson(value: unknown): void {
  const { name, age, likes, ...rest } = value as Person;
  expect(rest).toEqual({});
  expect([...name].length).toBeGreaterThan(0);
  expect([...name].length).toBeLessThanOrEqual(12);
  expect(Number.isInteger(age) && age >= 0 && age <= 120).toBe(true);
  expect(new Set(likes).size).toBe(likes.length);
  for (const like of likes) expect(PERSON.properties.likes.items.enum).toContain(like);
}

describe.each(deviceNames)('texts of a given form on %s', (name) => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(GGUF, { device: openDevice(name), maxContext: 160 });
  });
  afterAll(() => model.dispose());

  it('writes JSON that meets a schema, at any temperature, and gives its value', async () => {
    for (const [seed, temperature] of name === 'js'
      ? [[3, 20]]
      : [
          [1, 0],
          [2, 1],
          [3, 20],
        ]) {
      const generation = model.generate<Person>('A person: ', { schema: PERSON, temperature, seed, maxTokens: 120 });
      const value = await generation.value();
      checkPerson(value);
      expect(generation.stats.finishReason).toBe('eos');
    }
  });

  it('writes the same text token by token, with log probabilities of what may come', async () => {
    const options = { schema: PERSON, temperature: 1, seed: 7, maxTokens: 100 } as const;
    const pieces = [];
    const generation = model.generate('Once', { ...options, topLogprobs: 3 });
    for await (const piece of generation) pieces.push(piece);
    expect(JSON.stringify(await generation.value())).toBe(pieces.map(({ text }) => text).join(''));
    for (const { logprob, topLogprobs } of pieces) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(topLogprobs!.length).toBeGreaterThan(0);
    }
    expect(await model.generate('Once', options).text()).toBe(pieces.map(({ text }) => text).join(''));
  });

  it('follows several forms at once, each its own, as if alone', async () => {
    const forms = [
      { schema: { ...PERSON, required: ['name'] } },
      { schema: { type: 'array', items: { type: 'boolean' }, minItems: 3, maxItems: 5 } },
      { regex: /[0-9]{3}-[a-f]{4}/ },
      { choices: ['yes', 'no', 'perhaps'] },
      { grammar: 'root ::= "(" root ")" | "x"{1,4}' },
      { maxTokens: 12 },
    ];
    const run = (form: object, i: number) =>
      model
        .generate('The king said: ', { maxTokens: name === 'js' ? 25 : 100, temperature: 1.5, seed: i, ...form })
        .text();
    const together = await Promise.all(forms.map(run));
    if (name !== 'js') expect(JSON.parse(together[0])).toHaveProperty('name');
    expect(together[2]).toMatch(/^[0-9]{3}-[a-f]{4}$/);
    expect(forms[3].choices).toContain(together[3]);
    const alone: string[] = [];
    for (const [i, form] of forms.entries()) alone.push(await run(form, i));
    expect(together).toEqual(alone);
  });

  it('stops when it is told to', async () => {
    const controller = new AbortController();
    const generation = model.generate('A', { schema: { type: 'string', minLength: 1000 }, signal: controller.signal });
    const reading = (async () => {
      for await (const { index } of generation) if (index === 3) controller.abort();
    })();
    await expect(reading).rejects.toMatchObject({ name: 'AbortError' });
    await expect(generation.value()).rejects.toMatchObject({ code: 'TEXT_INCOMPLETE' });
  });
});

describe('the options of a form', () => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(GGUF, { device: openDevice('cpu'), maxContext: 160 });
  });
  afterAll(() => model.dispose());

  it('says when a text was cut, and why', async () => {
    const cut = model.generate('A person: ', { schema: PERSON, maxTokens: 4 });
    await expect(cut.value()).rejects.toMatchObject({
      code: 'TEXT_INCOMPLETE',
      message: expect.stringContaining('maxTokens'),
    });
    const stopped = model.generate('A person: ', { schema: PERSON, stop: '"age"' });
    await expect(stopped.value()).rejects.toMatchObject({
      code: 'TEXT_INCOMPLETE',
      message: expect.stringContaining('stop'),
    });
    await expect(model.generate('A').value()).rejects.toMatchObject({ code: 'INVALID_OPTION' });
    const full = model.generate('A', { schema: { type: 'string', minLength: 5_000_000 } });
    await expect(full.value()).rejects.toMatchObject({
      code: 'TEXT_INCOMPLETE',
      message: expect.stringContaining('context'),
    });
  });

  it('knows the end without another token', async () => {
    const generation = model.generate('A person: ', { schema: PERSON, temperature: 1, seed: 5 });
    const value = await generation.value();
    const { tokens } = generation.stats;
    expect(
      await model.generate('A person: ', { schema: PERSON, temperature: 1, seed: 5, maxTokens: tokens }).value(),
    ).toEqual(value);
  });

  it('takes schemas of zod, checks and transforms what they say', async () => {
    const schema = z.object({
      color: z.enum(['red', 'green']),
      size: z
        .number()
        .int()
        .min(1)
        .max(9)
        .transform((size) => size * 100),
      note: z.string().max(5).optional(),
    });
    const value = await model.generate('T-shirt: ', { schema, temperature: 1, seed: 3, maxTokens: 80 }).value();
    // Compiles because the type is that of the schema's output.
    const size: number = value.size;
    expect(size % 100).toBe(0);
    expect(Object.keys(value).filter((key) => !['color', 'size', 'note'].includes(key))).toEqual([]);
    const refused = z.object({ a: z.boolean().refine(() => false, 'never') });
    await expect(model.generate('a', { schema: refused }).value()).rejects.toMatchObject({
      code: 'INVALID_VALUE',
      message: expect.stringContaining('a: never'),
    });
    const silent: StandardSchema = { '~standard': { version: 1, vendor: 'other', validate: (value) => ({ value }) } };
    expect(() => model.generate('a', { schema: silent })).toThrow(/other schema does not tell its JSON Schema/);
  });

  it('refuses what it cannot enforce and what does not go together, before anything runs', () => {
    const bad = (options: object, message: RegExp) => expect(() => model.generate('a', options)).toThrow(message);
    bad({ schema: { type: 'string', format: 'klingon' } }, /"#\/format": the format "klingon"/);
    bad({ schema: { type: 'object', minProprties: 1 } }, /"#\/minProprties"/);
    bad({ schema: [] }, /schema is/);
    bad({ schema: { not: {} } }, /No text meets/);
    bad({ schema: {}, regex: 'a' }, /schema and regex are given together/);
    bad({ choices: [] }, /choices is/);
    bad({ choices: ['a'], schemaOptions: {} }, /schemaOptions is given without schema/);
    bad({ schema: {}, schemaOptions: { whitespace: 'tabs' } }, /whitespace is "tabs"/);
    bad({ regex: '(a)\\1' }, /backreference/);
    bad({ grammar: 'root ::= missing' }, /line 1: there is no rule missing/);
  });

  it('takes compiled grammars, and writes white space where it is asked to', async () => {
    const grammar = compileSchema({ const: { a: [1, 2] } }, { whitespace: 'spaced' });
    expect(await model.generate('a', { grammar }).text()).toBe('{"a": [1, 2]}');
    const schema = { const: [true, 'é🦊\n'] };
    expect(await model.generate('a', { schema, schemaOptions: { whitespace: 'spaced' } }).value()).toEqual([
      true,
      'é🦊\n',
    ]);
  });
});
