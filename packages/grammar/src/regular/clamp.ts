/** Counts that no token can reach, left out, so that places that differ in them alone have one mask. */
import type { Expression, Expressions } from './expression';

const MOST_DEPTH = 8;

/**
 * A language that has the same texts of at most `reach` bytes as beginnings, and the same of them as members.
 * @param reach bytes of the longest token
 */
export function clamped(make: Expressions, of: Expression, reach: number, depth = 0): Expression {
  if (depth > MOST_DEPTH) return of;
  switch (of.kind) {
    case 'string':
    case 'escape':
    case 'hex': {
      const item = clamped(make, of.item, reach, depth + 1);
      if (item === of.item) return of;
      return of.kind === 'string'
        ? make.string(item)
        : of.kind === 'escape'
          ? make.escape(item)
          : make.hex(item, of.hex);
    }
    case 'sequence': {
      const first = clamped(make, of.first, reach, depth + 1);
      const rest = clamped(make, of.rest, reach, depth + 1);
      return first === of.first && rest === of.rest ? of : make.sequence(first, rest);
    }
    case 'either': {
      const items = of.items.map((item) => clamped(make, item, reach, depth + 1));
      return items.every((item, i) => item === of.items[i]) ? of : make.either(...items);
    }
    case 'repeat': {
      // An item has a byte at least, unless it may be empty, when there is no least number of them.
      const min = Math.min(of.min, reach + 1);
      const max = of.max > reach ? Number.POSITIVE_INFINITY : of.max;
      return min === of.min && max === of.max ? of : make.repeat(of.item, min, max);
    }
    default:
      return of;
  }
}
