/**
 * A pass of many tokens as two, whose steps go out in turn: while the ranks of a model add up what one half's layer gave, the device
 * computes the other half's. Both read the same weights, and a sequence that is cut finds the keys and values of its first part in the
 * cache, layer by layer, for a layer of the first half goes out before the same one of the second.
 */
import { Tensor } from '@x/core';
import type { ForwardPass, PassStep } from '@x/transformers';
import { type PassPart, type Step, tokensOf } from './pass-planner';

/** Tokens of a half: a multiple of these, which are whole tiles of products. */
const WHOLE = 256;

/**
 * What each half computes; undefined where there is too little for two, or nowhere to cut.
 * @param least tokens of a half @param canCut whether a sequence may be cut, not only sequences parted
 */
export function halvesOf(steps: readonly Step[], least: number, canCut: boolean): [PassPart[], PassPart[]] | undefined {
  const total = tokensOf(steps);
  if (total < 2 * least || steps.some(({ drafts }) => drafts !== undefined)) return undefined;
  const middle = Math.max(least, Math.round(total / 2 / WHOLE) * WHOLE);
  const [first, second]: PassPart[][] = [[], []];
  let at = 0;
  for (const step of steps) {
    const own = middle - at;
    at += step.ids.length;
    if (at <= middle) first.push(step);
    else if (own <= 0 || !canCut) second.push(step);
    else {
      const ids = Array.from(step.ids);
      first.push({ ...step, ids: ids.slice(0, own), isCut: true });
      second.push({ ...step, ids: ids.slice(own), skipped: own });
    }
  }
  return [first, second].every((half) => tokensOf(half) >= least) ? [first, second] : undefined;
}

/** The steps of both in turn; returns the rows of both. */
export function* inTurn(...passes: [ForwardPass, ForwardPass]): ForwardPass {
  const results: Tensor[] = [];
  const left = new Set(passes);
  try {
    while (left.size > 0) {
      let last: PassStep | undefined;
      let steps = 0;
      for (const pass of left) {
        const step = pass.next();
        if (step.done) {
          left.delete(pass);
          if (step.value) results.push(step.value);
        } else {
          last = step.value;
          steps++;
        }
      }
      if (last) yield { ...last, steps };
    }
    return results.length === 2 ? Tensor.cat(results, 0) : results.pop();
  } finally {
    for (const pass of left) pass.return(undefined);
    for (const result of results) result.dispose();
  }
}
