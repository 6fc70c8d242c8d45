import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StopStrings } from './stop';

function run(stops: string | string[], pieces: string[]): { shown: string[]; stopped: boolean } {
  const matcher = new StopStrings(stops);
  const shown: string[] = [];
  for (const piece of pieces) {
    const { text, stopped } = matcher.push(piece);
    shown.push(text);
    if (stopped) return { shown, stopped };
  }
  shown.push(matcher.flush());
  return { shown, stopped: false };
}

describe('StopStrings', () => {
  it('finds a stop string across pieces and shows nothing of it', () => {
    expect(run('END', ['abE', 'N', 'Dx'])).toEqual({ shown: ['ab', '', ''], stopped: true });
    expect(run(['yy', 'END'], ['a', 'EN', 'yy'])).toEqual({ shown: ['a', '', 'EN'], stopped: true });
  });

  it('ends at the one that is whole first, wherever tokens end', () => {
    for (const pieces of [['abcd'], ['abc', 'd'], ['a', 'b', 'c', 'd']])
      expect(run(['abcd', 'bc'], pieces).shown.join('')).toBe('a');
    expect(run(['bc', 'abc'], ['xabc']).shown).toEqual(['x']);
  });

  it('gives back what only looked like one', () => {
    expect(run('END', ['aE', 'NE', 'x', 'EN'])).toEqual({ shown: ['a', 'EN', 'Ex', '', 'EN'], stopped: false });
  });

  it('shows everything at once without stop strings', () => {
    expect(run([], ['a', 'b'])).toEqual({ shown: ['a', 'b', ''], stopped: false });
  });

  it('refuses an empty string', () => expect(() => new StopStrings(['a', ''])).toThrow(/at least one character/));

  it('shows the text up to the first stop string, however it is cut', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 6 });
    fc.assert(
      fc.property(
        fc.array(text, { maxLength: 12 }),
        fc.array(
          text.filter((s) => s !== ''),
          { minLength: 1, maxLength: 3 },
        ),
        (pieces, stops) => {
          const whole = pieces.join('');
          const ends = stops.map((stop) => whole.indexOf(stop)).filter((at) => at >= 0);
          const { shown, stopped } = run(stops, pieces);
          expect(stopped).toBe(ends.length > 0);
          expect(shown.join('')).toBe(ends.length > 0 ? whole.slice(0, earliest(stops, pieces)) : whole);
        },
      ),
    );
  });
});

/** Where the stop string begins that ends first, the longest of those that end there. */
function earliest(stops: string[], pieces: string[]): number {
  const whole = pieces.join('');
  const found = stops.map((stop) => [whole.indexOf(stop), stop.length]).filter(([at]) => at >= 0);
  const end = Math.min(...found.map(([at, length]) => at + length));
  return Math.min(...found.filter(([at, length]) => at + length === end).map(([at]) => at));
}
