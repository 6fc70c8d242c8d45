/** Our quantisers against the bytes of ggml's, with and without importance. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { blockFormat, byteLengthOf, QUANT_TYPES, type QuantType } from '../src/blocks';
import { ROW, referenceImportance, referenceInputs } from './reference-inputs';

interface Bytes {
  firstRow: string;
  sha256: string;
}
const REFERENCE = JSON.parse(
  readFileSync(new URL('./fixtures/reference-bytes.json', import.meta.url), 'utf8'),
) as Partial<Record<QuantType, { plain?: Bytes; weighted?: Bytes }>>;
const x = referenceInputs();
const importance = referenceImportance();

function check(bytes: Uint8Array, expected: Bytes): void {
  const first = Buffer.from(expected.firstRow, 'base64');
  expect(Buffer.from(bytes.subarray(0, first.length)).equals(first)).toBe(true);
  expect(createHash('sha256').update(bytes).digest('hex')).toBe(expected.sha256);
}

function casesOf(how: 'plain' | 'weighted'): [QuantType, Bytes][] {
  return QUANT_TYPES.flatMap((type) => {
    const expected = REFERENCE[type]?.[how];
    return expected === undefined ? [] : [[type, expected] as [QuantType, Bytes]];
  });
}

test('every quantiser of blocks has reference bytes', () => {
  const of = (how: 'quantize' | 'quantizeWeighted') =>
    QUANT_TYPES.filter((type) => blockFormat(type)[how] !== undefined && blockFormat(type).blockSize > 1);
  const plain = casesOf('plain').map(([type]) => type);
  expect(plain).toEqual(of('quantize').filter((type) => type !== 'q4_0' && type !== 'q5_0'));
  expect(casesOf('weighted').map(([type]) => type)).toEqual(of('quantizeWeighted'));
});

describe('the bytes of ggml', () => {
  test.each(casesOf('plain'))('%s', (type, expected) => {
    const format = blockFormat(type);
    const out = new Uint8Array(byteLengthOf(format, x.length)).fill(0xa5);
    format.quantize!(x, 0, out, 0, x.length / format.blockSize);
    check(out, expected);
  });

  test.each(casesOf('weighted'))('%s with importance', (type, expected) => {
    const format = blockFormat(type);
    const out = new Uint8Array(byteLengthOf(format, x.length)).fill(0xa5);
    for (let at = 0; at < x.length; at += ROW) {
      format.quantizeWeighted!(x, at, out, byteLengthOf(format, at), ROW / format.blockSize, importance, 0);
    }
    check(out, expected);
  });
});
