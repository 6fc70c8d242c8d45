import { crc32 as reference } from 'node:zlib';
import { expect, test } from 'vitest';
import { crc32, crc32Plain, fromLatin1, toLatin1 } from './bytes';

test('the checksum without zlib is that of zlib, also in pieces', () => {
  const bytes = Uint8Array.from({ length: 100_003 }, (_, i) => (i * 7919) >> 3);
  for (const length of [0, 1, 255, bytes.length]) {
    const part = bytes.subarray(0, length);
    expect(crc32Plain(part)).toBe(reference(part));
    expect(crc32(part)).toBe(reference(part));
  }
  expect(crc32Plain(bytes.subarray(1000), crc32Plain(bytes.subarray(0, 1000)))).toBe(reference(bytes));
});

test('every byte is a character of Latin-1 and back', () => {
  const bytes = Uint8Array.from({ length: 20_000 }, (_, i) => i);
  expect(fromLatin1(bytes)).toBe(Buffer.from(bytes).toString('latin1'));
  expect(toLatin1(fromLatin1(bytes))).toEqual(bytes);
  expect(toLatin1('Āé')).toEqual(Uint8Array.from(Buffer.from('Āé', 'latin1')));
});
