/**
 * Prompt lookup: the last tokens of a text are looked for earlier in it, and what followed there is the draft. It costs no model
 * and helps where a text repeats itself or its prompt, as summaries, edits and code do.
 */
import type { Drafter } from './drafter';
import type { Lookahead } from './lookahead';

/** Tokens in common with an earlier place of which more would not make it a better one. */
const LONGEST_MATCH = 8;

/**
 * Where the text went on behind the earlier place that has most of its last tokens, the latest of several: an index of
 * `history`. Undefined where no place has `least` of them.
 */
export function continuation(history: readonly number[], least: number): number | undefined {
  const last = history.length - 1;
  let best = least - 1;
  let place: number | undefined;
  for (let end = last - 1; end >= 0 && best < Math.max(LONGEST_MATCH, least); end--) {
    let length = 0;
    while (length <= end && length < Math.max(LONGEST_MATCH, least) && history[end - length] === history[last - length])
      length++;
    if (length > best) {
      best = length;
      place = end + 1;
    }
  }
  return place;
}

export class LookupDrafter implements Drafter {
  /** @param least tokens that a place has in common with the end of the text */
  constructor(
    readonly tokens: number,
    private readonly least: number,
  ) {}

  async draft(ahead: Lookahead): Promise<void> {
    const { history, drafts } = ahead;
    const place = continuation(history, this.least);
    if (place === undefined) return;
    // Behind the end of the text come the drafts: what repeats goes on repeating.
    for (let i = place; ahead.push(i < history.length ? history[i] : drafts[i - history.length]); i++);
  }

  close(): void {}
}
