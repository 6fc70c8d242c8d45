/** JSON Schema beyond the test suite: forms of texts, formats, ranges, errors, bounds, and random texts against ajv. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { compileSchema, compileToolCalls, type GrammarError, type SchemaOptions } from '../src';
import { randomOf, randomText, vocabularyOf } from './helpers';

const vocabulary = vocabularyOf(['{"', '":', '",', '"}', '1.', '00', '"a":', 'é"', '@b', '\\"', '-0']);
const ajv = new Ajv2020({ strict: false, multipleOfPrecision: 9 });
addFormats(ajv);

function accepts(schema: unknown, text: string, options?: SchemaOptions): boolean {
  return compileSchema(schema, options).accepts(text);
}

function errorOf(make: () => unknown): GrammarError {
  try {
    make();
  } catch (error) {
    return error as GrammarError;
  }
  throw new Error('nothing was thrown');
}

const address = { type: 'object', properties: { zip: { type: 'string', pattern: '^[0-9]{5}$' } }, required: ['zip'] };
const SCHEMAS: unknown[] = [
  { type: 'object', properties: { a: { type: 'integer' }, b: address }, required: ['b'], additionalProperties: false },
  {
    type: 'object',
    properties: { a: { const: 1 } },
    additionalProperties: { type: 'string', maxLength: 3 },
    minProperties: 2,
    maxProperties: 4,
  },
  {
    type: 'object',
    patternProperties: { '^x': { type: 'integer' }, y$: { minimum: 5 } },
    additionalProperties: false,
    propertyNames: { maxLength: 4 },
  },
  {
    type: 'object',
    properties: { a: {}, b: {}, c: {} },
    minProperties: 2,
    maxProperties: 2,
    additionalProperties: false,
  },
  {
    allOf: [address, { properties: { city: { type: 'string', minLength: 1 } }, required: ['city'] }],
    unevaluatedProperties: true,
    type: 'object',
  },
  { anyOf: [{ type: 'integer', minimum: 10 }, { type: 'string', maxLength: 2 }, { type: 'null' }] },
  {
    oneOf: [
      { type: 'object', properties: { kind: { const: 'a' }, x: { type: 'integer' } }, required: ['kind'] },
      { type: 'object', properties: { kind: { const: 'b' }, y: { type: 'boolean' } }, required: ['kind', 'y'] },
    ],
  },
  {
    oneOf: [
      { type: 'string', minLength: 3 },
      { type: 'string', maxLength: 5 },
    ],
  },
  {
    type: 'object',
    properties: { kind: { enum: ['x', 'y'] }, v: { type: ['string', 'integer'] } },
    required: ['kind', 'v'],
    additionalProperties: false,
    if: { properties: { kind: { const: 'x' } } },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: { properties: { v: { type: 'integer' } } },
    else: { properties: { v: { type: 'string', maxLength: 4 } } },
  },
  {
    type: 'object',
    properties: { a: { type: 'boolean' }, b: { type: 'boolean' } },
    dependentRequired: { a: ['b'] },
    additionalProperties: false,
  },
  {
    type: 'array',
    prefixItems: [{ type: 'integer' }, { type: 'string', maxLength: 2 }],
    items: { type: 'boolean' },
    minItems: 1,
    maxItems: 4,
  },
  {
    type: 'array',
    items: { type: 'integer', minimum: 0, maximum: 3 },
    contains: { const: 2 },
    minContains: 2,
    maxContains: 3,
    maxItems: 6,
  },
  {
    type: 'array',
    items: { type: ['number', 'string'], maxLength: 1, minimum: 0, maximum: 9 },
    uniqueItems: true,
    minItems: 2,
    maxItems: 5,
  },
  { type: 'number', minimum: -3.25, exclusiveMaximum: 17.5 },
  { type: 'number', exclusiveMinimum: 0, maximum: 0.003 },
  { type: 'number', multipleOf: 0.25, minimum: -2, maximum: 2 },
  { type: 'integer', exclusiveMinimum: -123, maximum: 45678 },
  { type: 'integer', multipleOf: 3600 },
  { type: 'integer', multipleOf: 7, not: { multipleOf: 2 }, minimum: 0 },
  { type: 'string', pattern: '^[a-z]+[0-9]?$', minLength: 3, maxLength: 5 },
  { type: 'string', pattern: '[0-9]', maxLength: 6 },
  { type: 'string', not: { pattern: '[a-z]' }, minLength: 2, maxLength: 6 },
  { type: 'string', minLength: 2, maxLength: 4 },
  { enum: ['a"\\\n\u0001', 1.5, -7, true, null, [1, { b: 2 }], {}] },
  { not: { enum: [null, true, 3, 'x'] }, type: ['null', 'boolean', 'integer'], maximum: 9, minimum: 0 },
  {
    $ref: '#/$defs/tree',
    $defs: {
      tree: {
        type: 'object',
        properties: {
          value: { type: 'integer' },
          children: { type: 'array', items: { $ref: '#/$defs/tree' }, maxItems: 2 },
        },
        required: ['value'],
        additionalProperties: false,
      },
    },
  },
  ...[
    'date',
    'time',
    'date-time',
    'email',
    'hostname',
    'ipv4',
    'ipv6',
    'uuid',
    'uri',
    'uri-reference',
    'duration',
    'json-pointer',
    'relative-json-pointer',
    'byte',
  ].map((format) => ({ type: 'string', format, maxLength: 60 })),
  { type: 'integer', format: 'int32' },
];

describe('random texts', () => {
  it.each(SCHEMAS.map((schema) => [JSON.stringify(schema).slice(0, 100), schema] as const))(
    'of %s are valid',
    (_, schema) => {
      const validate = ajv.compile(schema as object);
      for (const whitespace of ['compact', 'any'] as const) {
        const grammar = compileSchema(schema, { whitespace });
        for (let seed = 1; seed <= 8; seed++) {
          const text = randomText(grammar, vocabulary, randomOf(seed), 20);
          if (text === undefined) continue;
          const value: unknown = JSON.parse(text);
          expect(validate(value), `${text} ${JSON.stringify(validate.errors)}`).toBe(true);
          // What was written is what is read.
          if (whitespace === 'compact' && typeof value === 'string')
            expect(grammar.accepts(JSON.stringify(value))).toBe(true);
        }
      }
    },
  );
});

describe('texts', () => {
  it('have their white space as asked', () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'array', items: { type: 'integer' } }, b: {} },
      required: ['a', 'b'],
    };
    const forms = {
      compact: '{"a":[1,2],"b":null}',
      spaced: '{"a": [1, 2], "b": null}',
      pretty: '{\n  "a" : [\r\n\t\t1 ,\n    2\n  ], "b": null\n}',
      any: '{ "a" :\n[1 ,2]\t, "b":null\r\n}',
    };
    const more = { compact: [], spaced: [], pretty: ['compact', 'spaced'], any: Object.keys(forms) };
    for (const whitespace of ['compact', 'spaced', 'pretty', 'any'] as const)
      for (const [name, text] of Object.entries(forms))
        expect(accepts(schema, text, { whitespace }), `${whitespace} ${name}`).toBe(
          name === whitespace || (more[whitespace] as string[]).includes(name),
        );
    const indented = (count: number) => accepts({}, `[\n${' '.repeat(count)}]`, { whitespace: 'pretty' });
    expect([indented(24), indented(26)]).toEqual([true, false]);
    expect(accepts({}, `[${' '.repeat(129)}]`, { whitespace: 'any' })).toBe(false);
  });

  it('have properties in declared order, required ones behind, then others, once each', () => {
    const schema = { type: 'object', properties: { b: {}, a: {} }, required: ['z', 'a'] };
    expect(accepts(schema, '{"b":1,"a":1,"z":1,"c":1,"d":1}')).toBe(true);
    for (const text of [
      '{"a":1,"b":1,"z":1}',
      '{"z":1,"a":1}',
      '{"a":1}',
      '{"a":1,"z":1,"c":1,"c":2}',
      '{"a":1,"z":1,"b":2}',
      '{"a":1,"z":1,"\\u0062":2}',
    ])
      expect(accepts(schema, text), text).toBe(false);
    expect(accepts(schema, '{"a":1,"z":1,"c":1}', { closed: true })).toBe(false);
    expect(accepts({ type: 'object' }, '{"c":1}', { closed: true })).toBe(true);
    expect(accepts({ ...schema, additionalProperties: true }, '{"a":1,"z":1,"c":1}', { closed: true })).toBe(true);
  });

  it('have strings with escapes where they may stand for the character', () => {
    for (const text of ['"\\u00e9é\\n\\/"', '"\\ud83e\\udd8a"', '"\\u0000"'])
      expect(accepts({ type: 'string' }, text), text).toBe(true);
    for (const text of ['"\\ud83e"', '"\\udd8a"', '"\\x41"', '"a\nb"', '"\\u00g0"', '"'])
      expect(accepts({ type: 'string' }, text), text).toBe(false);
    expect(accepts({ type: 'string', maxLength: 1 }, '"\\ud83e\\udd8a"')).toBe(true);
    expect(accepts({ type: 'string', maxLength: 1 }, '"🦊"')).toBe(true);
    expect(accepts({ type: 'string', maxLength: 1 }, '"ab"')).toBe(false);
    expect(accepts({ const: 'a\u0001' }, '"a\\u0001"')).toBe(true);
    expect(accepts({ const: 'a' }, '"\\u0061"')).toBe(false);
  });

  it('have numbers that read back as they were written', () => {
    for (const text of ['0', '-1.50', '1e9', '2.5E-07', '999999999999999'])
      expect(accepts({ type: 'number' }, text), text).toBe(true);
    for (const text of ['-0', '01', '1.', '.5', '1e999', '1234567890123456.7', '+1'])
      expect(accepts({ type: 'number' }, text), text).toBe(false);
    expect(accepts({ type: 'integer' }, '9007199254740991')).toBe(true);
    for (const text of ['9007199254740992', '1.0', '1e2', '-0'])
      expect(accepts({ type: 'integer' }, text), text).toBe(false);
    for (let n = -30; n <= 30; n++) {
      const value = n / 8;
      const inside = value > -1.25 && value <= 2.5;
      expect(
        accepts({ type: 'number', exclusiveMinimum: -1.25, maximum: 2.5 }, JSON.stringify(value)),
        `${value}`,
      ).toBe(inside);
    }
  });
});

describe('formats', () => {
  const VALID = {
    date: ['2024-02-29', '1999-12-31'],
    time: ['12:30:00Z', '23:59:59.123+05:30'],
    'date-time': ['2024-02-29T00:00:00Z'],
    duration: ['P3Y6M', 'PT1H', 'P2W'],
    email: ['a.b+c@example.org'],
    hostname: ['a', 'www.example.com', 'a-b.c1'],
    ipv4: ['127.0.0.1', '255.255.255.255'],
    ipv6: ['::', '::1', '2001:db8::8a2e:370:7334', '1:2:3:4:5:6:7:8', '::ffff:10.0.0.1'],
    uuid: ['2eb8aa08-aa98-11ea-b4aa-73b441d16380'],
    uri: ['https://user@example.org:80/a/b?c=d#e', 'mailto:a@b.c', 'urn:x:y'],
    'uri-reference': ['../a?b#c', '#x', ''],
    'json-pointer': ['', '/a/~0~1'],
  };
  const INVALID = {
    date: ['2023-02-29', '1900-02-29', '2024-13-01', '2024-1-1'],
    time: ['24:00:00Z', '12:00:00'],
    'date-time': ['2024-02-30T00:00:00Z'],
    duration: ['P', 'PT', 'P1D2H'],
    email: ['a@', '@b', 'a b@c'],
    hostname: ['-a', 'a-', 'a..b', `${'a'.repeat(64)}`],
    ipv4: ['256.0.0.1', '1.2.3', '01.2.3.4'],
    ipv6: [':::', '1:2:3:4:5:6:7', '1::2::3', '12345::'],
    uuid: ['2eb8aa08aa9811eab4aa73b441d16380'],
    uri: ['//a', 'a b:c', 'http://a b'],
    'uri-reference': ['a b', '\\'],
    'json-pointer': ['a', '/~2'],
  };
  it('that are not known are no more than their pattern', () => {
    const schema = { type: 'string', format: 'starts_with', pattern: '^usr_.*' };
    expect(accepts(schema, '"usr_1"')).toBe(true);
    expect(accepts(schema, '"us"')).toBe(false);
  });

  it.each(Object.entries(VALID))('%s has its texts', (format, texts) => {
    for (const text of texts) expect(accepts({ type: 'string', format }, JSON.stringify(text)), text).toBe(true);
    for (const text of INVALID[format as keyof typeof INVALID])
      expect(accepts({ type: 'string', format }, JSON.stringify(text)), text).toBe(false);
  });
});

describe('errors', () => {
  it.each([
    [{ type: 'strin' }, 'BAD_SCHEMA', '"#/type"'],
    [{ properties: { 'a/b': { minLength: '3' } } }, 'BAD_SCHEMA', '"#/properties/a~1b/minLength"'],
    [{ items: 5 }, 'BAD_SCHEMA', '"#/items"'],
    [{ anyOf: [] }, 'BAD_SCHEMA', '"#/anyOf"'],
    [{ required: 'a' }, 'BAD_SCHEMA', '"#/required"'],
    [{ minimum: Number.NaN }, 'BAD_SCHEMA', '"#/minimum"'],
    [{ multipleOf: 0 }, 'BAD_SCHEMA', '"#/multipleOf"'],
    [{ const: () => 1 }, 'BAD_SCHEMA', '"#/const"'],
    [{ enum: ['\ud800'] }, 'BAD_SCHEMA', '"#/enum/0"'],
    [{ $ref: '#' }, 'BAD_SCHEMA', 'refers to itself'],
    [null, 'BAD_SCHEMA', 'no schema'],
    [{ $ref: 'https://example.org/x.json' }, 'UNSUPPORTED_KEYWORD', '"#/$ref"'],
    [{ $ref: '#/$defs/missing' }, 'UNSUPPORTED_KEYWORD', 'not in the schema'],
    [{ minLenght: 3 }, 'UNSUPPORTED_KEYWORD', '"#/minLenght"'],
    [{ $dynamicRef: '#a' }, 'UNSUPPORTED_KEYWORD', '"#/$dynamicRef"'],
    [{ format: 'klingon' }, 'UNSUPPORTED_KEYWORD', '"#/format"'],
    [{ items: {}, uniqueItems: true }, 'UNSUPPORTED_KEYWORD', '"#/uniqueItems"'],
    [{ not: { additionalProperties: false } }, 'UNSUPPORTED_KEYWORD', 'additionalProperties'],
    [
      { oneOf: [{ additionalProperties: { type: 'null' } }, { propertyNames: { maxLength: 3 } }] },
      'UNSUPPORTED_KEYWORD',
      '"#/oneOf"',
    ],
    [{ type: 'integer', multipleOf: 123_457 }, 'UNSUPPORTED_KEYWORD', 'multipleOf'],
    [false, 'UNSATISFIABLE', 'No text'],
    [{ enum: [] }, 'UNSATISFIABLE', 'No text'],
    [{ type: 'integer', minimum: 5, maximum: 4 }, 'UNSATISFIABLE', 'No text'],
    [{ type: 'integer', exclusiveMinimum: 1, exclusiveMaximum: 2 }, 'UNSATISFIABLE', 'No text'],
    [{ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }, 'UNSATISFIABLE', 'No text'],
    [{ type: 'array', items: { enum: [1, 2] }, uniqueItems: true, minItems: 3 }, 'UNSATISFIABLE', 'No text'],
    [{ type: 'string', pattern: '^a$', minLength: 2 }, 'UNSATISFIABLE', 'No text'],
    [
      {
        allOf: Array.from({ length: 12 }, (_, i) => ({
          anyOf: [{ minimum: i }, { maximum: -i }, { type: 'string', minLength: i }],
        })),
      },
      'TOO_LARGE',
      'cases',
    ],
  ])('%j is %s', (schema, code, text) => {
    const error = errorOf(() => compileSchema(schema));
    expect([error.code, error.message]).toEqual([code, expect.stringContaining(text)]);
  });

  it('are said of what is too large, in little time', () => {
    let deep: unknown = {};
    for (let i = 0; i < 60_000; i++) deep = { items: deep };
    const circle: Record<string, unknown> = {};
    circle.items = circle;
    const patterns = Array.from({ length: 10_000 }, (_, i) => ({ type: 'string', pattern: `a{${i}}b` }));
    for (const schema of [
      deep,
      circle,
      { enum: Array.from({ length: 300_000 }, (_, i) => i) },
      { const: 'x'.repeat(3_900_000) },
      { anyOf: patterns },
    ]) {
      const begun = performance.now();
      expect(errorOf(() => compileSchema(schema)).code).toBe('TOO_LARGE');
      expect(performance.now() - begun).toBeLessThan(5000);
    }
  });

  it('are none where counts are large', () => {
    const begun = performance.now();
    const schema = {
      type: 'array',
      items: { type: 'string', minLength: 3, maxLength: 5_000_000 },
      maxItems: 5_000_000,
    };
    expect(accepts(schema, '["abc","abcd"]')).toBe(true);
    expect(accepts(schema, '["ab"]')).toBe(false);
    const properties = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`p${i}`, { type: 'integer' }]));
    expect(accepts({ type: 'object', properties, additionalProperties: false }, '{"p3":1,"p999":2}')).toBe(true);
    const required = Array.from({ length: 4000 }, (_, i) => `p${i}`);
    const whole = JSON.stringify(Object.fromEntries(required.map((name) => [name, 1])));
    expect(accepts({ type: 'object', required }, whole)).toBe(true);
    expect(accepts({ type: 'object', required }, whole.replace('"p77":1,', ''))).toBe(false);
    expect(performance.now() - begun).toBeLessThan(5000);
  });

  it('are none of thousands of items by their places', () => {
    const prefixItems = Array.from({ length: 5000 }, () => ({ type: ['string', 'null', 'integer'] }));
    const items = JSON.stringify(prefixItems.map((_, i) => (i % 3 === 0 ? 'a' : i % 3 === 1 ? null : i)));
    for (const minItems of [0, 5000]) {
      expect(accepts({ type: 'array', prefixItems, minItems, items: false }, items)).toBe(true);
      expect(accepts({ type: 'array', prefixItems, minItems, items: false }, items.replace('[', '[null,'))).toBe(false);
    }
  });
});

describe('tool calls', () => {
  const tools = [
    { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } },
    { name: 'stop', parameters: {} },
  ];
  const syntax = { before: (name: string) => ` ${JSON.stringify(name)}, "arguments":`, behind: '}' };

  it('have a known name and its arguments', () => {
    const grammar = compileToolCalls(tools, syntax);
    expect(grammar.accepts(' "weather", "arguments": {"city": "Oslo"}}')).toBe(true);
    expect(grammar.accepts(' "stop", "arguments":{}}')).toBe(true);
    for (const text of [
      ' "weather", "arguments": {}}',
      ' "rain", "arguments": {}}',
      ' "weather", "arguments": {"city": "a", "b": 1}}',
      ' "stop", "arguments": 3}',
    ])
      expect(grammar.accepts(text), text).toBe(false);
  });

  it('are refused with the name of the tool', () => {
    const bad = [...tools, { name: 'x', parameters: { format: 'klingon' } }];
    expect(() => compileToolCalls(bad, syntax)).toThrow(/The tool "x": .*klingon/);
    expect(() => compileToolCalls([], syntax)).toThrow(/no tools/);
    const text = [{ name: 'x', parameters: { type: 'string' } }];
    const error = errorOf(() => compileToolCalls(text, syntax));
    expect([error.code, error.option, error.message]).toEqual([
      'UNSATISFIABLE',
      'tools',
      expect.stringContaining('The tool "x": no object meets its parameters'),
    ]);
  });
});
