// Masks that are put together from what is remembered are those of a grammar that remembers nothing, and what trying gives.
import { describe, expect, it } from 'vitest';
import { compileSchema, type Matcher } from '../src';
import { idsOf, randomOf, vocabularyOf } from './helpers';

const KEYS = ['a', 'b', 'ab', 'a"b', 'é', ''];
const vocabulary = vocabularyOf([
  ...KEYS.flatMap((key) => [
    `"${key}`,
    `${key}":`,
    `,"${key}":`,
    `{"${key}`,
    `${key}",`,
    `":1,"${key}":`,
    `\\u0061${key}`,
  ]),
  ...[
    '":',
    '",',
    '","',
    '":"',
    '"}',
    '"}}',
    '"}},"',
    '"],"',
    '":{',
    '":{"',
    '":[',
    '},',
    '},"',
    '}]',
    '],[',
    '[["',
    '[{"',
  ],
  ...[
    '"a":1,"a":',
    '"a":1,"b":2}',
    '":1}',
    '":1},"',
    '1,',
    '1}',
    '1]',
    '1,1',
    'true,',
    'null}',
    ', "',
    ': ',
    ' }',
    '\n  "',
  ],
]);

type Random = () => number;
const pick = <T>(random: Random, from: readonly T[]): T => from[Math.floor(random() * from.length)];

/** A schema with names and items that may not come twice, in one another. */
function randomSchema(random: Random, depth = 0): object {
  const below = () => randomSchema(random, depth + 1);
  const kinds = ['object', 'object', 'list', 'string', 'number', 'any'].slice(depth > 2 ? 3 : 0);
  switch (pick(random, kinds)) {
    case 'object': {
      const named = KEYS.filter(() => random() < 0.3);
      return {
        type: 'object',
        ...(random() < 0.6 && { properties: Object.fromEntries(named.map((key) => [key, below()])) }),
        ...(random() < 0.3 && {
          required: named.slice(0, 1),
          properties: Object.fromEntries(named.map((key) => [key, {}])),
        }),
        ...(random() < 0.4 && { additionalProperties: below() }),
        ...(random() < 0.3 && { patternProperties: { '^a': below() } }),
        ...(random() < 0.3 && { maxProperties: 3 }),
      };
    }
    case 'list':
      return random() < 0.5
        ? { type: 'array', items: { enum: ['a', 'ab', 1, 11, null, true] }, uniqueItems: true }
        : { type: 'array', items: below(), maxItems: 4 };
    case 'string':
      return pick(random, [{ type: 'string' }, { type: 'string', maxLength: 4 }, { enum: ['a', 'ab', 'b'] }]);
    case 'number':
      return pick(random, [{ type: 'integer' }, { type: 'integer', maximum: 20 }, { type: ['number', 'null'] }]);
    default:
      return {};
  }
}

/** The tokens that can be accepted, tried one after the other. */
function tried(at: Matcher): number[] {
  const [end] = vocabulary.endIds;
  return Array.from({ length: vocabulary.size }, (_, id) => id).filter((id) => {
    const bytes = vocabulary.text(id);
    return id === end ? at.canEnd : bytes !== undefined && at.fork().acceptBytes(bytes);
  });
}

describe('masks of random schemas, several texts side by side', () => {
  it.each(Array.from({ length: 24 }, (_, i) => i + 1))('seed %i', (seed) => {
    const random = randomOf(seed);
    const schema = { type: 'object', additionalProperties: randomSchema(random) };
    const options = { whitespace: pick(random, ['compact', 'spaced', 'pretty', 'any'] as const) };
    const grammar = compileSchema(schema, options);
    const [end] = vocabulary.endIds;
    const texts = Array.from({ length: 4 }, () => ({ matcher: grammar.matcher(vocabulary), bytes: [] as number[] }));
    for (let step = 0; step < 24; step++) {
      for (const text of texts) {
        const { matcher, bytes } = text;
        const allowed = idsOf(matcher.mask());
        const at = `${JSON.stringify(schema)} after ${Buffer.from(bytes)}`;
        const cold = compileSchema(schema, options).matcher(vocabulary);
        expect(cold.acceptBytes(Uint8Array.from(bytes)), at).toBe(true);
        expect(allowed, at).toEqual(idsOf(cold.mask()));
        if (step % 6 === 0) expect(allowed, at).toEqual(tried(matcher));
        // Tokens of several characters rather, which go over the ends of terminals.
        const long = allowed.filter((id) => id >= 256 && id !== end);
        const plain = allowed.filter((id) => id >= 0x20 && id < 0x7f);
        const from = long.length > 0 && random() < 0.6 ? long : plain;
        if (from.length === 0) {
          text.matcher = grammar.matcher(vocabulary);
          text.bytes = [];
          continue;
        }
        const id = pick(random, from);
        matcher.accept(id);
        bytes.push(...vocabulary.text(id)!);
      }
    }
  });
});
