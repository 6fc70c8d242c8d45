import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DecodeStream } from './stream';

/** A byte-level vocabulary in the small: id n is byte n, 256 is a special token. */
const decode = (ids: number[]) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(ids));
const stream = (context?: number[]) => new DecodeStream(decode, (id) => id === 256, context);

describe('DecodeStream', () => {
  it('waits for whole characters', () => {
    const s = stream();
    const pieces = [...Buffer.from('aé🙂b')].map((byte) => s.push(byte));
    expect(pieces).toEqual(['a', '', 'é', '', '', '', '🙂', 'b']);
    expect(s.flush()).toBe('');
  });

  it('gives malformed ends out at the end', () => {
    const s = stream();
    const [a, b] = Buffer.from('🙂');
    expect([s.push(97), s.push(a), s.push(b), s.flush(), s.flush()]).toEqual(['a', '', '', '\ufffd', '']);
    expect(s.push(98)).toBe('b');
  });

  it('continues a context, which it does not repeat', () => {
    const s = stream([...Buffer.from('previous text')]);
    expect([s.push(33), s.push(256), s.push(34)]).toEqual(['!', '', '"']);
  });

  it('adds up to the text of all tokens, whatever they are', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 60 }).map((x) => [...x]),
      fc.string({ unit: 'binary' }).map((x) => [...Buffer.from(x)]),
    );
    fc.assert(
      fc.property(bytes, (ids) => {
        const s = stream();
        let text = '';
        for (const id of ids) {
          const piece = s.push(id);
          expect(piece.endsWith('\ufffd')).toBe(false);
          text += piece;
        }
        expect(text + s.flush()).toBe(decode(ids));
      }),
      { numRuns: 200 },
    );
  });
});
