/** Ends a generation at given strings, which may be spread over several tokens. Not in candle. */
import { kinds } from '@x/core';
import { TransformersError } from '@x/transformers';

export class StopStrings {
  private readonly stops: readonly string[];
  private held = '';

  /** @throws TransformersError INVALID_OPTION for an empty string, which would stop before the first token */
  constructor(stop: string | readonly string[] | undefined) {
    this.stops = stop === undefined ? [] : typeof stop === 'string' ? [stop] : [...stop];
    for (const text of this.stops) {
      if (typeof text !== 'string' || text === '') {
        throw new TransformersError(
          'INVALID_OPTION',
          `stop holds ${kinds.show(text)}; give strings of at least one character.`,
          { option: 'stop' },
        );
      }
    }
  }

  /**
   * Adds text; returns what can be shown. An end that might be the start of a stop string is held back; from a stop
   * string on nothing is shown.
   */
  push(text: string): { text: string; stopped: boolean } {
    if (this.stops.length === 0) return { text, stopped: false };
    this.held += text;
    // The one that ends first, and of those the longest: what a text ends at does not depend on where its tokens do.
    let [at, end] = [-1, Number.POSITIVE_INFINITY];
    for (const stop of this.stops) {
      const found = this.held.indexOf(stop);
      if (found < 0) continue;
      const ends = found + stop.length;
      if (ends < end || (ends === end && found < at)) [at, end] = [found, ends];
    }
    if (at >= 0) {
      const shown = this.held.slice(0, at);
      this.held = '';
      return { text: shown, stopped: true };
    }
    const keep = this.possibleStart();
    const shown = this.held.slice(0, this.held.length - keep);
    this.held = this.held.slice(this.held.length - keep);
    return { text: shown, stopped: false };
  }

  /** What is held back, when no more text comes. */
  flush(): string {
    const text = this.held;
    this.held = '';
    return text;
  }

  /** Length of the longest end of the held text that a stop string begins with. */
  private possibleStart(): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let length = Math.min(stop.length - 1, this.held.length); length > longest; length--) {
        if (stop.startsWith(this.held.slice(this.held.length - length))) {
          longest = length;
          break;
        }
      }
    }
    return longest;
  }
}
