/**
 * What rendering may cost. Templates come from strangers' files, and a few lines of one can ask for more steps or memory
 * than there is. Steps are counted instead of timed, so that the same template gives the same answer on every machine.
 */
import { TransformersError } from '../../errors';

/** Units a render may spend, besides those that grow with its input: half a second of most machines. */
const UNITS = 500_000;
/** The same for each pair of messages: many templates look through all later ones at each. Of so many messages at most. */
const UNITS_A_PAIR = 4;
const MOST_IN_PAIRS = 1000;
/** Characters of a string, besides those that grow with the input. */
const CHARACTERS = 2_000_000;
/** Calls of macros within each other. */
const MOST_CALLS = 100;

export class Budget {
  private left: number;
  private readonly characters: number;
  private calls = 0;

  /** @param input characters of the messages and other variables @param messages how many there are */
  constructor(input: number, messages = 0) {
    this.left = UNITS + 4 * input + UNITS_A_PAIR * Math.min(messages, MOST_IN_PAIRS) ** 2;
    this.characters = CHARACTERS + 8 * input;
  }

  spend(units: number): void {
    this.left -= units;
    if (this.left < 0) throw templateError('it takes too many steps');
  }

  /** Items that are looked at or copied, a few at a time. */
  items(count: number): void {
    this.spend(count >> 3);
  }

  /** A string that was made: what it costs, and that it is not too long. */
  text(value: string): string {
    this.length(value.length);
    return value;
  }

  /** A string about to be made. */
  length(characters: number): void {
    if (characters > this.characters) throw templateError('it makes a text that is too long');
    this.spend(characters >> 5);
  }

  /** A macro's body. */
  call<T>(body: () => T): T {
    if (++this.calls > MOST_CALLS) throw templateError('its macros call each other without end');
    try {
      return body();
    } finally {
      this.calls--;
    }
  }
}

/** What is wrong with a template, or with what it does with the messages. */
export function templateError(what: string, cause?: unknown): TransformersError {
  return new TransformersError('BAD_CHAT_TEMPLATE', `The chat template cannot be used: ${what}.`, { cause });
}
