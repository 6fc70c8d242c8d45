/** Every kind of block against zlib, and damaged ones. */
import { constants, deflateRawSync, inflateRawSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { stream } from '../../test/hostile';
import { Inflater } from './inflate';

/** Inflates in parts of any sizes, from parts of any sizes. */
function inflate(packed: Uint8Array, next: (below: number) => number, limit: number): Buffer {
  let at = 0;
  const inflater = new Inflater((buffer) => {
    const count = Math.min(1 + next(buffer.length), packed.length - at);
    buffer.set(packed.subarray(at, at + count));
    at += count;
    return count;
  });
  const parts: Uint8Array[] = [];
  for (let total = 0; total <= limit; ) {
    const part = new Uint8Array(1 + next(200_000));
    const count = inflater.read(part);
    parts.push(part.subarray(0, count));
    total += count;
    if (count < part.length) return Buffer.concat(parts);
  }
  throw new Error('more than there was');
}

const samples = (next: (below: number) => number): Uint8Array[] => [
  new Uint8Array(0),
  Uint8Array.of(7),
  new Uint8Array(300_000),
  Uint8Array.from({ length: 200_000 }, () => next(256)),
  Uint8Array.from({ length: 200_000 }, (_, i) => (i % 1000 < 3 ? next(256) : i % 251)),
  Uint8Array.from({ length: 100_000 }, () => next(next(256) + 1)),
  Buffer.from('the quick brown fox '.repeat(9000)),
  new Uint8Array(Float32Array.from({ length: 50_000 }, (_, i) => Math.sin(i)).buffer),
];

test('gives what zlib gives, for all levels and strategies', () => {
  const next = stream(7);
  for (const bytes of samples(next)) {
    for (const level of [0, 1, 6, 9])
      for (const strategy of [
        constants.Z_DEFAULT_STRATEGY,
        constants.Z_HUFFMAN_ONLY,
        constants.Z_RLE,
        constants.Z_FIXED,
      ]) {
        const packed = deflateRawSync(bytes, { level, strategy });
        expect(inflate(packed, next, bytes.length).equals(bytes)).toBe(true);
      }
  }
});

test('damaged bytes give what zlib gives, or an error', () => {
  const next = stream(99);
  const good = samples(next).map((bytes) => deflateRawSync(bytes.subarray(0, 3000), { level: 1 + next(9) }));
  for (let round = 0; round < 3000; round++) {
    const bytes = Uint8Array.from(good[next(good.length)]);
    for (let i = next(3); i >= 0 && bytes.length > 0; i--) bytes[next(bytes.length)] ^= 1 << next(8);
    const cut = bytes.subarray(0, bytes.length - next(Math.min(4, bytes.length)));
    let expected: Buffer | undefined;
    try {
      expected = inflateRawSync(cut);
    } catch {}
    let actual: Buffer | undefined;
    try {
      actual = inflate(cut, next, 1 << 22);
    } catch (error) {
      expect((error as Error).message).toMatch(/^(a |the )/);
    }
    expect(actual?.toString('hex')).toBe(expected?.toString('hex'));
  }
});
