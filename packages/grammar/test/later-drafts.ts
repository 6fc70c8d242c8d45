/** Schemas with the keywords that came after draft 4, by the categories of the JSON-Schema-Test-Suite. */
import type { Group } from './suite';

const group = (description: string, schema: unknown, valid: unknown[], invalid: unknown[]): Group => ({
  description,
  schema,
  tests: [
    ...valid.map((data) => ({ description: `${JSON.stringify(data)} meets it`, data, valid: true })),
    ...invalid.map((data) => ({ description: `${JSON.stringify(data)} does not`, data, valid: false })),
  ],
});

/** A schema of objects with these properties, all required and no others. */
const exactly = (properties: Record<string, unknown>) => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

export const LATER_DRAFTS: Readonly<Record<string, Group[]>> = {
  anchor: [
    group(
      'a reference by an anchor',
      { $defs: { size: { $anchor: 'size', enum: ['S', 'M'] } }, type: 'array', items: { $ref: '#size' } },
      [[], ['S', 'M']],
      [['L'], [1], 'S'],
    ),
  ],
  boolean_schema: [
    group(
      'properties that may and may not be there',
      { type: 'object', properties: { yes: true, no: false } },
      [{}, { yes: 1 }, { other: null }],
      [{ no: 1 }, { yes: 1, no: 2 }, []],
    ),
    group('items that nothing meets', { type: 'array', items: false }, [[]], [[1], [null]]),
  ],
  const: [
    group('a number', { const: 42 }, [42], [41, '42', [42]]),
    group(
      'an object in an object',
      { const: { a: { b: [true, null] } } },
      [{ a: { b: [true, null] } }],
      [{ a: {} }, {}],
    ),
    group('a string with escapes', { const: 'a "quoted"\n\\ line' }, ['a "quoted"\n\\ line'], ['a', '']),
    group('false, which is not 0', { const: false }, [false], [0, '', null]),
  ],
  contains: [
    group(
      'one item of a kind',
      { type: 'array', contains: { type: 'integer', minimum: 5 } },
      [[5], ['a', 9]],
      [[], [4], ['a', 'b']],
    ),
  ],
  'minContains, maxContains': [
    group(
      'two or three of a kind',
      { type: 'array', contains: { const: 1 }, minContains: 2, maxContains: 3 },
      [
        [1, 1],
        [1, 2, 1, 1],
      ],
      [[1], [1, 1, 1, 1], []],
    ),
    group(
      'at most one of a kind',
      { type: 'array', contains: { const: 'x' }, minContains: 0, maxContains: 1 },
      [[], ['y'], ['x', 'y']],
      [['x', 'x']],
    ),
  ],
  dependentRequired: [
    group(
      'a property that needs two others',
      { type: 'object', dependentRequired: { card: ['name', 'address'] } },
      [{}, { name: 'a' }, { card: 1, name: 'a', address: 'b' }],
      [{ card: 1 }, { card: 1, name: 'a' }],
    ),
  ],
  dependentSchemas: [
    group(
      'a property that narrows another',
      {
        type: 'object',
        properties: { kind: { type: 'string' }, n: { type: 'integer' } },
        dependentSchemas: { kind: { properties: { n: { maximum: 3 } }, required: ['n'] } },
      },
      [{ n: 9 }, { kind: 'a', n: 3 }],
      [{ kind: 'a' }, { kind: 'a', n: 4 }],
    ),
  ],
  exclusiveMaximum: [group('below 3', { type: 'number', exclusiveMaximum: 3 }, [2.9, -4], [3, 3.1])],
  exclusiveMinimum: [
    group(
      'integers between two that are left out',
      { type: 'integer', exclusiveMinimum: -3, exclusiveMaximum: 12 },
      [-2, 0, 11],
      [-3, 12, 0.5],
    ),
  ],
  'if-then-else': [
    group(
      'a form by the value of a property',
      {
        type: 'object',
        properties: { country: { enum: ['NL', 'US'] }, code: { type: 'string' } },
        required: ['country', 'code'],
        additionalProperties: false,
        if: { properties: { country: { const: 'NL' } } },
        // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
        then: { properties: { code: { pattern: '^[0-9]{4}[A-Z]{2}$' } } },
        else: { properties: { code: { pattern: '^[0-9]{5}$' } } },
      },
      [
        { country: 'NL', code: '1234AB' },
        { country: 'US', code: '12345' },
      ],
      [
        { country: 'US', code: '1234AB' },
        { country: 'NL', code: '12345' },
      ],
    ),
    group(
      'a condition on numbers',
      {
        type: 'integer',
        if: { minimum: 100 },
        // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
        then: { multipleOf: 100 },
      },
      [99, 100, 300, -7],
      [101, 250],
    ),
  ],
  'infinite-loop-detection': [
    group(
      'a tree',
      { $defs: { tree: { type: 'object', properties: { of: { $ref: '#/$defs/tree' } } } }, $ref: '#/$defs/tree' },
      [{}, { of: { of: {} } }],
      [{ of: 1 }, { of: { of: [] } }],
    ),
  ],
  prefixItems: [
    group(
      'a tuple and what follows',
      { type: 'array', prefixItems: [{ type: 'boolean' }, { enum: ['a', 'b'] }], items: { type: 'integer' } },
      [[], [true], [false, 'a', 1, 2]],
      [['a'], [true, 'c'], [true, 'a', 'b']],
    ),
    group(
      'a tuple and nothing else',
      { type: 'array', prefixItems: [{ type: 'null' }, { type: 'integer' }], items: false, minItems: 2 },
      [[null, 7]],
      [[null], [null, 7, 8]],
    ),
  ],
  propertyNames: [
    group(
      'names of small letters',
      {
        type: 'object',
        propertyNames: { pattern: '^[a-z]+$', maxLength: 3 },
        additionalProperties: { type: 'boolean' },
      },
      [{}, { abc: true }],
      [{ abcd: true }, { A: true }, { abc: 1 }],
    ),
    group('names of a list', { type: 'object', propertyNames: { enum: ['x', 'y'] } }, [{ x: 1, y: 2 }], [{ z: 1 }]),
  ],
  ref: [
    group(
      'keywords beside a reference count',
      { $defs: { positive: { type: 'integer', minimum: 1 } }, $ref: '#/$defs/positive', maximum: 9 },
      [1, 9],
      [0, 10],
    ),
    group(
      'a reference through names with a slash and a tilde',
      {
        $defs: { 'a/b': { type: 'null' }, 'c~d': { type: 'boolean' } },
        anyOf: [{ $ref: '#/$defs/a~1b' }, { $ref: '#/$defs/c~0d' }],
      },
      [null, true],
      [0, 'null'],
    ),
  ],
  unevaluatedItems: [
    group(
      'nothing behind a tuple',
      { type: 'array', prefixItems: [{ type: 'string' }], unevaluatedItems: false },
      [[], ['a']],
      [['a', 'b'], [1]],
    ),
  ],
  unevaluatedProperties: [
    group(
      'nothing beside the properties',
      { type: 'object', properties: { a: { type: 'integer' } }, unevaluatedProperties: false },
      [{}, { a: 1 }],
      [{ b: 1 }, { a: 'x' }],
    ),
  ],
  uniqueItems: [
    group(
      'a set of listed values',
      { type: 'array', items: { enum: ['a', 'b', 3] }, uniqueItems: true, minItems: 2 },
      [
        ['a', 3],
        ['b', 'a', 3],
      ],
      [['a', 'a'], ['a']],
    ),
  ],
  'choices of objects': [
    group(
      'shapes told apart by a constant',
      {
        oneOf: [
          exactly({ kind: { const: 'circle' }, r: { type: 'number', exclusiveMinimum: 0 } }),
          exactly({ kind: { const: 'square' }, side: { type: 'number', exclusiveMinimum: 0 } }),
        ],
      },
      [
        { kind: 'circle', r: 1.5 },
        { kind: 'square', side: 2 },
      ],
      [
        { kind: 'circle', side: 2 },
        { kind: 'circle', r: 0 },
      ],
    ),
    group(
      'text that is not one of a list',
      { type: 'string', not: { enum: ['no', 'never'] }, maxLength: 6 },
      ['yes', ''],
      ['no', 'never', 'seventh'],
    ),
  ],
  format: [
    group('a date', { type: 'string', format: 'date' }, ['2026-02-28'], ['2026-02-30', '2026-13-01', 'today']),
    group('a time', { type: 'string', format: 'date-time' }, ['2026-02-28T10:11:12Z'], ['2026-02-28', '10:11:12Z']),
    group(
      'a UUID',
      { type: 'string', format: 'uuid' },
      ['123e4567-e89b-12d3-a456-426614174000'],
      ['123e4567-e89b-12d3-a456', 'g23e4567-e89b-12d3-a456-426614174000'],
    ),
    group('an IPv4 address', { type: 'string', format: 'ipv4' }, ['127.0.0.1'], ['256.0.0.1', '127.0.1', '::1']),
    group('an address of mail', { type: 'string', format: 'email' }, ['a.b@example.org'], ['a.b', '@example.org']),
  ],
};
