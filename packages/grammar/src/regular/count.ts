/** How many texts a language has. */
import type { Expression, Expressions } from './expression';

/** Counts up to `most` and not further. */
export function countTexts(make: Expressions, of: Expression, most: number): number {
  const known = new Map<Expression, number>();
  const open = new Set<Expression>();
  const count = (state: Expression): number => {
    const before = known.get(state);
    if (before !== undefined) return before;
    // A circle: texts without end, because every state leads to one.
    if (open.has(state) || open.size > most + 1000) return most;
    open.add(state);
    let sum = state.nullable ? 1 : 0;
    for (let byte = 0; byte < 256 && sum < most; byte++) {
      const next = make.step(state, byte);
      if (next !== make.empty) sum += count(next);
    }
    open.delete(state);
    known.set(state, Math.min(sum, most));
    return Math.min(sum, most);
  };
  return most === 0 ? 0 : count(of);
}
